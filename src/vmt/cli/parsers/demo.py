"""Flags of ``vmt demo``."""

from pathlib import Path
from typing import Any

from vmt.cli.later import Later
from vmt.cli.parsers.flags import add_device, add_json
from vmt.names import DIGITS_ITERATIONS

EXAMPLES = """examples:
  vmt demo
  vmt demo --seed 1 --out runs/demo-1
  vmt demo --json | tail -1 | python -m json.tool

Digits drawn with fonts are labelled; scanned handwriting is not. Four systems try to read the handwriting, with the
same network and the same number of iterations. The figures are for handwriting that none of them was trained on.
"""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("demo", help="see it work: a small real task, a few minutes on a CPU", epilog=EXAMPLES)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="where to write (default: runs/demo)")
    parser.add_argument("--seed", type=int, default=0, help="decides initial weights and every draw (default: 0)")
    add_device(parser)
    parser.add_argument("--iterations", type=int, help=f"of VMT (default: {DIGITS_ITERATIONS})")
    add_json(parser)
    parser.set_defaults(run=Later("vmt.cli.demo"))
