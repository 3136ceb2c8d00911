"""What a loss term can read: small values that describe tensors, before any tensor exists.

A method is written down as terms that read *nodes*: a batch of a stream, a mix of it, a network's logits on either.
Nodes are frozen and compare by content, so two terms that describe the same view share one forward pass, and the whole
set of passes of an update is known before it runs (:mod:`vmt.step.plan`).

>>> clean = View("classifier", Batch("target"), statistics=True)
>>> pairs = Pairs(Batch("target"))
>>> mixed = View("classifier", Mix(Batch("target"), pairs))
>>> reads = clean.logits, mixed.logits, Lam(pairs), Partner(pairs)
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from vmt import losses
from vmt.nets.staged import INPUT

SLOPE = "slope"


class Draws(Protocol):
    """The source of a run's randomness. A draw is known by its name; ``frozen`` gives the same values at every step."""

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


class Context(Protocol):
    """What the running update offers to a node: the values of other nodes, the data, and randomness."""

    draws: Draws

    def __call__(self, node: "Node") -> Tensor:
        """The value of another node, computed once in an update."""
        ...

    def images(self, batch: "Batch") -> Tensor: ...

    def labels(self, batch: "Batch") -> Tensor: ...

    def parameter(self, role: str, name: str) -> Tensor: ...

    def name(self, draw: str) -> str:
        """The full name of a draw: the update's name, then the draw's own."""
        ...

    def xi(self, role: str) -> float:
        """The length of VAT's first step for a method that leaves it open."""
        ...


class Node(Protocol):
    """A description of one tensor."""

    @property
    def reads(self) -> tuple["Node", ...]:
        """The nodes that must have a value first."""
        ...

    def value(self, context: Context) -> Tensor: ...


@dataclass(frozen=True)
class Batch:
    """The images of a batch of a stream. Another ``draw`` is another batch of the same stream."""

    stream: str
    draw: str = ""

    reads = ()

    @property
    def name(self) -> str:
        return f"{self.stream}.{self.draw}" if self.draw else self.stream

    def value(self, context: Context) -> Tensor:
        return context.images(self)


@dataclass(frozen=True)
class Labels:
    """The labels of a batch."""

    batch: Batch
    reads = ()

    def value(self, context: Context) -> Tensor:
        return context.labels(self.batch)


@dataclass(frozen=True)
class Joined:
    """The rows of several nodes below each other, so that a pass normalises them together."""

    parts: tuple["Node", ...]

    @property
    def reads(self) -> tuple["Node", ...]:
        return self.parts

    def value(self, context: Context) -> Tensor:
        return torch.cat([context(part) for part in self.parts])


@dataclass(frozen=True)
class Augmented:
    """A batch seen through an augmentation: a callable of the images, the draws and a name for its own draws."""

    of: "Node"
    augment: Callable[[Tensor, Draws, str], Tensor]
    draw: str

    @property
    def reads(self) -> tuple["Node", ...]:
        return (self.of,)

    def value(self, context: Context) -> Tensor:
        return self.augment(context(self.of), context.draws, context.name(f"{self.draw}/augment"))


@dataclass(frozen=True)
class Pairs:
    """Who is mixed with whom, and how much: λ ~ Beta(α, α) per sample, partners by a permutation of the batch.

    ``fresh=False`` keeps the λ of the first step for the whole run, as the authors' program does.
    """

    batch: Batch
    alpha: float = 1.0
    fresh: bool = True


@dataclass(frozen=True)
class Lam:
    """λ of each pair."""

    pairs: Pairs

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.pairs.batch,)

    def value(self, context: Context) -> Tensor:
        n = len(context(self.pairs.batch))
        name = context.name(f"{self.pairs.batch.name}/lambda")
        return context.draws.beta(name, self.pairs.alpha, n, frozen=not self.pairs.fresh)


@dataclass(frozen=True)
class Partner:
    """The row that each row is mixed with."""

    pairs: Pairs

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.pairs.batch,)

    def value(self, context: Context) -> Tensor:
        n = len(context(self.pairs.batch))
        return context.draws.permutation(context.name(f"{self.pairs.batch.name}/partner"), n)


@dataclass(frozen=True)
class Mix:
    """λ v_i + (1 − λ) v_j of the rows of a node."""

    of: Node
    pairs: Pairs

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.of, Lam(self.pairs), Partner(self.pairs))

    def value(self, context: Context) -> Tensor:
        return losses.mixed(*(context(node) for node in self.reads))


@dataclass(frozen=True)
class View:
    """One forward pass: a role's network on an input, normalised with the statistics of this batch alone."""

    role: str
    input: Node
    entry: str = INPUT
    """The tap at which the input enters the network."""
    statistics: bool = False
    """Whether this pass updates the running statistics."""
    training: bool = True
    """Batch statistics, dropout and noise; or evaluation mode."""
    gradient: bool = True
    """Whether the gradient reaches the role's parameters, where the update optimises them."""
    draw: str = ""
    """Views equal but for this are separate passes, with their own dropout and noise."""
    probe: "Tap | None" = None
    """A clean prediction. The view then has the tap ``slope`` and no other: the gradient of the cross-entropy between
    that prediction and its own, with respect to its input."""

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.input,) if self.probe is None else (self.input, self.probe)

    def tap(self, name: str) -> "Tap":
        return Tap(self, name)

    @property
    def logits(self) -> "Tap":
        return Tap(self, "logits")


@dataclass(frozen=True)
class Tap:
    """What a view's network produces at a named stage. Its value comes from the view's pass."""

    view: View
    name: str

    @property
    def reads(self) -> tuple[Node, ...]:
        return self.view.reads

    def value(self, context: Context) -> Tensor:
        raise LookupError(f"the pass of {self.view} has not run yet")


@dataclass(frozen=True)
class Start:
    """x + ξ d: a random point beside x, where VAT looks for its direction.

    ``xi=None`` lets the network decide: dropout and noise already give a direction, a network without them needs a
    visible step.
    """

    of: Node
    role: str
    draw: str
    xi: float | None = None

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.of,)

    def value(self, context: Context) -> Tensor:
        x = context(self.of).detach()
        xi = context.xi(self.role) if self.xi is None else self.xi
        direction = context.draws.normal(context.name(f"{self.draw}/direction"), tuple(x.shape))
        return x + xi * losses.unit(direction)


@dataclass(frozen=True)
class Adversarial:
    """x + r, ‖r‖ = ε per sample along a slope: where the prediction changes most."""

    of: Node
    slope: Tap
    radius: float

    @property
    def reads(self) -> tuple[Node, ...]:
        return (self.of, self.slope)

    def value(self, context: Context) -> Tensor:
        return losses.adversarial_point(context(self.of).detach(), context(self.slope), self.radius)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a role, for terms that regularise weights."""

    role: str
    name: str
    reads = ()

    def value(self, context: Context) -> Tensor:
        return context.parameter(self.role, self.name)


def below(node: Node | View) -> Iterator[Node | View]:
    """All that a node reads, whatever comes first first, and the node itself."""
    for child in node.reads:
        yield from below(child)
    yield node
