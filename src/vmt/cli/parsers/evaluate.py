"""Flags of ``vmt evaluate``."""

from pathlib import Path
from typing import Any

from vmt.cli.later import Later
from vmt.cli.parsers.flags import add_device, add_json, add_net

EXAMPLES = """examples:
  vmt evaluate runs/m2s                        on the target test set of its task
  vmt evaluate runs/mine --test held-out/      on pictures in one subfolder per class
  vmt evaluate model.safetensors --test table.csv --label species
  vmt evaluate runs/m2s --test labelled.npz

--test takes what vmt train takes as a source: folders, lists of pictures, tables, an .npz with x and y. Samples whose
label is not known (an empty cell, -1, a subfolder "unlabelled") are left out.
"""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("evaluate", help="accuracy of a trained model", epilog=EXAMPLES)
    parser.add_argument("model", type=Path, help="a run's folder or a saved model")
    parser.add_argument("--test", metavar="PATH", help="labelled samples (default: the target test set of the run)")
    parser.add_argument(
        "--label", metavar="COLUMN", help="column of a table with the classes (default: the run's, or label)"
    )
    parser.add_argument("--data", help="folder of the task's files, if it is no longer where the run found it")
    add_net(parser)
    add_device(parser)
    add_json(parser)
    parser.set_defaults(run=Later("vmt.cli.evaluate"))
