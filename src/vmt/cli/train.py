"""``vmt train``: start a run, or resume one."""

import argparse
import json
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from vmt.cli.fields import given
from vmt.cli.parsers.train import DIRT_T, SETTINGS
from vmt.data.task import Task
from vmt.errors import InputError
from vmt.model import agreed
from vmt.nets.factory import NetSpec, factory_name
from vmt.runs.describe import choices, how_it_went, printer_of_notes
from vmt.runs.folder import AS_A_VALUE, RunSpec, check_free, check_same_settings, read_run
from vmt.runs.recipes import recipe_for
from vmt.runs.run import Run, carry_out
from vmt.runs.spec import DataSpec, load_data
from vmt.train.config import Config
from vmt.train.progress import STDOUT, Progress

DATA = [field.name for field in fields(DataSpec)]
CONFIG = [field.name for field in fields(Config)]
METHOD = [*SETTINGS, *DIRT_T, "vat", "fresh_lambda", "method", "net", "instance_norm"]


def run(arguments: argparse.Namespace) -> int:
    resuming = arguments.resume is not None
    arguments.net = arguments.net and (factory_name(arguments.net) or arguments.net)
    spec, task, out = resumed(arguments) if resuming else started(arguments)
    with closing(Progress()) as progress:  # otherwise a bar would be drawn over the last lines
        summary = carry_out(Run.of(spec, task), out, resuming, progress).summary
    print(how_it_went(spec, task, summary), file=STDOUT)
    if arguments.json:
        print(json.dumps(summary), file=STDOUT)
    return 0 if summary["finished"] or summary["given_up"] else 130


def started(arguments: argparse.Namespace) -> tuple[RunSpec, Task, Path]:
    """A new run."""
    data = DataSpec(**given(arguments, DATA))
    data.check()
    if arguments.out is not None:
        check_free(arguments.out)  # before the data are read, which may take minutes
    task = load_data(data, notes(arguments.method), not arguments.no_cache)
    recipe = recipe_for(data, task, given(arguments, METHOD), bool(arguments.dirt_t), arguments.device or "auto")
    config = replace(recipe.config, **given(arguments, CONFIG))
    recipe = replace(recipe, config=config, target_labels=data.use_target_labels)
    if data.task is None:
        print(*choices(recipe, task), sep="\n", file=STDOUT)
    spec = RunSpec(data, recipe)
    return spec, task, arguments.out or default_folder(spec)


def resumed(arguments: argparse.Namespace) -> tuple[RunSpec, Task, Path]:
    """A run that was started before, with the settings it was started with."""
    if arguments.out is not None:
        raise InputError("--out names a new run and --resume an old one: give one of them.")
    folder: Path = arguments.resume
    spec = read_run(folder)
    if not spec.data.in_files or spec.recipe.method.endswith(AS_A_VALUE):
        raise InputError(
            f"the run in {folder} was started in Python with samples or a method that are in no file: resume it there, "
            f"with vmt.adapt(…, out={str(folder)!r}, resume=True)."
        )
    check_same_settings(spec, given(arguments, [*DATA, *CONFIG, *METHOD, "dirt_t"]))
    agreed(NetSpec(spec.recipe.net, (), 0), arguments.net, folder)
    return spec, load_data(spec.data, notes(spec.recipe.method), not arguments.no_cache), folder


def notes(method: str | None) -> Any:
    return printer_of_notes(method or "vmt", lambda note: print(note, file=STDOUT))


def default_folder(spec: RunSpec) -> Path:
    refined = "-dirt_t" if spec.recipe.dirt_t is not None else ""
    name = spec.data.name.replace(" ", "-")
    return Path("runs") / f"{name}-{spec.recipe.method}{refined}-{spec.recipe.config.seed}"
