"""Flags of ``vmt predict``."""

from pathlib import Path
from typing import Any

from vmt.cli.later import Later
from vmt.cli.parsers.flags import add_device, add_json, add_net
from vmt.data.files.paths import FEW_UNREADABLE, UNREADABLE_SHARE

FORMATS = ("csv", "jsonl")
EXAMPLES = """examples:
  vmt predict runs/mine picture.png photo.jpg             classes and probabilities as CSV
  vmt predict runs/mine folder/ --out predictions.csv     every picture and NumPy file below a folder
  vmt predict runs/mine images.npz --out predictions.jsonl
  vmt predict model.onnx list.csv                         pictures that a CSV lists, by a file of vmt export
  vmt predict model.safetensors table.csv                 the rows of a table
  find . -name '*.jpg' | vmt predict runs/mine - | head   paths on standard input, one per line
  cut -d, -f2-9 big.csv | vmt predict runs/table -        for a model of vectors, also the rows of a CSV

A picture is one sample; an .npz file (key x), an .npy file and a table hold many. Files are read a batch at a time, so
that their number and size do not matter. What cannot be read is named and left out; when it is more than 10 samples and
more than 1 % of those so far, the command stops. A table's columns are found by their names where model and table have
any, and else must stand in the order of the training.
"""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "predict", help="classes and probabilities of pictures, arrays and tables", epilog=EXAMPLES
    )
    parser.add_argument("model", type=Path, help="a run's folder, a saved model, or an .onnx or .pt2 file")
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="pictures, folders, lists of pictures (.csv), tables (.csv, .tsv, those as .gz, .parquet), .npz or .npy "
        "files; - for stdin",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write here instead of to stdout")
    parser.add_argument("--format", choices=FORMATS, help="default: as --out is named, or csv")
    parser.add_argument("--label", metavar="COLUMN", help="column of a table that is no feature (default: label)")
    parser.add_argument(
        "--max-unreadable",
        metavar="N",
        type=int,
        help=f"stop after N unreadable samples (default: {FEW_UNREADABLE}, or {UNREADABLE_SHARE:.0%}% if more)",
    )
    add_net(parser)
    add_device(parser)
    add_json(parser)
    parser.set_defaults(run=Later("vmt.cli.predict"))
