"""One training iteration: what is drawn, what runs together, and what changes."""

from typing import TYPE_CHECKING

from vmt._imports import lazy

if TYPE_CHECKING:
    from vmt.step.iteration import step

__all__ = ["step"]

__getattr__, __dir__ = lazy(__name__, {"step": "vmt.step.iteration"})
