"""Flags of ``vmt select``."""

from pathlib import Path
from typing import Any

from vmt.cli.later import Later
from vmt.validators.registry import DEFAULT, VALIDATORS

EXAMPLES = """examples:
  vmt select runs/a runs/b runs/c          rank three runs without target labels
  vmt select runs                          all runs in a folder
  vmt select runs --by mixval --all        by another validator, with all the others
  vmt select runs/a --history              how the validators moved during one run
  vmt select runs --json

Validators (higher is better for all; docs/choosing.md explains them):
""" + "\n".join(f"  {name:<16} {validator.text}" for name, validator in VALIDATORS.items())


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("select", help="rank runs without target labels", epilog=EXAMPLES)
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="a run's folder, or a folder of runs")
    parser.add_argument("--by", metavar="VALIDATOR", default=DEFAULT, help=f"what to rank by (default: {DEFAULT})")
    parser.add_argument("--all", action="store_true", help="show every validator, and how far they agree")
    parser.add_argument("--history", action="store_true", help="show every evaluation of every run")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.set_defaults(run=Later("vmt.cli.select"))
