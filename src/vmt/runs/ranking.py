"""Rank the models of several runs by a label-free validator, and measure how far the validators agree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmt.errors import InputError, counted
from vmt.evaluate.probe import ranking_key
from vmt.runs.folder import BEST, model_at_the_end
from vmt.runs.record import RunRecord, read_run_record
from vmt.validators.refinement import REFINEMENT, comparable_scores
from vmt.validators.registry import VALIDATORS

# With fewer candidates, all evaluations are compared instead; fewer evaluations are too few to correlate.
ENOUGH_MODELS = 5


@dataclass(frozen=True)
class ScoredModel:
    """The model of one evaluation of a run, with the scores that it is ranked by."""

    run: str
    step: int
    phase: str
    scores: Mapping[str, float | None]
    """What the log has; after DIRT-T, those of :mod:`vmt.validators.refinement`."""
    alarm: str | None
    accuracy: float | None
    """Accuracy on labelled target samples, if the run had any. It is shown, and never used to rank."""
    file: str | None = None
    """The file of the model, if it was saved."""


@dataclass(frozen=True)
class History:
    """All evaluations of a run, the data it was made on, and how it ended."""

    evaluations: tuple[ScoredModel, ...]
    data: tuple[str | None, int]
    """Fingerprint of the samples, and how many of them were validated on. Scores are comparable if both are equal."""
    collapsed: str | None
    finished: bool


def read_history(folder: Path) -> History:
    """Read the evaluations of the run in a folder."""
    return history_of(read_run_record(folder))


def history_of(run: RunRecord) -> History:
    """The evaluations of a run that were scored."""
    folder = run.folder
    validated = [record for record in run.evaluations if "validators" in record]
    if not validated:
        why = "was trained without validators (--validate-samples 0?)" if run.evaluations else "has no evaluation yet"
        raise InputError(f"{folder} {why}, so it cannot be ranked: leave it out, or train it again.")
    summary = run.summary or {}
    files = {validated[-1]["step"]: model_at_the_end(folder).name}
    if best := summary.get("best"):
        files.setdefault(best["step"], BEST)
    evaluations = []
    for place, record in enumerate(validated):
        file = folder / files.get(record["step"], "not saved")
        evaluations.append(
            ScoredModel(
                run=str(folder),
                step=record["step"],
                phase=record["phase"],
                scores=comparable_scores(record, validated[:place]),
                alarm=record["alarm"],
                accuracy=record["target"]["accuracy"],
                file=str(file) if file.exists() else None,
            )
        )
    data = (run.run_json.get("fingerprint"), int(validated[-1]["validated"]))
    return History(tuple(evaluations), data, summary.get("collapsed"), bool(summary.get("finished", run.ended)))


def candidates(histories: Sequence[History]) -> list[ScoredModel]:
    """The models to choose from: the last of every run and, where it was saved, the best."""
    return [
        model
        for history in histories
        for model in history.evaluations
        if model.file or model is history.evaluations[-1]
    ]


def ranked(models: Sequence[ScoredModel], by: str) -> list[ScoredModel]:
    """Models by a validator, best first. Those with an alarm come after those without, those without a score last."""

    def key(model: ScoredModel) -> tuple[bool, bool, float]:
        score = model.scores.get(by)
        return (score is not None, *ranking_key(model.alarm, score or 0.0))

    return sorted(models, key=key, reverse=True)


def any_refined(models: Sequence[ScoredModel], by: str) -> bool:
    """Whether some of the models were refined by DIRT-T, so that their scores by this validator are not the log's."""
    return "source" in VALIDATORS[by].needs and any(model.phase == REFINEMENT for model in models)


def validators_of(models: Sequence[ScoredModel]) -> list[str]:
    """The validators that at least one of the models has a score of."""
    return [name for name in VALIDATORS if any(model.scores.get(name) is not None for model in models)]


def agreement(histories: Sequence[History]) -> dict[str, Any]:
    """Rank correlations of the validators with each other and, where there are labels, with the accuracy."""
    models = candidates(histories)
    over = counted(len(models), "model")
    if len(models) < ENOUGH_MODELS:
        models = [model for history in histories for model in history.evaluations]
        over = f"{counted(len(models), 'evaluation')} of {counted(len(histories), 'run')}"
    scores = {name: [model.scores.get(name) for model in models] for name in validators_of(models)}
    accuracy = [model.accuracy for model in models]
    labelled = any(value is not None for value in accuracy)
    return {
        "over": over,
        "enough": len(models) >= ENOUGH_MODELS,
        "validators": {a: {b: spearman(scores[a], scores[b]) for b in scores} for a in scores},
        "accuracy": {a: spearman(scores[a], accuracy) for a in scores} if labelled else None,
    }


def spearman(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    """Spearman's rank correlation over the pairs in which both values are known; None if either does not vary."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    if len(set(xs)) < 2 or len(set(ys)) < 2:
        return None
    from scipy.stats import spearmanr  # slow to import, and needed here only

    return float(spearmanr(xs, ys).statistic)


def incomparable(histories: Sequence[History]) -> str | None:
    """Why the scores of these runs are not comparable; None if they are."""
    kinds = len({history.data[0] for history in histories})
    if kinds > 1:
        return f"These runs are on {kinds} different data sets: compare scores only within one of them."
    if len({history.data[1] for history in histories}) > 1:
        return "These runs were validated on different numbers of samples: do not compare their bnm and snd."
    return None


def warnings(histories: Sequence[History]) -> Iterator[str]:
    """Reasons to trust a ranking less."""
    if doubt := incomparable(histories):
        yield doubt
    for history in histories:
        last = history.evaluations[-1]
        if history.collapsed:
            yield f"{last.run}: {history.collapsed}"
        elif last.alarm:
            yield f"{last.run} may have collapsed: {last.alarm}. It is ranked below the models without an alarm."
        if not history.finished:
            yield f"{last.run} is not finished: it has no model yet."
