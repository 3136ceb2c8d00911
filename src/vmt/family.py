"""What the methods of the package have in common: the classifier with its weight average, and the terms of DANN, VADA
and VMT."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vmt import losses
from vmt.health import discriminator_accuracy, health
from vmt.method import (
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
from vmt.penalties import Penalty
from vmt.schedules import Number
from vmt.views import Batch, Labels, View

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
