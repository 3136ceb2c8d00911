"""The watch for collapse: the degenerate solution in which everything is one class.

The paper's appendix describes it: with too large a λ_t the conditional entropy wins, predictions pile on one class, and
the accuracy on the *source* falls too. So it can be seen early and without target labels.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from vmt.data.domains import Domain
from vmt.evaluate.accuracy import Evaluation
from vmt.methods.nouns import Method, Phase
from vmt.step.plan import trains_on
from vmt.train.checkpoint import LoopState

# One class holding this much of the target when it holds far less of the labelled source.
PILED = 0.8
# Source accuracy below this part of the best so far, once that best meant something.
FALLEN, WORTH_FALLING_FROM = 0.6, 0.5
# Running statistics need this many iterations to forget where they began; before, one class may well hold everything.
TIME_TO_LEARN = 500

REMEDY = (
    "lower lambda_t (halve it; without instance norm the paper uses 0.01), or try another seed: some runs collapse "
    "and others with the same settings do not"
)


@dataclass(frozen=True)
class CollapseWatch:
    """What a run's looks add up to, one after the other: for the loop, and for a report from the log alone."""

    method: Method
    source_share: float
    """The share of the largest class among the source's labels."""
    classes: Sequence[str] = ()

    def observe(
        self, notes: LoopState, phase: Phase, begin: int, step: int, target: Evaluation, source: Evaluation | None
    ) -> str | None:
        """Note a look at an iteration of a phase that began at ``begin``; a sentence where it changes what is known."""
        accuracy = None if source is None else source.accuracy
        notes.best_source = max(notes.best_source, accuracy or 0.0)
        late = step - begin > max(TIME_TO_LEARN, phase.iterations // 4)
        # A method that never sees the target may well pile it on one class: that is the shift, not a collapse. And a
        # phase that never sees the source, as DIRT-T's, may well forget it.
        wrong, changed = None, None
        supervised = trains_on(phase, "source")
        minded = source if supervised else None
        if trains_on(phase, "target"):
            wrong = collapse_in(target, minded, notes.best_source, self.source_share, late, self.classes)
        if late and wrong is None and self.method.reads_labels_of("source"):
            wrong = unlearned(minded, self.source_share)
        if wrong and not notes.collapsed:
            notes.collapsed = changed = f"at iteration {step} {wrong}"
        elif notes.collapsed and not wrong and (supervised or not ended_collapsed(notes)):
            # What a phase before has ended with, one without the source cannot mend.
            notes.collapsed, changed = None, f"at iteration {step} the predictions are spread again."
        if step == begin + phase.iterations:
            notes.phases[phase.name] = {**asdict(target), "collapsed": notes.collapsed}
        return changed


def ended_collapsed(notes: LoopState) -> bool:
    """Whether a phase has ended collapsed."""
    return any(ended["collapsed"] for ended in notes.phases.values())


def collapse_in(
    target: Evaluation,
    source: Evaluation | None,
    best_source: float,
    source_share: float,
    late: bool,
    classes: Sequence[str] = (),
) -> str | None:
    """One sentence when a run has collapsed, None while it is healthy.

    ``best_source`` is the best source accuracy so far, ``source_share`` the share of the largest class among the
    source's labels: where one class rules the source, one may rule the target. Before a model has learned anything it
    may well name one class only, so nothing is said until it has, or until it is so ``late`` that it should have.
    """
    share = target.largest_share
    learned = best_source > WORTH_FALLING_FROM or late
    if learned and piled(share, source_share):
        k = target.predicted_share.index(share)
        name = repr(classes[k]) if k < len(classes) and classes[k] != str(k) else f"class {k}"
        return f"collapsed: {share:.0%} of the target is predicted as {name}; {REMEDY}."
    if source is not None and source.accuracy is not None:
        fell = source.accuracy < FALLEN * best_source and best_source > WORTH_FALLING_FROM
        if fell:
            return f"collapsed: source accuracy fell from {best_source:.1%} to {source.accuracy:.1%}; {REMEDY}."
    return None


def piled(share: float, source_share: float) -> bool:
    """Whether the largest predicted class holds too much, the largest of the source holding so much."""
    return share > PILED and share > 1.5 * source_share


def unlearned(source: Evaluation | None, source_share: float) -> str | None:
    """One sentence when a run is late and yet hardly better on held-out source samples than their largest class."""
    if source is None or source.accuracy is None or source_share > PILED or source.accuracy > 1.2 * source_share:
        return None
    return (
        f"has learned nothing: {source.accuracy:.1%} of held-out source samples are right, and naming the largest "
        f"class alone gives {source_share:.1%}; check that labels belong to their samples, and try a lower learning "
        "rate."
    )


def largest_class(source: Domain) -> float:
    """The share of the largest class among the labels of a domain."""
    assert source.y is not None
    return float(source.y.bincount().max()) / len(source)
