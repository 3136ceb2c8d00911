"""The training loop: run steps, log, evaluate and save now and then, until all phases are done.

:func:`train` is the loop, :class:`Training` holds the run in progress, and :func:`interruptible` makes it stop cleanly.
"""

import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

import torch

from vmt.data.domains import Domain
from vmt.data.stored import StoredSamples
from vmt.data.task import Task
from vmt.device import (
    chosen_precision,
    cpu_threads,
    default_torch_settings,
    memory_for_samples,
    single_precision,
    torch_device,
)
from vmt.engine.engine import make_engine
from vmt.errors import Diverged, InputError, counted, size_of
from vmt.evaluate.accuracy import evaluate
from vmt.evaluate.finite import fault_in_predictions, fault_in_weights
from vmt.evaluate.probe import BestModel, make_probe, student_of, subsample
from vmt.methods.nouns import CopyRole, Method, Phase
from vmt.nets.networks import Staged
from vmt.progress import Progress, duration
from vmt.ranks.group import ALONE, Ranks
from vmt.ranks.launch import launched
from vmt.step.iteration import make_context
from vmt.step.state import State, build_state, predictor_of
from vmt.train.checkpoint import CHECKPOINTS, LoopState, load_latest, save_checkpoint
from vmt.train.collapse import CollapseWatch, largest_class
from vmt.train.config import Config
from vmt.train.estimate import Estimate, forward_passes
from vmt.train.log import Log, json_numbers

# Within this many seconds, two signals of torchrun and the terminal are one Ctrl-C.
SAME_CTRL_C = 2.0
# The loop checks the clock and Ctrl-C about this often, in seconds.
CHUNK = 0.5
# Shorter runs, in seconds, do not announce how long they take.
WORTH_ANNOUNCING = 3.0
# An unlabelled target is evaluated on at most this many of its samples.
UNLABELLED_SAMPLES = 2000
# Predictions for this many samples of each domain are checked before a checkpoint is written.
CHECKED_SAMPLES = 64

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Outcome:
    """The result of :func:`train`."""

    network: Staged
    """The network that predicts."""
    records: list[dict[str, Any]]
    """The records of the log."""
    loop_state: LoopState
    step: int
    """The number of iterations that are done."""
    finished: bool
    """Whether all iterations are done; not if the run was interrupted, or stopped because it collapsed."""
    best: Staged | None = None
    """The network of the best evaluation, if ``Config.keep_best`` is set."""
    given_up: bool = False
    """Whether the run was stopped because it collapsed or was pruned, so that there is no point in resuming it."""
    pruned: str | None = None
    """Why a callback has stopped the run (:class:`GiveUp`)."""

    @property
    def notes(self) -> LoopState:
        """The earlier name of ``loop_state``."""
        warnings.warn("Outcome.notes has a new name: use loop_state.", DeprecationWarning, stacklevel=2)
        return self.loop_state


class GiveUp(Exception):
    """Raised by a callback to stop a run where it is, because there is no point in continuing or resuming it."""


def one_at_a_time(run: Callable[P, R]) -> Callable[P, R]:
    """Let only one thread run at a time, because dropout draws from torch's generator, which all threads share."""
    lock = threading.RLock()

    @wraps(run)
    def in_turn(*args: P.args, **kwargs: P.kwargs) -> R:
        with lock:
            return run(*args, **kwargs)

    return in_turn


@one_at_a_time
@torch.inference_mode(False)  # whatever the caller's mode, because notebooks often switch gradients off
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
    time_announced: Callable[[float], None] | None = None,
    ranks: Ranks = ALONE,
    on_record: Callable[[dict[str, Any]], None] | None = None,
    on_checkpoint: Callable[[int], None] | None = None,
) -> Outcome:
    """Train a method on a task. With ``out``, the log and checkpoints go to that folder.

    With ``resume``, training continues from the last checkpoint there. After ``budget`` seconds, and at the end of the
    phase ``until``, the run stops as if it had been interrupted, with a checkpoint to resume from. ``phase_ended`` is
    called with the name of each phase that ends and with the network at that time, and ``time_announced`` with the
    seconds that the run is expected to take, once they can be estimated. Each of several ``ranks`` calls this function;
    only rank 0 has a folder. ``on_record`` is called with each new record of the log, and ``on_checkpoint`` with the
    iteration of each new checkpoint.
    """
    deadline = math.inf if budget is None else time.monotonic() + budget
    progress = progress or Progress(show=False)
    training = Training(task, method, network, config, out, progress, phase_ended, ranks, on_record, on_checkpoint)
    training.start(resume, until)
    if training.has_given_up:  # before it was resumed
        return training.outcome()
    with interruptible() as interrupted, training.own_threads_and_generators():
        for phase in method.phases:
            training.enter(phase)
            while training.done < training.end:
                try:
                    count = training.advance()
                    stop = training.has_given_up or interrupted() or time.monotonic() > deadline
                    stop, training.steps_per_chunk = ranks.agree(stop, training.steps_per_chunk)
                    stop = stop and not training.is_finished
                    if stop or training.is_due(config.checkpoint_every):
                        training.save()
                except GiveUp as reason:
                    if ranks.count > 1:
                        raise  # the other ranks know nothing of it
                    training.pruned = str(reason)
                    return training.outcome()
                progress.advance(count)
                training.announce_time(time_announced)
                if stop:
                    return training.outcome()
            if phase.name == until:
                break
    progress.close()
    return training.outcome()


class Training:
    """A run in progress: what it changes, what it reads, and how far it is."""

    def __init__(
        self,
        task: Task,
        method: Method,
        network: Callable[[], Staged],
        config: Config,
        out: Path | None,
        progress: Progress,
        phase_ended: Callable[[str, Staged], None] | None,
        ranks: Ranks,
        on_record: Callable[[dict[str, Any]], None] | None,
        on_checkpoint: Callable[[int], None] | None,
    ) -> None:
        self.method, self.config, self.out, self.ranks = method, config, out, ranks
        self.progress, self.phase_ended, self.on_checkpoint = progress, phase_ended, on_checkpoint
        self.device = torch_device(config.device)
        self.task, self.where = place(task, self.device, config.memory)
        task = self.task
        with single_precision():  # only here, because other threads share the default type
            self.state = build_state(method, network, task.sample_shape, config.seed, self.device)
        bfloat16, self.why_precision = chosen_precision(config.precision, self.device, task.source.is_images)
        context = make_context(
            task, method, self.state, seed=config.seed, batch_size=config.batch_size, bfloat16=bfloat16, ranks=ranks
        )
        self.engine = make_engine(config.engine, self.state, context, config.seed, method.iterations, progress.say)
        self.log = Log(out, config.tensorboard, on_record)
        self.loop_state = LoopState()
        self.best = BestModel(config.keep_best)
        self.target = target_to_evaluate(task, config)
        self.source = task.source_test and subsample(task.source_test, config.evaluate_samples)
        self.choice = task.target_choice
        self.probe = make_probe(task, config.validate_samples)
        domains = {"target": task.target, "source": task.source}
        self.checked_samples = {name: subsample(domain, CHECKED_SAMPLES).x for name, domain in domains.items()}
        self.watch = CollapseWatch(method, largest_class(task.source), task.classes)
        # The current phase goes from iteration ``begin`` of the run to ``end``, and ``done`` iterations are done.
        self.phase = method.phases[0]
        self.begin = self.end = self.done = 0
        # The last iterations at which the networks were found to be finite, and at which they were saved.
        self.checked: int | None = None
        self.saved: int | None = None
        self.steps_per_chunk = 1
        self.is_time_announced = False
        self.saves = out is not None
        self.pruned: str | None = None

    @property
    def predictor(self) -> Staged:
        return predictor_of(self.method, self.state)

    @property
    def is_finished(self) -> bool:
        return self.done == self.method.iterations

    @property
    def has_given_up(self) -> bool:
        return self.config.stop_on_collapse and self.loop_state.collapsed is not None

    def start(self, resume: bool, until: str | None) -> None:
        """Restore the last checkpoint if the run is resumed, and print how the run is carried out."""
        self.estimate = self.make_estimate(until)
        if self.out is not None and resume and (latest := load_latest(self.out / CHECKPOINTS)):
            tensors, loop_state, messages = latest
            self.state.restore_(self.engine.take_from(self.best.take_from(tensors)))
            self.loop_state = LoopState(**loop_state)
            for message in messages:
                self.progress.say(message)
            if fault := fault_in_weights(self.state.roles):  # earlier versions saved such a state
                raise InputError(
                    f"{fault} in the last checkpoint of {self.out}: start the run again in another folder, with a "
                    "lower learning rate."
                )
            self.saved = int(self.state.step)
        self.log.rewind(int(self.state.step))
        self.take_from_first_rank()
        self.done = int(self.state.step)
        if 0 < self.done < self.method.iterations:
            spent = f"the iterations so far took {duration(self.loop_state.seconds)}"
            self.progress.say(f"Resuming at iteration {self.done:,} of {self.method.iterations:,}; {spent}.")
            if self.loop_state.ranks != self.ranks.count:
                self.progress.say(
                    f"The iterations so far ran on {counted(self.loop_state.ranks, 'rank')}, and the others run on "
                    f"{self.ranks.count}, so the result differs from that of an unbroken run."
                )
        self.loop_state.ranks = self.ranks.count
        self.progress.say(f"{self.engine.why} Precision {self.why_precision} {self.where}")
        for message in never_refreshed(self.method):
            self.progress.say(message)

    def take_from_first_rank(self) -> None:
        """Start with the networks, the loop state and the records of rank 0, which alone reads the run's folder."""
        self.ranks.copy_first_(self.state.tensors().values())
        self.loop_state, self.best.weights, sums, self.log.records, self.saves = self.ranks.from_first(
            lambda: (self.loop_state, self.best.weights, self.engine.carried, self.log.records, self.out is not None)
        )
        self.engine.carry(sums)

    def make_estimate(self, until: str | None) -> Estimate:
        """The estimate of the time that the phases take, up to the phase ``until``."""
        names = [phase.name for phase in self.method.phases]
        phases = self.method.phases[: names.index(until) + 1] if until in names else self.method.phases
        taps = {name: module.taps for name, module in self.state.roles.items()}
        evaluated = len(self.target) + len(self.source or ()) + len(self.choice or ())
        if self.probe is not None:
            evaluated += self.probe.samples
        costs = [forward_passes(phase, taps) for phase in phases]
        return Estimate(phases, costs, self.config, evaluated, saves=self.out is not None)

    @contextmanager
    def own_threads_and_generators(self) -> Iterator[None]:
        """Set the CPU threads of this run; restore them and torch's random state afterwards."""
        batch_values = self.config.batch_size * math.prod(self.task.sample_shape)
        devices = [self.device] if self.device.type == "cuda" else []  # the generators of other GPUs are not touched
        with cpu_threads(self.config.threads, batch_values), torch.random.fork_rng(devices):
            yield

    def enter(self, phase: Phase) -> None:
        """Begin the next phase."""
        self.phase, self.begin, self.end = phase, self.end, self.end + phase.iterations
        done = min(max(self.done - self.begin, 0), phase.iterations)
        self.progress.close()  # its last line is about the phase before
        self.estimate.enter(self.method.phases.index(phase), self.done)
        self.steps_per_chunk = 1  # the first iteration of a phase takes longer, so it is timed by itself
        self.progress.start(phase.name, phase.iterations, done, self.estimate)

    def advance(self) -> int:
        """Run steps until something is due or half a second has passed; then log and evaluate if that is due.

        Returns the number of steps.
        """
        started, config = time.perf_counter(), self.config
        first = self.done - self.begin
        run_events(self.phase, self.state, first)
        stop = min(next_stop(self.done, self.begin, self.phase, config), self.done + self.steps_per_chunk)
        count = stop - self.done
        self.engine.run(self.phase, first, count, global_step=self.done)
        self.done = stop
        if waited := self.is_due(config.log_every, config.evaluate_every, config.checkpoint_every):
            metrics = json_numbers(self.ranks.mean_metrics(self.engine.metrics()))  # the host waits for the device here
            self.check_metrics(metrics)
            self.log.write({"step": self.done, "phase": self.phase.name, **metrics})
        elif self.device.type == "cuda" and not self.is_time_announced:
            torch.cuda.synchronize(self.device)
            waited = True
        self.estimate.add_iterations(count, time.perf_counter() - started, waited or self.device.type == "cpu")
        if self.is_due(config.evaluate_every):
            self.evaluate()
        if self.done == self.end and self.phase_ended is not None:
            self.phase_ended(self.phase.name, self.predictor)
        spent = time.perf_counter() - started
        self.loop_state.seconds += spent
        if self.is_due(config.evaluate_every):
            self.loop_state.clock.append((self.done, round(self.loop_state.seconds, 2)))
        self.steps_per_chunk = max(1, int(CHUNK * count / spent))
        return count

    def is_due(self, *every: int) -> bool:
        """Whether something is due now that is done at these intervals and at the end of each phase."""
        return self.done == self.end or any(self.done % n == 0 for n in every)

    def check_metrics(self, metrics: dict[str, Any]) -> None:
        """Refuse to continue with a loss that is infinite or not a number."""
        for name, value in metrics.items():
            if isinstance(value, float) and not math.isfinite(value):
                self.refuse(f"{name} is {'not a number' if math.isnan(value) else 'infinite'}")

    def check_networks(self) -> None:
        """Refuse to keep or save networks with weights or predictions that are infinite or not a number."""
        if self.checked == self.done:
            return
        network, samples, preprocess = self.predictor, self.checked_samples, self.task.preprocess
        if fault := self.ranks.from_first(
            lambda: fault_in_weights(self.state.roles) or fault_in_predictions(network, samples, preprocess)
        ):
            self.refuse(fault)
        self.checked = self.done

    def refuse(self, fault: str) -> NoReturn:
        saved = "" if self.saved is None else f"; the checkpoint of iteration {self.saved} was saved before that"
        raise Diverged(
            f"{fault} at iteration {self.done}: lower the learning rate or the weights of the terms, or use "
            f"--precision float32{saved}."
        )

    def evaluate(self) -> None:
        """Evaluate the network that predicts, log the results, and watch for collapse."""
        started = time.perf_counter()
        self.check_networks()
        network, preprocess, ranks = self.predictor, self.task.preprocess, self.ranks
        target = evaluate(network, self.target, preprocess, ranks)
        source = evaluate(network, self.source, preprocess, ranks) if self.source is not None else None
        target, source = ranks.from_first(lambda: (target, source))
        for name, evaluation in (("target", target), ("source", source)):
            if evaluation is not None and not math.isfinite(evaluation.entropy):  # more samples than were checked above
                self.refuse(f"predictions for the {name} are infinite or not a number")
        record = {
            "step": self.done,
            "phase": self.phase.name,
            "target": target.measured(),
            "source": source and source.measured(),
        }
        choice = None if self.choice is None else evaluate(network, self.choice, preprocess)
        if choice is not None:
            record["choice"] = choice.measured()
        if self.probe is not None:
            record |= self.probe.validate(network, student_of(self.method, self.state), self.config.keep_best, ranks)
            self.loop_state.best = self.best.consider(record, network, self.loop_state.best, self.log.records)
        self.log.write(record)
        if message := self.watch.observe(self.loop_state, self.phase, self.begin, self.done, target, source):
            self.progress.say(message)
        if self.done == self.end and choice is not None:
            self.loop_state.phases[self.phase.name]["choice"] = choice.accuracy
        self.estimate.evaluation = time.perf_counter() - started
        self.progress.show_accuracy(target.accuracy, None if source is None else source.accuracy)

    def announce_time(self, time_announced: Callable[[float], None] | None) -> None:
        """Print how long the run will take, once that can be estimated."""
        if self.is_time_announced or not self.estimate.is_founded or (seconds := self.estimate.left()) is None:
            return
        self.is_time_announced = True
        if seconds < WORTH_ANNOUNCING:
            return
        count, rate = self.estimate.ends[-1] - self.done, self.estimate.rate() or 0.0
        machine = "CPU" if self.device.type == "cpu" else "GPU"
        self.progress.say(
            f"About {duration(seconds)} left for {count:,} iterations ({rate:.3g} per second on this {machine}) and "
            "the evaluations."
        )
        if time_announced is not None:
            time_announced(seconds)

    def save(self) -> None:
        """Write a checkpoint, on rank 0."""
        if not self.saves:
            return
        started = time.perf_counter()
        self.check_networks()
        sums = self.engine.tensors()
        if self.out is not None:
            self.log.flush()
            tensors = {**self.state.tensors(), **self.best.tensors(), **sums}
            save_checkpoint(self.out / CHECKPOINTS, tensors, asdict(self.loop_state), self.done)
            if self.on_checkpoint is not None:
                self.on_checkpoint(self.done)
        self.saved = self.done
        self.estimate.saving = time.perf_counter() - started

    def outcome(self) -> Outcome:
        return Outcome(
            network=self.predictor,
            records=self.log.records,
            loop_state=self.loop_state,
            step=self.done,
            finished=self.is_finished,
            best=self.best.model(self.predictor),
            given_up=(self.has_given_up or self.pruned is not None) and not self.is_finished,
            pruned=self.pruned,
        )


def place(task: Task, device: torch.device, memory: str) -> tuple[Task, str]:
    """The task with its samples on the device if they fit, and otherwise with its labels alone; and what was done."""
    stored = any(isinstance(part.x, StoredSamples) for part in vars(task).values() if isinstance(part, Domain))
    limit = memory_for_samples(memory, device)
    fits = not stored if device.type == "cpu" else task.bytes <= limit  # on a CPU, they are where they were read to
    size = size_of(task.bytes)
    if fits:
        return task.to(device), f"The samples ({size}) are in memory."
    origin = "disk" if stored else "memory of the host"
    room = "what they may take of the memory that is free" if memory == "auto" else f"--memory {memory}"
    what = f"The samples ({size}) are streamed from the {origin}: they exceed {room}."
    return task.to(device, labels_only=True), what


def target_to_evaluate(task: Task, config: Config) -> Domain:
    """The target samples that a run is evaluated on: the test samples or, without any, some that it is trained on."""
    target = task.target_test or subsample(task.target.without_labels(), UNLABELLED_SAMPLES)
    return subsample(target, config.evaluate_samples)


def next_stop(done: int, begin: int, phase: Phase, config: Config) -> int:
    """The next iteration after which the loop has something to do."""
    intervals = [config.log_every, config.evaluate_every, config.checkpoint_every]
    stops = [(done // n + 1) * n for n in intervals]
    stops += [begin + ((done - begin) // event.every + 1) * event.every for event in phase.events]
    return min(*stops, begin + phase.iterations)


def run_events(phase: Phase, state: State, step: int) -> None:
    """Run the events that are due before iteration ``step`` of a phase, whose first iteration is 0."""
    for event in phase.events:
        if step % event.every == 0:
            copy_role(event.action, state)


@torch.no_grad()
def copy_role(action: CopyRole, state: State) -> None:
    """Copy weights and running statistics in place, because captured graphs use the same tensors again."""
    of, into = state.roles[action.of], state.roles[action.into]
    torch._foreach_copy_(list(into.parameters()), list(of.parameters()))
    if buffers := list(into.buffers()):
        torch._foreach_copy_(buffers, list(of.buffers()))


def never_refreshed(method: Method) -> Iterator[str]:
    """A message for each event that happens only once, because its interval is as long as its phase or longer."""
    for phase in method.phases:
        for event in phase.events:
            if event.every >= phase.iterations:
                yield (
                    f"{phase.name} has {phase.iterations} iterations and an interval of {event.every}, so its "
                    f"{event.action.into} is never refreshed."
                )


# A terminal that is closed, or a connection that breaks, sends SIGHUP; Windows does not have it.
STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class StopRequest:
    """A signal handler that remembers a request to stop. A second Ctrl-C stops immediately.

    Under torchrun one Ctrl-C arrives twice: from the terminal and from torchrun.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.ignored_until = 0.0

    def __call__(self, number: int, frame: object) -> None:
        if self.numbers and number == signal.SIGINT and time.monotonic() > self.ignored_until:
            raise KeyboardInterrupt
        if not self.numbers and launched() is not None:
            self.ignored_until = time.monotonic() + SAME_CTRL_C
        self.numbers.append(number)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Remember requests to stop, so that work can be saved first. Yields a function that says whether there was one.

    Inside another ``interruptible`` the request is shared, so that a queue stops with its run.
    """
    outer = signal.getsignal(signal.SIGTERM)
    if isinstance(outer, StopRequest):
        yield lambda: bool(outer.numbers)
        return
    request = StopRequest()
    with signals_handled_by(request):
        yield lambda: bool(request.numbers)


@contextmanager
def signals_handled_by(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Send the signals that ask to stop to a handler. SIGHUP stays ignored if it was, as under nohup."""
    before = {}
    try:
        for number in STOP_SIGNALS:
            if number != getattr(signal, "SIGHUP", None) or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    except ValueError:  # only the main thread may set handlers
        pass
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
