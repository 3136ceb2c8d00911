"""Ways to run the same training step fast: eagerly, compiled, or as a captured CUDA graph."""

from vmt.engine.choose import make_engine
from vmt.engine.running import Engine

__all__ = ["Engine", "make_engine"]
