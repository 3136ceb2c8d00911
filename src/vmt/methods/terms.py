"""The terms of the paper's objective, and the metrics that are logged beside them.

Each function describes one term: its loss, the nodes that the loss reads, and its weight. A *clean* view is a
classifier's pass on a batch as it was drawn, neither mixed nor perturbed. Shapes are written as in :mod:`vmt.losses`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vmt import losses
from vmt.errors import InputError
from vmt.methods.nodes import (
    SLOPE,
    Adversarial,
    Batch,
    Conditioned,
    Labels,
    Lam,
    Mix,
    Node,
    Pairs,
    Partner,
    Reversed,
    Start,
    Tap,
    View,
)
from vmt.methods.nouns import Number, Term, measure


def L_y(clean: View, *, weight: Number = 1.0) -> Term:
    """L_y = E[−yᵀ ln f(x)], the cross-entropy to the labels of the batch. Reads logits (N, K), labels (N,)."""
    return Term(term_name("L_y", clean), losses.source_cross_entropy, (clean.logits, Labels(batch_of(clean))), weight)


def L_d(
    source: View,
    target: View,
    *,
    weight: Number,
    discriminator: str = "discriminator",
    conditional: bool = False,
    entropy_weights: bool = False,
) -> Term:
    """L_d = ½ E[BCE(d(g(x_s)), 0)] + ½ E[BCE(d(g(x_t)), 1)], which is small for features g(x) that mislead d.

    A ``conditional`` discriminator reads the predictions f(x) as well, and ``entropy_weights`` gives samples with
    certain predictions a larger weight. Reads the discriminator's logits (N, 1) on the source and on the target; with
    ``entropy_weights``, the classifier's logits (N, K) as well.
    """
    reads = domains(source, target, discriminator, conditional)
    if entropy_weights:
        loss, reads = losses.weighted_domain_confusion, (*reads, source.logits, target.logits)
        return Term(term_name("L_d", source), loss, reads, weight)
    return Term(term_name("L_d", source), losses.domain_confusion, reads, weight)


def L_disc(
    source: View,
    target: View,
    *,
    weight: Number = 1.0,
    discriminator: str = "discriminator",
    conditional: bool = False,
    entropy_weights: bool = False,
) -> Term:
    """L_disc = ½ E[BCE(d(g(x_s)), 1)] + ½ E[BCE(d(g(x_t)), 0)], which the discriminator d minimises. Reads as L_d."""
    reads = domains(source, target, discriminator, conditional)
    if entropy_weights:
        loss, reads = losses.weighted_discriminator_loss, (*reads, source.logits, target.logits)
        return Term(term_name("L_disc", source), loss, reads, weight)
    return Term(term_name("L_disc", source), losses.discriminator_loss, reads, weight)


def L_c(clean: View, *, weight: Number) -> Term:
    """L_c = E[−f(x)ᵀ ln f(x)], the conditional entropy of the predictions. Reads logits (N, K)."""
    return Term(term_name(f"L_c({batch_of(clean).name})", clean), losses.conditional_entropy, (clean.logits,), weight)


def L_v(clean: View, *, weight: Number, radius: float = 3.5, xi: float | None = None) -> Term:
    """L_v = E[max_{‖r‖ ≤ ε} CE(f(x), f(x + r))]: predictions should not change within the radius ε of a sample.

    It takes three passes: at x, where f(x) is the label; at x + ξd, where the slope of the cross-entropy gives the
    direction of r; and at x + r. Reads the logits (N, K) at x and at x + r.
    """
    for name, length in (("radius", radius), ("xi", xi)):
        if length is not None and not 0 < length < math.inf:
            raise InputError(f"{name} must be a positive number, but got {length}.")
    batch = batch_of(clean)
    start = Start(batch, clean.role, batch.name, xi)
    slope = View(clean.role, start, gradient=False, probe=clean.logits).tap(SLOPE)
    perturbed = View(clean.role, Adversarial(batch, slope, radius))
    reads = clean.logits, perturbed.logits
    return Term(term_name(f"L_v({batch.name})", clean), losses.virtual_adversarial, reads, weight)


def L_m(clean: View, *, weight: Number, mix: str = "logits", alpha: float = 1.0, fresh: bool = True) -> Term:
    """L_m = E[CE(ỹ, f(x̃))]: at a mix x̃ = λx_i + (1−λ)x_j, the prediction should be the same mix of both predictions.

    ``mix`` says what is mixed to get the virtual label ỹ: the ``logits``, softmax(λz_i + (1−λ)z_j); the
    ``probabilities``, λp_i + (1−λ)p_j; or the inputs of the last dense layer, ``hidden``, from which the rest of the
    network predicts ỹ. λ ~ Beta(α, α) for each sample; unless ``fresh``, it is drawn once for the whole run.

    Reads the logits (N, K) of x and of x̃, λ (N,) and the partners j (N,); for ``hidden``, the logits (N, K) that follow
    the mixed layer, and those of x̃.
    """
    if mix not in ("logits", "probabilities", "hidden"):
        raise InputError(f"mix must be 'logits', 'probabilities' or 'hidden', but got {mix!r}.")
    if not alpha > 0:
        raise InputError(f"alpha must be a positive number, the parameter of Beta(α, α), but got {alpha}.")
    batch = batch_of(clean)
    pairs = Pairs(batch, alpha, fresh)
    of_mixed = View(clean.role, Mix(batch, pairs)).logits
    name = term_name(f"L_m({batch.name})", clean)
    if mix == "hidden":
        label = View(clean.role, Mix(clean.tap("hidden"), pairs), entry="hidden", gradient=False).logits
        return Term(name, losses.teacher_cross_entropy, (label, of_mixed), weight)
    loss = losses.virtual_mixup if mix == "logits" else losses.virtual_mixup_on_probabilities
    return Term(name, loss, (clean.logits, of_mixed, Lam(pairs), Partner(pairs)), weight)


def L_mcc(clean: View, *, weight: Number, temperature: float = 2.5) -> Term:
    """L_mcc = (ΣC̃ − tr C̃) / K, where C̃ is the confusion between the K classes in the predictions for a whole batch.

    The predictions are softmax(z / T), with the ``temperature`` T. Reads logits (N, K).
    """
    if not 0 < temperature < math.inf:
        raise InputError(f"temperature must be a positive number, but got {temperature}.")
    loss = ClassConfusion(temperature)
    return Term(term_name(f"L_mcc({batch_of(clean).name})", clean), loss, (clean.logits,), weight)


@dataclass(frozen=True)
class ClassConfusion:
    """:func:`vmt.losses.class_confusion` at a temperature, as a loss that compares by content."""

    temperature: float

    def __call__(self, logits: Tensor) -> Tensor:
        return losses.class_confusion(logits, self.temperature)


def health(clean: View) -> tuple[Term, ...]:
    """Metrics that reveal a collapse: the entropy of the predictions and the share of each class."""
    stream = batch_of(clean).name
    return (
        measure(term_name(f"entropy({stream})", clean), losses.conditional_entropy, clean.logits),
        measure(term_name(f"predicted share({stream})", clean), predicted_share, clean.logits),
    )


def predicted_share(logits: Tensor) -> Tensor:
    """The predicted class of each sample as a one-hot row, of which the mean is the share of each class.

    logits (N, K) → (N, K).
    """
    # `one_hot` inspects the values of its argument, which a traced step does not have.
    classes = torch.arange(logits.shape[-1], device=logits.device)
    return (logits.argmax(-1, keepdim=True) == classes).float()


def domain_accuracy(
    source: View, target: View, *, discriminator: str = "discriminator", conditional: bool = False
) -> Term:
    """The logged accuracy of the discriminator: ½ if it cannot tell the domains apart, 1 if it always can."""
    reads = domains(source, target, discriminator, conditional)
    return measure(term_name("accuracy", source), discriminator_accuracy, *reads)


def discriminator_accuracy(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Half of the accuracy in each domain, from the discriminator's logits.

    source (N, 1), target (M, 1) → (N,), (M,).
    """
    return 0.5 * (source > 0).float().squeeze(-1), 0.5 * (target <= 0).float().squeeze(-1)


def domains(
    source: View,
    target: View,
    discriminator: str,
    conditional: bool = False,
    *,
    tap: str = "features",
    reversal: Number | None = None,
) -> tuple[Tap, ...]:
    """The discriminator's logits (N, 1) on the features of both domains; a conditional one reads predictions too.

    ``reversal`` is the weight of a reversed gradient, with which the features learn to mislead the discriminator.
    """

    def seen(clean: View) -> Node:
        features = clean.tap(tap)
        if reversal is not None:
            return Reversed(features, reversal)
        return Conditioned(features, clean.logits) if conditional else features

    return tuple(View(discriminator, seen(clean)).tap("domain") for clean in (source, target))


def term_name(symbol: str, clean: View) -> str:
    """The name of a term; those of a second classifier end in its role."""
    return symbol if clean.role == "classifier" else f"{symbol} of {clean.role}"


def batch_of(clean: View) -> Batch:
    """The batch that a clean view reads."""
    batch: Node = clean.input
    if not isinstance(batch, Batch):
        raise InputError(
            f"this term needs a view of a Batch, but the view of {clean.role!r} reads a {type(batch).__name__}."
        )
    return batch
