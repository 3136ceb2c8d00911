"""Nodes: descriptions of the tensors that the terms of a method read.

A node stands for a batch of a stream, a mix of that batch, the logits of a network on either, and so on. It is a frozen
value that compares by content. So two terms that describe the same view share one forward pass, and all passes of an
update are known before it runs (:mod:`vmt.step.plan`). Shapes are written as in :mod:`vmt.losses`: N samples in a
batch, ``(N, …)`` for images (N, C, H, W) or vectors (N, F), K classes.

>>> clean = View("classifier", Batch("target"), statistics=True)
>>> pairs = Pairs(Batch("target"))
>>> mixed = View("classifier", Mix(Batch("target"), pairs))
>>> reads = clean.logits, mixed.logits, Lam(pairs), Partner(pairs)
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from vmt import losses
from vmt.nets.networks import INPUT

# The tap of a view with a probe.
SLOPE = "slope"


class Draws(Protocol):
    """The source of a run's randomness. A name identifies a draw; ``frozen`` gives the same values at every step."""

    def normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Standard normal values of this shape."""
        ...

    def beta(self, name: str, alpha: float, n: int, frozen: bool = False) -> Tensor:
        """``n`` values of Beta(α, α): (n,)."""
        ...

    def permutation(self, name: str, n: int) -> Tensor:
        """A permutation of 0 … n − 1: (n,) int64."""
        ...

    def choice(self, name: str, population: int, n: int) -> Tensor:
        """``n`` different indices below ``population``: (n,) int64."""
        ...


class Schedule(Protocol):
    """A number as a function of progress, which is 0 at the start of a phase and 1 at its end."""

    def __call__(self, progress: float) -> float: ...


class NodeContext(Protocol):
    """What an update in progress offers to its nodes: values of other nodes, data, weights and randomness."""

    draws: Draws

    def __call__(self, node: "Node") -> Tensor:
        """The value of another node; it is computed once in an update."""
        ...

    def images(self, batch: "Batch") -> Tensor:
        """The preprocessed samples of a batch, images or vectors: (N, …)."""
        ...

    def labels(self, batch: "Batch") -> Tensor:
        """The labels of a batch: (N,) int64."""
        ...

    def parameter(self, role: str, name: str) -> Tensor:
        """A parameter of a role's network, by its name there."""
        ...

    def name(self, draw: str) -> str:
        """The full name of a draw, which begins with the name of the update."""
        ...

    def xi(self, role: str) -> float:
        """The length ξ of VAT's first step for a role, if the method does not set it."""
        ...

    def number(self, number: float | Schedule) -> float | Tensor:
        """The current value of a constant or of a schedule."""
        ...


class Node(Protocol):
    """A description of one tensor: the nodes that it is computed from, and how. A node must be hashable."""

    @property
    def reads(self) -> tuple["Node", ...]:
        """The nodes that :meth:`value` reads."""
        ...

    def value(self, context: NodeContext) -> Tensor:
        """The tensor, computed from ``context(node)`` for the nodes that this one reads."""
        ...


@dataclass(frozen=True)
class Batch:
    """The samples of a batch of a stream: (N, …). Another ``draw`` is another batch of the same stream.

    ``augment`` is applied to pictures in 0–1, before they become what the network sees; a batch with another one has
    the same rows.
    """

    stream: str
    draw: str = ""
    augment: "Callable[[Tensor, Draws, str], Tensor] | None" = field(default=None, repr=False)

    reads = ()

    @property
    def name(self) -> str:
        return f"{self.stream}.{self.draw}" if self.draw else self.stream

    def value(self, context: NodeContext) -> Tensor:
        return context.images(self)


@dataclass(frozen=True)
class Labels:
    """The labels of a batch: (N,) int64."""

    batch: Batch
    reads = ()

    def value(self, context: NodeContext) -> Tensor:
        return context.labels(self.batch)


@dataclass(frozen=True)
class Joined:
    """The rows of several nodes in one batch, which a pass normalises together: (N₁ + N₂ + …, …)."""

    parts: tuple["Node", ...]

    @property
    def reads(self) -> tuple["Node", ...]:
        return self.parts

    def value(self, context: NodeContext) -> Tensor:
        return torch.cat([context(part) for part in self.parts])


@dataclass(frozen=True)
class Augmented:
    """A batch after an augmentation, (N, …): a function of the images, the draws and a name for its own draw."""

    of: "Node"
    augment: Callable[[Tensor, Draws, str], Tensor]
    draw: str

    @property
    def reads(self) -> tuple["Node", ...]:
        return (self.of,)

    def value(self, context: NodeContext) -> Tensor:
        return self.augment(context(self.of), context.draws, context.name(f"{self.draw}/augment"))


@dataclass(frozen=True)
class Pairs:
    """The pairs of a mix: for each sample λ ~ Beta(α, α) and a partner, by a permutation of the batch.

    ``fresh=False`` draws λ once for the whole run, as the authors' program does. Not a node: read :class:`Lam` and
    :class:`Partner`.
    """

    batch: Batch
    alpha: float = 1.0
    fresh: bool = True


@dataclass(frozen=True)
class Lam:
    """The λ of each pair: (N,)."""

    pairs: Pairs

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.pairs.batch,)

    def value(self, context: NodeContext) -> Tensor:
        n = len(context(self.pairs.batch))
        name = context.name(f"{self.pairs.batch.name}/lambda")
        return context.draws.beta(name, self.pairs.alpha, n, frozen=not self.pairs.fresh)


@dataclass(frozen=True)
class Partner:
    """The row that each row is mixed with: (N,) int64."""

    pairs: Pairs

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.pairs.batch,)

    def value(self, context: NodeContext) -> Tensor:
        n = len(context(self.pairs.batch))
        return context.draws.permutation(context.name(f"{self.pairs.batch.name}/partner"), n)


@dataclass(frozen=True)
class Mix:
    """The mix λ v_i + (1 − λ) v_j of the rows of a node: (N, …)."""

    of: Node
    pairs: Pairs

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.of, Lam(self.pairs), Partner(self.pairs))

    def value(self, context: NodeContext) -> Tensor:
        return losses.mixed(context(self.of), lam=context(Lam(self.pairs)), partner=context(Partner(self.pairs)))


@dataclass(frozen=True)
class View:
    """One forward pass of a role's network on an input (N, …), normalised with the statistics of this batch alone.

    A view is not a node; a term reads its taps, such as ``view.logits``.
    """

    role: str
    input: Node
    entry: str = INPUT
    """The tap at which the input enters the network."""
    statistics: bool = False
    """Whether this pass updates the running statistics."""
    training: bool = True
    """Training mode, with batch statistics, dropout and noise; or evaluation mode."""
    gradient: bool = True
    """Whether the gradient reaches the role's parameters, if the update optimises them."""
    draw: str = ""
    """Views that differ only in this are separate passes, with their own dropout and noise."""
    probe: "Tap | None" = None
    """Logits of a clean view, (N, K). A view with a probe has the single tap ``slope``, (N, …): the gradient of the
    cross-entropy between the clean prediction and the view's own, with respect to the view's input."""

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.input,) if self.probe is None else (self.input, self.probe)

    def tap(self, name: str) -> "Tap":
        """What the network produces at a stage: ``features`` (N, …), ``hidden`` (N, F), ``logits`` (N, K) …"""
        return Tap(self, name)

    @property
    def logits(self) -> "Tap":
        """The tap ``logits``: (N, K)."""
        return Tap(self, "logits")


@dataclass(frozen=True)
class Tap:
    """What a view's network produces at a named stage: (N, …)."""

    view: View
    name: str

    @property
    def reads(self) -> tuple[Node, ...]:
        return self.view.reads

    def value(self, context: NodeContext) -> Tensor:
        # The step stores the values of a view's taps when it runs the view.
        raise LookupError(f"the pass of {self.view} has not run yet")


@dataclass(frozen=True)
class Reversed:
    """The values of a node, (N, …), whose gradient is reversed on the way back: what arrives is multiplied by −weight.

    A network behind it minimises a loss that everything before it maximises, in one update. The ``weight`` may be a
    schedule.
    """

    of: Node
    weight: float | Schedule = 1.0

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.of,)

    def value(self, context: NodeContext) -> Tensor:
        x = context(self.of)
        return x.detach() - context.number(self.weight) * (x - x.detach())


@dataclass(frozen=True)
class Sum:
    """The sum of nodes of equal shape, (N, …), such as the taps of two networks."""

    parts: tuple[Node, ...]

    @property
    def reads(self) -> tuple[Node, ...]:
        return self.parts

    def value(self, context: NodeContext) -> Tensor:
        first, *others = (context(part) for part in self.parts)
        for other in others:
            first = first + other
        return first


@dataclass(frozen=True)
class Conditioned:
    """The features of a view, flat, beside its predictions, which are held constant: (N, F + K).

    A :class:`vmt.methods.nouns.ConditionalDiscriminator` multiplies them.
    """

    features: Tap
    logits: Tap

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.features, self.logits)

    def value(self, context: NodeContext) -> Tensor:
        predictions = losses.at_least_float32(context(self.logits).detach()).softmax(-1)
        return torch.cat([losses.at_least_float32(context(self.features)).flatten(1), predictions], 1)


@dataclass(frozen=True)
class Start:
    """x + ξd with a random unit vector d: the point near x where VAT takes the slope. (N, …)

    ``xi=None`` chooses ξ by the network. Dropout and noise already change the prediction; a network without them needs
    a larger step.
    """

    of: Node
    role: str
    draw: str
    xi: float | None = None

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.of,)

    def value(self, context: NodeContext) -> Tensor:
        x = context(self.of).detach()
        xi = context.xi(self.role) if self.xi is None else self.xi
        direction = context.draws.normal(context.name(f"{self.draw}/direction"), tuple(x.shape))
        return x + xi * losses.unit(direction)


@dataclass(frozen=True)
class Adversarial:
    """x + r with ‖r‖ = ε for each sample, along a slope (N, …): the point where the prediction changes most. (N, …)"""

    of: Node
    slope: Tap
    radius: float

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.of, self.slope)

    def value(self, context: NodeContext) -> Tensor:
        return losses.adversarial_point(context(self.of).detach(), context(self.slope), self.radius)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a role, of any shape, for terms that regularise weights."""

    role: str
    name: str
    reads = ()

    def value(self, context: NodeContext) -> Tensor:
        return context.parameter(self.role, self.name)


def below(node: Node | View) -> Iterator[Node | View]:
    """Everything that a node depends on, in an order in which it can be computed, and the node itself."""
    for child in node.reads:
        yield from below(child)
    yield node
