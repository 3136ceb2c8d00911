"""Where each run stands, as far as that is known without target labels: its score, its state, whether to use it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmt.errors import InputError
from vmt.report.signs import BAD, Sign
from vmt.runs.ranking import ScoredModel, candidates, history_of, ranked
from vmt.runs.record import RunRecord
from vmt.validators.choice import Fit
from vmt.validators.registry import DEFAULT

FINISHED, BEST_KEPT = "finished", "best kept"
USABLE = (FINISHED, BEST_KEPT)
"""The states of a run that has a model without an alarm."""


@dataclass(frozen=True)
class Standing:
    """A run, what is known about it without target labels, and how the page calls it."""

    run: RunRecord
    name: str
    status: Mapping[str, str]
    signs: Sequence[Sign]
    state: str
    """One of USABLE, or in a word or two why the run should not be used: collapsed, alarm, too short, unfinished …"""
    reason: str
    """A sentence that explains the state; empty for a run that has simply finished."""
    model: ScoredModel | None
    """The best of the models that were kept, by the default validator; None if none was scored."""
    agreement: float | None = None
    """The share of the target samples for which source only predicts the same class."""
    fit: Fit | None = None
    """How well its classes, and those of source only, fit neighbourhoods of target samples."""

    @property
    def usable(self) -> bool:
        return self.state in USABLE

    @property
    def credible(self) -> bool:
        """Whether it is better than source only as far as that can be known; True if they cannot be compared."""
        return self.fit is None or self.fit.credible

    @property
    def score(self) -> float | None:
        return None if self.model is None else self.model.scores.get(DEFAULT)

    @property
    def warnings(self) -> list[str]:
        """What the run itself warned of when it ended."""
        found = (self.run.summary or {}).get("warnings")
        return [str(sentence) for sentence in found] if isinstance(found, list) else []


def standing_of(
    run: RunRecord,
    name: str,
    status: Mapping[str, str],
    signs: Sequence[Sign],
    agreement: float | None = None,
    fit: Fit | None = None,
) -> Standing:
    """Where a run stands by its status, its signs and its alarm.

    If the model at its end is not usable, an earlier one may be that was kept as the best.
    """
    state, reason = state_at_the_end(run, status, signs)
    models = best_models(run)
    kept = [model for model in models if model.file and model.step != run.last["step"] and not model.alarm]
    if state not in (FINISHED, "unfinished") and kept:
        reason = f"The last model is not usable, but that of iteration {kept[0].step:,} was kept. {reason}"
        return Standing(run, name, status, signs, BEST_KEPT, reason, kept[0], agreement, fit)
    return Standing(run, name, status, signs, state, reason, next(iter(models), None), agreement, fit)


def best_models(run: RunRecord) -> list[ScoredModel]:
    """The models of a run that ``vmt select`` ranks, best first; none if the run was not scored."""
    try:
        return ranked(candidates([history_of(run)]), DEFAULT)
    except InputError:
        return []


def state_at_the_end(run: RunRecord, status: Mapping[str, str], signs: Sequence[Sign]) -> tuple[str, str]:
    """The state of a run by its last evaluation, and a sentence that explains it."""
    if status["kind"] != "finished":
        return status["kind"], status["text"]
    if run.last.get("alarm"):
        return "alarm", alarm_sentence(run.last["alarm"])
    bad = next((sign for sign in signs if sign.level == BAD), None)
    return (FINISHED, "") if bad is None else (bad.name, bad.text)


def alarm_sentence(alarm: str) -> str:
    """The message of an alarm as a sentence, with the case in which it is harmless."""
    harmless = " This is harmless only if the target really lacks them." if "never predicted" in alarm else ""
    return f"The collapse alarm was raised: {alarm}.{harmless}"


def baseline_of(run: RunRecord, others: Sequence[RunRecord]) -> RunRecord | None:
    """The source-only run on the same data that a run is compared with, with the same seed if there is one."""
    lower = [other for other in others if other.kind == "lower" and other.data_key == run.data_key]
    seed = run.spec.recipe.config.seed
    same_seed = [other for other in lower if other.spec.recipe.config.seed == seed]
    return next(iter([*same_seed, *lower]), None)


def baseline_among(standing: Standing, all_of_them: Sequence[Standing]) -> Standing | None:
    """The standing of the source-only run that a run is compared with; None for source only itself."""
    base = baseline_of(standing.run, [each.run for each in all_of_them])
    if base is None or standing.run.kind == "lower":
        return None
    return next(each for each in all_of_them if each.run is base)


def best_first(standings: Sequence[Standing]) -> list[Standing]:
    """The runs in the order of preference: usable and credible ones first, by score.

    So source only comes before a run that is not credibly better. An upper bound, which reads labels, comes last.
    """

    def rank(standing: Standing) -> tuple[bool, bool, bool]:
        return standing.run.kind != "upper", standing.usable, standing.credible

    by_folder = {str(each.run.folder): each for each in standings}
    scored = ranked([each.model for each in standings if each.model is not None], DEFAULT)
    unscored = [each for each in reversed(standings) if each.model is None]  # the last adapted run first
    return sorted([*(by_folder[model.run] for model in scored), *unscored], key=rank, reverse=True)


def to_use(standings: Sequence[Standing]) -> Standing | None:
    """The run to use without labels: the first by preference; None if no run is usable."""
    first = next(iter(best_first(standings)), None)
    return first if first is not None and first.usable and first.run.kind != "upper" else None
