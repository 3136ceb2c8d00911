"""The nouns that a method is made of. A method is a value; adding one means writing one down (:mod:`vmt.methods`).

A :class:`Method` has roles (networks) and phases; a :class:`Phase` has ordered updates and events; an :class:`Update`
optimises some roles on the sum of weighted terms; a :class:`Term` is a loss and the nodes it reads.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Real

from torch import Tensor

from vmt.errors import InputError, whole
from vmt.methods.nodes import Labels, Node, View, below
from vmt.methods.schedules import Number
from vmt.nets.staged import INPUT

Loss = Callable[..., Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True)
class Term:
    """``weight`` × the mean of ``loss`` over examples. A loss may return several vectors, whose means are added.

    A term of weight 0 is measured and logged, never differentiated.
    """

    name: str
    loss: Loss
    reads: tuple[Node, ...]
    weight: Number = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.reads, tuple):
            raise InputError(f"the term {self.name!r} reads a {type(self.reads).__name__}: give a tuple of nodes.")
        for node in self.reads:
            if isinstance(node, View):
                raise InputError(f"the term {self.name!r} reads a View: read one of its taps, such as view.logits.")
            if not hasattr(node, "value") or not hasattr(node, "reads"):
                raise InputError(
                    f"the term {self.name!r} reads a {type(node).__name__}: read nodes, such as view.logits or "
                    "Labels(batch)."
                )
        if not callable(self.weight) and not (isinstance(self.weight, Real) and math.isfinite(self.weight)):
            raise InputError(f"the term {self.name!r} has the weight {self.weight!r}: give a number or a schedule.")


def measure(name: str, figure: Loss, *reads: Node) -> Term:
    """A figure that is only logged."""
    return Term(name, figure, reads, weight=0.0)


@dataclass(frozen=True)
class Adam:
    """Adam with the paper's settings, and ε beside √v before bias correction, as TensorFlow has it."""

    lr: Number = 1e-3
    beta1: float = 0.5
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if not callable(self.lr) and not 0 < self.lr < math.inf:
            raise InputError(f"the learning rate is {self.lr}: give a positive number, for example 0.001.")


@dataclass(frozen=True)
class Average:
    """After each update, ``into`` moves by 1 − decay towards the weights of ``of``."""

    of: str
    into: str
    decay: float = 0.998

    def __post_init__(self) -> None:
        if not 0 <= self.decay <= 1:
            raise InputError(f"decay={self.decay} is not between 0 (no average) and 1 (nothing ever forgotten).")


@dataclass(frozen=True)
class Update:
    """One optimiser step."""

    name: str
    optimises: tuple[str, ...]
    terms: tuple[Term, ...]
    optimiser: Adam = Adam()
    averages: tuple[Average, ...] = ()
    keep: tuple[View, ...] = ()
    """Views that run for their running statistics although no term reads them."""
    batch: str | None = None
    """The name of an earlier update whose batch this one uses again; None draws a fresh one."""
    repeats: int = 1

    def __post_init__(self) -> None:
        for name in ("optimises", "terms", "averages", "keep"):
            if not isinstance(given := getattr(self, name), tuple):
                raise InputError(f"{name} of update {self.name!r} is a {type(given).__name__}: give a tuple.")
        if not self.optimises:
            raise InputError(f"update {self.name!r} optimises nothing: name one or more roles.")
        if self.repeats < 1:
            raise InputError(f"update {self.name!r} is repeated {self.repeats} times: give 1 or more.")


@dataclass(frozen=True)
class CopyRole:
    """Copies weights and running statistics of one role into another."""

    of: str
    into: str


@dataclass(frozen=True)
class Event:
    """Something done before the first step of a phase and then every ``every`` steps of it."""

    every: int
    action: CopyRole

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"an interval of {self.every} iterations cannot be kept: give 1 or more.")


@dataclass(frozen=True)
class Phase:
    """Steps that all do the same updates."""

    name: str
    updates: tuple[Update, ...]
    events: tuple[Event, ...] = ()
    iterations: int = 40_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "iterations", whole(self.iterations, f"the length of the phase {self.name!r}"))
        if self.iterations < 1:
            raise InputError(f"the phase {self.name!r} has {self.iterations} iterations: give 1 or more.")


@dataclass(frozen=True)
class Network:
    """A role played by the task's network, freshly initialised: all of it, or the stages after and until a tap."""

    after: str = INPUT
    until: str | None = None


@dataclass(frozen=True)
class Discriminator:
    """A role that tells the domains apart by what another role produces at a tap."""

    of: str = "classifier"
    tap: str = "features"
    hidden: int = 100


@dataclass(frozen=True)
class Copy:
    """A role that starts as a copy of another and is never optimised.

    With ``shared_statistics`` it uses the other's live running statistics, as the paper's evaluation does.
    """

    of: str = "classifier"
    shared_statistics: bool = False


Role = Network | Discriminator | Copy


@dataclass(frozen=True)
class Method:
    """A training procedure, whole.

    >>> from vmt import methods
    >>> methods.dirt_t(methods.vmt(), iterations=80_000)
    <method vmt+dirt_t: 40,000 iterations of vmt, then 80,000 iterations of dirt_t>
    """

    name: str
    roles: Mapping[str, Role]
    phases: tuple[Phase, ...]
    predictor: tuple[str, ...] = ("ema",)
    """The roles that, applied one after the other, predict."""

    def __post_init__(self) -> None:
        made: list[str] = []
        for name, maker in self.roles.items():
            if not isinstance(maker, Network) and maker.of not in made:
                raise InputError(
                    f"method {self.name!r}: the role {name!r} is made from {maker.of!r}, which is no role before it: "
                    "put that one first."
                )
            made.append(name)
        names = [phase.name for phase in self.phases]
        if repeated := [name for i, name in enumerate(names) if name in names[:i]]:
            raise InputError(
                f"method {self.name!r} has two phases {repeated[0]!r}: give each its own name, by which models and "
                "figures of a run are kept."
            )
        for phase in self.phases:
            self._check_names(phase)
            for event in phase.events:
                self._check_roles(f"an event of phase {phase.name!r}", (event.action.of, event.action.into))
            for update in phase.updates:
                averaged = [name for average in update.averages for name in (average.of, average.into)]
                kept = [view.role for view in update.keep]
                self._check_roles(f"update {update.name!r}", (*update.optimises, *averaged, *kept))
                for role in update.optimises:
                    if isinstance(self.roles[role], Copy):
                        raise InputError(
                            f"method {self.name!r}: update {update.name!r} optimises the role {role!r}, which is a copy"
                        )
        self._check_roles("the predictor", self.predictor)

    def _check_names(self, phase: Phase) -> None:
        """Draws and optimiser moments go by the names of updates."""
        before: list[str] = []
        for update in phase.updates:
            if update.name in before:
                raise InputError(f"the phase {phase.name!r} has two updates {update.name!r}: give each its own name.")
            if update.batch is not None and update.batch not in before:
                raise InputError(
                    f"update {update.name!r} uses the batch of {update.batch!r}, which is no update before it in the "
                    f"phase {phase.name!r}: name one that is, or leave batch out."
                )
            before.append(update.name)

    def _check_roles(self, where: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.roles:
                raise InputError(f"method {self.name!r}: {where} names the role {name!r}, which is not in roles")

    def __repr__(self) -> str:
        lengths = ", then ".join(f"{phase.iterations:,} iterations of {phase.name}" for phase in self.phases)
        return f"<method {self.name}: {lengths}>"  # all of its terms would fill pages

    def with_iterations(self, *iterations: int | None) -> "Method":
        """The same method with other phase lengths, in the order of its phases; None keeps a phase's own.

        The weight averages of a phase that gets short forget as fast as they then must (``decay_for``).
        """
        if len(iterations) > len(self.phases):
            raise InputError(
                f"method {self.name!r} has {len(self.phases)} phases, but {len(iterations)} lengths were given"
            )
        lengths = [*iterations, *[None] * (len(self.phases) - len(iterations))]
        phases = tuple(
            phase if n is None else fitted(replace(phase, iterations=n))
            for phase, n in zip(self.phases, lengths, strict=True)
        )
        return replace(self, phases=phases)

    def with_decay(self, decay: float) -> "Method":
        """The same method with another decay of its weight averages; short runs want a faster one."""

        def decayed(average: Average) -> Average:
            return replace(average, decay=decay)

        return replace(self, phases=tuple(with_averages(phase, decayed) for phase in self.phases))

    @property
    def iterations(self) -> int:
        return sum(phase.iterations for phase in self.phases)

    def updates(self) -> Iterator[Update]:
        for phase in self.phases:
            yield from phase.updates

    def reads_labels_of(self, stream: str) -> bool:
        """Whether any term does, itself or through the nodes that it reads."""
        nodes = (node for update in self.updates() for term in update.terms for node in term.reads)
        return any(isinstance(each, Labels) and each.batch.stream == stream for node in nodes for each in below(node))


def fitted(phase: Phase) -> Phase:
    """The same phase, with weight averages that forget at least as fast as its length demands (``decay_for``)."""
    limit = decay_for(phase.iterations)
    return with_averages(phase, lambda average: replace(average, decay=min(average.decay, limit)))


def with_averages(phase: Phase, changed: Callable[[Average], Average]) -> Phase:
    """The same phase with every weight average changed."""
    updates = (replace(update, averages=tuple(map(changed, update.averages))) for update in phase.updates)
    return replace(phase, updates=tuple(updates))


def decay_for(iterations: int) -> float:
    """The decay of the weight average for a phase of this length: the paper's 0.998, or less in a short phase.

    After a tenth of the phase, the average should have forgotten most of the weights before.

    >>> decay_for(40_000), decay_for(100)
    (0.998, 0.9)
    """
    return min(0.998, 1 - 10 / max(iterations, 10))
