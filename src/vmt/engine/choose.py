"""Which engine, and why."""

import torch

from vmt.engine.cache import remember_compiled_kernels
from vmt.engine.prepare import Say, captured_graph, compiled, eager
from vmt.engine.running import Engine, Prepare
from vmt.errors import InputError
from vmt.state import State
from vmt.step import Setting

ENGINES = ("auto", "eager", "compiled", "captured")
# Compiling takes up to a minute once, and saves some 15 ms per iteration over replaying the plain step.
WORTH_COMPILING = 2_000


def quiet(message: str) -> None:
    """Says nothing."""


def make_engine(
    choice: str, state: State, setting: Setting, seed: int, iterations: int | None = None, say: Say = quiet
) -> Engine:
    """The engine for a run; ``iterations`` is the length of the whole run, if it is known, and ``say`` gets a line when
    something that takes long begins."""
    if choice not in ENGINES:
        raise InputError(f"engine={choice!r} is not one of {', '.join(ENGINES)}")
    device = state.step.device
    if choice == "captured" and device.type != "cuda":
        raise InputError(
            f"engine='captured' needs a CUDA device, but this run is on {device.type}: choose 'auto', 'eager' or "
            "'compiled'"
        )
    if choice in ("compiled", "captured") or (choice == "auto" and device.type == "cuda"):
        remember_compiled_kernels()
    if choice == "auto":
        name, prepare, why = by_itself(device, iterations, say)
    elif choice == "eager":
        name, why = choice, "The eager engine runs the step as it is written, as asked for."
        prepare = eager(why)
    elif choice == "compiled":
        name, why = choice, "The compiled engine runs the whole step as one compiled graph, as asked for."
        prepare = compiled(why, say)
    else:
        name, why = choice, "The captured engine replays the compiled step as one CUDA graph, as asked for."
        prepare = captured_graph(why, say, compile=True)
    return Engine(name, why, prepare, state, setting, seed)


def by_itself(device: torch.device, iterations: int | None, say: Say) -> tuple[str, Prepare, str]:
    """The engine that suits the device and the length of the run."""
    if device.type != "cuda":
        why = f"The eager engine: on a {device.type} compiling hardly pays."
        return "eager", eager(why), why
    if iterations is not None and iterations < WORTH_COMPILING:
        why = (
            f"The captured engine replays the plain step as one CUDA graph: {iterations} iterations are too few to be "
            "worth compiling."
        )
        return "captured", captured_graph(why, say, compile=False), why
    why = "The captured engine replays the compiled step as one CUDA graph: the fastest way on a CUDA device."
    return "captured", captured_graph(why, say, compile=True), why
