"""Every method of the package, as a value.

Each function returns a :class:`vmt.methods.nouns.Method` and reads like the method's equation: first the *views*
(forward passes), then the *terms* that read them, each with its weight (:mod:`vmt.methods.terms`), then the updates.
The arguments are the hyperparameters, by their names in the paper.
"""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from vmt import losses
from vmt.errors import InputError, perhaps
from vmt.methods import published
from vmt.methods.nodes import Batch, Joined, Labels, Tap, View
from vmt.methods.nouns import (
    Adam,
    AnyOptimiser,
    Average,
    ConditionalDiscriminator,
    Copy,
    CopyRole,
    Discriminator,
    Event,
    Method,
    Network,
    Number,
    Phase,
    Role,
    Term,
    Update,
    warmed_up,
    with_decay_for_length,
)
from vmt.methods.settings import AUTO
from vmt.methods.terms import L_c, L_d, L_disc, L_m, L_mcc, L_v, L_y, domain_accuracy, health, term_name

ADAM = Adam()
SOURCE, TARGET = Batch("source"), Batch("target")
# The classifier, and the average of its weights, which predicts with the classifier's own running statistics.
CLASSIFIER: dict[str, Role] = {"classifier": Network(), "ema": Copy("classifier", shared_statistics=True)}
DISCRIMINATOR = Discriminator()
AVERAGE = Average("classifier", into="ema")


def source_only(optimiser: AnyOptimiser = ADAM, statistics: str = "source", iterations: int = 40_000) -> Method:
    """The lower bound: training on the labels of the source alone.

    L_y. With ``statistics="target"`` the running statistics come from target batches, as in the authors' program.

    >>> [term.name for update in source_only().updates() for term in update.terms]
    ['L_y', 'entropy(source)', 'predicted share(source)']
    """
    if statistics not in ("source", "target"):
        raise InputError(f"statistics must be 'source' or 'target', but got {statistics!r}.")
    source = View("classifier", SOURCE, statistics=statistics == "source")
    keep = (View("classifier", TARGET, statistics=True),) if statistics == "target" else ()
    update = classifier_update((L_y(source), *health(source)), optimiser, keep=keep)
    return one_phase("source_only", CLASSIFIER, (update,), iterations)


def target_only(optimiser: AnyOptimiser = ADAM, iterations: int = 40_000) -> Method:
    """The upper bound: training on the labels of the target.

    L_y on the target.

    >>> target_only().reads_labels_of("target")
    True
    """
    target = View("classifier", TARGET, statistics=True)
    update = classifier_update((L_y(target), *health(target)), optimiser)
    return one_phase("target_only", CLASSIFIER, (update,), iterations)


def adabn(optimiser: AnyOptimiser = ADAM, iterations: int = 40_000) -> Method:
    """Training on the source's labels alone, with batch-norm statistics of the target.

    L_y. Target batches update the running statistics and nothing else (``source_only(statistics="target")``).
    :func:`vmt.evaluate.adabn.adabn` does the same to a network that is already trained.

    >>> adabn().phases[0].updates[0].keep[0].input
    Batch(stream='target', draw='')
    """
    return renamed(source_only(optimiser, statistics="target", iterations=iterations), "adabn")


def mmd(
    weight: Number = 1.0,
    tap: str = "hidden",
    separation_from: float = 0.0,
    optimiser: AnyOptimiser = ADAM,
    iterations: int = 40_000,
) -> Method:
    """Source labels, and the maximum mean discrepancy between source and target features.

    L_y + weight · MMD, of the features at ``tap``. MMD begins after the share ``separation_from`` of the iterations.

    >>> mmd(weight=0.5).phases[0].updates[0].terms[1].weight
    0.5
    """
    source, target = View("classifier", SOURCE), View("classifier", TARGET, statistics=True)
    weight = published.later(weight, separation_from)
    terms = (
        L_y(source),
        Term("MMD", losses.maximum_mean_discrepancy, (source.tap(tap), target.tap(tap)), weight),
        *health(target),
    )
    return one_phase("mmd", CLASSIFIER, (classifier_update(terms, optimiser, keep=(target,)),), iterations)


def mcc(
    lambda_mcc: Number = 1.0, temperature: float = 2.5, optimiser: AnyOptimiser = ADAM, iterations: int = 40_000
) -> Method:
    """Source labels, and predictions on the target that confuse few classes with each other.

    L_y + λ_mcc L_mcc(target), of the predictions softmax(z / T) with the ``temperature`` T.

    >>> [term.name for term in mcc().phases[0].updates[0].terms if term.weight]
    ['L_y', 'L_mcc(target)']
    """
    source, target = View("classifier", SOURCE), View("classifier", TARGET, statistics=True)
    terms = (L_y(source), L_mcc(target, weight=lambda_mcc, temperature=temperature), *health(target))
    return one_phase("mcc", CLASSIFIER, (classifier_update(terms, optimiser, keep=(target,)),), iterations)


def dann(lambda_d: Number = 1e-2, optimiser: AnyOptimiser = ADAM, iterations: int = 40_000) -> Method:
    """Domain-adversarial training: a discriminator tells the domains apart, and the features learn to fool it.

    L_y + λ_d L_d, with alternating updates.

    >>> [update.name for update in dann().updates()]
    ['discriminator', 'classifier']
    """
    source, target = View("classifier", SOURCE), View("classifier", TARGET, statistics=True)
    terms = (
        L_y(source),
        # The discriminator minimises L_disc. With weight 0, the classifier only logs it, on its own batches.
        *unless_zero(lambda_d, L_d(source, target, weight=lambda_d), L_disc(source, target, weight=0.0)),
    )
    return alternating("dann", source, target, terms, lambda_d=lambda_d, optimiser=optimiser, iterations=iterations)


def cdan(
    lambda_d: Number = 1e-2, entropy_weights: bool = True, optimiser: AnyOptimiser = ADAM, iterations: int = 40_000
) -> Method:
    """Conditional domain-adversarial training: DANN with a discriminator that reads features and predictions.

    L_y + λ_d L_d, with alternating updates, where the discriminator reads the products of features and predictions.
    ``entropy_weights`` gives samples with certain predictions a larger weight (CDAN+E).

    >>> cdan().roles["discriminator"]
    ConditionalDiscriminator(of='classifier', tap='features', hidden=100)
    """
    source, target = View("classifier", SOURCE), View("classifier", TARGET, statistics=True)
    confusion = L_d(source, target, weight=lambda_d, conditional=True, entropy_weights=entropy_weights)
    discriminate = L_disc(source, target, conditional=True, entropy_weights=entropy_weights)
    return alternating(
        "cdan",
        source,
        target,
        (L_y(source), *unless_zero(lambda_d, confusion, replace(discriminate, weight=0.0))),
        lambda_d=lambda_d,
        optimiser=optimiser,
        iterations=iterations,
        discriminator=ConditionalDiscriminator(),
        discriminate=(discriminate, domain_accuracy(source, target, conditional=True)),
    )


def vada(
    lambda_d: Number = 1e-2,
    lambda_s: Number = 1.0,
    lambda_t: Number = 1e-2,
    warm_up: float = 0.0,
    entropy: bool = True,
    radius: float = 3.5,
    xi: float | None = None,
    optimiser: AnyOptimiser = ADAM,
    iterations: int = 40_000,
) -> Method:
    """DANN, and predictions that are confident on the target and constant in a ball around each sample.

    L_y + λ_d L_d + λ_s L_v(source) + λ_t [L_v + L_c](target). λ_t grows from 0 over the share ``warm_up`` of the
    iterations; ``entropy=False`` leaves L_c out.

    >>> classifier = vada(lambda_t=0.1).phases[0].updates[-1]
    >>> {term.name: term.weight for term in classifier.terms if term.weight}
    {'L_y': 1.0, 'L_d': 0.01, 'L_v(source)': 1.0, 'L_v(target)': 0.1, 'L_c(target)': 0.1}
    """
    source, target = View("classifier", SOURCE), View("classifier", TARGET, statistics=True)
    lambda_t = warmed_up(lambda_t, warm_up)
    terms = (
        L_y(source),
        *unless_zero(lambda_d, L_d(source, target, weight=lambda_d), L_disc(source, target, weight=0.0)),
        *unless_zero(lambda_s, L_v(source, weight=lambda_s, radius=radius, xi=xi)),
        *unless_zero(
            lambda_t,
            L_v(target, weight=lambda_t, radius=radius, xi=xi),
            L_c(target, weight=lambda_t) if entropy else None,
        ),
    )
    return alternating("vada", source, target, terms, lambda_d=lambda_d, optimiser=optimiser, iterations=iterations)


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
    optimiser: AnyOptimiser = ADAM,
    iterations: int = 40_000,
) -> Method:
    """Two VADA classifiers that must agree on the target while their features are pushed apart on the source.

    VADA(f₁) + VADA(f₂) + λ_p ‖f₁ − f₂‖₁(target) − λ_div min(ν, ‖E[g₁ − g₂]‖²)(source), where ν is ``ceiling``. The
    first classifier predicts; the two end nearly equal. λ_t grows from 0 over the share ``warm_up`` of the iterations.

    >>> list(co_da(lambda_d=0).roles)
    ['classifier', 'ema', 'classifier2', 'ema2']
    """
    source, target = View("classifier", SOURCE), View("classifier", TARGET, statistics=True)
    source2, target2 = View("classifier2", SOURCE), View("classifier2", TARGET, statistics=True)
    lambda_t = warmed_up(lambda_t, warm_up)

    def vada_of(source: View, target: View, discriminator: str) -> tuple[Term, ...]:
        return (
            L_y(source),
            *unless_zero(
                lambda_d,
                L_d(source, target, weight=lambda_d, discriminator=discriminator),
                L_disc(source, target, weight=0.0, discriminator=discriminator),
            ),
            *unless_zero(lambda_s, L_v(source, weight=lambda_s, radius=radius, xi=xi)),
            *unless_zero(
                lambda_t,
                L_v(target, weight=lambda_t, radius=radius, xi=xi),
                L_c(target, weight=lambda_t) if entropy else None,
            ),
        )

    def apart(a: Tensor, b: Tensor) -> Tensor:
        return losses.diversity(a, b, ceiling)

    terms = (
        *vada_of(source, target, "discriminator"),
        *vada_of(source2, target2, "discriminator2"),
        Term("agreement", losses.agreement, (target.logits, target2.logits), lambda_p),
        Term("diversity", apart, (source.tap("features"), source2.tap("features")), lambda_div),
        *health(target),
    )
    averages = (AVERAGE, Average("classifier2", into="ema2"))
    keep = (target, target2)
    roles = {**CLASSIFIER, "classifier2": Network(), "ema2": Copy("classifier2", shared_statistics=True)}
    updates = [Update("classifier", ("classifier", "classifier2"), terms, optimiser, averages, keep)]
    if lambda_d != 0:
        roles |= {"discriminator": Discriminator(), "discriminator2": Discriminator(of="classifier2")}
        discriminate = (
            L_disc(source, target),
            domain_accuracy(source, target),
            L_disc(source2, target2, discriminator="discriminator2"),
            domain_accuracy(source2, target2, discriminator="discriminator2"),
        )
        updates.insert(0, Update("discriminator", ("discriminator", "discriminator2"), discriminate, optimiser))
    return one_phase("co_da", roles, tuple(updates), iterations)


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
    lambda_mcc: Number = 0.0,
    temperature: float = 2.5,
    optimiser: AnyOptimiser = ADAM,
    iterations: int = 40_000,
) -> Method:
    """Virtual mixup training, the default: VADA, and predictions that are linear between samples.

    L_y + λ_d L_d + λ_s [L_m + L_v](source) + λ_t [L_m + L_v + L_c](target) + λ_mcc L_mcc(target).

    ``mix`` says what is mixed to get virtual labels (``logits``, ``probabilities`` or ``hidden``); ``mix=None`` leaves
    L_m out, and ``vat=False`` leaves L_v out. ``lambda_mix_t`` is the weight of L_m(target), if it is not λ_t.
    ``fresh_lambda=False`` draws λ once per run, as the authors' program does. The weights of all terms on the target
    grow from 0 over the share ``warm_up`` of the iterations, so that the domains are aligned before the target's
    clusters are sharpened. The paper's method has no L_mcc, which ``lambda_mcc=0`` leaves out.

    >>> method = vmt(lambda_t=0.06, vat=False)
    >>> {term.name: term.weight for term in method.phases[0].updates[-1].terms if term.weight}
    {'L_y': 1.0, 'L_d': 0.01, 'L_m(source)': 1.0, 'L_m(target)': 0.06, 'L_c(target)': 0.06}
    """
    source, target = View("classifier", SOURCE), View("classifier", TARGET, statistics=True)
    lambda_t = warmed_up(lambda_t, warm_up)
    lambda_mix_t = lambda_t if lambda_mix_t is None else warmed_up(lambda_mix_t, warm_up)
    terms = (
        L_y(source),
        *unless_zero(lambda_d, L_d(source, target, weight=lambda_d), L_disc(source, target, weight=0.0)),
        *unless_zero(
            lambda_s,
            L_m(source, weight=lambda_s, mix=mix, alpha=alpha, fresh=fresh_lambda) if mix is not None else None,
            L_v(source, weight=lambda_s, radius=radius, xi=xi) if vat else None,
        ),
        *unless_zero(
            lambda_t,
            L_m(target, weight=lambda_mix_t, mix=mix, alpha=alpha, fresh=fresh_lambda) if mix is not None else None,
            L_v(target, weight=lambda_t, radius=radius, xi=xi) if vat else None,
            L_c(target, weight=lambda_t),
        ),
        *unless_zero(lambda_mcc, L_mcc(target, weight=warmed_up(lambda_mcc, warm_up), temperature=temperature)),
    )
    return alternating("vmt", source, target, terms, lambda_d=lambda_d, optimiser=optimiser, iterations=iterations)


def vmt_mcc(
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
    lambda_mcc: Number = 1.0,
    temperature: float = 2.5,
    optimiser: AnyOptimiser = ADAM,
    iterations: int = 40_000,
) -> Method:
    """VMT + MCC: virtual mixup training, and predictions on the target that confuse few classes with each other.

    :func:`vmt` with λ_mcc L_mcc(target).

    >>> vmt_mcc(lambda_t=0)
    <method vmt_mcc: 40,000 iterations of vmt_mcc>
    """
    base = vmt(
        lambda_d=lambda_d,
        lambda_s=lambda_s,
        lambda_t=lambda_t,
        warm_up=warm_up,
        mix=mix,
        vat=vat,
        alpha=alpha,
        fresh_lambda=fresh_lambda,
        lambda_mix_t=lambda_mix_t,
        radius=radius,
        xi=xi,
        lambda_mcc=lambda_mcc,
        temperature=temperature,
        optimiser=optimiser,
        iterations=iterations,
    )
    return renamed(base, "vmt_mcc")


def dirt_t(
    base: Method | None = None,
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
    """DIRT-T, a second phase that refines a trained method on the target alone.

    β CE(teacher(x), f(x)) on one target batch + λ_t [L_c + L_v + L_m] on another. The phase continues with the weights,
    Adam moments and weight average of ``base``. The teacher is the weight average with the current running
    statistics, copied every ``interval`` iterations. ``mix=None`` leaves L_m out, as after VADA. Without ``base``, the
    phase is a whole method, for a network that is already trained.

    >>> method = dirt_t(vada(iterations=5000), mix=None, interval=500, iterations=10000)
    >>> method.name, [(phase.name, phase.iterations) for phase in method.phases]
    ('vada+dirt_t', [('vada', 5000), ('dirt_t', 10000)])
    """
    before = classifier_update((), ADAM) if base is None else classifier_update_of(base)
    other = Batch("target", "teacher")
    teacher, student = View("teacher", other, training=False), View("classifier", other)
    target = View("classifier", TARGET, statistics=True)
    lambda_mix_t = lambda_t if lambda_mix_t is None else lambda_mix_t
    terms = present(
        Term("teacher", losses.teacher_cross_entropy, (teacher.logits, student.logits), weight=beta),
        L_c(target, weight=lambda_t),
        L_v(target, weight=lambda_t, radius=radius, xi=xi) if vat else None,
        L_m(target, weight=lambda_mix_t, mix=mix, alpha=alpha, fresh=fresh_lambda) if mix is not None else None,
        *health(target),
    )
    # Adam's moments are kept by the name of the update, so this one has the name of the update that it continues.
    average = next((each for each in before.averages if each.into == "ema"), AVERAGE)
    update = Update(before.name, ("classifier",), terms, before.optimiser, averages=(average,))
    new_teacher = Event(every=interval, action=CopyRole("ema", into="teacher"))
    phase = Phase("dirt_t", (update,), events=(new_teacher,), iterations=iterations)
    if base is None:
        return Method("dirt_t", {**CLASSIFIER, "teacher": Copy("ema")}, (with_decay_for_length(phase),))
    roles = {**base.roles, "teacher": Copy("ema")}
    return replace(base, name=f"{base.name}+dirt_t", roles=roles, phases=(*base.phases, phase))


def classifier_update_of(base: Method) -> Update:
    """The update that trains the classifier of a method that DIRT-T can follow."""
    if "classifier" not in base.roles or "ema" not in base.roles:
        raise InputError(
            f"dirt_t needs a method with the roles 'classifier' and 'ema', but {base.name!r} has "
            f"{', '.join(base.roles)}."
        )
    if any(phase.name == "dirt_t" for phase in base.phases):
        raise InputError(f"{base.name!r} already ends with DIRT-T: make that phase longer, dirt_t(…, iterations=…).")
    for update in base.updates():
        if "classifier" in update.optimises:
            return update
    raise InputError(f"dirt_t needs a method that optimises the role 'classifier', but {base.name!r} does not.")


def with_target_labels(base: Method, weight: Number = 1.0) -> Method:
    """A method that also learns from the target samples whose labels are known, in every phase.

    ``base`` + weight · L_y(labelled target). The labelled samples run in one batch with unlabelled ones, because a few
    labels, or labels of a single class, would give poor batch statistics.

    >>> with_target_labels(vmt()).reads_labels_of("labelled target")
    True
    """
    labelled = Batch("labelled target")

    def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
        return losses.source_cross_entropy(logits[-len(labels) :], labels)

    def l_y(role: str) -> Term:
        view = View(role, Joined((TARGET, labelled)))
        return Term(term_name("L_y(target)", view), cross_entropy, (view.logits, Labels(labelled)), weight)

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
            f"target labels can be added only to a method that learns from source labels, but {base.name!r} does not."
        )

    def with_labels(update: Update) -> Update:
        added = (l_y(role) for role in update.optimises if role in supervised)
        return replace(update, terms=(*update.terms, *added))

    phases = tuple(replace(phase, updates=tuple(map(with_labels, phase.updates))) for phase in base.phases)
    return replace(base, name=f"{base.name}+target_labels", phases=phases)


def unless_zero(weight: Number, *terms: Term | None) -> tuple[Term, ...]:
    """The terms that a weight of the objective stands for; a weight of 0 leaves them out, and saves their passes."""
    return () if weight == 0 else present(*terms)


def present(*terms: Term | None) -> tuple[Term, ...]:
    """The terms without None, which stands for a term that a setting leaves out."""
    return tuple(term for term in terms if term is not None)


def alternating(
    name: str,
    source: View,
    target: View,
    terms: tuple[Term, ...],
    *,
    lambda_d: Number,
    optimiser: AnyOptimiser,
    iterations: int,
    discriminator: Role = DISCRIMINATOR,
    discriminate: tuple[Term, ...] = (),
) -> Method:
    """Alternating updates: the discriminator first, unless λ_d is 0, then the classifier, each on fresh batches.

    ``discriminate`` are the terms of the discriminator; by default it tells features apart.
    """
    roles, updates = dict(CLASSIFIER), []
    if lambda_d != 0:
        roles["discriminator"] = discriminator
        discriminate = discriminate or (L_disc(source, target), domain_accuracy(source, target))
        updates.append(Update("discriminator", ("discriminator",), discriminate, optimiser))
    updates.append(classifier_update((*terms, *health(target)), optimiser, keep=(target,)))
    return one_phase(name, roles, tuple(updates), iterations)


def classifier_update(terms: tuple[Term, ...], optimiser: AnyOptimiser, keep: tuple[View, ...] = ()) -> Update:
    """The update of the classifier, after which the weight average follows it."""
    return Update("classifier", ("classifier",), terms, optimiser, averages=(AVERAGE,), keep=keep)


def one_phase(name: str, roles: dict[str, Role], updates: tuple[Update, ...], iterations: int) -> Method:
    """A method of one phase."""
    return Method(name, roles, (with_decay_for_length(Phase(name, updates, iterations=iterations)),))


def renamed(base: Method, name: str) -> Method:
    """A method of one phase under another name."""
    (phase,) = base.phases
    return replace(base, name=name, phases=(replace(phase, name=name),))


METHODS: dict[str, Callable[..., Method]] = {
    "source_only": source_only,
    "target_only": target_only,
    "adabn": adabn,
    "mmd": mmd,
    "mcc": mcc,
    "dann": dann,
    "cdan": cdan,
    "vada": vada,
    "co_da": co_da,
    "vmt": vmt,
    "vmt_mcc": vmt_mcc,
    "dann_grl": published.dann_grl,
    "pi_model": published.pi_model,
    "drcn": published.drcn,
    "dsn": published.dsn,
}
"""Every method by its name, in the order of ``vmt.methods.settings.METHODS``, which the command line reads."""


def named(name: str) -> Callable[..., Method]:
    """The function of a method, by the method's name."""
    if name not in METHODS:
        plain = name.lower().replace("-", "_").replace("+", "_")
        hint = perhaps(plain, [*METHODS, AUTO])
        if "dirt" in plain:
            hint = " (DIRT-T follows one of them: use --dirt-t, dirt_t=True or vmt.methods.dirt_t)"
        known = f"{', '.join(METHODS)}, or {AUTO} for your own data"
        raise InputError(f"there is no method {name!r}{hint}: choose one of {known}.")
    return METHODS[name]
