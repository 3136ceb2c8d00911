"""What the methods of the package have in common: the classifier with its weight average, and the terms of DANN, VADA
and VMT."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vmt import losses
from vmt.errors import InputError
from vmt.methods.nodes import SLOPE, Adversarial, Batch, Labels, Lam, Mix, Node, Pairs, Partner, Start, View
from vmt.methods.nouns import (
    Adam,
    Average,
    Copy,
    Discriminator,
    Method,
    Network,
    Phase,
    Role,
    Term,
    Update,
    averaged,
    decay_for,
    measure,
)
from vmt.methods.schedules import Number

Penalty = Callable[[View, Number], Term]
"""A term of the cluster assumption on one stream: from its clean view and its weight."""


def vat(radius: float = 3.5, xi: float | None = None) -> Penalty:
    """L_v: the prediction must hold at radius ε around each sample."""
    for name, length in (("radius", radius), ("xi", xi)):
        if length is not None and not 0 < length < math.inf:
            raise InputError(f"{name}={length} is no length of a step: give a positive number.")

    def term(clean: View, weight: Number) -> Term:
        batch = batch_of(clean)
        near = View(clean.role, Start(batch, clean.role, batch.name, xi), gradient=False, probe=clean.logits)
        attacked = View(clean.role, Adversarial(batch, near.tap(SLOPE), radius))
        return Term(f"L_v({batch.name})", losses.virtual_adversarial, (clean.logits, attacked.logits), weight)

    return term


def mixup(
    mix: str = "logits", alpha: float = 1.0, fresh: bool = True, weight_on_target: Number | None = None
) -> Penalty:
    """L_m: the prediction at a mix of two samples must be the same mix of their predictions."""
    if mix not in ("logits", "probabilities", "hidden"):
        raise InputError(f"mix={mix!r} is not one of 'logits', 'probabilities', 'hidden'")
    if not alpha > 0:
        raise InputError(f"alpha={alpha} is no parameter of Beta(α, α): give a positive number.")

    def term(clean: View, weight: Number) -> Term:
        batch = batch_of(clean)
        pairs = Pairs(batch, alpha, fresh)
        of_mixed = View(clean.role, Mix(batch, pairs)).logits
        if batch.stream == "target" and weight_on_target is not None:
            weight = weight_on_target
        name = f"L_m({batch.name})"
        if mix == "hidden":
            label = View(clean.role, Mix(clean.tap("hidden"), pairs), entry="hidden", gradient=False).logits
            return Term(name, losses.teacher_cross_entropy, (label, of_mixed), weight)
        loss = losses.virtual_mixup if mix == "logits" else losses.virtual_mixup_on_probabilities
        return Term(name, loss, (clean.logits, of_mixed, Lam(pairs), Partner(pairs)), weight)

    return term


def batch_of(view: View) -> Batch:
    batch: Node = view.input
    if not isinstance(batch, Batch):
        raise InputError("a penalty needs the view of a plain batch")
    return batch


def discriminator_accuracy(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The share of samples whose domain the discriminator tells; ½ means that it cannot."""
    return 0.5 * (source > 0).float().squeeze(-1), 0.5 * (target <= 0).float().squeeze(-1)


def predicted_share(logits: Tensor) -> Tensor:
    """One row per sample, one column per class: averaged, the share of each predicted class."""
    # Not `one_hot`: it looks at the values, which a traced step has not got.
    classes = torch.arange(logits.shape[-1], device=logits.device)
    return (logits.argmax(-1, keepdim=True) == classes).float()


def health(clean: View) -> tuple[Term, ...]:
    """Entropy and class shares of a stream's clean predictions."""
    stream = batch_of(clean).name
    return (
        measure(f"entropy({stream})", losses.conditional_entropy, clean.logits),
        measure(f"predicted share({stream})", predicted_share, clean.logits),
    )


ADAM = Adam()
SOURCE, TARGET = Batch("source"), Batch("target")
CLASSIFIER: dict[str, Role] = {"classifier": Network(), "ema": Copy("classifier", shared_statistics=True)}
AVERAGE = Average("classifier", into="ema")


@dataclass(frozen=True)
class Family:
    """The clean views of one classifier of the DANN, VADA and VMT family, and the terms on them."""

    source: View
    target: View
    terms: tuple[Term, ...]
    discriminator_terms: tuple[Term, ...]


def family(
    classifier: str,
    discriminator: str,
    lambda_d: Number,
    lambda_s: Number,
    lambda_t: Number,
    extra: Sequence[Penalty],
    entropy: bool,
) -> Family:
    """L_y + λ_d L_d + λ_s Σ penalties(source) + λ_t [Σ penalties(target) + L_c] for one classifier.

    The terms of a second one of the same method are told apart by its name.
    """
    suffix = "" if classifier == "classifier" else f" of {classifier}"
    source, target = View(classifier, SOURCE), View(classifier, TARGET, statistics=True)
    domains = tuple(View(discriminator, view.tap("features")).tap("domain") for view in (source, target))
    terms = [Term("L_y", losses.source_cross_entropy, (source.logits, Labels(SOURCE)))]
    discriminate: list[Term] = []
    if lambda_d != 0:
        discriminate = [
            Term("L_disc", losses.discriminator_loss, domains),
            measure("accuracy", discriminator_accuracy, *domains),
        ]
        terms.append(Term("L_d", losses.domain_confusion, domains, lambda_d))
        terms.append(measure("L_disc", losses.discriminator_loss, *domains))
    if lambda_s != 0:
        terms += [penalty(source, lambda_s) for penalty in extra]
    if lambda_t != 0:
        terms += [penalty(target, lambda_t) for penalty in extra]
        if entropy:
            terms.append(Term("L_c(target)", losses.conditional_entropy, (target.logits,), lambda_t))

    def named(terms: list[Term]) -> tuple[Term, ...]:
        return tuple(replace(term, name=term.name + suffix) for term in terms)

    return Family(source, target, named(terms), named(discriminate))


def adversarial(
    name: str,
    lambda_d: Number,
    lambda_s: Number,
    lambda_t: Number,
    extra: Sequence[Penalty],
    optimiser: Adam,
    iterations: int,
    entropy: bool = True,
) -> Method:
    """A method of one classifier of the family and, if λ_d is not 0, its discriminator, updated first."""
    one = family("classifier", "discriminator", lambda_d, lambda_s, lambda_t, extra, entropy)
    roles, updates = dict(CLASSIFIER), []
    if lambda_d != 0:
        roles["discriminator"] = Discriminator()
        updates.append(Update("discriminator", ("discriminator",), one.discriminator_terms, optimiser))
    updates.append(classifier_update((*one.terms, *health(one.target)), optimiser, keep=(one.target,)))
    return one_phase(name, roles, updates, iterations)


def one_phase(name: str, roles: dict[str, Role], updates: list[Update], iterations: int) -> Method:
    phase = Phase(name, tuple(updates), iterations=iterations)
    return Method(name, roles, (averaged(phase, decay_for(iterations), most=True),))


def classifier_update(terms: tuple[Term, ...], optimiser: Adam, keep: tuple[View, ...] = ()) -> Update:
    return Update("classifier", ("classifier",), terms, optimiser, averages=(AVERAGE,), keep=keep)
