"""Every method of the package, as a value: ``vmt.methods.vmt()``, ``vmt.methods.vada()``, ..."""

from typing import TYPE_CHECKING

from vmt._imports import lazy

if TYPE_CHECKING:
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
    "dirt_t",
    "mcc",
    "mmd",
    "named",
    "source_only",
    "target_only",
    "vada",
    "vmt",
    "vmt_mcc",
    "with_target_labels",
]

__getattr__, __dir__ = lazy(__name__, dict.fromkeys(__all__, "vmt.methods.systems"))
