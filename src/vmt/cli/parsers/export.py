"""Flags of ``vmt export``."""

from pathlib import Path
from typing import Any

from vmt.cli.later import Later
from vmt.cli.parsers.flags import add_json, add_net
from vmt.names import FORMATS, MOST_CHECKED, ONNX

EXAMPLES = """examples:
  vmt export runs/mine                                    writes runs/mine/model.onnx
  vmt export runs/mine --format pt2 --out mine.pt2        for torch.export.load
  vmt export runs/mine --check folder/                    compares on pictures that you choose
  vmt export model.safetensors --check images.npz         on the array x of a file
  vmt export runs/table --check table.csv                 on the rows of a table
  vmt predict runs/mine/model.onnx picture.png            try it here; elsewhere, onnxruntime alone is enough

The file takes samples as they are stored (images as bytes, N×H×W×C, any size; vectors as float32, N×F), preprocesses
them itself and gives the probability of each class. Class names and a description of the input are in its metadata. It
is written only if its probabilities equal the model's within 1e-4 on up to 1,000 samples of the run's target, or on the
first 1,000 of --check, which are read as vmt predict reads them; what cannot be read is named and left out.
"""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("export", help="a trained model as an ONNX or .pt2 file", epilog=EXAMPLES)
    parser.add_argument("model", type=Path, help="a run's folder or a saved model")
    parser.add_argument("--format", choices=FORMATS, help=f"default: as --out is named, or {ONNX}")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: model.FORMAT beside the saved model")
    parser.add_argument(
        "--check",
        metavar="PATH",
        help=f"whatever vmt predict takes, to compare on its first {MOST_CHECKED:,} samples",
    )
    parser.add_argument(
        "--label", metavar="COLUMN", help="column of --check's table that is no feature (default: label)"
    )
    add_net(parser)
    add_json(parser)
    parser.set_defaults(run=Later("vmt.cli.export"))
