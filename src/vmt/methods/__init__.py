"""Every method of the package, as a value."""

from vmt.methods.systems import (
    METHODS,
    co_da,
    dann,
    dirt_t,
    mmd,
    named,
    source_only,
    target_only,
    vada,
    vmt,
    with_target_labels,
)

__all__ = [
    "METHODS",
    "co_da",
    "dann",
    "dirt_t",
    "mmd",
    "named",
    "source_only",
    "target_only",
    "vada",
    "vmt",
    "with_target_labels",
]
