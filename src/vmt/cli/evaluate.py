"""``vmt evaluate``: the accuracy of a trained model."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmt.cli.options import add_device, add_json, add_net, given
from vmt.data.files.paths import FORMATS
from vmt.errors import InputError

if TYPE_CHECKING:
    from vmt.nets.backbone import Backbone

EXAMPLES = """examples:
  vmt evaluate runs/m2s                        on the target test set of its task
  vmt evaluate runs/mine --test held-out/      on pictures in one subfolder per class
  vmt evaluate model.safetensors --test table.csv --label species
  vmt evaluate runs/m2s --test labelled.npz

--test accepts the same files as vmt train --source: folders, lists of pictures, tables, an .npz with x and y. Samples
whose label is unknown (an empty cell, -1, a subfolder "unlabelled") are left out.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("model", type=Path, help="a run's folder or a saved model")
    parser.add_argument("--test", metavar="PATH", help="labelled samples (default: the target test set of the run)")
    parser.add_argument(
        "--label", metavar="COLUMN", help="column of a table that holds the classes (default: the run's, or label)"
    )
    parser.add_argument("--data", help="folder of the task's files, if it has moved since the run")
    add_net(parser)
    add_device(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from vmt.model import load

    if arguments.model.suffix[1:] in FORMATS:
        raise InputError(
            f"{arguments.model} is an exported model: evaluate the run or the saved model that it was made from."
        )
    model = load(arguments.model, arguments.net, arguments.device, arguments.features)
    if arguments.test is not None:
        from vmt.data.files.own import read_labelled
        from vmt.data.files.stream import InputSpec

        reads = InputSpec(model.preprocess, model.features, arguments.label or label_of(arguments.model))
        samples, notes = read_labelled(arguments.test, model.classes, reads, model.backbone)
        x, y, name = samples.x, samples.y, arguments.test
        for note in notes:
            print(note)
    else:
        x, y, name = test_set(arguments, model.backbone)
    evaluation = model.evaluate(x, y)
    print(f"{evaluation.accuracy:.2%} of {evaluation.samples} samples of {name}", evaluation.table(), sep="\n")
    if arguments.json:
        print(json.dumps({"classes": model.classes, **evaluation.measured()}))
    return 0


def label_of(model: Path) -> str | None:
    """The column of the classes that a run was trained with, if one was named."""
    from vmt.runs.folder import RUN, read_run

    return read_run(model).data.label if (model / RUN).is_file() else None


def test_set(arguments: argparse.Namespace, backbone: Backbone | None) -> tuple[Any, Any, str]:
    """The target test set that a run was started with."""
    from vmt.runs.folder import read_run
    from vmt.runs.spec import check_features, load_data

    folder: Path = arguments.model
    if not folder.is_dir():
        raise InputError(f"{folder} is a model file, which has no test set: give one with --test.")
    spec = read_run(folder)
    if not spec.data.in_files:
        raise InputError(f"the samples of the run {folder} were given as arrays in Python: give others with --test.")
    data = spec.data if arguments.data is None else replace(spec.data, data=arguments.data)
    check_features(data, given(arguments, ["features"]).values(), folder)
    memory = spec.recipe.config.memory
    test = load_data(data, backbone=backbone, memory=memory, network=arguments.net).target_test
    if test is None:
        raise InputError(f"the run {folder} has no labelled target samples: give some with --test.")
    return test.x, test.y, test.name
