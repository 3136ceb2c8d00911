"""Flags of ``vmt paper``."""

import argparse
from pathlib import Path
from typing import Any

from vmt.cli.later import Later
from vmt.cli.parsers.flags import add_device
from vmt.cli.parsers.paper_figure import add_figure
from vmt.names import TABLES

EXAMPLES = """examples:
  vmt paper list                                        the tables; vmt paper list TABLE: its runs and their state
  vmt paper run evaluation --data DATA --budget 30      fill the table for half an hour; the same command continues
  vmt paper run priority --data DATA --phases 1         what matters most of all tables, first without DIRT-T
  vmt paper run all --only '*vada*' --seeds 2,3 --data DATA
  vmt paper run ten-runs --data DATA --at-once 3        three runs at a time on one GPU, under NVIDIA's MPS
  vmt paper show evaluation                             ours beside the paper's; vmt paper show all --json
  vmt paper figure tsne --data DATA                     from the models of the runs above

A run that is finished is never run again; one that was interrupted continues with the settings it began
with. Results are small files that hold recipe, seed, commit, hardware, the curve and the accuracy.
"""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("paper", help="rebuild the tables and figures of the paper", epilog=EXAMPLES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    names = ", ".join([*TABLES, "all"])

    listing = actions.add_parser("list", help="the tables, or the runs of one and their state")
    listing.add_argument("table", nargs="?", help=f"one of {names}")
    add_places(listing)
    listing.set_defaults(run=Later("vmt.cli.paper", "list_tables"))

    running = actions.add_parser("run", help="fill a table")
    running.add_argument("table", nargs="?", help=f"one of {names}")
    running.add_argument("--data", help="folder of the official files")
    running.add_argument(
        "--budget", type=float, metavar="MINUTES", help="stop after this long; the same command continues"
    )
    running.add_argument("--only", metavar="PATTERN", help="only rows or runs whose name fits, for example '*vada*'")
    running.add_argument("--seeds", type=numbers, metavar="0,1,2", help="these seeds in place of the table's")
    running.add_argument("--phases", type=int, metavar="N", help="only the first N phases: 1 leaves DIRT-T for later")
    add_device(running)
    running.add_argument(
        "--evaluate-every", type=int, default=2500, help="iterations between evaluations (default: 2500)"
    )
    running.add_argument(
        "--checkpoint-every", type=int, default=5000, help="iterations between checkpoints (default: 5000)"
    )
    running.add_argument(
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="runs at a time; on one GPU it pays under NVIDIA's MPS (default: 1)",
    )
    running.add_argument("--json", action="store_true", help="print the table as JSON")
    add_places(running)
    running.set_defaults(run=Later("vmt.cli.paper", "run_table"))

    showing = actions.add_parser("show", help="ours beside the paper's")
    showing.add_argument("table", nargs="?", help=f"one of {names}")
    showing.add_argument("--json", action="store_true", help="print as JSON")
    add_places(showing)
    showing.set_defaults(run=Later("vmt.cli.paper", "show_table"))

    add_places(add_figure(actions))

    paging = actions.add_parser("pages", help="write a page of documentation per table")
    paging.add_argument("--out", type=Path, default=Path("docs/paper"), help="their folder (default: docs/paper)")
    paging.add_argument("--check", action="store_true", help="only say which pages are not as they should be")
    add_places(paging)
    paging.set_defaults(run=Later("vmt.cli.paper", "write_pages"))


def add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, default=Path("results"), help="result files (default: results)")
    parser.add_argument("--runs", type=Path, default=Path("runs/paper"), help="run folders (default: runs/paper)")


def numbers(text: str) -> list[int]:
    """Seeds as a list with commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers such as 0,1,2") from error
