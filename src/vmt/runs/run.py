"""A run on disk: what was asked for, what came of it, and how to go on with it.

A run folder holds ``run.json`` (task, recipe, environment), ``log.jsonl``, ``checkpoints/``, and, once it is finished,
``model.safetensors``, ``curves.png`` and ``summary.json``. A run of several phases also keeps the model that each but
the last ended with, as ``model_PHASE.safetensors``. With ``Config.keep_best`` there is also the best
model by that validator, ``model_best.safetensors``. ``.lock`` is locked while a process writes to the folder.
"""

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vmt.data.task import Task
from vmt.device import torch_device
from vmt.disk import write_atomically
from vmt.errors import InputError, gave_up
from vmt.figures import draw_curves
from vmt.model import Model
from vmt.nets.factory import NetSpec
from vmt.nets.staged import Staged
from vmt.runs.environment import environment, fingerprint
from vmt.runs.lock import claimed
from vmt.runs.recipes import Recipe
from vmt.step.context import sample_shape
from vmt.train.checkpoint import checkpoints
from vmt.train.config import Config
from vmt.train.interrupt import interruptible
from vmt.train.log import LOG, record_writer
from vmt.train.loop import CHECKPOINTS, Outcome, train
from vmt.train.progress import Progress

RUN, SUMMARY, MODEL, CURVES = "run.json", "summary.json", "model.safetensors", "curves.png"
BEST = "model_best.safetensors"
CHECKSUM = "sha256"
ADAPT = "adapt.json"  # what vmt.adapt keeps in the place of run.json: its data may lie nowhere


@dataclass(frozen=True)
class DataSpec:
    """Where the samples come from: a named task, or files of one's own."""

    task: str | None = None
    data: str | None = None
    source: str | None = None
    target: str | None = None
    target_test: str | None = None
    label: str | None = None
    image_size: list[int] | None = None
    channels: int | None = None
    use_target_labels: float | None = None

    @property
    def name(self) -> str:
        return self.task or "own data"


@dataclass(frozen=True)
class RunSpec:
    """A run as asked for."""

    data: DataSpec
    recipe: Recipe

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "RunSpec":
        recipe = dict(values["recipe"])
        recipe["config"] = Config(**recipe["config"])
        return cls(DataSpec(**values["data"]), Recipe(**recipe))


def execute(
    spec: RunSpec,
    task: Task,
    out: Path,
    resume: bool = False,
    progress: Progress | None = None,
    budget: float | None = None,
    until: str | None = None,
) -> dict[str, Any]:
    """Carry out a run on its task, in a folder, and return its summary. ``budget`` is in seconds; ``until`` names the
    phase after which to stop; either way it can be gone on with."""
    method = spec.recipe.build()
    if spec.recipe.config.tensorboard:
        record_writer()  # refuses before anything is written
    net = NetSpec(spec.recipe.net, sample_shape(task), len(task.classes), spec.recipe.net_options)
    net.build()  # a network that cannot be built is refused before anything is written, and so is a missing device
    torch_device(spec.recipe.config.device)
    print_of_data = fingerprint(task)

    def save_model(network: Staged, path: Path, about: dict[str, Any]) -> None:
        Model(network, net, task.preprocess, task.classes, about, task.source.features).save(path)

    def phase_ended(phase: str, network: Staged) -> None:
        if phase != method.phases[-1].name:
            # A copy: a model is put into evaluation mode, and training goes on with this one.
            save_model(copy.deepcopy(network), out / f"model_{phase}.safetensors", {"run": str(out), "phase": phase})

    config = spec.recipe.config
    with interruptible(), claimed(out):  # a polite kill while the results are written waits
        if resume:
            check_same_data(out, print_of_data)
            check_not_over(out)
        else:
            made = environment(config.device)
            known = {"fingerprint": print_of_data, "environment": made, "begun_in": str(Path.cwd())}
            start_folder(out, {**spec.to_dict(), **known})
        try:
            outcome = train(task, method, net.build, config, out, resume, progress, budget, until, phase_ended)
        except InputError:
            if not resume and not (out / LOG).exists():
                (out / RUN).unlink()  # refused before its first step, so that the folder is free for another try
            raise
        except RuntimeError as error:
            if gave_up(error) is not None and checkpoints(out / CHECKPOINTS):
                error.add_note(f"{out} goes on from its newest checkpoint with --resume {out}")
            raise
        summary = summarise(spec, outcome, out)
        if outcome.finished or outcome.given_up:
            about = {name: value for name, value in summary.items() if name != "clock"}
            save_model(outcome.network, out / MODEL, about)
            if outcome.best is not None:
                save_model(outcome.best, out / BEST, about)
            draw_curves(outcome.records, out / CURVES, title=f"{method.name} on {task.name}")
            write_atomically(out / SUMMARY, json.dumps(summary, indent=1).encode())
    return summary


def summarise(spec: RunSpec, outcome: Outcome, out: Path) -> dict[str, Any]:
    """The figures of a run, for people and programs."""
    notes = outcome.notes
    looked = [record for record in outcome.records if "target" in record]
    last = looked[-1] if looked else None
    return {
        "run": str(out),
        "task": spec.data.name,
        "method": spec.recipe.method + ("+dirt_t" if spec.recipe.dirt_t is not None else ""),
        "seed": spec.recipe.config.seed,
        "iterations": outcome.step,
        "finished": outcome.finished,
        "given_up": outcome.given_up,
        "collapsed": notes.collapsed,
        "target_accuracy": last and last["target"]["accuracy"],
        "source_accuracy": last and last["source"] and last["source"]["accuracy"],
        "phases": {name: judged["accuracy"] for name, judged in notes.phases.items()},
        "collapsed_phases": [name for name, judged in notes.phases.items() if judged.get("collapsed")],
        "best": notes.best,
        "seconds": round(notes.seconds, 1),
        "clock": notes.clock,
    }


def start_folder(out: Path, record: Mapping[str, Any]) -> None:
    """Begin a run in its folder; one that already holds a run is never written over."""
    check_free(out)
    # First, so that somebody who changes a path can remove the line.
    write_atomically(out / RUN, json.dumps({CHECKSUM: checksum(record), **record}, indent=1).encode())


def check_free(out: Path) -> None:
    if (out / RUN).exists():
        raise InputError(f"{out} already holds a run: go on with it by --resume {out}, or choose another --out.")


def checksum(record: Mapping[str, Any]) -> str:
    """Of all that run.json says but this: another learning rate would be gone on with without a word."""
    said = {name: value for name, value in record.items() if name != CHECKSUM}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def read_run(out: Path) -> RunSpec:
    """What a run folder was started with."""
    path = out / RUN
    if not path.is_file() and (out / ADAPT).is_file():
        raise InputError(
            f"{out} holds a run of vmt.adapt, which knows of no files: judge it with vmt evaluate --test, go on with "
            "it by resume=True in Python, and give vmt report and vmt select runs of vmt train."
        )
    if not path.is_file():
        raise InputError(f"{out} is not the folder of a run (it has no {RUN}): give the folder that --out named.")
    try:
        record = json.loads(path.read_text())
        spec = RunSpec.from_dict(record)
        spec = replace(spec, data=found_again(spec.data, Path(record.get("begun_in", ""))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} cannot be read ({error}): start the run again in another folder.") from error
    if record.get(CHECKSUM, checksum(record)) != checksum(record):  # older runs have none
        raise InputError(
            f"{path} is not as the run wrote it: restore it, or, if you have changed it, remove its line {CHECKSUM}."
        )
    return spec


def found_again(data: DataSpec, begun_in: Path) -> DataSpec:
    """Paths that are relative to the folder where a run was begun, from wherever it is gone on with."""

    def found(path: str | None) -> str | None:
        if path is None or Path(path).exists() or not (begun_in / path).exists():
            return path
        return str(begun_in / path)

    places: dict[str, Any] = {n: found(getattr(data, n)) for n in ("data", "source", "target", "target_test")}
    return replace(data, **places)


def check_same_run(spec: RunSpec, asked: Mapping[str, Any]) -> None:
    """Refuse arguments that would make a resumed run another run."""
    recipe = spec.recipe
    refine = dict(recipe.dirt_t or {})
    if "iterations" in refine:
        refine["dirt_t_iterations"] = refine.pop("iterations")
    known = {**asdict(spec.data), **asdict(recipe.config), **refine, **recipe.settings}
    known |= {"instance_norm": False, **recipe.net_options}
    known |= {"method": recipe.method, "net": recipe.net, "dirt_t": recipe.dirt_t is not None}
    for name, value in asked.items():
        flag = "--" + name.replace("_", "-")
        if name not in known:
            raise InputError(f"the run was started without {flag}: leave it out to go on with the run.")
        if known[name] != value:
            raise InputError(
                f"the run was started with {flag} {known[name]}, not {value}: leave {flag} out to go on with it, "
                "or start a new run with another --out."
            )


def check_same_data(out: Path, print_of_data: str) -> None:
    before = json.loads((out / RUN).read_text()).get("fingerprint")
    if before != print_of_data:
        raise InputError(f"the data of {out} have changed since the run began: restore them, or start a new run.")


def check_not_over(out: Path) -> None:
    """Or a run that has ended, and whose checkpoints were removed, would begin again and write over its own results."""
    if (out / MODEL).exists() and not checkpoints(out / CHECKPOINTS):
        raise InputError(f"{out} has come to its end and has no checkpoint to go on from: start a new run with --out.")
