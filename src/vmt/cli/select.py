"""``vmt select``: rank runs without target labels."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmt.cli.text_tables import Column, across, number, say, shortened, tables_within, terminal_width
from vmt.errors import InputError, few
from vmt.validators.registry import DEFAULT, VALIDATORS, check_name

if TYPE_CHECKING:
    from vmt.runs.ranking import History, ScoredModel

EXAMPLES = """examples:
  vmt select runs/a runs/b runs/c          rank three runs without target labels
  vmt select runs                          all runs in a folder
  vmt select runs --by mixval --all        rank by another validator, and show all of them
  vmt select runs/a --history              how the scores changed during one run
  vmt select runs --json

Validators (higher is better for all; docs/choosing.md explains them):
""" + "\n".join(f"  {name:<16} {validator.text}" for name, validator in VALIDATORS.items())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="a run's folder, or a folder of runs")
    parser.add_argument(
        "--by", metavar="VALIDATOR", default=DEFAULT, help=f"the validator to rank by (default: {DEFAULT})"
    )
    parser.add_argument("--all", action="store_true", help="show every validator, and how well they agree")
    parser.add_argument("--history", action="store_true", help="show every evaluation of every run")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from vmt.runs.ranking import agreement, any_refined, candidates, incomparable, ranked, warnings
    from vmt.runs.record import find_runs

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
        say("* measured with target labels, which these runs have; not used for the ranking.", width)
    if any_refined(order, by):
        print()
        say(
            f"After DIRT-T, which does not train on the source, {by} is that of the model before it plus what DIRT-T "
            "changed on the target.",
            width,
        )
    for history in histories if arguments.history else ():
        print(f"\n{history.evaluations[0].run} over time:\n\n" + over_time(history.evaluations, by, width))
    print()
    last = [*advice(order, histories, by), *answers(arguments.runs)]
    for sentence in [*(f"Warning: {each}" for each in warned if each != doubt), *last]:
        say(sentence, width)
    if arguments.all:
        say_how_they_agree(agree, width)
    else:
        say("--all shows the other validators, and how well they agree.", width)
    return 0


def say_how_they_agree(agree: dict[str, Any], width: int) -> None:
    print()
    if agree["enough"]:
        say(f"How well the validators agree: rank correlations over {agree['over']}.", width)
        print("\n" + matrix(agree, width))
    else:
        say(f"{agree['over']} are too few to measure how well the validators agree.", width)


def read_all(folders: Iterable[Path]) -> tuple[list[History], list[str]]:
    """The runs among some folders, and a message about each folder that is not a run, such as runs/* may match."""
    from vmt.runs.ranking import read_history

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
    """Refuse to rank by a validator that no run has, and name those that the runs have."""
    from vmt.runs.ranking import validators_of

    known = validators_of([model for history in histories for model in history.evaluations])
    if by not in known:
        raise InputError(f"no evaluation of these runs has {by}: choose one of {', '.join(known)} with --by.")


def ranking(models: Sequence[ScoredModel], by: str, width: int, others: bool) -> str:
    """One line for each model: its run, the score that ranks it, its alarm and, if asked for, the other scores."""
    place = Column("#", [str(place) for place in range(1, len(models) + 1)])
    rest = [steps(models), *ranked_by(models, by)]
    room = width - across([place, Column("", []), *rest])
    runs = Column("run", [shortened(model.run, max(room, len("run") + 12)) for model in models], words=True)
    return tables_within(place, [runs, *rest, *(other_scores(models, by) if others else ())], width)


def over_time(models: Sequence[ScoredModel], by: str, width: int) -> str:
    """One line for each evaluation of a run."""
    return tables_within(steps(models), [*ranked_by(models, by), *other_scores(models, by)], width)


def steps(models: Sequence[ScoredModel]) -> Column:
    return Column("iteration", [str(model.step) for model in models])


def ranked_by(models: Sequence[ScoredModel], by: str) -> list[Column]:
    """The score that ranks; alarms if there are any; and the accuracy if it is known, although it decides nothing."""
    columns = [scores_of(models, by)]
    if any(model.alarm for model in models):
        columns.append(Column("alarm", ["yes" if model.alarm else "" for model in models]))
    if any(model.accuracy is not None for model in models):
        columns.append(Column("target accuracy*", [number(model.accuracy) for model in models]))
    return columns


def other_scores(models: Sequence[ScoredModel], by: str) -> list[Column]:
    from vmt.runs.ranking import validators_of

    return [scores_of(models, name) for name in validators_of(models) if name != by]


def scores_of(models: Sequence[ScoredModel], name: str) -> Column:
    return Column(name, [number(model.scores.get(name)) for model in models])


def advice(order: Sequence[ScoredModel], histories: Sequence[History], by: str) -> list[str]:
    """What to do next."""
    from vmt.runs.ranking import candidates, ranked

    first = order[0]
    lines = [f"Ranked first: {first.file}" if first.file else f"Ranked first: {first.run}; its model is not saved yet."]
    # Models that were kept come first, so that they win over equal scores.
    best_and_last = [(ranked([*candidates([h]), *h.evaluations], by)[0], h.evaluations[-1]) for h in histories]
    lost = [
        best for best, last in best_and_last if not best.file and best is not last and best.scores.get(by) is not None
    ]
    if lost:
        moments = few([f"{best.run} at iteration {best.step}" for best in lost])
        lines.append(
            f"Earlier models ranked higher by {by}, but were not kept: {moments}. To keep the best, train with "
            f"--keep-best {by}."
        )
    return lines


def answers(folders: Sequence[Path]) -> list[str]:
    """The answers of ``auto`` that no run is: an average or a kernel classifier, which have no evaluations to rank."""
    from vmt.runs.folder import MODEL, RUN
    from vmt.runs.record import read_choice

    found = [(folder, choice) for folder in folders if (choice := read_choice(folder)) is not None]
    return [
        f"The answer of the method auto is {folder / MODEL} ({choice['chosen']}), which this table does not have."
        for folder, choice in found
        if isinstance(choice.get("chosen"), str) and not (folder / choice["chosen"] / RUN).is_file()
    ]


def matrix(agree: dict[str, Any], width: int) -> str:
    """Validators against each other and, where it is known, the accuracy."""
    found, rows = agree["validators"], dict(agree["validators"])
    if agree["accuracy"] is not None:
        rows["target accuracy*"] = agree["accuracy"]
    columns = [Column(name, [number(row[name], 2) for row in rows.values()]) for name in found]
    return tables_within(Column("", list(rows), words=True), columns, width)
