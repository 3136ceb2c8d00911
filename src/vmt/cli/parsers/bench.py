"""Flags of ``vmt bench``."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vmt.cli.later import Later
from vmt.cli.parsers.flags import add_device
from vmt.train.config import PRECISIONS

ABOUT = "What an iteration costs, plainly written and with each engine, in one process."
NETS, ENGINES = ("small", "large"), ("eager", "compiled", "captured")


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "bench", help="time an iteration: plainly written, and with each engine", description=ABOUT
    )
    add_device(parser)
    parser.add_argument("--net", choices=NETS, default="small", help="the paper's small or large network")
    parser.add_argument("--batch-size", type=at_least(2), metavar="N", default=64, help="samples of each domain (64)")
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES, metavar="ENGINE", help=f"which to time: {', '.join(ENGINES)}"
    )
    parser.add_argument("--precision", choices=PRECISIONS, default="auto", help="of the networks (default: auto)")
    parser.add_argument(
        "--iterations",
        type=at_least(1),
        metavar="N",
        help="iterations in a block (what fills a quarter of a second on a GPU; 1 on a CPU)",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="time on MNIST → SVHN from this folder, not on random images"
    )
    parser.add_argument("--no-baseline", action="store_true", help="leave the plain port out")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="also time other batch sizes and draw the cost per sample here"
    )
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.set_defaults(run=Later("vmt.cli.bench"))


def at_least(least: int) -> Callable[[str], int]:
    """A whole number that is not too small: batch statistics need two samples."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
        return int(text)

    return read
