"""Watching for collapse: the degenerate solution in which every sample is predicted as one class.

The paper's appendix describes it: with too large a λ_t the conditional entropy dominates, one class takes over the
predictions, and the accuracy on the *source* falls, too. So it can be seen early and without target labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vmt.data.domains import Domain
from vmt.evaluate.accuracy import Evaluation
from vmt.methods.nouns import Method, Phase
from vmt.step.plan import trains_on
from vmt.train.checkpoint import LoopState

# A run has collapsed if one class has more than this share of the target, and far less of the source.
PILED = 0.8
# It has also collapsed if the source accuracy falls below FALLEN times a best above WORTH_FALLING_FROM.
FALLEN, WORTH_FALLING_FROM = 0.6, 0.5
# Running statistics need this many iterations to forget their initial values; before that, a model may predict a
# single class.
TIME_TO_LEARN = 500

REMEDY = (
    "lower lambda_t (halve it; without instance norm the paper uses 0.01), or try another seed: some runs collapse "
    "and others with the same settings do not"
)


@dataclass(frozen=True)
class CollapseWatch:
    """Observes the evaluations of a run one after the other, in the training loop or from a log."""

    method: Method
    source_share: float
    """The share of the largest class among the source's labels."""
    classes: Sequence[str] = ()

    def observe(
        self, loop_state: LoopState, phase: Phase, begin: int, step: int, target: Evaluation, source: Evaluation | None
    ) -> str | None:
        """Observe the evaluation at an iteration of a phase that began at ``begin``, and update ``loop_state``.

        Returns a message if the run has collapsed or recovered since the evaluation before.
        """
        accuracy = None if source is None else source.accuracy
        loop_state.best_source = max(loop_state.best_source, accuracy or 0.0)
        late = step - begin > max(TIME_TO_LEARN, phase.iterations // 4)
        # A method that does not train on the target may predict one class for it: that is the domain shift and not a
        # collapse. A phase that does not train on the source, such as DIRT-T's, may forget it.
        wrong, changed = None, None
        supervised = trains_on(phase, "source")
        watched_source = source if supervised else None
        if trains_on(phase, "target"):
            wrong = collapse_in(target, watched_source, loop_state.best_source, self.source_share, late, self.classes)
        if late and wrong is None and self.method.reads_labels_of("source"):
            wrong = unlearned(watched_source, self.source_share)
        if wrong and not loop_state.collapsed:
            loop_state.collapsed = changed = f"at iteration {step} {wrong}"
        elif loop_state.collapsed and not wrong and (supervised or not ended_collapsed(loop_state)):
            # If an earlier phase ended collapsed, a phase without the source cannot repair it.
            loop_state.collapsed, changed = (
                None,
                f"at iteration {step} the predictions are spread over the classes again.",
            )
        if step == begin + phase.iterations:
            loop_state.phases[phase.name] = {**target.measured(), "collapsed": loop_state.collapsed}
        return changed


def ended_collapsed(loop_state: LoopState) -> bool:
    """Whether any phase ended collapsed."""
    return any(ended["collapsed"] for ended in loop_state.phases.values())


def collapse_in(
    target: Evaluation,
    source: Evaluation | None,
    best_source: float,
    source_share: float,
    late: bool,
    classes: Sequence[str] = (),
) -> str | None:
    """What is wrong with a run that has collapsed, or None.

    ``best_source`` is the best source accuracy so far. ``source_share`` is the share of the largest class among the
    source's labels: where one class dominates the source, it may dominate the target, too. A model that has learned
    nothing yet may predict a single class, so it counts only once it has learned something or should have (``late``).
    """
    share = target.largest_share
    learned = best_source > WORTH_FALLING_FROM or late
    if learned and is_too_large(share, source_share):
        k = target.predicted_share.index(share)
        name = repr(classes[k]) if k < len(classes) and classes[k] != str(k) else f"class {k}"
        return f"collapsed: {share:.0%} of the target is predicted as {name}; {REMEDY}."
    if source is not None and source.accuracy is not None:
        fell = source.accuracy < FALLEN * best_source and best_source > WORTH_FALLING_FROM
        if fell:
            return f"collapsed: source accuracy fell from {best_source:.1%} to {source.accuracy:.1%}; {REMEDY}."
    return None


def is_too_large(share: float, source_share: float) -> bool:
    """Whether the largest predicted class has too large a share, compared with the largest class of the source."""
    return share > PILED and share > 1.5 * source_share


def unlearned(source: Evaluation | None, source_share: float) -> str | None:
    """What is wrong with a run that is hardly better on held-out source samples than their largest class, or None."""
    if source is None or source.accuracy is None or source_share > PILED or source.accuracy > 1.2 * source_share:
        return None
    return (
        f"has learned nothing: {source.accuracy:.1%} of held-out source samples are right, and always predicting the "
        f"largest class gives {source_share:.1%}; check that labels belong to their samples, and try a lower learning "
        "rate."
    )


def largest_class(source: Domain) -> float:
    """The share of the largest class among the labels of a domain."""
    assert source.y is not None
    return float(source.y.bincount().max()) / len(source)
