"""How long a run will still take, from what its iterations, evaluations and checkpoints have taken so far.

The first iteration of a phase is timed by itself, because that is when the step is compiled and captured. Costs that
have not been measured yet are derived from the time of an iteration and the number of samples that pass through a
network: those of a later phase and of the evaluations.
"""

from collections.abc import Mapping, Sequence

from vmt.methods.nouns import Phase
from vmt.nets.networks import INPUT
from vmt.progress import Pace
from vmt.step.plan import plan
from vmt.train.config import Config

# An estimate is announced after this many iterations, or after this many seconds if these iterations take longer.
ENOUGH_ITERATIONS, ENOUGH_SECONDS = 20, 2.0
# The cost of a backward pass in forward passes: to the weights, and to the input alone.
BACKWARD, TO_INPUT = 2, 1


def forward_passes(phase: Phase, taps: Mapping[str, tuple[str, ...]]) -> int:
    """The cost of one iteration, in forward passes of one batch through a whole network.

    Passes that begin inside a network are not counted: they are short.
    """
    return sum(
        update.repeats * len(each.views) * (1 + (TO_INPUT if each.probing else BACKWARD if each.gradient else 0))
        for update in phase.updates
        for each in plan(update, taps)
        if each.entry == INPUT
    )


class Estimate:
    """The time that a run will still take, for its phases in order.

    ``costs`` has the :func:`forward_passes` of an iteration of each phase, ``evaluated`` the number of samples that
    pass through a network in an evaluation. ``saves`` says whether there are checkpoints.
    """

    def __init__(
        self, phases: Sequence[Phase], costs: Sequence[int], config: Config, evaluated: int, saves: bool
    ) -> None:
        self.costs, self.config, self.evaluated, self.saves = costs, config, evaluated, saves
        self.ends = [sum(phase.iterations for phase in phases[: i + 1]) for i in range(len(phases))]
        self.paces = [Pace() for _ in phases]
        self.preparation: float | None = None
        self.evaluation: float | None = None
        self.saving: float | None = None
        self.phase = self.done = self.counted = self.waiting = 0
        self.seconds = self.waiting_seconds = 0.0
        self.entered = False

    def enter(self, phase: int, done: int) -> None:
        """Begin a phase, after ``done`` iterations of the run."""
        self.phase, self.done, self.entered = phase, done, True

    def add_iterations(self, count: int, seconds: float, waited: bool) -> None:
        """Count iterations; if the host has not ``waited`` for the device, they count together with the next ones."""
        self.done += count
        if self.entered:
            self.preparation, self.entered = seconds, False
            return
        self.waiting, self.waiting_seconds = self.waiting + count, self.waiting_seconds + seconds
        if waited:
            self.paces[self.phase].add(self.waiting, self.waiting_seconds)
            self.counted, self.seconds = self.counted + self.waiting, self.seconds + self.waiting_seconds
            self.waiting, self.waiting_seconds = 0, 0.0

    @property
    def is_founded(self) -> bool:
        """Whether enough iterations have been measured to announce an estimate."""
        return self.counted + 1 >= ENOUGH_ITERATIONS or self.seconds >= ENOUGH_SECONDS

    def rate(self) -> float | None:
        """Iterations per second in this phase, without evaluations."""
        seconds = self.paces[self.phase].seconds_per_unit
        return None if not seconds else 1 / seconds

    def left(self) -> float | None:
        """Seconds until the last iteration of the last phase; None before two iterations have been measured."""
        known = [i for i, pace in enumerate(self.paces) if pace.seconds_per_unit is not None]
        if not known:
            return None
        last = self._seconds_per_pass(known[-1])
        total = self._due(self.config.evaluate_every) * self._evaluation(last)
        if self.saves:
            total += self._due(self.config.checkpoint_every) * (self.saving or 0.0)
        begin = 0
        for i, end in enumerate(self.ends):
            seconds = self.paces[i].seconds_per_unit
            pace = last * self.costs[i] if seconds is None else seconds
            if i > self.phase and self.preparation is not None:
                total += max(0.0, self.preparation - pace)
            total += max(0, end - max(self.done, begin)) * pace
            begin = end
        return total

    def _seconds_per_pass(self, phase: int) -> float:
        seconds = self.paces[phase].seconds_per_unit
        assert seconds is not None
        return seconds / max(1, self.costs[phase])

    def _evaluation(self, seconds_per_pass: float) -> float:
        if self.evaluation is not None:
            return self.evaluation
        return seconds_per_pass * self.evaluated / self.config.batch_size

    def _due(self, every: int) -> int:
        """How often something is still due that is done at this interval and at the end of each phase."""
        at_ends = sum(end > self.done and end % every != 0 for end in self.ends)
        return self.ends[-1] // every - self.done // every + at_ends
