"""Evaluation of a model, with and without target labels."""

from typing import TYPE_CHECKING

from vmt._imports import lazy

if TYPE_CHECKING:
    from vmt.evaluate.accuracy import Evaluation

__all__ = ["Evaluation"]

__getattr__, __dir__ = lazy(
    __name__,
    {"Evaluation": "vmt.evaluate.accuracy"},
    renamed={"Judgement": "vmt.evaluate.accuracy:Evaluation"},
)
