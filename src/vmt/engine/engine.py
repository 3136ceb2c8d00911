"""Which engine, and why."""

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch._inductor
from torch import Tensor

from vmt.engine import ENGINES
from vmt.engine.capture import captured
from vmt.engine.metric_sums import STEPS, TOTAL, MetricSums
from vmt.errors import InputError
from vmt.methods.nouns import Phase, Update
from vmt.step.context import StepContext
from vmt.step.draws import seed_layers
from vmt.step.iteration import step
from vmt.step.state import State


@dataclass(frozen=True)
class Prepared:
    """A phase made ready to run: ``advance`` does one iteration and adds its metrics to ``sums``."""

    advance: Callable[[], None]
    sums: MetricSums
    name: str
    why: str


Prepare = Callable[[Phase, State, StepContext], Prepared]


class Engine:
    """Runs iterations. ``why`` says in a sentence what was chosen to run them and for what reason."""

    def __init__(self, name: str, why: str, prepare: Prepare, state: State, context: StepContext, seed: int) -> None:
        self.name, self.why = name, why
        self.state, self.context, self.seed = state, context, seed
        self.prepare = prepare
        self.ready: dict[tuple[Update, ...], Prepared] = {}
        self.current: MetricSums | None = None
        self.carried: dict[str, Tensor] = {}

    def run(self, phase: Phase, first: int, count: int, global_step: int) -> None:
        """Do ``count`` iterations of a phase from its iteration ``first``; the run as a whole has done ``global_step``.

        The first call for a phase prepares it: compiling and capturing take their time there, and where they cannot be
        done, ``name`` and ``why`` say so afterwards.
        """
        device = self.state.step.device
        # Streams, graphs and kernels belong to the current device, which need not be the one that holds the tensors.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            if phase.updates not in self.ready:
                set_schedules(self.context, first / phase.iterations)
                self.ready[phase.updates] = self.prepare(phase, self.state, self.context)
            prepared = self.ready[phase.updates]
            self.current, self.name, self.why = prepared.sums, prepared.name, prepared.why
            if self.carried:
                prepared.sums.restore_(self.carried, device)
                self.carried = {}
            for i in range(count):
                seed_layers(self.seed, global_step + i, device)
                set_schedules(self.context, (first + i) / phase.iterations)
                prepared.advance()
                prepared.sums.steps += 1

    def metrics(self) -> dict[str, Tensor]:
        """The mean of every metric over the steps since the last call, on the CPU; the host waits for the device."""
        return {} if self.current is None else self.current.means()

    def tensors(self) -> dict[str, Tensor]:
        """What has been added up since the last call of ``metrics``, as a checkpoint names it."""
        return {} if self.current is None else self.current.tensors()

    def take_from(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Take what was added up out of a checkpoint's tensors, for the next steps to go on with; return the others."""
        self.carried = {name: tensors[name] for name in (TOTAL, STEPS) if name in tensors}
        return {name: tensor for name, tensor in tensors.items() if name not in self.carried}


def set_schedules(context: StepContext, progress: float) -> None:
    """In place: a captured graph reads these tensors."""
    for schedule, scalar in context.scalars.items():
        scalar.fill_(schedule(progress))


Say = Callable[[str], None]


def eager(why: str) -> Prepare:
    """The step as it is written."""

    def prepare(phase: Phase, state: State, context: StepContext) -> Prepared:
        sums = MetricSums()
        return Prepared(lambda: sums.add_(step(phase, state, context)), sums, "eager", why)

    return prepare


def compiled(why: str, say: Say) -> Prepare:
    """The whole step compiled."""

    def prepare(phase: Phase, state: State, context: StepContext) -> Prepared:
        from vmt.engine.compile import compiled_step  # here, for it loads the whole compiler

        sums = MetricSums()
        say(f"compiling the {phase.name} step: up to a minute the first time, then from a cache")
        return Prepared(compiled_step(phase, state, context, sums), sums, "compiled", why)

    return falling_back(prepare, eager, "compiled", say)


def captured_graph(why: str, say: Say, compile: bool) -> Prepare:
    """The whole step, compiled or not, as one CUDA graph."""

    def prepare(phase: Phase, state: State, context: StepContext) -> Prepared:
        inner = compiled(why, say)(phase, state, context) if compile else eager(why)(phase, state, context)
        say(f"capturing the {phase.name} step")
        advance = captured(inner.advance, state)
        inner.sums.reset()
        as_asked = inner.why if inner.why == why else f"{inner.why} It is replayed as one CUDA graph."
        return Prepared(advance, inner.sums, f"captured ({inner.name})", as_asked)

    return falling_back(prepare, eager, "captured", say)


def falling_back(prepare: Prepare, otherwise: Callable[[str], Prepare], what: str, say: Say) -> Prepare:
    """``prepare``; should it fail for whatever a user's module does, the plain way, with the reason."""

    def attempt(phase: Phase, state: State, context: StepContext) -> Prepared:
        try:
            return prepare(phase, state, context)
        except Exception as error:  # compilers raise anything
            lines = str(error).strip().splitlines() or [type(error).__name__]
            why = f"The step runs as it is written, because it could not be {what}: {lines[0][:200]}"
            say(why)
            return otherwise(why)(phase, state, context)

    return attempt


# Compiling takes up to a minute once, and saves some 15 ms per iteration over replaying the plain step.
WORTH_COMPILING = 2_000


def quiet(message: str) -> None:
    """Says nothing."""


def make_engine(
    choice: str, state: State, context: StepContext, seed: int, iterations: int | None = None, say: Say = quiet
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
    return Engine(name, why, prepare, state, context, seed)


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


def remember_compiled_kernels() -> Path | None:
    """Keep what is compiled in the user's cache folder, unless TORCHINDUCTOR_CACHE_DIR names another.

    By default they go to the folder for temporary files, which is emptied at will. That is where they go, and None is
    returned, for a user who has no folder to write to.
    """
    folder = named_folder() or own_folder()
    if folder is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
        # Inductor moves Triton's cache, but only once it builds a kernel in this process and not in a worker: what was
        # built before that is looked for in another folder by the next process, and built again.
        os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    return folder


def named_folder() -> Path | None:
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return Path(named) if named else None


def own_folder() -> Path | None:
    """In the user's cache folder; None where it cannot be written to."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = home / "vmt" / "inductor"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None
