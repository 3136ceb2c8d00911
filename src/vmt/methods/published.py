"""Systems of other papers that the paper compares with, each with what its own paper adds to training on the source.

Their networks are in :mod:`vmt.nets.published`; :func:`vmt.runs.recipes.published` joins both for the paper's tasks.
The network that is trained predicts, without a weight average. The augmentations of the Π-model and of DRCN are at
the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vmt import losses
from vmt.errors import InputError
from vmt.methods.augment import matrices, resampled
from vmt.methods.nodes import Augmented, Batch, Draws, Labels, Sum, View
from vmt.methods.nouns import (
    SGD,
    Adam,
    AnyOptimiser,
    Inverse,
    Loss,
    Method,
    Network,
    Number,
    Own,
    Phase,
    Ramp,
    Role,
    Term,
    Update,
    measure,
)
from vmt.methods.terms import L_y, discriminator_accuracy, domains, health, predicted_share
from vmt.nets import published

SOURCE, TARGET = Batch("source"), Batch("target")
GROWING = Ramp(0.0, 1.0, shape="sigmoid")
# The optimisers of the papers of DANN, self-ensembling, DRCN and DSN.
FALLING_SGD, ADAM, SLOW_ADAM, PLAIN_SGD = SGD(lr=Inverse(1e-2)), Adam(beta1=0.9), Adam(lr=3e-4, beta1=0.9), SGD(lr=1e-2)


def dann_grl(
    reversal: Number = GROWING,
    head: Sequence[int] = (100,),
    optimiser: AnyOptimiser = FALLING_SGD,
    iterations: int = 40_000,
) -> Method:
    """DANN as its paper has it: one update, in which the gradient of the domain loss is reversed at the features.

    L_y + L_disc, where L_disc's gradient reaches the features times −λ; λ, the ``reversal``, grows from 0 to 1.

    >>> [update.optimises for update in dann_grl().updates()]
    [('classifier', 'discriminator')]
    """
    source, target = View("classifier", SOURCE), View("classifier", TARGET, statistics=True)
    seen = domains(source, target, "discriminator", reversal=reversal)
    terms = (
        L_y(source),
        Term("L_disc", losses.discriminator_loss, seen),
        measure("accuracy", discriminator_accuracy, *seen),
        *health(target),
    )
    roles: dict[str, Role] = {"classifier": Network(), "discriminator": head_on("features", head)}
    return joint("dann_grl", roles, terms, (target,), optimiser, iterations)


def pi_model(
    weight: Number = 3.0,
    threshold: float = 0.96837722,
    balance: Number = 0.0,
    affine: float = 0.1,
    shift: float = 2.0,
    flip: bool = False,
    noise: float = 0.1,
    intensity: bool = False,
    optimiser: AnyOptimiser = ADAM,
    iterations: int = 40_000,
) -> Method:
    """The Π-model with augmentation: the predictions for two augmentations of a target sample must agree.

    L_y + weight · E[m(x) ‖f(x′) − f(x″)‖²/K](target) + balance · class balance, where m(x) is 1 if f(x″) is above the
    ``threshold``, and f(x″) is held constant. Source samples are augmented once.

    >>> [term.name for term in pi_model().phases[0].updates[0].terms if term.weight]
    ['L_y', 'consistency']
    """
    if not 0 <= threshold < 1:
        raise InputError(f"threshold must be a probability below 1, but got {threshold}.")
    augment = Distortion(affine, shift, flip, noise, intensity)
    source = View("classifier", Augmented(SOURCE, augment, "source"))
    student = View("classifier", Augmented(TARGET, augment, "student"))
    teacher = View("classifier", Augmented(TARGET, augment, "teacher"), statistics=True)
    both = student.logits, teacher.logits
    terms = (
        Term("L_y", losses.source_cross_entropy, (source.logits, Labels(SOURCE))),
        Term("consistency", Confident(losses.masked_consistency, threshold), both, weight),
        *((Term("class balance", Confident(losses.class_balance, threshold), both, balance),) if balance else ()),
        measure("confident", ConfidentShare(threshold), teacher.logits),
        measure("entropy(target)", losses.conditional_entropy, teacher.logits),
        measure("predicted share(target)", predicted_share, teacher.logits),
    )
    return joint("pi_model", {"classifier": Network()}, terms, (teacher,), optimiser, iterations)


def drcn(
    weight: Number = 1.0,
    tap: str = "hidden",
    rotation: float = 20.0,
    shift: float = 0.2,
    masked: float = 0.5,
    optimiser: AnyOptimiser = SLOW_ADAM,
    iterations: int = 40_000,
) -> Method:
    """DRCN: the encoder of the classifier also has to reconstruct the target, through a decoder of its own.

    L_y, and in a second update weight · E[(x̂ − x)²](target). Both domains are rotated and shifted; what is
    reconstructed has a share ``masked`` of its values removed, and is compared with the sample as it was.

    >>> [update.optimises for update in drcn().updates()]
    [('classifier',), ('classifier', 'decoder')]
    """
    moved = Motion(rotation, shift)
    source = View("classifier", Augmented(SOURCE, moved, "source"))
    hurt = Augmented(Augmented(TARGET, moved, "target"), Masking(masked), "mask")
    decoded = View("decoder", View("classifier", hurt).tap(tap), statistics=True)
    clean = View("classifier", TARGET, statistics=True)
    supervised = (
        Term("L_y", losses.source_cross_entropy, (source.logits, Labels(SOURCE))),
        *health(clean),
    )
    reconstruct = (Term("reconstruction", losses.squared_error, (decoded.tap("reconstruction"), TARGET), weight),)
    roles: dict[str, Role] = {"classifier": Network(), "decoder": Own(published.drcn_decoder, tap=tap)}
    updates = (
        Update("classifier", ("classifier",), supervised, optimiser),
        Update("reconstruction", ("classifier", "decoder"), reconstruct, optimiser),
    )
    return Method("drcn", roles, (Phase("drcn", updates, iterations=iterations),), ("classifier",))


def dsn(
    reconstruction: Number = 0.64,
    difference: Number = 0.075,
    similarity: Number = 0.25,
    separation_from: float = 0.25,
    tap: str = "hidden",
    head: Sequence[int] = (100,),
    optimiser: AnyOptimiser = PLAIN_SGD,
    iterations: int = 40_000,
) -> Method:
    """Domain separation: a shared code for the classes, and for each domain a private code that is orthogonal to it.

    L_y + ``reconstruction`` · (error) + ``difference`` · ‖PᵀS‖² + ``similarity`` · L_disc with a reversed gradient.
    A decoder sees the sum of both codes. All but L_y begin after the share ``separation_from`` of the iterations.

    >>> list(dsn().roles)
    ['classifier', 'discriminator', 'private source', 'private target', 'decoder']
    """
    views = {"source": View("classifier", SOURCE), "target": View("classifier", TARGET, statistics=True)}
    seen = domains(views["source"], views["target"], "discriminator", tap=tap, reversal=1.0)
    terms = [L_y(views["source"]), Term("L_disc", losses.discriminator_loss, seen, later(similarity, separation_from))]
    roles: dict[str, Role] = {"classifier": Network(), "discriminator": head_on(tap, head)}
    for name, view in views.items():
        shared = view.tap(tap)
        private = View(f"private {name}", view.input, statistics=True).tap("code")
        decoded = View("decoder", Sum((private, shared)), statistics=name == "target").tap("reconstruction")
        terms += [
            Term(f"difference({name})", losses.orthogonality, (private, shared), later(difference, separation_from)),
            Term(
                f"reconstruction({name})",
                losses.scale_invariant_error,
                (decoded, view.input),
                later(reconstruction, separation_from),
            ),
        ]
        roles[f"private {name}"] = Own(published.dsn_private, tap=tap)
    roles["decoder"] = Own(published.dsn_decoder, tap=tap)
    measured = (measure("accuracy", discriminator_accuracy, *seen), *health(views["target"]))
    return joint("dsn", roles, (*terms, *measured), (views["target"],), optimiser, iterations)


def joint(
    name: str,
    roles: dict[str, Role],
    terms: tuple[Term, ...],
    keep: tuple[View, ...],
    optimiser: AnyOptimiser,
    iterations: int,
) -> Method:
    """One update of all roles; the classifier itself predicts."""
    update = Update("classifier", tuple(roles), terms, optimiser, keep=keep)
    return Method(name, roles, (Phase(name, (update,), iterations=iterations),), ("classifier",))


def head_on(tap: str, widths: Sequence[int]) -> Own:
    return Own(published.DomainHead(tuple(widths)), tap=tap)


def later(weight: Number, share: float) -> Number:
    """A weight that is 0 up to a share of the iterations."""
    if share == 0 or callable(weight):
        return weight
    return Ramp(0.0, weight, begin=share, until=share)


@dataclass(frozen=True)
class Confident:
    """A loss with a threshold of confidence, which compares by content."""

    loss: Loss
    threshold: float

    def __call__(self, student: Tensor, teacher: Tensor) -> Tensor | tuple[Tensor, ...]:
        return self.loss(student, teacher, self.threshold)


@dataclass(frozen=True)
class ConfidentShare:
    """Whether each prediction is above a threshold of confidence."""

    threshold: float

    def __call__(self, logits: Tensor) -> Tensor:
        return (losses.at_least_float32(logits).softmax(-1).amax(-1) > self.threshold).float()


# --- Augmentation ---


def uniform(draws: Draws, name: str, n: int, low: float, high: float) -> Tensor:
    """``n`` values between two bounds: (n,)."""
    return low + (high - low) * draws.beta(name, 1.0, n)


def placed(x: Tensor, rows: Sequence[Tensor], across: Tensor, down: Tensor) -> Tensor:
    """Images (N, C, H, W) after a linear map of their coordinates, four vectors (N,), and a shift in pixels, (N,)."""
    height, width = x.shape[-2:]
    place = matrices(rows[0], rows[1], 2 * across / width, rows[2], rows[3], 2 * down / height)
    return resampled(x.float(), place)


@dataclass(frozen=True)
class Distortion:
    """Self-ensembling's augmentation: an affine map I + N(0, a²), a shift, a flip, changes of intensity, and noise.

    ``shift`` is in pixels. Vectors get the noise alone.
    """

    affine: float = 0.1
    shift: float = 2.0
    flip: bool = False
    noise: float = 0.1
    intensity: bool = False

    def __call__(self, x: Tensor, draws: Draws, name: str) -> Tensor:
        n = len(x)
        if x.dim() == 4:
            a, b, c, d = (self.affine * draws.normal(f"{name}/affine", (n, 4))).unbind(1)
            mirrored = torch.where(uniform(draws, f"{name}/flip", n, -1, 1) < 0, -1.0, 1.0) if self.flip else 1.0
            across, down = (uniform(draws, f"{name}/shift {i}", n, -self.shift, self.shift) for i in range(2))
            x = placed(x, (mirrored * (1 + a), b, mirrored * c, 1 + d), across, down)
        if self.intensity:
            sign = torch.where(uniform(draws, f"{name}/sign", n, -1, 1) < 0, -1.0, 1.0)
            scale = sign * uniform(draws, f"{name}/scale", n, 0.25, 1.5)
            of_sample = (-1, *[1] * (x.dim() - 1))
            x = x * scale.view(of_sample) + uniform(draws, f"{name}/offset", n, -0.5, 0.5).view(of_sample)
        return x + self.noise * draws.normal(f"{name}/noise", tuple(x.shape))


@dataclass(frozen=True)
class Motion:
    """DRCN's augmentation: rotations up to ``rotation`` degrees and shifts up to a share of the side. For images."""

    rotation: float
    shift: float

    def __call__(self, x: Tensor, draws: Draws, name: str) -> Tensor:
        if x.dim() != 4:
            return x
        n = len(x)
        angle = torch.deg2rad(uniform(draws, f"{name}/angle", n, -self.rotation, self.rotation))
        rows = angle.cos(), -angle.sin(), angle.sin(), angle.cos()
        most = (self.shift * x.shape[-1], self.shift * x.shape[-2])
        across, down = (uniform(draws, f"{name}/shift {i}", n, -far, far) for i, far in enumerate(most))
        return placed(x, rows, across, down)


@dataclass(frozen=True)
class Masking:
    """Replaces a share of the values by the smallest one of a picture, −1; by 0 for vectors."""

    share: float

    def __call__(self, x: Tensor, draws: Draws, name: str) -> Tensor:
        kept = draws.beta(f"{name}/mask", 1.0, x.numel()).view(x.shape) >= self.share
        return torch.where(kept, x, -1.0 if x.dim() == 4 else 0.0)
