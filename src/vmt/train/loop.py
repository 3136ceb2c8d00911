"""The training loop: run the step, look at the model now and then, save, until the phases are done."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from vmt.data.domains import Domain
from vmt.data.task import Task
from vmt.device import chosen_precision, cpu_threads, default_torch_settings, single_precision, torch_device
from vmt.engine.engine import make_engine
from vmt.errors import InputError
from vmt.evaluate.accuracy import evaluate
from vmt.evaluate.probe import BestModel, make_probe, student_of, subsample
from vmt.methods.nouns import CopyRole, Method, Phase
from vmt.nets.staged import Staged
from vmt.progress import Progress
from vmt.step.context import make_context
from vmt.step.state import State, build_state, predictor_of
from vmt.train.checkpoint import LoopState, checkpoints, load_latest, save_checkpoint
from vmt.train.collapse import Watch
from vmt.train.config import Config
from vmt.train.interrupt import interruptible
from vmt.train.log import Log, plain


def run_events(phase: Phase, state: State, step: int) -> None:
    """Run what is due before step ``step`` of a phase (its first is 0)."""
    for event in phase.events:
        if step % event.every == 0:
            copy_role(event.action, state)


def never_refreshed(method: Method) -> Iterator[str]:
    """A sentence for each event that happens only once, because its phase is over before it is due again."""
    for phase in method.phases:
        for event in phase.events:
            if event.every >= phase.iterations:
                yield (
                    f"{phase.name} has {phase.iterations} iterations and an interval of {event.every}: it keeps the "
                    f"{event.action.into} that it begins with to its end."
                )


@torch.no_grad()
def copy_role(action: CopyRole, state: State) -> None:
    """Weights and running statistics, in place: captured graphs hold on to the tensors."""
    of, into = state.roles[action.of], state.roles[action.into]
    torch._foreach_copy_(list(into.parameters()), list(of.parameters()))
    if buffers := list(into.buffers()):
        torch._foreach_copy_(buffers, list(of.buffers()))


CHECKPOINTS = "checkpoints"
# A chunk of steps between two looks at the clock and at Ctrl-C, in seconds.
CHUNK = 0.5
WATCHED = 2000


@dataclass(frozen=True)
class Outcome:
    """A finished run: the network that predicts, and how it got there."""

    network: Staged
    records: list[dict[str, Any]]
    loop_state: LoopState
    step: int
    finished: bool
    """False when it was interrupted, or stopped because it collapsed."""
    best: Staged | None = None
    """The network as it was at the best look, if one was to be kept."""
    given_up: bool = False
    """Whether it was stopped because it collapsed, so that there is nothing to go on with."""


P = ParamSpec("P")
R = TypeVar("R")


def one_at_a_time(run: Callable[P, R]) -> Callable[P, R]:
    """Of several threads one runs and the others wait: draws come from torch's generator, which all of them share."""
    lock = threading.RLock()

    @wraps(run)
    def in_turn(*args: P.args, **kwargs: P.kwargs) -> R:
        with lock:
            return run(*args, **kwargs)

    return in_turn


@one_at_a_time
@torch.inference_mode(False)  # whatever mode the caller is in: notebooks often switch gradients off for good
@torch.enable_grad()
@default_torch_settings()
def train(
    task: Task,
    method: Method,
    network: Callable[[], Staged],
    config: Config,
    out: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    budget: float | None = None,
    until: str | None = None,
    phase_ended: Callable[[str, Staged], None] | None = None,
) -> Outcome:
    """Train a method on a task. With ``out``, log and checkpoints go there; ``resume`` goes on from the last one.

    After ``budget`` seconds the run stops as if it had been interrupted: with a checkpoint to go on from. So it does
    at the end of the phase ``until``. ``phase_ended`` gets the name of each phase that ends, and the network then.
    """
    deadline = None if budget is None else time.monotonic() + budget
    progress = progress or Progress(show=False)
    device = torch_device(config.device)
    task = task.to(device)
    with single_precision():  # here alone, for other threads share the default type
        state = build_state(method, network, task.sample_shape, config.seed, device)
    bfloat16, why = chosen_precision(config.precision, device, task.source.is_images)
    context = make_context(task, method, state, seed=config.seed, batch_size=config.batch_size, bfloat16=bfloat16)
    engine = make_engine(config.engine, state, context, config.seed, method.iterations, progress.say)
    log, notes, best = Log(out, config.tensorboard), LoopState(), BestModel(config.keep_best)
    if out is not None and resume and (found := load_latest(out / CHECKPOINTS)):
        tensors, saved, said = found
        state.restore_(engine.take_from(best.take_from(tensors)))
        notes = LoopState(**saved)
        for sentence in said:
            progress.say(sentence)
    log.rewind(done := int(state.step))
    progress.say(f"{engine.why} Precision {why}")
    for sentence in never_refreshed(method):
        progress.say(sentence)
    # An unlabelled target is watched through some of the samples it is trained on.
    target_seen = subsample(
        task.target_test or subsample(task.target.without_labels(), WATCHED), config.evaluate_samples
    )
    source_seen = task.source_test and subsample(task.source_test, config.evaluate_samples)
    probe = make_probe(task, config.validate_samples)
    watch = Watch(method, largest_class(task.source), task.classes)

    def observe(phase: Phase, begin: int) -> None:
        """Evaluate, log what was seen, and watch for collapse."""
        network = predictor_of(method, state)
        target = evaluate(network, target_seen, task.preprocess)
        source = evaluate(network, source_seen, task.preprocess) if source_seen is not None else None
        seen = {"step": done, "phase": phase.name, "target": asdict(target), "source": source and asdict(source)}
        if probe is not None:
            seen |= probe.validate(network, student_of(method, state), config.keep_best)
            notes.best = best.consider(seen, network, notes.best)
        log.write(seen)
        if sentence := watch.observe(notes, phase, begin, done, target, source):
            progress.say(sentence)
        progress.show_accuracy(target=target.accuracy, source=None if source is None else source.accuracy)

    def save() -> None:
        if out is not None:
            log.settle()
            tensors = {**state.tensors(), **best.tensors(), **engine.tensors()}
            save_checkpoint(out / CHECKPOINTS, tensors, asdict(notes), done)

    def outcome(finished: bool) -> Outcome:
        network = predictor_of(method, state)
        return Outcome(network, log.records, notes, done, finished, best.model(network), given_up() and not finished)

    def given_up() -> bool:
        return config.stop_on_collapse and notes.collapsed is not None

    if given_up():  # before this resumption; there is nothing to go on with
        return outcome(finished=done == method.iterations)
    steps_per_chunk = 1
    begin = 0
    own = [device] if device.type == "cuda" else []  # of several GPUs, the others are left alone
    batch_values = config.batch_size * math.prod(task.sample_shape)
    with interruptible() as interrupted, cpu_threads(config.threads, batch_values), torch.random.fork_rng(own):
        for phase in method.phases:
            end = begin + phase.iterations
            progress.start(phase.name, phase.iterations, done=min(max(done - begin, 0), phase.iterations))
            while done < end:
                started = time.perf_counter()
                run_events(phase, state, done - begin)
                stop = min(next_stop(done, begin, phase, config), done + steps_per_chunk)
                engine.run(phase, first=done - begin, count=stop - done, global_step=done)
                ran, done = stop - done, stop
                if due(done, end, config.log_every, config.evaluate_every, config.checkpoint_every):
                    metrics = plain(engine.metrics())
                    refuse_nonsense(metrics, done, out)
                    log.write({"step": done, "phase": phase.name, **metrics})
                if due(done, end, config.evaluate_every):
                    observe(phase, begin)
                    if done == end and phase_ended is not None:
                        phase_ended(phase.name, predictor_of(method, state))
                spent = time.perf_counter() - started
                notes.seconds += spent
                if due(done, end, config.evaluate_every):
                    notes.clock.append((done, round(notes.seconds, 2)))
                steps_per_chunk = max(1, int(CHUNK * ran / spent))
                stopping = given_up() or interrupted() or (deadline is not None and time.monotonic() > deadline)
                stopping &= done < method.iterations  # else nothing is left to stop
                if stopping or due(done, end, config.checkpoint_every):
                    save()
                progress.advance(ran)
                if stopping:
                    return outcome(finished=False)
            if phase.name == until:
                break
            begin = end
    progress.close()
    return outcome(finished=done == method.iterations)


def due(done: int, end: int, *every: int) -> bool:
    """Whether something that happens every so many iterations, and at the end of a phase, happens now."""
    return done == end or any(done % n == 0 for n in every)


def next_stop(done: int, begin: int, phase: Phase, config: Config) -> int:
    """The next iteration before which the loop has something to do."""
    looks = [config.log_every, config.evaluate_every, config.checkpoint_every]
    stops = [(done // n + 1) * n for n in looks]
    stops += [begin + ((done - begin) // event.every + 1) * event.every for event in phase.events]
    return min(*stops, begin + phase.iterations)


def refuse_nonsense(metrics: dict[str, Any], step: int, out: Path | None) -> None:
    for name, value in metrics.items():
        if isinstance(value, float) and not math.isfinite(value):
            what = "not a number" if math.isnan(value) else "infinite"
            saved = out is not None and checkpoints(out / CHECKPOINTS)
            raise InputError(
                f"{name} is {what} since iteration {step}: lower the learning rate or the weights of the terms, "
                f"or use --precision float32{'; the last checkpoint is from before' if saved else ''}."
            )


def largest_class(source: Domain) -> float:
    assert source.y is not None
    return float(source.y.bincount().max()) / len(source)
