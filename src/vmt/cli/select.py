"""``vmt select``: which run, when there are no target labels?"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vmt.errors import InputError
from vmt.selection import History, Look, agreement, models, names, ranked, read_history, warnings
from vmt.validators import VALIDATORS, check_name


def run(arguments: argparse.Namespace) -> int:
    by = check_name(arguments.by)
    histories, left_out = read_all(dict.fromkeys(arguments.runs))
    check_known(by, histories)
    order, agree, warned = ranked(models(histories), by), agreement(histories), [*left_out, *warnings(histories)]
    if arguments.json:
        looks = {h.looks[0].run: [asdict(look) for look in h.looks] for h in histories}
        ranking = [asdict(look) for look in order]
        print(json.dumps({"by": by, "ranking": ranking, "agreement": agree, "warnings": warned, "looks": looks}))
        return 0
    print(f"Ranked by {by}, {VALIDATORS[by].text} (higher is better). No target label has a part in it.\n")
    print(table(order, by, numbered=True))
    if arguments.history:
        for history in histories:
            print(f"\n{history.looks[0].run} over time:\n" + table(history.looks, by))
    if any(look.accuracy is not None for look in order):
        print("\n* measured with target labels, which these runs happen to have; it decides nothing here.")
    print("\n".join(["", *(f"Warning: {sentence}" for sentence in warned), *advice(order, histories, by)]))
    if agree["enough"]:
        print(f"\nHow the validators agree: rank correlations over {agree['over']}.\n{matrix(agree)}")
    else:
        print(f"\nHow the validators agree cannot be said from {agree['over']}.")
    return 0


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
    known = names([look for history in histories for look in history.looks])
    if by not in known:
        raise InputError(f"no look of these runs has {by}: choose with --by one of {', '.join(known)}.")


def table(looks: Sequence[Look], by: str, numbered: bool = False) -> str:
    """One line for each look: the score that ranks, then the others, then, apart, the accuracy if it is known."""
    columns = [by, *(name for name in names(looks) if name != by)]
    labelled = any(look.accuracy is not None for look in looks)
    head = ["#" if numbered else "", "run", "iteration", *columns, "alarm", *(["target accuracy*"] if labelled else [])]
    rows = [head]
    for place, look in enumerate(looks, 1):
        cells = [str(place) if numbered else "", look.run, str(look.step)]
        cells += [number(look.scores.get(name)) for name in columns]
        cells += ["yes" if look.alarm else "", *([number(look.accuracy)] if labelled else [])]
        rows.append(cells)
    return aligned(rows, left=2)


def advice(order: Sequence[Look], histories: Sequence[History], by: str) -> list[str]:
    """What to do now."""
    first = order[0]
    said = [f"The first is {first.file}." if first.file else f"The first is {first.run}; its model is not saved yet."]
    for history in histories:
        best = ranked(history.looks, by)[0]
        if best.file is None and best is not history.looks[-1] and best.scores.get(by) is not None:
            said.append(
                f"{best.run} was better by {by} at iteration {best.step}, but that model was not kept: "
                f"--keep-best {by} would have."
            )
    return said


def matrix(agree: dict[str, Any]) -> str:
    found = agree["validators"]
    rows = [["", *found]]
    rows += [[a, *(number(value, 2) for value in row.values())] for a, row in found.items()]
    if agree["accuracy"] is not None:
        rows.append(["target accuracy*", *(number(value, 2) for value in agree["accuracy"].values())])
    return aligned(rows)


def number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns of equal width: ``left`` of them begin at the left, the numbers after them end at the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        sides = zip(row, widths, [str.ljust] * left + [str.rjust] * (len(row) - left), strict=True)
        lines.append("  ".join(place(cell, width) for cell, width, place in sides).rstrip())
    return "\n".join(lines)
