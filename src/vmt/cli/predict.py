"""``vmt predict`` and ``vmt evaluate``: use a trained model."""

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from vmt.cli.train import load as load_data
from vmt.data import read_npz
from vmt.data.pictures import TooLarge, decode
from vmt.data.ranges import BYTES, UNIT
from vmt.errors import InputError
from vmt.exported import FORMATS, Exported, open_model
from vmt.model import Model, load
from vmt.run import read_run

PREDICT = """examples:
  vmt predict runs/demo/vmt seven.png three.jpg
  vmt predict runs/m2s images.npz --out predictions.csv
  vmt predict model.safetensors *.png | head
  vmt predict model.onnx picture.png           a file that vmt export wrote

A picture is one sample; an .npz file (key x) or .npy file holds many.
"""
EVALUATE = """examples:
  vmt evaluate runs/m2s                        on the target test set of its task
  vmt evaluate runs/m2s --test labelled.npz    on labelled samples of your own
"""


def add_commands(commands: Any) -> None:
    style = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = commands.add_parser("predict", help="classes and probabilities as CSV", epilog=PREDICT, **style)
    parser.add_argument("model", type=Path, help="a run's folder, a saved model, or an .onnx or .pt2 file")
    parser.add_argument("files", nargs="+", type=Path, help="pictures, .npz or .npy files")
    parser.add_argument("--out", type=Path, help="write the CSV here instead of to stdout")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON on the last line of stdout")
    parser.set_defaults(run=predict)

    parser = commands.add_parser("evaluate", help="accuracy of a trained model", epilog=EVALUATE, **style)
    parser.add_argument("model", type=Path, help="a run's folder or a saved model")
    parser.add_argument(
        "--test", type=Path, help="an .npz with x and y (default: the target test set of the run's task)"
    )
    parser.add_argument("--data", help="folder of the task's files, if it is no longer where the run found it")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON on the last line of stdout")
    parser.set_defaults(run=evaluate)


def predict(arguments: argparse.Namespace) -> int:
    model = open_model(arguments.model, device=arguments.device)
    if arguments.out is None:
        count = write_predictions(model, arguments.files, sys.stdout)
    else:
        try:
            with arguments.out.open("w", newline="", encoding="utf-8") as file:
                count = write_predictions(model, arguments.files, file)
        except OSError as error:
            raise InputError(f"{arguments.out} cannot be written ({error.strerror}): choose another --out.") from error
    if arguments.json:
        print(json.dumps({"samples": count, "out": arguments.out and str(arguments.out)}))
    return 0


def write_predictions(model: Model | Exported, files: list[Path], stream: Any) -> int:
    """One row per sample: where it came from, the class, the probability of every class."""
    writer = csv.writer(stream)
    writer.writerow(["file", "index", "class", *(f"p({name})" for name in model.classes)])
    count = 0
    for path in files:
        for start, samples in read_samples(path, model):
            for i, row in enumerate(model.predict_proba(samples), start):
                writer.writerow([path, i, model.classes[int(row.argmax())], *(f"{p:.6f}" for p in row)])
                count += 1
    return count


def read_samples(path: Path, model: Model | Exported, chunk: int = 4096) -> Iterator[tuple[int, Any]]:
    """The samples of a file in chunks, each with the index of its first."""
    if not path.is_file():
        raise InputError(f"{path} is not a file: give pictures, .npz or .npy files.")
    if path.suffix == ".npz":
        samples = read_npz(path)[0]
    elif path.suffix == ".npy":
        try:
            samples = np.load(path, allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise InputError(f"{path} is not a readable .npy file: save it again with numpy.save.") from error
    else:
        samples = read_picture(path, model)[None]
    for start in range(0, len(samples), chunk):
        yield start, samples[start : start + chunk]


def read_picture(path: Path, model: Model | Exported) -> Any:
    """A picture in the channels and value range that the model was trained on."""
    if model.preprocess.size is None:
        raise InputError(f"{path} is a picture, but the model reads vectors: give an .npz or .npy file.")
    try:
        # As in training: upright, on white where transparent, in 8 bits.
        decoded = decode(path, model.preprocess.size, model.preprocess.channels)
    except Exception as error:  # damaged files make Pillow raise almost anything
        reason = f" ({error})" if isinstance(error, TooLarge) else ""
        raise InputError(
            f"{path} is not a readable picture{reason}: give a PNG, a JPEG or another format of Pillow."
        ) from error
    pixels = decoded[0] if len(decoded) == 1 else decoded.transpose(1, 2, 0)
    if model.preprocess.scale == (BYTES.scale,):
        return pixels
    return pixels / np.float32(255) if model.preprocess.scale == (UNIT.scale,) else pixels / np.float32(127.5) - 1


def evaluate(arguments: argparse.Namespace) -> int:
    if arguments.model.suffix[1:] in FORMATS:
        raise InputError(
            f"{arguments.model} is an exported file: evaluate the run or the saved model it was made from."
        )
    model = load(arguments.model, device=arguments.device)
    x: Any
    y: Any
    if arguments.test is not None:
        x, y = read_npz(arguments.test)
        if y is None:
            raise InputError(f"{arguments.test} has no labels: save them as y beside x.")
        name = str(arguments.test)
    else:
        if not arguments.model.is_dir():
            raise InputError(f"{arguments.model} is a model file, which has no test set: give one with --test.")
        data = read_run(arguments.model).data
        if arguments.data is not None:
            data = type(data)(**{**asdict(data), "data": arguments.data})
        test = load_data(data).target_test
        if test is None:
            raise InputError(f"the run {arguments.model} has no labelled target samples: give some with --test.")
        x, y, name = test.x, test.y, test.name
    judged = model.evaluate(x, y)
    print(f"{judged.accuracy:.2%} of {judged.samples} samples of {name}")
    for label, accuracy, share in zip(model.classes, judged.per_class or (), judged.predicted_share, strict=True):
        shown = "no samples" if accuracy is None else f"{accuracy:7.2%}"
        print(f"  {label:<20} {shown:>10}   predicted for {share:.1%}")
    if arguments.json:
        print(json.dumps(asdict(judged)))
    return 0
