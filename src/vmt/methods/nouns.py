"""The nouns that a method is made of. A method is a value, not a class (``vmt.methods.systems`` has examples).

A :class:`Method` has roles (networks) and phases. A :class:`Phase` has updates, in order, and events. An
:class:`Update` optimises some of the roles on a weighted sum of terms. A :class:`Term` is a loss and the nodes that it
reads (:mod:`vmt.methods.nodes`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

from torch import Tensor

from vmt.errors import InputError, counted, perhaps, whole
from vmt.methods.nodes import Labels, Node, Schedule, View, below
from vmt.methods.settings import LR_SCHEDULES
from vmt.methods.settings import OPTIMISERS as NAMES_OF_OPTIMISERS
from vmt.nets.networks import INPUT, Staged

Number = float | Schedule
"""A constant or a schedule."""


@dataclass(frozen=True)
class Ramp:
    """A number that goes from ``start`` to ``end`` while progress goes from ``begin`` to ``until``.

    It is constant before and after. ``shape`` is ``linear``, ``cosine`` or ``sigmoid`` (DANN's 2/(1+exp(−10p)) − 1).

    >>> weight = Ramp(0.0, 1.0, until=0.5)
    >>> [weight(progress) for progress in (0.0, 0.25, 0.5, 1.0)]
    [0.0, 0.5, 1.0, 1.0]
    """

    start: float
    end: float
    begin: float = 0.0
    until: float = 1.0
    shape: str = "linear"

    def __post_init__(self) -> None:
        if self.shape not in ("linear", "cosine", "sigmoid"):
            raise InputError(f"shape must be 'linear', 'cosine' or 'sigmoid', but got {self.shape!r}.")

    def __call__(self, progress: float) -> float:
        p = min(max((progress - self.begin) / max(self.until - self.begin, 1e-12), 0.0), 1.0)
        if self.shape == "cosine":
            p = 0.5 - 0.5 * math.cos(math.pi * p)
        elif self.shape == "sigmoid":
            p = 2 / (1 + math.exp(-10 * p)) - 1
        return self.start + (self.end - self.start) * p


@dataclass(frozen=True)
class WarmUp:
    """A number that grows in a straight line from 0 to ``value`` over the first ``share`` of a phase.

    >>> weight = WarmUp(0.06, share=0.5)
    >>> [weight(progress) for progress in (0.0, 0.25, 0.5, 1.0)]
    [0.0, 0.03, 0.06, 0.06]
    """

    value: Number
    share: float

    def __call__(self, progress: float) -> float:
        value = self.value(progress) if callable(self.value) else self.value
        return value * min(progress / self.share, 1.0)


@dataclass(frozen=True)
class Inverse:
    """A number that falls from ``value`` as value / (1 + αp)^β, DANN's schedule of the learning rate.

    >>> rate = Inverse(0.01)
    >>> [round(rate(progress), 5) for progress in (0.0, 0.1, 1.0)]
    [0.01, 0.00595, 0.00166]
    """

    value: float
    alpha: float = 10.0
    beta: float = 0.75

    def __call__(self, progress: float) -> float:
        return float(self.value / (1 + self.alpha * progress) ** self.beta)


def scheduled(value: float, schedule: str) -> Number:
    """``value`` as the start of a learning-rate schedule: ``constant``, ``cosine`` (falls to 0) or ``inverse``.

    >>> round(scheduled(0.1, "cosine")(0.5), 4)
    0.05
    """
    if schedule not in LR_SCHEDULES:
        raise InputError(f"lr_schedule must be one of {', '.join(LR_SCHEDULES)}, but got {schedule!r}.")
    if schedule == "cosine":
        return Ramp(value, 0.0, shape="cosine")
    return Inverse(value) if schedule == "inverse" else value


def warmed_up(value: Number, share: float) -> Number:
    """``value`` with a warm-up over a share of the phase, or unchanged if the share or the value is 0."""
    if not 0 <= share <= 1:
        raise InputError(f"warm_up must be a share of the iterations, from 0 to 1, but got {share}.")
    return value if share == 0 or value == 0 else WarmUp(value, share)


Loss = Callable[..., Tensor | tuple[Tensor, ...]]
"""A function of the tensors that a term reads. It returns a value for each example, (N,), or several such vectors."""


@dataclass(frozen=True)
class Term:
    """``weight`` × the mean of ``loss`` over the examples. If the loss returns several vectors, their means are added.

    A term of weight 0 is logged but not differentiated; its loss may return several values for each example, (N, …).
    """

    name: str
    loss: Loss
    reads: tuple[Node, ...]
    weight: Number = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.reads, tuple):
            raise InputError(
                f"reads of the term {self.name!r} must be a tuple of nodes, but is a {type(self.reads).__name__}."
            )
        for node in self.reads:
            if isinstance(node, View):
                raise InputError(
                    f"the term {self.name!r} must read a tap of a View, such as view.logits, but reads the View."
                )
            if not hasattr(node, "value") or not hasattr(node, "reads"):
                raise InputError(
                    f"the term {self.name!r} must read nodes, such as view.logits or Labels(batch), but reads a "
                    f"{type(node).__name__}."
                )
        if not callable(self.weight) and not (isinstance(self.weight, Real) and math.isfinite(self.weight)):
            raise InputError(
                f"the weight of the term {self.name!r} must be a number or a schedule, but got {self.weight!r}."
            )


def measure(name: str, figure: Loss, *reads: Node) -> Term:
    """A term of weight 0: a metric that is only logged."""
    return Term(name, figure, reads, weight=0.0)


@dataclass(frozen=True, kw_only=True, repr=False)
class Optimiser:
    """What every optimiser has: a learning rate for the backbone of its own, and a limit for the gradient."""

    backbone_rate: float = 1.0
    """The learning rate of the backbone, which is every stage before the logits, as a share of ``lr``."""
    clip_norm: float | None = None
    """The gradients of an update are scaled down if their joint L2 norm exceeds this; None leaves them as they are."""

    def __post_init__(self) -> None:
        numbers = vars(self)
        for name in ("lr", "clip_norm"):
            if (value := numbers.get(name)) is not None and not callable(value) and not 0 < value < math.inf:
                what = "the learning rate lr" if name == "lr" else name
                raise InputError(f"{what} must be a positive number, but got {value}.")
        for name in ("backbone_rate", "weight_decay"):
            if not 0 <= numbers.get(name, 0.0) < math.inf:
                raise InputError(f"{name} must be 0 or more, but got {numbers[name]}.")
        for name in ("momentum", "beta1", "beta2"):
            if not 0 <= numbers.get(name, 0.0) < 1:
                raise InputError(f"{name} must be from 0 to below 1, but got {numbers[name]}.")

    def __repr__(self) -> str:
        # A run's record holds this text, so what every optimiser has is only part of it if it was set.
        common = {field.name: field.default for field in fields(Optimiser)}
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in common}
        own |= {name: value for name in common if (value := getattr(self, name)) != common[name]}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in own.items())})"


@dataclass(frozen=True, repr=False)
class Adam(Optimiser):
    """Adam with the settings of the paper. As in TensorFlow, ε is added to √v before the bias correction."""

    lr: Number = 1e-3
    beta1: float = 0.5
    beta2: float = 0.999
    eps: float = 1e-8


@dataclass(frozen=True, repr=False)
class AdamW(Optimiser):
    """Adam as PyTorch defines it, with weight decay apart from the gradient: θ ← θ − lr · weight_decay · θ."""

    lr: Number = 1e-3
    weight_decay: float = 1e-2
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


@dataclass(frozen=True, repr=False)
class SGD(Optimiser):
    """Gradient descent with momentum, and weight decay as part of the gradient: v ← μv + g + weight_decay · θ.

    With ``nesterov``, the step goes along g + weight_decay · θ + μv instead of v.
    """

    lr: Number = 1e-2
    momentum: float = 0.9
    weight_decay: float = 0.0
    nesterov: bool = False


AnyOptimiser = Adam | AdamW | SGD
OPTIMISERS: dict[str, type[AnyOptimiser]] = dict(zip(NAMES_OF_OPTIMISERS, (Adam, AdamW, SGD), strict=True))


def make_optimiser(
    name: str = "adam", lr: Number | None = None, lr_schedule: str = "constant", **options: Any
) -> AnyOptimiser:
    """The optimiser of that name with a learning-rate schedule; an option that is None has its default.

    >>> make_optimiser("sgd", lr=0.01, lr_schedule="inverse", weight_decay=1e-3)
    SGD(lr=Inverse(value=0.01, alpha=10.0, beta=0.75), momentum=0.9, weight_decay=0.001, nesterov=False)
    """
    if name not in OPTIMISERS:
        raise InputError(
            f"optimiser must be one of {', '.join(OPTIMISERS)}, but got {name!r}{perhaps(name, OPTIMISERS)}."
        )
    kind = OPTIMISERS[name]
    given = {option: value for option, value in options.items() if value is not None}
    known = [field.name for field in fields(kind)]
    for option in given:
        if option not in known:
            having = [each for each, other in OPTIMISERS.items() if option in {f.name for f in fields(other)}]
            raise InputError(f"the optimiser {name} has no {option}: use {' or '.join(having)}, or leave it out.")
    start = kind.lr if lr is None else lr
    if lr_schedule != "constant" and callable(start):
        raise InputError(
            f"lr is a schedule, so that lr_schedule={lr_schedule!r} has no meaning: leave one of them out."
        )
    return kind(lr=start if callable(start) else scheduled(start, lr_schedule), **given)


@dataclass(frozen=True)
class Average:
    """An average of weights: after each update, ``into`` ← decay · ``into`` + (1 − decay) · ``of``."""

    of: str
    into: str
    decay: float = 0.998

    def __post_init__(self) -> None:
        if not 0 <= self.decay <= 1:
            raise InputError(f"decay must be from 0 (no average) to 1 (no change), but got {self.decay}.")


@dataclass(frozen=True)
class Update:
    """One optimiser step on the sum of some terms."""

    name: str
    """Draws and the optimiser's moments are identified by this name."""
    optimises: tuple[str, ...]
    """The roles whose weights change."""
    terms: tuple[Term, ...]
    optimiser: AnyOptimiser = Adam()
    averages: tuple[Average, ...] = ()
    """Weight averages that are updated after the step."""
    keep: tuple[View, ...] = ()
    """Views that run even if no term reads them, to update the running statistics."""
    batch: str | None = None
    """The name of an earlier update of the phase, whose batch is used again; None draws a fresh batch."""
    repeats: int = 1
    """How many steps are taken in an iteration."""

    def __post_init__(self) -> None:
        for name in ("optimises", "terms", "averages", "keep"):
            if not isinstance(given := getattr(self, name), tuple):
                raise InputError(f"{name} of update {self.name!r} must be a tuple, but is a {type(given).__name__}.")
        if not self.optimises:
            raise InputError(f"update {self.name!r} must optimise one or more roles, but optimises is empty.")
        if self.repeats < 1:
            raise InputError(f"repeats of update {self.name!r} must be 1 or more, but got {self.repeats}.")


@dataclass(frozen=True)
class CopyRole:
    """Copies the weights and running statistics of one role into another."""

    of: str
    into: str


@dataclass(frozen=True)
class Event:
    """An action at the start of a phase and then every ``every`` iterations."""

    every: int
    action: CopyRole

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"the interval of an event must be 1 iteration or more, but got {self.every}.")


@dataclass(frozen=True)
class Phase:
    """A number of iterations, which all take the same updates."""

    name: str
    updates: tuple[Update, ...]
    events: tuple[Event, ...] = ()
    iterations: int = 40_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "iterations", whole(self.iterations, f"iterations of the phase {self.name!r}"))
        if self.iterations < 1:
            raise InputError(f"iterations of the phase {self.name!r} must be 1 or more, but got {self.iterations}.")


@dataclass(frozen=True)
class Network:
    """A role that is the task's network, or some of its stages, with weights of its own."""

    after: str = INPUT
    """The tap after which the stages begin."""
    until: str | None = None
    """The tap of the last stage; None takes all that follow."""


@dataclass(frozen=True)
class Discriminator:
    """A role that tells the domains apart: a logit for each sample, (N, 1), from what another role has at a tap."""

    of: str = "classifier"
    tap: str = "features"
    hidden: int = 100


@dataclass(frozen=True)
class ConditionalDiscriminator:
    """A discriminator of CDAN: a logit for each sample, (N, 1), from the product of features and predictions.

    Its views read a :class:`vmt.methods.nodes.Conditioned` of the role ``of``.
    """

    of: str = "classifier"
    tap: str = "features"
    hidden: int = 100


@dataclass(frozen=True)
class Copy:
    """A role that starts as a copy of another role and is not optimised.

    With ``shared_statistics`` it uses the current running statistics of the other role, as the paper's evaluation does.
    """

    of: str = "classifier"
    shared_statistics: bool = False


@dataclass(frozen=True)
class Own:
    """A role with a network of its own, such as a decoder.

    ``build`` gets the shape of what another role has at a tap, and the shape of a sample, both without the batch.
    """

    build: Callable[[tuple[int, ...], tuple[int, ...]], Staged]
    of: str = "classifier"
    tap: str = "hidden"


Role = Network | Discriminator | ConditionalDiscriminator | Copy | Own

HEAD = "head"
"""The name of a phase in which the backbone stays as it is."""


@dataclass(frozen=True)
class Method:
    """A whole training procedure.

    >>> from vmt import methods
    >>> methods.dirt_t(methods.vmt(), iterations=80_000)
    <method vmt+dirt_t: 40,000 iterations of vmt, then 80,000 iterations of dirt_t>
    """

    name: str
    roles: Mapping[str, Role]
    phases: tuple[Phase, ...]
    predictor: tuple[str, ...] = ("ema",)
    """The roles that predict, applied one after the other."""

    def __post_init__(self) -> None:
        made: list[str] = []
        for name, maker in self.roles.items():
            if not isinstance(maker, Network) and maker.of not in made:
                raise InputError(
                    f"method {self.name!r}: the role {name!r} is made from {maker.of!r}, which must come before it in "
                    "roles."
                )
            made.append(name)
        names = [phase.name for phase in self.phases]
        if repeated := [name for i, name in enumerate(names) if name in names[:i]]:
            raise InputError(
                f"method {self.name!r} has two phases {repeated[0]!r}: give each its own name, under which its models "
                "and results are kept."
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
                            f"method {self.name!r}: update {update.name!r} cannot optimise the role {role!r}, because "
                            "it is a Copy: use a Network."
                        )
        self._check_roles("the predictor", self.predictor)

    def _check_names(self, phase: Phase) -> None:
        """Refuse updates of equal names, by which draws and the optimiser's moments are identified."""
        before: list[str] = []
        for update in phase.updates:
            if update.name in before:
                raise InputError(f"the phase {phase.name!r} has two updates {update.name!r}: give each its own name.")
            if update.batch is not None and update.batch not in before:
                raise InputError(
                    f"update {update.name!r} uses the batch of {update.batch!r}, which must be an earlier update of "
                    f"the phase {phase.name!r}; None draws a fresh batch."
                )
            before.append(update.name)

    def _check_roles(self, where: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.roles:
                raise InputError(f"method {self.name!r}: {where} names the role {name!r}, which is not in roles.")

    def __repr__(self) -> str:
        lengths = ", then ".join(f"{phase.iterations:,} iterations of {phase.name}" for phase in self.phases)
        return f"<method {self.name}: {lengths}>"  # its terms would fill pages

    def with_iterations(self, *iterations: int | None) -> "Method":
        """The same method with phases of other lengths, in their order; None keeps the length of a phase.

        If a phase becomes short, its weight averages get a smaller decay.
        """
        if len(iterations) > len(self.phases):
            raise InputError(
                f"method {self.name!r} has {counted(len(self.phases), 'phase')}, but got {len(iterations)} lengths."
            )
        lengths = [*iterations, *[None] * (len(self.phases) - len(iterations))]
        phases = tuple(
            phase if n is None else with_decay_for_length(replace(phase, iterations=n))
            for phase, n in zip(self.phases, lengths, strict=True)
        )
        return replace(self, phases=phases)

    def with_decay(self, decay: float) -> "Method":
        """The same method with another decay of its weight averages; a short run needs a smaller one."""

        def decayed(average: Average) -> Average:
            return replace(average, decay=decay)

        return replace(self, phases=tuple(with_averages(phase, decayed) for phase in self.phases))

    def with_optimiser(self, optimiser: AnyOptimiser) -> "Method":
        """The same method with another optimiser in all of its updates."""

        def changed(phase: Phase) -> Phase:
            return replace(phase, updates=tuple(replace(update, optimiser=optimiser) for update in phase.updates))

        return replace(self, phases=tuple(map(changed, self.phases)))

    def with_head_first(self, share: float) -> "Method":
        """The same method, with a phase for this share of its first phase in which the backbone stays as it is.

        A new head would at first send the features of a pretrained network in random directions.

        >>> from vmt import methods
        >>> methods.mcc(iterations=500).with_head_first(0.4)
        <method mcc: 200 iterations of head, then 300 iterations of mcc>
        """
        if not 0 <= share < 1:
            raise InputError(f"head_first must be a share of the iterations, from 0 to below 1, but got {share}.")
        first, *others = self.phases
        count = round(share * first.iterations)
        if count == 0:
            return self
        updates = (replace(each, optimiser=replace(each.optimiser, backbone_rate=0.0)) for each in first.updates)
        head = replace(first, name=HEAD, updates=tuple(updates), iterations=count)
        rest = replace(first, iterations=first.iterations - count)
        return replace(self, phases=(head, rest, *others))

    @property
    def iterations(self) -> int:
        """The iterations of all phases."""
        return sum(phase.iterations for phase in self.phases)

    def updates(self) -> Iterator[Update]:
        """The updates of all phases."""
        for phase in self.phases:
            yield from phase.updates

    def reads_labels_of(self, stream: str) -> bool:
        """Whether a term reads the labels of a stream, itself or through other nodes."""
        nodes = (node for update in self.updates() for term in update.terms for node in term.reads)
        return any(isinstance(each, Labels) and each.batch.stream == stream for node in nodes for each in below(node))


def with_decay_for_length(phase: Phase) -> Phase:
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
