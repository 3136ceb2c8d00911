"""Engines run the training step: as it is written, compiled, or as a captured CUDA graph.

:func:`make_engine` chooses one. :meth:`Engine.run` prepares a phase when it first sees it, which is when the step is
compiled and captured, and then does iterations. A step that cannot be compiled or captured runs as it is written.
"""

import gc
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vmt.cache import cache_folder
from vmt.engine import ENGINES
from vmt.engine.capture import captured
from vmt.errors import InputError, first_line
from vmt.methods.nouns import Phase, Update
from vmt.progress import Notify, silent
from vmt.step.draws import seed_layers
from vmt.step.iteration import StepContext, step
from vmt.step.state import State

# Compiling takes up to a minute once, and saves about 15 ms per iteration over replaying the plain step.
WORTH_COMPILING = 2_000


@dataclass(frozen=True)
class Prepared:
    """A phase that is ready to run: ``advance`` does one iteration and adds its metrics to ``sums``."""

    advance: Callable[[], None]
    sums: "MetricSums"
    name: str
    why: str


Prepare = Callable[[Phase, State, StepContext], Prepared]


def make_engine(
    choice: str, state: State, context: StepContext, seed: int, iterations: int | None = None, say: Notify = silent
) -> "Engine":
    """The engine of that name, or with ``auto`` the one that suits the device and the length of the run.

    ``iterations`` is the length of the whole run, if it is known. ``say`` gets a message before something that takes
    long.
    """
    if choice not in ENGINES:
        raise InputError(f"engine={choice!r} is not a valid engine: choose one of {', '.join(ENGINES)}.")
    device = state.step.device
    if choice == "captured" and device.type != "cuda":
        raise InputError(
            f"engine='captured' needs a CUDA device, but this run is on {device.type}: choose 'auto', 'eager' or "
            "'compiled'."
        )
    ranks = context.ranks
    if choice == "captured" and not ranks.is_captured:
        raise InputError(
            "engine='captured' needs a GPU of its own for each rank, because only NCCL's all-reduce can be captured: "
            "start as many ranks as there are GPUs, or choose 'auto', 'eager' or 'compiled'."
        )
    if choice in ("compiled", "captured") or (choice == "auto" and device.type == "cuda"):
        remember_compiled_kernels()
    if choice == "auto":
        name, prepare, why = automatic(device, iterations, say, ranks.is_captured)
    elif choice == "eager":
        name, why = choice, "The eager engine runs the step as it is written, as requested."
        prepare = eager(why)
    elif choice == "compiled":
        name, why = choice, "The compiled engine runs the whole step as one compiled graph, as requested."
        prepare = compiled(why, say)
    else:
        name, why = choice, "The captured engine replays the compiled step as one CUDA graph, as requested."
        prepare = captured_graph(why, say, compile=True)
    return Engine(name, why, prepare, state, context, seed)


def automatic(
    device: torch.device, iterations: int | None, say: Notify, captures: bool = True
) -> tuple[str, Prepare, str]:
    """The engine that suits the device and the length of the run: its name, how it prepares a phase, and why."""
    if device.type != "cuda":
        why = "The eager engine runs the step as it is written: on a CPU, compiling gains little."
        return "eager", eager(why), why
    is_short = iterations is not None and iterations < WORTH_COMPILING
    if not captures:
        why = "the ranks share a GPU, so that their all-reduce cannot be captured."
        if is_short:
            why = f"The eager engine runs the step as it is written: {why}"
            return "eager", eager(why), why
        why = f"The compiled engine runs the whole step as one compiled graph: {why}"
        return "compiled", compiled(why, say), why
    if is_short:
        why = (
            f"The captured engine replays the plain step as one CUDA graph: {iterations} iterations are too few to be "
            "worth compiling."
        )
        return "captured", captured_graph(why, say, compile=False), why
    why = "The captured engine replays the compiled step as one CUDA graph: the fastest way on a CUDA device."
    return "captured", captured_graph(why, say, compile=True), why


class Engine:
    """Runs iterations. ``name`` and ``why`` say how it runs them and for what reason."""

    def __init__(self, name: str, why: str, prepare: Prepare, state: State, context: StepContext, seed: int) -> None:
        self.name, self.why = name, why
        self.state, self.context, self.seed = state, context, seed
        self.prepare = prepare
        self.updates: tuple[Update, ...] = ()
        """The updates of the phase that is ready."""
        self.ready: Prepared | None = None
        self.current: MetricSums | None = None
        self.carried: dict[str, Tensor] = {}

    def run(self, phase: Phase, first: int, count: int, global_step: int) -> None:
        """Do ``count`` iterations of a phase from its iteration ``first``; the run as a whole has done ``global_step``.

        The first call for a phase prepares it: compiling and capturing happen there. If they fail, ``name``
        and ``why`` say so afterwards.
        """
        device = self.state.step.device
        # Streams, graphs and kernels belong to the current device, which need not be the one that holds the tensors.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            feed = self.context.feed
            if self.ready is None or phase.updates != self.updates:
                if feed is not None:
                    feed.prepare(phase, global_step)
                set_schedules(self.context, first / phase.iterations)
                self.free()
                self.ready, self.updates = self.prepare(phase, self.state, self.context), phase.updates
            prepared = self.ready
            self.current, self.name, self.why = prepared.sums, prepared.name, prepared.why
            if self.carried:
                prepared.sums.restore_(self.carried, device)
                self.carried = {}
            for i in range(count):
                seed_layers(self.seed, global_step + i, device, self.context.ranks.rank)
                set_schedules(self.context, (first + i) / phase.iterations)
                if feed is not None:
                    feed.load(phase, global_step + i)
                prepared.advance()
                prepared.sums.steps += 1

    def free(self) -> None:
        """Give the memory of the phase before back: its graph keeps every tensor of a step."""
        is_on_gpu = self.ready is not None and self.state.step.device.type == "cuda"
        if is_on_gpu:
            torch.cuda.synchronize()  # the last replay may still run
        self.ready = None
        if is_on_gpu:
            gc.collect()  # compiled steps are held in reference cycles
            torch.cuda.empty_cache()  # a graph's memory is given back only here, and other processes may need it

    def metrics(self) -> dict[str, Tensor]:
        """The mean of every metric over the steps since the last call, on the CPU; the host waits for the device."""
        return {} if self.current is None else self.current.means()

    def tensors(self) -> dict[str, Tensor]:
        """The sums of metrics since the last call of :meth:`metrics`, as a checkpoint stores them.

        With several ranks there is a row for each, because a rank continues its own sums.
        """
        sums, ranks = {} if self.current is None else self.current.tensors(), self.context.ranks
        return {**sums, TOTAL: ranks.rows(sums[TOTAL])} if sums and ranks.count > 1 else sums

    def take_from(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Take the sums out of a checkpoint's tensors, to continue them with the next steps, and return the others."""
        self.carried = {name: tensors[name] for name in (TOTAL, STEPS) if name in tensors}
        return {name: tensor for name, tensor in tensors.items() if name not in self.carried}

    def carry(self, sums: Mapping[str, Tensor]) -> None:
        """Continue the sums that a checkpoint has: those of this rank, or their mean if there were more or fewer."""
        ranks, self.carried = self.context.ranks, dict(sums)
        if sums and sums[TOTAL].dim() == 2:
            total = sums[TOTAL]
            self.carried[TOTAL] = total[ranks.rank] if len(total) == ranks.count else total.mean(0)


def set_schedules(context: StepContext, progress: float) -> None:
    """Set the value of every schedule, in place, because a captured graph reads these tensors."""
    for schedule, scalar in context.scalars.items():
        scalar.fill_(schedule(progress))


# --- Metrics ---


TOTAL, STEPS = "tally/total", "tally/steps"
"""The names of the sums in a checkpoint."""


class MetricSums:
    """Every metric of a step in one vector: adding a step's metrics takes two kernels, and reading them one copy."""

    def __init__(self) -> None:
        self.shapes: dict[str, torch.Size] = {}
        self.total: Tensor | None = None
        self.steps = 0

    def add_(self, metrics: dict[str, Tensor]) -> None:
        """Add a step's metrics on the device alone, so that a captured graph may contain this call.

        The caller counts the step in ``steps``.
        """
        values = torch.cat([tensor.reshape(-1).float() for tensor in metrics.values()])
        if not self.shapes:
            self.shapes = {name: tensor.shape for name, tensor in metrics.items()}
        if self.total is None or self.total.shape != values.shape:  # the restored sums are of other metrics
            self.total, self.steps = torch.zeros_like(values), 0
        self.total += values

    def means(self) -> dict[str, Tensor]:
        """The means since the last call, on the CPU. Here, the host waits for the device."""
        if self.total is None or not self.steps:
            return {}
        values = self.total.cpu() / self.steps
        self.reset()
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = zip(self.shapes.items(), torch.split(values, sizes), strict=True)
        return {name: part.view(shape) for (name, shape), part in parts}

    def tensors(self) -> dict[str, Tensor]:
        """The sums and the number of steps as a checkpoint stores them; empty if no step was added."""
        if self.total is None or not self.steps:
            return {}
        return {TOTAL: self.total, STEPS: torch.tensor(self.steps)}

    def restore_(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        """Continue from a checkpoint's sums, in place if a graph already adds to this vector."""
        total, steps = tensors[TOTAL].to(device), int(tensors[STEPS])
        if self.total is None:
            self.total, self.steps = total, steps
        elif self.total.shape == total.shape:
            self.total.copy_(total)
            self.steps = steps

    def reset(self) -> None:
        """Start again from zero, in place, because a captured graph keeps adding to the same vector."""
        self.steps = 0
        if self.total is not None:
            self.total.zero_()


# --- Ways to prepare a phase ---


def eager(why: str) -> Prepare:
    """The step as it is written."""

    def prepare(phase: Phase, state: State, context: StepContext) -> Prepared:
        sums = MetricSums()
        return Prepared(lambda: sums.add_(step(phase, state, context)), sums, "eager", why)

    return prepare


def compiled(why: str, say: Notify) -> Prepare:
    """The whole step compiled."""

    def prepare(phase: Phase, state: State, context: StepContext) -> Prepared:
        from vmt.engine.compile import compiled_step  # here, because it imports torch's whole compiler

        sums = MetricSums()
        say(f"compiling the {phase.name} step: up to a minute the first time, then from a cache")
        return Prepared(compiled_step(phase, state, context, sums), sums, "compiled", why)

    return or_eager(prepare, "compiled", say)


def captured_graph(why: str, say: Notify, compile: bool) -> Prepare:
    """The whole step, compiled or not, as one CUDA graph."""

    def prepare(phase: Phase, state: State, context: StepContext) -> Prepared:
        inner = compiled(why, say)(phase, state, context) if compile else eager(why)(phase, state, context)
        say(f"capturing the {phase.name} step")
        advance = captured(inner.advance, state, context.ranks)
        inner.sums.reset()
        as_asked = inner.why if inner.why == why else f"{inner.why} It is replayed as one CUDA graph."
        return Prepared(advance, inner.sums, f"captured ({inner.name})", as_asked)

    return or_eager(prepare, "captured", say)


def or_eager(prepare: Prepare, what: str, say: Notify) -> Prepare:
    """``prepare``; if it fails, as it may with a user's module, the step as it is written, and the reason."""

    def attempt(phase: Phase, state: State, context: StepContext) -> Prepared:
        try:
            return prepare(phase, state, context)
        except Exception as error:  # compilers may raise any exception
            why = f"The step runs as it is written, because it could not be {what}: {first_line(error)[:200]}"
            say(why)
            return eager(why)(phase, state, context)

    return attempt


# --- Where compiled kernels are kept ---


def remember_compiled_kernels() -> Path | None:
    """Keep compiled kernels in the user's cache folder, unless ``TORCHINDUCTOR_CACHE_DIR`` names another.

    By default torch keeps them in the folder for temporary files, which may be emptied at any time. They go there, and
    None is returned, if the user's cache folder cannot be written to.
    """
    folder = named_folder() or users_folder()
    if folder is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
        # Inductor moves Triton's cache there, too, but not before it first builds a kernel in this process. The next
        # process would not find what was built until then, and build it again.
        os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    return folder


def named_folder() -> Path | None:
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return Path(named) if named else None


def users_folder() -> Path | None:
    """A folder in the user's cache folder; None if it cannot be written to."""
    folder = cache_folder("inductor")
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
