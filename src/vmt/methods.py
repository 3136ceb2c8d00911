"""Every method of the package, as a value.

Each function returns a :class:`vmt.method.Method`; the arguments are the paper's hyperparameters with its names. A new
method is a new function like these: name the views, then the terms that read them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from vmt import losses, penalties
from vmt.errors import InputError
from vmt.health import discriminator_accuracy, health
from vmt.method import (
    Adam,
    Average,
    Copy,
    CopyRole,
    Discriminator,
    Event,
    Method,
    Network,
    Phase,
    Role,
    Term,
    Update,
    measure,
)
from vmt.penalties import Penalty
from vmt.schedules import Number
from vmt.views import Batch, Labels, View

ADAM = Adam()
SOURCE, TARGET = Batch("source"), Batch("target")
CLASSIFIER: dict[str, Role] = {"classifier": Network(), "ema": Copy("classifier", shared_statistics=True)}
AVERAGE = Average("classifier", into="ema")


def source_only(optimiser: Adam = ADAM, statistics: str = "source", iterations: int = 40_000) -> Method:
    """The lower bound: L_y alone. Nothing of the target is seen.

    ``statistics="target"`` takes the running statistics from target batches, as the authors' program does.
    """
    if statistics not in ("source", "target"):
        raise InputError(f"statistics={statistics!r} is not one of 'source', 'target'")
    clean = View("classifier", SOURCE, statistics=statistics == "source")
    terms = (Term("L_y", losses.source_cross_entropy, (clean.logits, Labels(SOURCE))), *health(clean))
    keep = () if statistics == "source" else (View("classifier", TARGET, statistics=True),)
    return one_phase("source_only", CLASSIFIER, [classifier_update(terms, optimiser, keep)], iterations)


def target_only(optimiser: Adam = ADAM, iterations: int = 40_000) -> Method:
    """The upper bound: cross-entropy on the target's own labels."""
    clean = View("classifier", TARGET, statistics=True)
    terms = (Term("L_y", losses.source_cross_entropy, (clean.logits, Labels(TARGET))), *health(clean))
    return one_phase("target_only", CLASSIFIER, [classifier_update(terms, optimiser)], iterations)


def dann(lambda_d: Number = 1e-2, optimiser: Adam = ADAM, iterations: int = 40_000) -> Method:
    """L_y + λ_d L_d with alternating updates: domain-adversarial training on the paper's networks."""
    return adversarial("dann", lambda_d, 0.0, 0.0, (), optimiser, iterations)


def vada(
    lambda_d: Number = 1e-2,
    lambda_s: Number = 1.0,
    lambda_t: Number = 1e-2,
    entropy: bool = True,
    radius: float = 3.5,
    xi: float | None = None,
    optimiser: Adam = ADAM,
    iterations: int = 40_000,
) -> Method:
    """DANN + λ_s L_v(source) + λ_t [L_v(target) + L_c(target)]."""
    terms = [penalties.vat(radius, xi)]
    return adversarial("vada", lambda_d, lambda_s, lambda_t, terms, optimiser, iterations, entropy)


def vmt(
    lambda_d: Number = 1e-2,
    lambda_s: Number = 1.0,
    lambda_t: Number = 1e-2,
    mix: str = "logits",
    vat: bool = True,
    alpha: float = 1.0,
    fresh_lambda: bool = True,
    lambda_mix_t: Number | None = None,
    radius: float = 3.5,
    xi: float | None = None,
    optimiser: Adam = ADAM,
    iterations: int = 40_000,
) -> Method:
    """Virtual mixup training: VADA + λ_s L_m(source) + λ_t L_m(target).

    ``mix`` says where the virtual labels are mixed (``logits``, ``probabilities`` or ``hidden``); ``vat=False`` drops
    L_v; ``lambda_mix_t`` gives L_m(target) a weight of its own; ``fresh_lambda=False`` draws λ once per run, as the
    authors' program does.
    """
    terms = [penalties.mixup(mix, alpha, fresh_lambda, lambda_mix_t)]
    if vat:
        terms.append(penalties.vat(radius, xi))
    return adversarial("vmt", lambda_d, lambda_s, lambda_t, terms, optimiser, iterations)


def dirt_t(
    base: Method,
    beta: Number = 1e-2,
    lambda_t: Number = 1e-2,
    interval: int = 5_000,
    mix: str | None = "logits",
    vat: bool = True,
    alpha: float = 1.0,
    fresh_lambda: bool = True,
    lambda_mix_t: Number | None = None,
    radius: float = 3.5,
    xi: float | None = None,
    iterations: int = 160_000,
) -> Method:
    """``base``, then DIRT-T: β CE(teacher(x), f(x)) on one target batch, λ_t [L_m + L_v + L_c] on another.

    It goes on from the weights, Adam moments and weight average of ``base``. The teacher is the weight average with
    the running statistics of the moment, refreshed every ``interval`` iterations. ``mix=None`` leaves L_m out, as
    after VADA.
    """
    if "classifier" not in base.roles or "ema" not in base.roles:
        raise InputError(
            f"dirt_t needs a method with the roles 'classifier' and 'ema'; {base.name!r} has {', '.join(base.roles)}"
        )
    taught = Batch("target", "teacher")
    student = View("classifier", taught)
    teacher = View("teacher", taught, training=False)
    clean = View("classifier", TARGET, statistics=True)
    extra = [penalties.vat(radius, xi)] if vat else []
    if mix is not None:
        extra.append(penalties.mixup(mix, alpha, fresh_lambda, lambda_mix_t))
    terms = (
        Term("teacher", losses.teacher_cross_entropy, (teacher.logits, student.logits), beta),
        Term("L_c(target)", losses.conditional_entropy, (clean.logits,), lambda_t),
        *(penalty(clean, lambda_t) for penalty in extra),
        *health(clean),
    )
    update = classifier_update(terms, next(u.optimiser for u in base.updates() if u.name == "classifier"))
    phase = Phase("dirt_t", (update,), (Event(interval, CopyRole("ema", into="teacher")),), iterations)
    return replace(
        base,
        name=f"{base.name}+dirt_t",
        roles={**base.roles, "teacher": Copy("ema")},
        phases=(*base.phases, phase),
    )


METHODS: dict[str, Callable[..., Method]] = {f.__name__: f for f in (source_only, target_only, dann, vada, vmt)}


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
    """The family of DANN, VADA and VMT: L_y + λ_d L_d + λ_s Σ penalties(source) + λ_t [Σ penalties(target) + L_c]."""
    source = View("classifier", SOURCE)
    target = View("classifier", TARGET, statistics=True)
    d_source = View("discriminator", source.tap("features")).tap("domain")
    d_target = View("discriminator", target.tap("features")).tap("domain")

    terms: list[Term] = [Term("L_y", losses.source_cross_entropy, (source.logits, Labels(SOURCE)))]
    updates: list[Update] = []
    roles = dict(CLASSIFIER)
    if lambda_d != 0:
        roles["discriminator"] = Discriminator()
        domains = (d_source, d_target)
        updates.append(
            Update(
                "discriminator",
                ("discriminator",),
                (
                    Term("L_disc", losses.discriminator_loss, domains),
                    measure("accuracy", discriminator_accuracy, *domains),
                ),
                optimiser,
            )
        )
        terms.append(Term("L_d", losses.domain_confusion, domains, lambda_d))
        terms.append(measure("L_disc", losses.discriminator_loss, *domains))
    if lambda_s != 0:
        terms += [penalty(source, lambda_s) for penalty in extra]
    if lambda_t != 0:
        terms += [penalty(target, lambda_t) for penalty in extra]
        if entropy:
            terms.append(Term("L_c(target)", losses.conditional_entropy, (target.logits,), lambda_t))
    terms += health(target)
    updates.append(classifier_update(tuple(terms), optimiser, keep=(target,)))
    return one_phase(name, roles, updates, iterations)


def one_phase(name: str, roles: dict[str, Role], updates: list[Update], iterations: int) -> Method:
    return Method(name, roles, (Phase(name, tuple(updates), iterations=iterations),))


def classifier_update(terms: tuple[Term, ...], optimiser: Adam, keep: tuple[View, ...] = ()) -> Update:
    return Update("classifier", ("classifier",), terms, optimiser, averages=(AVERAGE,), keep=keep)
