"""``vmt paper``: rebuild the tables of the paper."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from vmt.cli.train import load
from vmt.errors import InputError
from vmt.paper.runner import fill
from vmt.paper.show import markdown, rows_of
from vmt.paper.tables import TABLES, find_table

EXAMPLES = """examples:
  vmt paper list
  vmt paper run evaluation --data DATA --budget 30      fill the table for half an hour; the same command goes on
  vmt paper show evaluation                             ours beside the paper's
  vmt paper show ten-runs --json

A run that is finished is never run again; one that was interrupted goes on where it was. Results are small files that
hold recipe, seed, commit, hardware, the curve and the accuracy.
"""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "paper",
        help="rebuild the tables of the paper",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=("list", "run", "show"), help="list the tables, fill one, or show one")
    parser.add_argument("table", nargs="?", help=f"one of {', '.join(TABLES)}")
    parser.add_argument("--data", help="folder of the official files")
    parser.add_argument("--results", type=Path, default=Path("results"), help="result files (default: results)")
    parser.add_argument("--runs", type=Path, default=Path("runs/paper"), help="run folders (default: runs/paper)")
    parser.add_argument(
        "--budget", type=float, metavar="MINUTES", help="stop after this long; the same command goes on"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--evaluate-every", type=int, default=1000, help="iterations between evaluations")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "list":
        for name, table in TABLES.items():
            print(f"{name:<18} {table.title}: {len(table.cells)} numbers, {len(table.runs())} runs")
        return 0
    if arguments.table is None:
        raise InputError(f"name a table: {', '.join(TABLES)}.")
    table = find_table(arguments.table)
    if arguments.action == "run":
        if arguments.data is None:
            raise InputError("the paper's runs need the official files: give their folder with --data.")
        budget = None if arguments.budget is None else 60 * arguments.budget
        changes = {"device": arguments.device, "evaluate_every": arguments.evaluate_every}
        fill(table, load, arguments.data, arguments.results, arguments.runs, budget, changes, say=to_stderr)
    if arguments.json:
        print(json.dumps(rows_of(table, arguments.results)))
    else:
        print(markdown(table, arguments.results))
    return 0


def to_stderr(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
