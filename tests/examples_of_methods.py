"""Three methods that the package does not ship, written down with its nouns. Each is a value of under 40 lines."""

from torch import Tensor

from vmt import losses
from vmt.methods.nodes import Augmented, Draws, Labels, Tap, View
from vmt.methods.nouns import Adam, Average, Copy, Discriminator, Method, Network, Phase, Ramp, Role, Term, Update
from vmt.methods.systems import SOURCE, TARGET


def jitter(x: Tensor, draws: Draws, name: str) -> Tensor:
    return x + 0.4 * draws.normal(name, tuple(x.shape))


def discrepancy(one: Tensor, other: Tensor) -> Tensor:
    """MCD's d(p₁, p₂): the L1 distance of two predictions."""
    return (one.softmax(-1) - other.softmax(-1)).abs().sum(-1)


def mean_teacher(iterations: int = 300) -> Method:
    """The student, which sees jittered samples, must agree with the average of its past weights."""
    source = View("student", SOURCE)
    clean = View("student", TARGET, statistics=True)
    jittered = View("student", Augmented(TARGET, jitter, "target"))
    taught = View("teacher", TARGET, gradient=False)
    ramp = Ramp(0.0, 1.0, begin=0.2, until=0.5)
    update = Update(
        "student",
        optimises=("student",),
        terms=(
            Term("L_y", losses.source_cross_entropy, (source.logits, Labels(SOURCE))),
            Term("consistency", losses.teacher_cross_entropy, (taught.logits, jittered.logits), ramp),
        ),
        optimiser=Adam(lr=1e-2, beta1=0.9),
        averages=(Average("student", into="teacher", decay=0.95),),
        keep=(clean,),
    )
    roles: dict[str, Role] = {"student": Network(), "teacher": Copy("student", shared_statistics=True)}
    return Method("mean teacher", roles, (Phase("mean teacher", (update,), iterations=iterations),), ("teacher",))


def maximum_classifier_discrepancy(iterations: int = 200) -> Method:
    """MCD: two heads move apart on the target, and the encoder brings them together, all on one batch."""
    heads = ("head a", "head b")
    adam = Adam(lr=3e-3, beta1=0.9)

    def predictions(view: View) -> tuple[Tap, ...]:
        return tuple(View(head, view.tap("features"), statistics=view.statistics).logits for head in heads)

    source = predictions(View("encoder", SOURCE))
    target = predictions(View("encoder", TARGET, statistics=True))
    l_y = tuple(
        Term(f"L_y({head})", losses.source_cross_entropy, (logits, Labels(SOURCE)))
        for head, logits in zip(heads, source, strict=True)
    )
    apart, together = Term("discrepancy", discrepancy, target, -1.0), Term("discrepancy", discrepancy, target)
    updates = (
        Update("all", ("encoder", *heads), l_y, adam),
        Update("heads", heads, (*l_y, apart), adam, batch="all"),
        Update("encoder", ("encoder",), (together,), adam, batch="all", repeats=2),
    )
    roles: dict[str, Role] = {"encoder": Network(until="features")}
    roles |= dict.fromkeys(heads, Network(after="features"))
    return Method("mcd", roles, (Phase("mcd", updates, iterations=iterations),), ("encoder", "head a"))


def two_networks(iterations: int = 200) -> Method:
    """After Co-DA: two classifiers, each with a discriminator of its own, must agree on the target."""
    roles: dict[str, Role] = {}
    of_discriminators: list[Term] = []
    of_classifiers: list[Term] = []
    targets: list[Tap] = []
    for name in ("a", "b"):
        judge = f"discriminator {name}"
        roles |= {name: Network(), judge: Discriminator(of=name)}
        source, target = View(name, SOURCE), View(name, TARGET, statistics=True)
        domains = tuple(View(judge, view.tap("features")).tap("domain") for view in (source, target))
        of_discriminators.append(Term(f"L_disc({name})", losses.discriminator_loss, domains))
        of_classifiers += [
            Term(f"L_y({name})", losses.source_cross_entropy, (source.logits, Labels(SOURCE))),
            Term(f"L_d({name})", losses.domain_confusion, domains, 0.1),
            Term(f"L_c({name})", losses.conditional_entropy, (target.logits,), 0.1),
        ]
        targets.append(target.logits)
    agree = Term("agreement", discrepancy, tuple(targets), 0.3)
    adam = Adam(lr=1e-2)
    updates = (
        Update("discriminators", ("discriminator a", "discriminator b"), tuple(of_discriminators), adam),
        Update("classifiers", ("a", "b"), (*of_classifiers, agree), adam),
    )
    return Method("two networks", roles, (Phase("two networks", updates, iterations=iterations),), ("a",))
