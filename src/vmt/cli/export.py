"""``vmt export``: a trained model as one file for other programs."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmt.cli.options import add_json, add_net, given
from vmt.data.files.paths import FORMATS, MOST_CHECKED, ONNX
from vmt.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from vmt.export import Parity
    from vmt.model import Model
    from vmt.runs.spec import DataSpec

FEW = 64  # pictures of the run's target to compare on, if each passes through a large network
EXAMPLES = """examples:
  vmt export runs/mine                                    writes runs/mine/model.onnx
  vmt export runs/mine --format pt2 --out mine.pt2        for torch.export.load
  vmt export runs/mine --check folder/                    compare on pictures that you choose
  vmt export model.safetensors --check images.npz         compare on the array x of a file
  vmt export runs/table --check table.csv                 compare on the rows of a table
  vmt predict runs/mine/model.onnx picture.png            try it here; elsewhere, onnxruntime alone is enough

The file takes samples as they are stored (images as bytes, N×H×W×C, any size; vectors as float32, N×F), preprocesses
them and returns the probability of each class. Class names and a description of the input are in its metadata. It is
written only if its probabilities equal the model's within 1e-4 on up to 1,000 samples of the run's target, or on the
first 1,000 of --check, which are read as vmt predict reads them; samples that cannot be read are named and left out.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("model", type=Path, help="a run's folder or a saved model")
    parser.add_argument(
        "--format", choices=FORMATS, help=f"format of the file (default: by the name of --out, or {ONNX})"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="file to write (default: model.FORMAT beside the saved model)"
    )
    parser.add_argument(
        "--check",
        metavar="PATH",
        help=f"input as for vmt predict, to compare on its first {MOST_CHECKED:,} samples",
    )
    parser.add_argument(
        "--label", metavar="COLUMN", help="column of --check's table that is not a feature (default: label)"
    )
    add_net(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from vmt.export import export
    from vmt.model import load

    model = load(arguments.model, arguments.net, "cpu", arguments.features)
    format, out = destination(arguments)
    samples, name = samples_to_check(arguments, model)
    parity = export(model, out, format, samples)
    print(sentence(model, out, parity, name))
    if arguments.json:
        print(json.dumps({"out": str(out), "format": format, **asdict(parity), "checked_on": name}))
    return 0


def destination(arguments: argparse.Namespace) -> tuple[str, Path]:
    """Format and file; each follows from the other if only one is given."""
    out: Path | None = arguments.out
    named = out.suffix[1:] if out is not None else None
    format = arguments.format or named or ONNX
    if named is not None and named != format:
        raise InputError(f"{out} does not end in .{format}: change its name, or leave out --format.")
    if out is None:
        folder = arguments.model if arguments.model.is_dir() else arguments.model.parent
        out = folder / f"model.{format}"
    return format, out


def samples_to_check(arguments: argparse.Namespace, model: Model) -> tuple[Any, str]:
    """Samples to compare on, real ones if possible, and their name."""
    import torch

    from vmt.runs.folder import RUN, read_run
    from vmt.runs.spec import check_features, load_data

    if arguments.check is not None:
        return iter(first_samples(arguments.check, model, arguments.label)), arguments.check
    if (arguments.model / RUN).is_file():
        spec = read_run(arguments.model)
        data = spec.data
        if model.backbone is not None:  # which reads pictures, not their features
            try:
                place = pictures_to_check(data)
                return iter(first_samples(place, model, data.label, FEW)), place
            except InputError:
                return None, "random pictures, because the run's data were not found"
        try:
            check_features(data, given(arguments, ["features"]).values(), arguments.model)
            task = load_data(data, memory=spec.recipe.config.memory, network=arguments.net)
        except InputError:  # a model can be exported although its data are gone
            return None, "random samples, because the run's data were not found"
        samples = task.target_test or task.target
        count = min(len(samples), MOST_CHECKED)
        spaced = torch.arange(count) * len(samples) // count  # they may be too many for the memory
        return as_stored(samples.x[spaced], model), samples.name
    return None, "random samples"


def pictures_to_check(data: DataSpec) -> str:
    """Where the pictures of the target are."""
    from vmt.data.picture_sets import PICTURE_TASKS

    if data.task in PICTURE_TASKS:
        return str(PICTURE_TASKS[data.task].folders(data.data)[1])
    if data.target is None:
        raise InputError("the samples of this run were given as arrays in Python: no file holds them.")
    return data.target_test or data.target


def first_samples(given: str, model: Model, label: str | None, most: int = MOST_CHECKED) -> list[NDArray[Any]]:
    """The first samples that ``vmt predict`` would read, as it reads them."""
    from vmt.cli.predict import ReadCounts, predictions
    from vmt.data.files.stream import InputSpec, SampleBatch, Unreadable, expand_inputs, stream_samples

    reads, counts = InputSpec(model.reads, model.features, label), ReadCounts(most)
    parts: list[NDArray[Any]] = []
    for item in stream_samples(expand_inputs([given], reads), reads, sys.stdin.buffer):
        left = most - counts.read
        if isinstance(item, Unreadable):
            counts.add(item)
        else:
            item = SampleBatch(item.files[:left], item.indices[:left], item.x[:left])
            next(predictions(model, item))  # if samples do not suit the model, the error names their file
            parts.append(item.x)
            counts.read += len(item.x)
        if counts.read + len(counts.faults) >= most:
            break
    counts.close()
    if not parts:
        raise InputError(f"{given} has no samples to compare on: give others with --check.")
    return parts


def as_stored(x: Tensor, model: Model) -> Tensor:
    """Images of a task are resized in floating point; a model that reads bytes gets them rounded, as in a picture."""
    import torch

    from vmt.data.preprocess import BYTES

    return x.round().to(torch.uint8) if model.reads.size and model.reads.values is BYTES else x


def sentence(model: Model, out: Path, parity: Parity, name: str) -> str:
    from vmt.export import input_of

    described = input_of(model.reads)
    if model.reads.size is None:
        reads = f"vectors (N, {described['features']})"
    else:
        height, width = described["resized_to"]
        size = "(N, H, W, {}) of any size" if model.reads.stretches else f"(N, {height}, {width}, {{}})"
        reads = f"{described['dtype']} images {size.format(described['channels'])}"
    return (
        f"Wrote {out}: {reads} in, probabilities of {len(model.classes)} classes out.\n"
        f"It differs from the model by at most {parity.difference:.1e} on {parity.samples} samples ({name})."
    )
