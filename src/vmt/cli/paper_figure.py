"""``vmt paper figure``: the paper's figures from the runs of its tables."""

import argparse
import json
from pathlib import Path

from vmt.cli.paper import to_stderr as say
from vmt.data.task import Task
from vmt.device import torch_device
from vmt.disk import write_atomically
from vmt.errors import InputError
from vmt.paper.tables import M2S
from vmt.runs.environment import environment
from vmt.runs.spec import DataSpec, load_data

# Samples of each test set, or pairs, that are done in a few minutes on a CPU and on a GPU.
SAMPLES = {"tsne": (500, 500), "gradient-norms": (50, 2000), "accuracy-over-time": (0, 0)}
TITLE = "MNIST → SVHN"


def draw(arguments: argparse.Namespace) -> int:
    from vmt.paper.drawing import targets

    out = arguments.out or Path("figures") / f"{arguments.figure}.svg"
    targets(out)  # refuses a name before anything is computed
    drawing = {"tsne": tsne, "gradient-norms": gradient_norms, "accuracy-over-time": accuracy_over_time}
    for path in drawing[arguments.figure](arguments, out):
        print(path)
    return 0


def tsne(arguments: argparse.Namespace, out: Path) -> list[Path]:
    from vmt.paper.drawing import draw_clouds
    from vmt.paper.figures import clouds, find_models, systems_of_tsne

    with_norm = bool(arguments.instance_norm)
    systems = systems_of_tsne(with_norm)
    found = find_models(systems, arguments.runs, arguments.seed, arguments.device)
    task = samples_of(arguments)
    say_missing(found.missing)
    drawn = clouds(found.models, task, samples(arguments), arguments.seed, say)
    title = f"Last hidden layer on {TITLE} {norm_words(with_norm)} (t-SNE, test sets, seed {arguments.seed})"
    return draw_clouds({system.label: drawn.get(system.label) for system in systems}, task.classes, title, out)


def gradient_norms(arguments: argparse.Namespace, out: Path) -> list[Path]:
    from vmt.paper.drawing import draw_norms
    from vmt.paper.figures import find_models, norms, systems_of_norms

    with_norm = arguments.instance_norm is not False
    systems = systems_of_norms(with_norm)
    found = find_models(systems, arguments.runs, arguments.seed, arguments.device)
    task = samples_of(arguments)
    say_missing(found.missing)
    values = norms(found.models, task, samples(arguments), say)
    for label, each in values.items():
        print(f"{label}: mean gradient norm {each['mean'][5]:.4g} at λ = 0.5, {each['mean'][-1]:.4g} at the samples")
    title = f"Gradient norms in between samples\n{TITLE} {norm_words(with_norm)}, seed {arguments.seed}"
    paths = draw_norms({system.label: values.get(system.label) for system in systems}, title, out)
    about = {"figure": arguments.figure, "seed": arguments.seed, "instance_norm": with_norm, "norms": values}
    beside = out.with_suffix(".json")
    write_atomically(beside, json.dumps({**about, "environment": environment()}).encode())
    return [*paths, beside]


def accuracy_over_time(arguments: argparse.Namespace, out: Path) -> list[Path]:
    from vmt.paper.drawing import draw_over_time
    from vmt.paper.figures import SYSTEMS_OVER_TIME, curves

    if arguments.instance_norm is False:
        raise InputError("accuracy-over-time is with instance norm: leave --no-instance-norm out.")
    found, missing = curves(SYSTEMS_OVER_TIME, arguments.results)
    say_missing(missing)
    return draw_over_time(found, f"Accuracy over time, {TITLE} {norm_words(True)}", out)


def samples_of(arguments: argparse.Namespace) -> Task:
    if arguments.data is None:
        raise InputError(
            f"{arguments.figure} looks at MNIST and SVHN: give their folder with --data (vmt data download mnist svhn "
            "--data DATA fetches them)."
        )
    return load_data(DataSpec(M2S, arguments.data))


def samples(arguments: argparse.Namespace) -> int:
    if arguments.samples is None:
        return SAMPLES[arguments.figure][torch_device(arguments.device).type != "cpu"]
    if arguments.samples < 0:
        raise InputError(f"--samples {arguments.samples}: give a number of samples, or 0 for all.")
    return int(arguments.samples)


def norm_words(instance_norm: bool) -> str:
    return "with instance norm" if instance_norm else "without instance norm"


def say_missing(missing: dict[str, str]) -> None:
    for sentence in missing.values():
        say(f"missing: {sentence}")
