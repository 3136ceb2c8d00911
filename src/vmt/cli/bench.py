"""``vmt bench``: time an iteration."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from vmt.cli.options import add_device
from vmt.engine import ENGINES
from vmt.train.config import PRECISIONS

ABOUT = "Time an iteration of a plain implementation and of each engine, in one process."
NETS = ("small", "large")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT
    add_device(parser)
    parser.add_argument(
        "--net", choices=NETS, default="small", help="the paper's small or large network (default: small)"
    )
    parser.add_argument(
        "--batch-size", type=at_least(2), metavar="N", default=64, help="samples per domain in a batch (default: 64)"
    )
    parser.add_argument(
        "--engines",
        nargs="+",
        choices=ENGINES[1:],
        metavar="ENGINE",
        help=f"engines to time, any of {', '.join(ENGINES[1:])}",
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="auto", help="arithmetic inside the networks (default: auto)"
    )
    parser.add_argument(
        "--iterations",
        type=at_least(1),
        metavar="N",
        help="iterations in a block (default: as many as take a quarter of a second on a GPU; 1 on a CPU)",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="use MNIST → SVHN from this folder instead of random images"
    )
    parser.add_argument("--no-baseline", action="store_true", help="leave out the plain implementation")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="also time other batch sizes and draw the time per sample to this file",
    )
    parser.add_argument("--json", action="store_true", help="print a summary as JSON on the last line of stdout")
    parser.set_defaults(run=run)


def at_least(least: int) -> Callable[[str], int]:
    """A parser of whole numbers that are not smaller than ``least``; batch statistics need two samples."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
        return int(text)

    return read


def run(arguments: argparse.Namespace) -> int:
    from vmt.engine.bench import bench

    report = bench(
        arguments.net,
        batch_size=arguments.batch_size,
        engines=arguments.engines,
        device=arguments.device,
        precision=arguments.precision,
        iterations=arguments.iterations,
        data=arguments.data,
        baseline=not arguments.no_baseline,
        plot=arguments.plot,
    )
    if arguments.json:
        print(json.dumps(report))
    return 0
