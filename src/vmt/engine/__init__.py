"""Ways to run the same training step fast: eagerly, compiled, or as a captured CUDA graph."""

from vmt.engine.engine import Engine, make_engine

__all__ = ["Engine", "make_engine"]
