"""Training: the loop, its configuration, checkpoints and logs."""

from vmt.train.config import Config
from vmt.train.loop import Notes, Outcome, train

__all__ = ["Config", "Notes", "Outcome", "train"]
