"""Every method of the package, as a value: ``vmt.methods.vmt()``, ``vmt.methods.vada()``, ..."""

from typing import TYPE_CHECKING

from vmt._imports import lazy

if TYPE_CHECKING:
    from vmt.methods.published import dann_grl, drcn, dsn, pi_model
    from vmt.methods.systems import (
        METHODS,
        adabn,
        cdan,
        co_da,
        dann,
        dirt_t,
        mcc,
        mmd,
        named,
        source_only,
        target_only,
        vada,
        vmt,
        vmt_mcc,
        with_target_labels,
    )

__all__ = [
    "METHODS",
    "adabn",
    "cdan",
    "co_da",
    "dann",
    "dann_grl",
    "dirt_t",
    "drcn",
    "dsn",
    "mcc",
    "mmd",
    "named",
    "pi_model",
    "source_only",
    "target_only",
    "vada",
    "vmt",
    "vmt_mcc",
    "with_target_labels",
]

PUBLISHED = dict.fromkeys(("dann_grl", "drcn", "dsn", "pi_model"), "vmt.methods.published")
__getattr__, __dir__ = lazy(__name__, dict.fromkeys(__all__, "vmt.methods.systems") | PUBLISHED)
