"""Callbacks: code that follows a run from outside, such as a tracker, a notebook or your own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vmt.model import Model
from vmt.train.loop import GiveUp

__all__ = ["Callback", "GiveUp"]


class Callback:
    """Follows a run. Derive from this class, and define the methods that you need.

    A run calls them in its own process and waits until they return; an exception ends the run. ``vmt.GiveUp``
    ends it without an error: its files are written, and it cannot be resumed. Under torchrun only rank 0 calls them,
    and ``GiveUp`` is an error.

    >>> class Accuracies(Callback):
    ...     def on_evaluate(self, record):
    ...         print(record["step"], record["target"]["accuracy"])
    """

    def on_start(self, record: Mapping[str, Any], folder: Path | None) -> None:
        """The run starts or is resumed. ``record`` has its data and its recipe, as run.json does."""

    def on_log(self, record: Mapping[str, Any]) -> None:
        """Losses are logged: ``step``, ``phase``, and the mean of every loss since the record before."""

    def on_evaluate(self, record: Mapping[str, Any]) -> None:
        """The model is evaluated: ``step``, ``phase``, ``target``, ``source``, ``validators`` and ``alarm``."""

    def on_checkpoint(self, step: int, folder: Path) -> None:
        """A checkpoint of iteration ``step`` is written, and the log up to there is on the disk."""

    def on_end(self, model: Model, summary: Mapping[str, Any], folder: Path | None) -> None:
        """The run has ended and its files are written.

        ``summary`` is what summary.json has; its ``finished`` is False if the run was interrupted.
        """

    def on_exception(self, error: BaseException) -> None:
        """The run ends with an exception, which may come from another callback."""
