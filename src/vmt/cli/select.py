"""``vmt select``: which run, when there are no target labels?"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vmt.cli.columns import Column, across, filled, fitted, shortened, terminal_width
from vmt.errors import InputError, few
from vmt.runs.ranking import (
    History,
    ScoredModel,
    agreement,
    candidates,
    incomparable,
    ranked,
    read_history,
    validators_of,
    warnings,
)
from vmt.runs.record import find_runs
from vmt.validators.registry import VALIDATORS, check_name


def run(arguments: argparse.Namespace) -> int:
    by = check_name(arguments.by)
    histories, left_out = read_all(find_runs(arguments.runs))
    check_known(by, histories)
    order, agree, warned = ranked(candidates(histories), by), agreement(histories), [*left_out, *warnings(histories)]
    if arguments.json:
        evaluations = {h.evaluations[0].run: [asdict(model) for model in h.evaluations] for h in histories}
        best_first = [asdict(model) for model in order]
        print(
            json.dumps({"by": by, "ranking": best_first, "agreement": agree, "warnings": warned, "looks": evaluations})
        )
        return 0
    width = terminal_width()
    doubt = incomparable(histories)
    measures = VALIDATORS[by].text
    say(f"Ranked by {by}, {measures} (higher is better). No target labels are used.", width)
    say(doubt or "", width)
    print("\n" + ranking(order, by, width, arguments.all))
    if any(model.accuracy is not None for model in order):
        print()
        say("* measured with target labels, which these runs happen to have; not used for the ranking.", width)
    for history in histories if arguments.history else ():
        print(f"\n{history.evaluations[0].run} over time:\n\n" + over_time(history.evaluations, by, width))
    print()
    for sentence in [*(f"Warning: {each}" for each in warned if each != doubt), *advice(order, histories, by)]:
        say(sentence, width)
    if arguments.all:
        say_how_they_agree(agree, width)
    else:
        say("--all shows the other validators, and how far they agree.", width)
    return 0


def say_how_they_agree(agree: dict[str, Any], width: int) -> None:
    print()
    if agree["enough"]:
        say(f"How the validators agree: rank correlations over {agree['over']}.", width)
        print("\n" + matrix(agree, width))
    else:
        say(f"How the validators agree cannot be said from {agree['over']}.", width)


def say(sentence: str, width: int) -> None:
    if sentence:
        print(filled(sentence, width))


def read_all(folders: Iterable[Path]) -> tuple[list[History], list[str]]:
    """The runs among some folders, and a sentence about each that is none: runs/* may well hold others."""
    histories, left_out = [], []
    for folder in folders:
        try:
            histories.append(read_history(folder))
        except InputError as error:
            left_out.append(str(error))
    if not histories:
        raise InputError(left_out[0])
    return histories, left_out


def check_known(by: str, histories: Sequence[History]) -> None:
    """Refuse to rank by what no run has, and say what there is."""
    known = validators_of([model for history in histories for model in history.evaluations])
    if by not in known:
        raise InputError(f"no evaluation of these runs has {by}: choose with --by one of {', '.join(known)}.")


def ranking(models: Sequence[ScoredModel], by: str, width: int, others: bool) -> str:
    """One line for each model: where it is, the score that ranks, what speaks against it, and the other scores if
    asked for."""
    place = Column("#", [str(place) for place in range(1, len(models) + 1)])
    rest = [steps(models), *ranked_by(models, by)]
    room = width - across([place, Column("", []), *rest])
    runs = Column("run", [shortened(model.run, max(room, len("run") + 12)) for model in models], words=True)
    return fitted(place, [runs, *rest, *(other_scores(models, by) if others else ())], width)


def over_time(models: Sequence[ScoredModel], by: str, width: int) -> str:
    """One line for each evaluation of a run."""
    return fitted(steps(models), [*ranked_by(models, by), *other_scores(models, by)], width)


def steps(models: Sequence[ScoredModel]) -> Column:
    return Column("iteration", [str(model.step) for model in models])


def ranked_by(models: Sequence[ScoredModel], by: str) -> list[Column]:
    """The score that ranks; alarms and, though it decides nothing, the accuracy where there are any."""
    columns = [scores_of(models, by)]
    if any(model.alarm for model in models):
        columns.append(Column("alarm", ["yes" if model.alarm else "" for model in models]))
    if any(model.accuracy is not None for model in models):
        columns.append(Column("target accuracy*", [number(model.accuracy) for model in models]))
    return columns


def other_scores(models: Sequence[ScoredModel], by: str) -> list[Column]:
    return [scores_of(models, name) for name in validators_of(models) if name != by]


def scores_of(models: Sequence[ScoredModel], name: str) -> Column:
    return Column(name, [number(model.scores.get(name)) for model in models])


def advice(order: Sequence[ScoredModel], histories: Sequence[History], by: str) -> list[str]:
    """What to do now."""
    first = order[0]
    said = [f"The first is {first.file}." if first.file else f"The first is {first.run}; its model is not saved yet."]
    # Where scores are equal, what there is comes first.
    bests = [(ranked([*candidates([h]), *h.evaluations], by)[0], h.evaluations[-1]) for h in histories]
    lost = [best for best, last in bests if not best.file and best is not last and best.scores.get(by) is not None]
    if lost:
        moments = few([f"{best.run} at iteration {best.step}" for best in lost])
        said.append(
            f"Earlier models ranked higher by {by}, but were not kept: {moments}. To keep the best, train with "
            f"--keep-best {by}."
        )
    return said


def matrix(agree: dict[str, Any], width: int) -> str:
    """Validators against validators and, where it is known, the accuracy."""
    found, rows = agree["validators"], dict(agree["validators"])
    if agree["accuracy"] is not None:
        rows["target accuracy*"] = agree["accuracy"]
    columns = [Column(name, [number(row[name], 2) for row in rows.values()]) for name in found]
    return fitted(Column("", list(rows), words=True), columns, width)


def number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
