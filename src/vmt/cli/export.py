"""``vmt export``: a trained model as one file for other programs."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from vmt.cli.predict import Tally, predictions
from vmt.data.files.stream import InputSpec, SampleBatch, Unreadable, expand_inputs, stream_samples
from vmt.data.preprocess import BYTES
from vmt.errors import InputError
from vmt.export import Parity, export, input_of
from vmt.model import Model, load
from vmt.names import MOST_CHECKED, ONNX
from vmt.runs.folder import RUN, read_run
from vmt.runs.spec import load_data


def run(arguments: argparse.Namespace) -> int:
    model = load(arguments.model, arguments.net, device="cpu")
    format, out = destination(arguments)
    samples, name = samples_to_check(arguments, model)
    parity = export(model, out, format, samples)
    print(sentence(model, out, parity, name))
    if arguments.json:
        print(json.dumps({"out": str(out), "format": format, **asdict(parity), "checked_on": name}))
    return 0


def destination(arguments: argparse.Namespace) -> tuple[str, Path]:
    """Format and file, each told from the other where only one is given."""
    out: Path | None = arguments.out
    named = out.suffix[1:] if out is not None else None
    format = arguments.format or named or ONNX
    if named is not None and named != format:
        raise InputError(f"{out} does not end in .{format}: name the file so, or leave out --format.")
    if out is None:
        folder = arguments.model if arguments.model.is_dir() else arguments.model.parent
        out = folder / f"model.{format}"
    return format, out


def samples_to_check(arguments: argparse.Namespace, model: Model) -> tuple[Any, str]:
    """Real samples where they can be had, and what they are."""
    if arguments.check is not None:
        return iter(first_samples(arguments.check, model, arguments.label)), arguments.check
    if (arguments.model / RUN).is_file():
        try:
            task = load_data(read_run(arguments.model).data)
        except InputError:  # a model outlives its data, and is to be exported all the same
            return None, "random samples, as the run's data are not there"
        samples = task.target_test or task.target
        return as_stored(samples.x, model), samples.name
    return None, "random samples"


def first_samples(given: str, model: Model, label: str | None) -> list[NDArray[Any]]:
    """What ``vmt predict`` would read first, as it reads it."""
    reads, tally = InputSpec(model.preprocess, model.features, label), Tally(MOST_CHECKED)
    parts: list[NDArray[Any]] = []
    for item in stream_samples(expand_inputs([given], reads), reads, sys.stdin.buffer):
        left = MOST_CHECKED - tally.read
        if isinstance(item, Unreadable):
            tally.count(item)
        else:
            item = SampleBatch(item.files[:left], item.indices[:left], item.x[:left])
            next(predictions(model, item))  # names the file of samples that do not suit the model, before the export
            parts.append(item.x)
            tally.read += len(item.x)
        if tally.read + len(tally.faults) >= MOST_CHECKED:
            break
    tally.close()
    if not parts:
        raise InputError(f"{given} holds no samples to compare on: give other ones with --check.")
    return parts


def as_stored(x: Tensor, model: Model) -> Tensor:
    """A task's images are resized in floating point; a file that reads bytes gets them as a picture would hold them."""
    return x.round().to(torch.uint8) if model.preprocess.size and model.preprocess.values is BYTES else x


def sentence(model: Model, out: Path, parity: Parity, name: str) -> str:
    described = input_of(model.preprocess)
    if model.preprocess.size is None:
        reads = f"vectors (N, {described['features']})"
    else:
        reads = f"{described['dtype']} images (N, H, W, {described['channels']}) of any size"
    return (
        f"Wrote {out}: {reads} in, probabilities of {len(model.classes)} classes out.\n"
        f"It differs from the model by at most {parity.difference:.1e} on {parity.samples} samples ({name})."
    )
