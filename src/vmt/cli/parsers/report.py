"""Flags of ``vmt report``."""

from pathlib import Path
from typing import Any

from vmt.cli.later import Later
from vmt.cli.parsers.flags import add_device, add_json

EXAMPLES = """examples:
  vmt report runs/m2s                                 one run, to report.html
  vmt report runs/demo -o demo.html                   all runs in a folder, side by side
  vmt report runs/lower runs/mine-0 runs/mine-1       with a source_only run among them: did adaptation help?
  vmt report runs/m2s --data DATA --map pca           the data have moved; a quicker map

The page is one file that loads nothing: open it in any browser, offline, or send it to somebody. It holds small copies
of some of the samples. Nothing in the run folders is changed.
"""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("report", help="one page that shows whether a run worked", epilog=EXAMPLES)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's folder, or a folder of runs")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("report.html"), help="the page to write (default: report.html)"
    )
    parser.add_argument("--data", help="folder of the task's files, if it is no longer where the run found it")
    parser.add_argument(
        "--map", choices=("tsne", "pca", "none"), default="tsne", help="how features are projected to a plane"
    )
    parser.add_argument(
        "--samples", type=int, default=10_000, metavar="N", help="target samples to look at (default: 10000)"
    )
    parser.add_argument(
        "--net",
        metavar="NAME",
        action="append",
        default=[],
        help="package.module:function, for runs with a network of your own; may be given several times",
    )
    add_device(parser)
    add_json(parser)
    parser.set_defaults(run=Later("vmt.cli.report"))
