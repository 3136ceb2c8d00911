"""Training: the loop, its configuration, checkpoints and logs."""

from typing import TYPE_CHECKING

from vmt._imports import lazy

if TYPE_CHECKING:
    from vmt.train.checkpoint import LoopState
    from vmt.train.config import Config
    from vmt.train.loop import Outcome, train

__all__ = ["Config", "LoopState", "Outcome", "train"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Config": "vmt.train.config",
        "LoopState": "vmt.train.checkpoint",
        "Outcome": "vmt.train.loop",
        "train": "vmt.train.loop",
    },
    renamed={"Notes": "vmt.train.checkpoint:LoopState"},
)
