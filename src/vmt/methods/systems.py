"""Every method of the package, as a value.

Each function returns a :class:`vmt.methods.nouns.Method`; the arguments are the paper's hyperparameters with its names. A new
method is a new function like these: name the views, then the terms that read them.
"""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from vmt import losses
from vmt.errors import InputError, perhaps
from vmt.methods import terms as penalties
from vmt.methods.nodes import Batch, Joined, Labels, Tap, View
from vmt.methods.nouns import (
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
)
from vmt.methods.schedules import Number, warmed_up
from vmt.methods.settings import METHODS as NAMES
from vmt.methods.terms import (
    ADAM,
    AVERAGE,
    CLASSIFIER,
    SOURCE,
    TARGET,
    adversarial,
    classifier_update,
    family,
    health,
    one_phase,
)


def source_only(optimiser: Adam = ADAM, statistics: str = "source", iterations: int = 40_000) -> Method:
    """The lower bound: trained on the source's labels alone, L_y.

    ``statistics="target"`` takes the running statistics from target batches, as the authors' program does.

    >>> [term.name for update in source_only().updates() for term in update.terms]
    ['L_y', 'entropy(source)', 'predicted share(source)']
    """
    if statistics not in ("source", "target"):
        raise InputError(f"statistics={statistics!r} is not one of 'source', 'target'")
    clean = View("classifier", SOURCE, statistics=statistics == "source")
    terms = (Term("L_y", losses.source_cross_entropy, (clean.logits, Labels(SOURCE))), *health(clean))
    keep = () if statistics == "source" else (View("classifier", TARGET, statistics=True),)
    return one_phase("source_only", CLASSIFIER, [classifier_update(terms, optimiser, keep)], iterations)


def target_only(optimiser: Adam = ADAM, iterations: int = 40_000) -> Method:
    """The upper bound: trained on the target's own labels.

    >>> target_only().reads_labels_of("target")
    True
    """
    clean = View("classifier", TARGET, statistics=True)
    terms = (Term("L_y", losses.source_cross_entropy, (clean.logits, Labels(TARGET))), *health(clean))
    return one_phase("target_only", CLASSIFIER, [classifier_update(terms, optimiser)], iterations)


def dann(lambda_d: Number = 1e-2, optimiser: Adam = ADAM, iterations: int = 40_000) -> Method:
    """Domain-adversarial training: a discriminator tells the domains apart, and the features learn to fool it.

    L_y + λ_d L_d, with alternating updates.

    >>> [update.name for update in dann().updates()]
    ['discriminator', 'classifier']
    """
    return adversarial("dann", lambda_d, 0.0, 0.0, (), optimiser, iterations)


def vada(
    lambda_d: Number = 1e-2,
    lambda_s: Number = 1.0,
    lambda_t: Number = 1e-2,
    warm_up: float = 0.0,
    entropy: bool = True,
    radius: float = 3.5,
    xi: float | None = None,
    optimiser: Adam = ADAM,
    iterations: int = 40_000,
) -> Method:
    """DANN, and predictions that are confident on the target and hold in a ball around each sample.

    DANN + λ_s L_v(source) + λ_t [L_v(target) + L_c(target)]; λ_t grows from 0 over a share ``warm_up`` of the run.

    >>> classifier = vada(lambda_t=0.1).phases[0].updates[-1]
    >>> {term.name: term.weight for term in classifier.terms if term.weight}
    {'L_y': 1.0, 'L_d': 0.01, 'L_v(source)': 1.0, 'L_v(target)': 0.1, 'L_c(target)': 0.1}
    """
    terms, lambda_t = [penalties.vat(radius, xi)], warmed_up(lambda_t, warm_up)
    return adversarial("vada", lambda_d, lambda_s, lambda_t, terms, optimiser, iterations, entropy)


def vmt(
    lambda_d: Number = 1e-2,
    lambda_s: Number = 1.0,
    lambda_t: Number = 1e-2,
    warm_up: float = 0.0,
    mix: str | None = "logits",
    vat: bool = True,
    alpha: float = 1.0,
    fresh_lambda: bool = True,
    lambda_mix_t: Number | None = None,
    radius: float = 3.5,
    xi: float | None = None,
    optimiser: Adam = ADAM,
    iterations: int = 40_000,
) -> Method:
    """Virtual mixup training, the default: VADA, and predictions that hold between samples.

    VADA + λ_s L_m(source) + λ_t L_m(target). ``mix`` says where the virtual labels are mixed (``logits``,
    ``probabilities`` or ``hidden``); ``mix=None`` drops L_m and ``vat=False`` L_v; ``lambda_mix_t`` gives L_m(target) a
    weight of its own; ``fresh_lambda=False`` draws λ once per run, as the authors' program does. λ_t, and L_m(target)'s
    own weight, grow from 0 over the share ``warm_up`` of the iterations, so that the domains are aligned before the
    target's clusters are sharpened.

    >>> method = vmt(lambda_t=0.06, vat=False)
    >>> {term.name: term.weight for term in method.phases[0].updates[-1].terms if term.weight}
    {'L_y': 1.0, 'L_d': 0.01, 'L_m(source)': 1.0, 'L_m(target)': 0.06, 'L_c(target)': 0.06}
    """
    lambda_t = warmed_up(lambda_t, warm_up)
    lambda_mix_t = None if lambda_mix_t is None else warmed_up(lambda_mix_t, warm_up)
    terms = [] if mix is None else [penalties.mixup(mix, alpha, fresh_lambda, lambda_mix_t)]
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
    """DIRT-T, a second phase on the target alone, to refine what the method before it has learned.

    After ``base``: β CE(teacher(x), f(x)) on one target batch, λ_t [L_m + L_v + L_c] on another. It continues with the
    weights, Adam moments and weight average of ``base``. The teacher is the weight average with the running statistics
    of the moment, refreshed every ``interval`` iterations. ``mix=None`` leaves L_m out, as after VADA.

    >>> method = dirt_t(vada(iterations=5000), mix=None, interval=500, iterations=10000)
    >>> method.name, [(phase.name, phase.iterations) for phase in method.phases]
    ('vada+dirt_t', [('vada', 5000), ('dirt_t', 10000)])
    """
    if "classifier" not in base.roles or "ema" not in base.roles:
        raise InputError(
            f"dirt_t needs a method with the roles 'classifier' and 'ema'; {base.name!r} has {', '.join(base.roles)}"
        )
    if any(phase.name == "dirt_t" for phase in base.phases):
        raise InputError(f"{base.name!r} ends with DIRT-T already: let that one last longer, dirt_t(…, iterations=…).")
    before = next((update for update in base.updates() if "classifier" in update.optimises), None)
    if before is None:
        raise InputError(f"dirt_t needs a method that optimises its role 'classifier'; {base.name!r} does not.")
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
    # Under the name of the update before it, whose Adam moments it goes on with, as it does with the weight average.
    average = next((each for each in before.averages if each.into == "ema"), AVERAGE)
    update = Update(before.name, ("classifier",), terms, before.optimiser, averages=(average,))
    phase = Phase("dirt_t", (update,), (Event(interval, CopyRole("ema", into="teacher")),), iterations)
    roles = {**base.roles, "teacher": Copy("ema")}
    return replace(base, name=f"{base.name}+dirt_t", roles=roles, phases=(*base.phases, phase))


def with_target_labels(base: Method, weight: Number = 1.0) -> Method:
    """``base`` + weight · L_y on the target samples whose labels are known, in every phase.

    They run in one batch with unlabelled ones: few labels, or labels of one class alone, have no statistics of their
    own.

    >>> with_target_labels(vmt()).reads_labels_of("labelled target")
    True
    """
    known = Batch("labelled target")

    def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
        return losses.source_cross_entropy(logits[-len(labels) :], labels)

    supervised = {
        tap.view.role
        for update in base.updates()
        for term in update.terms
        if Labels(SOURCE) in term.reads
        for tap in term.reads
        if isinstance(tap, Tap)
    }
    if not supervised:
        raise InputError(
            f"method {base.name!r} has no classifier that learns from source labels to add target labels to."
        )

    def more(update: Update) -> Update:
        added = tuple(
            Term(
                "L_y(target)" if role == "classifier" else f"L_y(target) of {role}",
                cross_entropy,
                (View(role, Joined((TARGET, known))).logits, Labels(known)),
                weight,
            )
            for role in update.optimises
            if role in supervised
        )
        return replace(update, terms=(*update.terms, *added))

    phases = tuple(replace(phase, updates=tuple(map(more, phase.updates))) for phase in base.phases)
    return replace(base, name=f"{base.name}+target_labels", phases=phases)


def mmd(weight: Number = 1.0, tap: str = "hidden", optimiser: Adam = ADAM, iterations: int = 40_000) -> Method:
    """Source labels, and the maximum mean discrepancy between source and target features.

    L_y + weight · MMD of the features at ``tap``.

    >>> mmd(weight=0.5).phases[0].updates[0].terms[1].weight
    0.5
    """
    source, target = View("classifier", SOURCE), View("classifier", TARGET, statistics=True)
    terms = (
        Term("L_y", losses.source_cross_entropy, (source.logits, Labels(SOURCE))),
        Term("MMD", losses.maximum_mean_discrepancy, (source.tap(tap), target.tap(tap)), weight),
        *health(target),
    )
    return one_phase("mmd", CLASSIFIER, [classifier_update(terms, optimiser, keep=(target,))], iterations)


def co_da(
    lambda_d: Number = 1e-2,
    lambda_s: Number = 1.0,
    lambda_t: Number = 1e-2,
    warm_up: float = 0.0,
    lambda_p: Number = 1e-2,
    lambda_div: Number = 1e-3,
    ceiling: float = 10.0,
    entropy: bool = True,
    radius: float = 3.5,
    xi: float | None = None,
    optimiser: Adam = ADAM,
    iterations: int = 40_000,
) -> Method:
    """Two VADA classifiers that must agree on the target while their features are pushed apart on the source.

    The first one predicts; the two end nearly equal. λ_t grows from 0 over the share ``warm_up`` of the iterations.

    >>> list(co_da(lambda_d=0).roles)
    ['classifier', 'ema', 'classifier2', 'ema2']
    """
    shared = lambda_d, lambda_s, warmed_up(lambda_t, warm_up), [penalties.vat(radius, xi)], entropy
    first, second = family("classifier", "discriminator", *shared), family("classifier2", "discriminator2", *shared)

    def apart(a: Tensor, b: Tensor) -> Tensor:
        return losses.diversity(a, b, ceiling)

    both = (
        Term("agreement", losses.agreement, (first.target.logits, second.target.logits), lambda_p),
        Term("diversity", apart, (first.source.tap("features"), second.source.tap("features")), lambda_div),
    )
    averages = (AVERAGE, Average("classifier2", into="ema2"))
    second_ema = Copy("classifier2", shared_statistics=True)
    roles: dict[str, Role] = {**CLASSIFIER, "classifier2": Network(), "ema2": second_ema}
    updates: list[Update] = []
    if lambda_d != 0:
        roles |= {"discriminator": Discriminator(), "discriminator2": Discriminator(of="classifier2")}
        terms = (*first.discriminator_terms, *second.discriminator_terms)
        updates.append(Update("discriminator", ("discriminator", "discriminator2"), terms, optimiser))
    terms = (*first.terms, *second.terms, *both, *health(first.target))
    keep = (first.target, second.target)
    updates.append(Update("classifier", ("classifier", "classifier2"), terms, optimiser, averages, keep))
    return one_phase("co_da", roles, updates, iterations)


METHODS: dict[str, Callable[..., Method]] = {name: globals()[name] for name in NAMES}


def named(name: str) -> Callable[..., Method]:
    """The function of a method, or a sentence that lists them."""
    if name not in METHODS:
        plain = name.lower().replace("-", "_")
        hint = perhaps(plain, METHODS)
        if "dirt" in plain:
            hint = " (DIRT-T comes after one of them, by --dirt-t, dirt_t=True or vmt.methods.dirt_t)"
        raise InputError(f"there is no method {name!r}{hint}: choose one of {', '.join(METHODS)}.")
    return METHODS[name]
