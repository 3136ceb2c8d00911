"""How well a model does, with labels and without."""

from typing import TYPE_CHECKING

from vmt._imports import lazy

if TYPE_CHECKING:
    from vmt.evaluate.accuracy import Judgement

__all__ = ["Judgement"]

__getattr__, __dir__ = lazy(__name__, {"Judgement": "vmt.evaluate.accuracy"})
