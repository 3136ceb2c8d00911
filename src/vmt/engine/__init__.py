"""Engines, which run the training step: as it is written, compiled, or as a captured CUDA graph."""

from typing import TYPE_CHECKING

from vmt._imports import lazy

if TYPE_CHECKING:
    from vmt.engine.engine import Engine, make_engine

__all__ = ["ENGINES", "Engine", "make_engine"]

ENGINES = ("auto", "eager", "compiled", "captured")
"""The names of the engines, here because the command line shows them without importing PyTorch."""

__getattr__, __dir__ = lazy(__name__, dict.fromkeys(("Engine", "make_engine"), "vmt.engine.engine"))
