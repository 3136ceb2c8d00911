"""Which engine, and why."""

from vmt.engine.eager import prepare_eager
from vmt.engine.running import Engine
from vmt.errors import InputError
from vmt.state import State
from vmt.step import Setting

CHOICES = ("auto", "eager", "compiled", "captured")


def make_engine(choice: str, state: State, setting: Setting, seed: int, iterations: int | None = None) -> Engine:
    """The engine for a run; ``iterations`` is the length of the whole run, if it is known."""
    if choice not in CHOICES:
        raise InputError(f"engine={choice!r} is not one of {', '.join(CHOICES)}")
    return Engine("eager", "The eager engine runs the step as it is written.", prepare_eager, state, setting, seed)
