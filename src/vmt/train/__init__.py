"""Training: the loop, its configuration, checkpoints and logs."""

from typing import TYPE_CHECKING

from vmt._imports import lazy

if TYPE_CHECKING:
    from vmt.train.checkpoint import Notes
    from vmt.train.config import Config
    from vmt.train.loop import Outcome, train

__all__ = ["Config", "Notes", "Outcome", "train"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Config": "vmt.train.config",
        "Notes": "vmt.train.checkpoint",
        "Outcome": "vmt.train.loop",
        "train": "vmt.train.loop",
    },
)
