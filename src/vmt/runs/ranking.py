"""Ranking the models of several runs by a label-free validator, and how far validators agree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.errors import InputError, counted
from vmt.evaluate.probe import standing
from vmt.runs.folder import BEST, MODEL
from vmt.runs.record import read_record
from vmt.validators.registry import VALIDATORS


def ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """1 for the smallest; equal values share the mean of their places."""
    _, which, equal = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    result: NDArray[np.float64] = (equal.cumsum() - (equal - 1) / 2)[which]
    return result


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's rank correlation, the correlation of the :func:`ranks`; None where one of them does not vary."""
    if len(a) < 2:
        return None
    x, y = ranks(a) - (len(a) + 1) / 2, ranks(b) - (len(b) + 1) / 2
    size = float(np.sqrt((x @ x) * (y @ y)))
    return None if size == 0 else float(x @ y) / size


def spearman_of_known(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    """The same over the pairs of which both values are known."""
    known = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    return spearman([x for x, _ in known], [y for _, y in known])


# With fewer models than this, their looks over time say more about how validators agree; fewer looks say nothing.
ENOUGH_MODELS = 5


@dataclass(frozen=True)
class Look:
    """A model at one moment of a run, as the log has it."""

    run: str
    step: int
    phase: str
    scores: Mapping[str, float | None]
    alarm: str | None
    accuracy: float | None
    """On labelled target samples, if the run had any; nothing here decides by it."""
    file: str | None = None
    """Where the model of that moment is, if it was kept."""


@dataclass(frozen=True)
class History:
    """All looks of a run, the data it was made on, and what was said of it."""

    looks: tuple[Look, ...]
    data: tuple[str | None, int]
    """Fingerprint of the samples and how many of them were validated on: scores compare where both are equal."""
    collapsed: str | None
    finished: bool


def read_history(folder: Path) -> History:
    """The looks of one run. Those whose model was kept know its file."""
    run = read_record(folder)
    validated = [r for r in run.looks if "validators" in r]
    if not validated:
        why = "has not been looked at yet" if not run.looks else "was made without validators (--validate-samples 0?)"
        raise InputError(f"{folder} {why}: there is nothing to choose by; leave it out, or train it (again).")
    summary = run.summary or {}
    files = {validated[-1]["step"]: MODEL}
    if best := summary.get("best"):
        files.setdefault(best["step"], BEST)
    looks = []
    for record in validated:
        kept = folder / files.get(record["step"], "none")
        looks.append(
            Look(
                run=str(folder),
                step=record["step"],
                phase=record["phase"],
                scores=record["validators"],
                alarm=record["alarm"],
                accuracy=record["target"]["accuracy"],
                file=str(kept) if kept.exists() else None,
            )
        )
    data = (run.written.get("fingerprint"), int(validated[-1]["validated"]))
    return History(tuple(looks), data, summary.get("collapsed"), bool(summary.get("finished")))


def ranked(looks: Sequence[Look], by: str) -> list[Look]:
    """Best first: those without an alarm before those with one, those without the score last."""

    def key(look: Look) -> tuple[bool, bool, float]:
        score = look.scores.get(by)
        return (score is not None, *standing(look.alarm, score or 0.0))

    return sorted(looks, key=key, reverse=True)


def models(histories: Sequence[History]) -> list[Look]:
    """The last look of every run and, where it was kept, the best one."""
    return [look for history in histories for look in history.looks if look.file or look is history.looks[-1]]


def names(looks: Sequence[Look]) -> list[str]:
    """The validators that any of the looks has a value of."""
    return [name for name in VALIDATORS if any(look.scores.get(name) is not None for look in looks)]


def agreement(histories: Sequence[History]) -> dict[str, Any]:
    """Rank correlations of the validators with each other and, where there are labels, with the accuracy."""
    over = models(histories)
    what = counted(len(over), "model")
    if len(over) < ENOUGH_MODELS:
        over = [look for history in histories for look in history.looks]
        what = f"{counted(len(over), 'look')} of {counted(len(histories), 'run')}"
    values = {name: [look.scores.get(name) for look in over] for name in names(over)}
    accuracy = [look.accuracy for look in over]
    known = any(value is not None for value in accuracy)
    return {
        "over": what,
        "enough": len(over) >= ENOUGH_MODELS,
        "validators": {a: {b: spearman_of_known(values[a], values[b]) for b in values} for a in values},
        "accuracy": {a: spearman_of_known(values[a], accuracy) for a in values} if known else None,
    }


def incomparable(histories: Sequence[History]) -> str | None:
    """Why the scores of these runs should not be held against each other, if there is a reason."""
    kinds = len({history.data[0] for history in histories})
    if kinds > 1:
        return f"These runs are on different data, {kinds} kinds of it: scores compare within one kind only."
    if len({history.data[1] for history in histories}) > 1:
        return "These runs were validated on different numbers of samples: bnm and snd do not compare."
    return None


def warnings(histories: Sequence[History]) -> Iterator[str]:
    """What makes a ranking less than it seems."""
    if doubt := incomparable(histories):
        yield doubt
    for history in histories:
        last = history.looks[-1]
        if history.collapsed:
            yield f"{last.run}: {history.collapsed}"
        elif last.alarm:
            yield f"{last.run} may have collapsed: {last.alarm}; it is ranked below those without this alarm."
        if not history.finished:
            yield f"{last.run} is not finished: it has no model yet."
