"""``vmt train``: start a run, or go on with one."""

import argparse
import json
import shlex
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from vmt.cli.fields import given
from vmt.cli.own import choices, load_own, own_recipe, voice
from vmt.cli.parsers.train import DIRT_T, SETTINGS
from vmt.data.task import Task
from vmt.data.tasks import TASKS, load_task
from vmt.errors import InputError
from vmt.methods.nouns import decay_for
from vmt.model import agreed
from vmt.nets.factory import NetSpec, factory_name
from vmt.nets.registry import CNN, NETS
from vmt.runs.recipes import PAPER, Recipe, digits, paper
from vmt.runs.run import BEST, DataSpec, RunSpec, check_free, check_same_run, execute, read_run
from vmt.runs.settings import changed
from vmt.train.config import Config
from vmt.train.progress import STDOUT, Progress

CNNS = [name for name, (build, _) in NETS.items() if build == CNN]
DATA = [field.name for field in fields(DataSpec)]
CONFIG = [field.name for field in fields(Config)]
METHOD = [*SETTINGS, *DIRT_T, "vat", "fresh_lambda", "method", "net", "instance_norm"]


def run(arguments: argparse.Namespace) -> int:
    resuming = arguments.resume is not None
    arguments.net = arguments.net and (factory_name(arguments.net) or arguments.net)
    spec, task, out = go_on(arguments) if resuming else begin(arguments)
    with closing(Progress()) as progress:  # or a bar would be drawn over the sentence that ends a run
        summary = execute(spec, task, out, resuming, progress)
    print(sentence(summary, measured_on(spec, task), factory_name(spec.recipe.net)), file=STDOUT)
    if arguments.json:
        print(json.dumps(summary), file=STDOUT)
    return 0 if summary["finished"] or summary["given_up"] else 130


def begin(arguments: argparse.Namespace) -> tuple[RunSpec, Task, Path]:
    """A new run."""
    data = DataSpec(**given(arguments, DATA))
    check_data(data)
    if arguments.out is not None:
        check_free(arguments.out)  # said before minutes of reading
    task = load(data, voice(arguments.method), not arguments.no_cache)
    recipe = make_recipe(data, task, given(arguments, METHOD), bool(arguments.dirt_t), arguments.device or "auto")
    config = replace(recipe.config, **given(arguments, CONFIG))
    recipe = replace(recipe, config=config, target_labels=data.use_target_labels)
    if data.task is None:
        print(*choices(recipe, task), sep="\n", file=STDOUT)
    spec = RunSpec(data, recipe)
    return spec, task, arguments.out or default_folder(spec)


def go_on(arguments: argparse.Namespace) -> tuple[RunSpec, Task, Path]:
    """A run that was started before, with the settings it was started with."""
    if arguments.out is not None:
        raise InputError("--out names a new run and --resume an old one: give one of them.")
    spec = read_run(arguments.resume)
    check_same_run(spec, given(arguments, [*DATA, *CONFIG, *METHOD, "dirt_t"]))
    agreed(NetSpec(spec.recipe.net, (), 0), arguments.net, arguments.resume)
    return spec, load(spec.data, voice(spec.recipe.method), not arguments.no_cache), arguments.resume


def check_data(data: DataSpec) -> None:
    for one, other in (("source", "target"), ("target", "source")):
        if data.task is None and getattr(data, one) is not None and getattr(data, other) is None:
            raise InputError(f"--{other} is missing: your own data need it beside --{one}.")
    if data.task is None and data.source is None:
        raise InputError(f"name a task ({', '.join(TASKS)}), or give your own data with --source and --target.")
    if data.task is not None and (data.source or data.target):
        raise InputError(f"the task {data.task} has its own data: leave out --source and --target, or the task.")
    for name in ("target_test", "label", "image_size", "channels", "use_target_labels"):
        if data.task is not None and getattr(data, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} is for data of your own: leave it out for {data.task}.")


def load(data: DataSpec, say: Callable[[str], None] = lambda note: None, cache: bool = True) -> Task:
    """The samples that a run is about."""
    if data.task is not None:
        return load_task(data.task, None if data.data is None else Path(data.data))
    return load_own(data, say, cache)


def make_recipe(data: DataSpec, task: Task, asked: dict[str, Any], dirt_t: bool, device: str) -> Recipe:
    """The task's recipe with what was asked for in its place."""
    asked = dict(asked)
    method, net, instance_norm = asked.pop("method", "vmt"), asked.pop("net", None), asked.pop("instance_norm", None)
    if data.task == "digits":
        recipe = digits(method, dirt_t)
    elif data.task is not None and (data.task, True) in PAPER:
        recipe = paper(data.task, method, instance_norm is not False and net in (None, *CNNS), dirt_t)
    else:
        recipe = own_recipe(task, method, dirt_t, device, asked.get("iterations"))
    if net is not None:
        recipe = replace(recipe, net=net)
    if recipe.net not in CNNS:
        if instance_norm:
            raise InputError(f"--instance-norm is for the networks {', '.join(CNNS)}, not {recipe.net}: leave it out.")
        recipe = replace(recipe, net_options={})
    elif instance_norm is not None:
        recipe = replace(recipe, net_options={**recipe.net_options, "instance_norm": instance_norm})
    if "iterations" in asked and "decay" not in asked:
        # A run cut short would otherwise end with an average of its beginnings.
        asked["decay"] = decay_for(asked["iterations"])
    return changed(recipe, asked, lambda name: "--" + name.replace("_", "-"), "--dirt-t")


def default_folder(spec: RunSpec) -> Path:
    refined = "-dirt_t" if spec.recipe.dirt_t is not None else ""
    name = spec.data.name.replace(" ", "-")
    return Path("runs") / f"{name}-{spec.recipe.method}{refined}-{spec.recipe.config.seed}"


def measured_on(spec: RunSpec, task: Task) -> str:
    """What the accuracies of a run were measured on."""
    if spec.data.task is not None and task.target_test is not None:
        return task.target_test.name  # a copy of a set may lack its test split, and says so there
    if spec.data.target_test is not None:
        return "the target test set"
    if spec.recipe.build().reads_labels_of("target"):
        return "the target samples it was trained on: give others with --target-test"
    return "the labelled samples of the target, as there is no --target-test"


def sentence(summary: dict[str, Any], where: str, own_net: str | None) -> str:
    """What came of a run, in words."""
    folder = shlex.quote(summary["run"])  # to be copied into a shell
    named = "" if own_net is None else f" --net {shlex.quote(own_net)}"
    if not summary["finished"] and not summary["given_up"]:
        return f"Interrupted at iteration {summary['iterations']}; go on with: vmt train --resume {folder}{named}"
    measured = {name: accuracy for name, accuracy in summary["phases"].items() if accuracy is not None}
    lines = [f"{name}: {accuracy:.2%} on {where}" for name, accuracy in measured.items()]
    if summary["collapsed"]:
        lines.append(f"Warning: {summary['collapsed']}")
    if best := summary["best"]:
        lines.append(f"The best model by {best['by']}, of iteration {best['step']}, is {summary['run']}/{BEST}.")
    lines.append(f"Model, log and curves are in {summary['run']} ({summary['seconds']:.0f} s of training).")
    lines.append(f"See whether it worked: vmt report {folder} -o report.html{named}")
    return "\n".join(lines)
