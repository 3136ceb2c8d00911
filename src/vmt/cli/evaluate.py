"""``vmt evaluate``: the accuracy of a trained model."""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vmt.data.files.own import labelling_remedy, read_own
from vmt.data.files.stream import to_value_range
from vmt.errors import InputError
from vmt.model import Model, load
from vmt.names import FORMATS
from vmt.runs.folder import RUN, read_run
from vmt.runs.spec import load_data


def run(arguments: argparse.Namespace) -> int:
    if arguments.model.suffix[1:] in FORMATS:
        raise InputError(
            f"{arguments.model} is an exported file: evaluate the run or the saved model it was made from."
        )
    model = load(arguments.model, arguments.net, arguments.device)
    if arguments.test is not None:
        label = arguments.label or label_of(arguments.model)
        x, y, name = labelled(arguments.test, model, label)
    else:
        x, y, name = test_set(arguments.model, arguments.data)
    judged = model.evaluate(x, y)
    print(f"{judged.accuracy:.2%} of {judged.samples} samples of {name}")
    for label, accuracy, share in zip(model.classes, judged.per_class or (), judged.predicted_share, strict=True):
        shown = "no samples" if accuracy is None else f"{accuracy:7.2%}"
        print(f"  {label:<20} {shown:>10}   predicted for {share:.1%}")
    if arguments.json:
        print(json.dumps({"classes": model.classes, **asdict(judged)}))
    return 0


def label_of(model: Path) -> str | None:
    """The column with the classes that a run was trained with, where it was not the usual one."""
    return read_run(model).data.label if (model / RUN).is_file() else None


def labelled(path: str, model: Model, label: str | None) -> tuple[Any, Any, str]:
    """Samples of one's own whose labels are known, as the model reads them."""
    preprocess = model.preprocess
    pictures: dict[str, Any] = (
        {"image_size": preprocess.size, "channels": preprocess.channels} if preprocess.size else {}
    )
    own = read_own(path, classes=model.classes, features=model.features, label=label, progress=True, **pictures)
    for note in own.notes:
        print(note)
    if own.labels is None:
        raise InputError(f"{path} has no labels to measure accuracy with: {labelling_remedy(path, label)}.")
    known = np.flatnonzero(own.labels >= 0)
    x: Any = own.domain.x[known]
    if preprocess.size is not None and x.dtype == torch.uint8 and Path(path).suffix.lower() not in (".npz", ".npy"):
        x = to_value_range(x.numpy(), preprocess)
    return x, own.labels[known], path


def test_set(folder: Path, data_folder: str | None) -> tuple[Any, Any, str]:
    """The target test set that a run was started with."""
    if not folder.is_dir():
        raise InputError(f"{folder} is a model file, which has no test set: give one with --test.")
    data = read_run(folder).data
    if data_folder is not None:
        data = replace(data, data=data_folder)
    test = load_data(data).target_test
    if test is None:
        raise InputError(f"the run {folder} has no labelled target samples: give some with --test.")
    return test.x, test.y, test.name
