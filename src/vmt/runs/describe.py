"""Runs in words: what a run will do, and how it went."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vmt import methods
from vmt.data.task import Task
from vmt.device import torch_device
from vmt.errors import as_flag
from vmt.methods.nouns import HEAD, OPTIMISERS, SGD, AnyOptimiser, Inverse
from vmt.methods.settings import AUTO
from vmt.nets.backbone import backbone_function
from vmt.nets.factory import factory_name
from vmt.nets.registry import CNN, NETS
from vmt.progress import duration
from vmt.runs.folder import BEST, MODEL, RunSpec
from vmt.runs.recipes import OF_AUGMENTATION, REFINE, Recipe, defaults_for, function_of, parameters
from vmt.runs.spec import warnings_about

# A run on a CPU that takes longer than this, in seconds, says how it can be made shorter.
LONG = 30 * 60
# Sides up to which pictures are small: the paper's size.
SMALL_SIDE = 32
MANY_FEATURES = 1_000
WEIGHTS = {"lambda_d": "λ_d", "lambda_s": "λ_s", "lambda_t": "λ_t", "lambda_mcc": "λ_mcc"}


def choices(recipe: Recipe, task: Task) -> Iterator[str]:
    """What a run will do, one line for each choice, with the flags that change it."""
    defaults = parameters(function_of(recipe.method))
    used = {**defaults, **recipe.settings}
    shape = "×".join(str(side) for side in task.sample_shape)
    yield f"classes: {len(task.classes)}, {', '.join(task.classes[:8])}{', …' if len(task.classes) > 8 else ''}"
    if recipe.method == REFINE:
        yield f"samples: {len(task.target)} of the target, and no source"
    else:
        yield (
            f"samples: {len(task.source)} of the source and {len(task.target)} of the target to train on, "
            f"{len(task.source_test or ())} of the source held out"
        )
    yield from warnings_about(task)
    if recipe.target_labels is not None:
        yield f"target labels: {len(task.target_labelled or ())}, weight {recipe.target_labels:g} (--use-target-labels)"
    yield f"network: {recipe.net}, for samples of shape {shape} (--net)"
    if options := list(described_options(recipe.net_options)):
        yield f"pretrained network: {', '.join(options)}"
    method = recipe.build()
    yield f"iterations: {used['iterations']} of {recipe.method} (--iterations)"
    if method.phases[0].name == HEAD:
        yield f"head first: in {method.phases[0].iterations} of them, the backbone stays as it is (--head-first)"
    yield f"optimiser: {described_optimiser(method.phases[-1].updates[-1].optimiser)} (--optimiser, --lr)"
    if weights := {name: sign for name, sign in WEIGHTS.items() if name in recipe.settings or used.get(name)}:
        flags = ", ".join(map(as_flag, weights))
        yield f"weights: {', '.join(f'{sign} {used[name]:g}' for name, sign in weights.items())} ({flags})"
    if used.get("warm_up"):
        growing = "λ_t and λ_mcc grow" if used.get("lambda_mcc") else "λ_t grows"
        yield f"warm-up: {growing} from 0 over the first {used['warm_up']:.1%} of the iterations (--warm-up)"
    if "radius" in used:
        chosen = used["radius"] == defaults_for(task.sample_shape, len(task.target)).radius
        why = ", chosen by the size of a sample" if chosen else ""
        yield f"radius of VAT: {used['radius']:.3g}{why} (--radius)"
    if any(used.get(name) for name in OF_AUGMENTATION):
        given = ", ".join(f"{own} {used[name]}" for name, own in OF_AUGMENTATION.items() if used.get(name))
        yield f"augmentation: {given} ({', '.join(map(as_flag, OF_AUGMENTATION))})"
    if recipe.dirt_t is not None:
        refine = {**parameters(methods.dirt_t), **recipe.dirt_t}
        yield (
            f"then DIRT-T: {refine['iterations']} iterations, a new teacher every {refine['interval']}, "
            f"β {refine['beta']:g}, λ_t {refine['lambda_t']:g} (--dirt-t-iterations, --interval, --beta)"
        )


def described_options(options: Mapping[str, Any]) -> Iterator[str]:
    """What is done to a pretrained network, with the flags that change it.

    >>> list(described_options({"freeze_statistics": True, "bottleneck": 256}))
    ['batch norm keeps its statistics (--no-freeze-statistics)', 'a bottleneck of 256 (--bottleneck)']
    """
    if options.get("freeze_statistics"):
        yield "batch norm keeps its statistics (--no-freeze-statistics)"
    if options.get("bottleneck"):
        yield f"a bottleneck of {options['bottleneck']} (--bottleneck)"


def described_optimiser(optimiser: AnyOptimiser) -> str:
    """An optimiser in words: its name, its learning rate, and what was set beside it.

    >>> from vmt.methods.nouns import make_optimiser
    >>> described_optimiser(make_optimiser("sgd", 0.01, "inverse", backbone_rate=0.1))
    'sgd, learning rate 0.01 (inverse), momentum 0.9, backbone at 0.1 times that rate'
    """
    name = next(name for name, kind in OPTIMISERS.items() if kind is type(optimiser))
    lr = optimiser.lr
    rate = f"{lr(0.0):g} ({'inverse' if isinstance(lr, Inverse) else 'cosine'})" if callable(lr) else f"{lr:g}"
    parts = [name, f"learning rate {rate}"]
    parts += [f"momentum {optimiser.momentum:g}"] if isinstance(optimiser, SGD) else []
    decay = getattr(optimiser, "weight_decay", 0.0)
    parts += [f"weight decay {decay:g}"] if decay else []
    parts += [f"backbone at {optimiser.backbone_rate:g} times that rate"] if optimiser.backbone_rate != 1 else []
    parts += [f"gradients clipped at {optimiser.clip_norm:g}"] if optimiser.clip_norm is not None else []
    return ", ".join(parts)


def how_to_shorten(recipe: Recipe, task: Task, seconds: float) -> str:
    """What to change if a run on a CPU takes long; an empty text if it does not, or if it is on a GPU."""
    if seconds < LONG or torch_device(recipe.config.device).type != "cpu":
        return ""
    ways = []
    if task.source.is_images:
        side = max(task.sample_shape[1:])
        if side > SMALL_SIDE:
            ways.append(f"smaller pictures, {SMALL_SIDE}×{SMALL_SIDE} instead of {side} (--image-size {SMALL_SIDE})")
        if recipe.net != "tiny":
            ways.append("the thin network (--net tiny)")
        if NETS.get(recipe.net, ("",))[0] != CNN or side > SMALL_SIDE:
            ways.append("features from a pretrained network in place of pictures, computed once (--features)")
    elif task.sample_shape[0] > MANY_FEATURES:
        ways.append(f"fewer features than {task.sample_shape[0]:,}, for example the first principal components")
    ways += ["fewer iterations (--iterations)", "a machine with a GPU"]
    return (
        f"This run will take about {duration(seconds)} on this CPU. Each of these makes it shorter: {'; '.join(ways)}. "
        "Ctrl-C saves the run, to be resumed later."
    )


def measured_on(spec: RunSpec, task: Task) -> str:
    """What the accuracies of a run were measured on."""
    if spec.data.task is not None and task.target_test is not None:
        return task.target_test.name  # a copy of a set may lack its test split, and its name says so
    if spec.data.target_test is not None:
        return "the target test set"
    if spec.recipe.method != AUTO and spec.recipe.build().reads_labels_of("target"):
        return "the target samples it was trained on (give others with --target-test)"
    return "the labelled samples of the target, as there is no --target-test"


def how_auto_went(spec: RunSpec, task: Task, summary: dict[str, Any], folder: Path) -> str:
    """How well the classes of each candidate fit the target, what was chosen and why, and what to do next."""
    choice = summary["choice"]
    lines, width = [], max(map(len, choice["ranking"]))
    for name in choice["ranking"]:
        about = choice["candidates"][name]
        accuracy = about["target_accuracy"]
        known = "" if accuracy is None else f", {accuracy:.2%} on {measured_on(spec, task)}"
        lines.append(f"  {name:<{width}} fit {about['neighbours']:.2f}{known}, {about['seconds']:.0f} s")
    lines.append(choice["text"])
    lines += [f"Warning: {sentence}" for sentence in summary["warnings"]]
    quoted = shlex.quote(str(folder))
    lines.append(f"The model is {folder / MODEL} ({summary['seconds']:.0f} s for all candidates).")
    lines.append(f"See whether it worked: vmt report {quoted} -o report.html{named_functions(spec)}")
    return "\n".join(lines)


def named_functions(spec: RunSpec) -> str:
    """The flags that name the user's functions again, because a name that only a file mentions is never imported."""
    data = spec.data.features
    own = {"--net": factory_name(spec.recipe.net), "--features": data and backbone_function(data)}
    return "".join(f" {flag} {shlex.quote(name)}" for flag, name in own.items() if name)


def how_it_went(spec: RunSpec, task: Task, summary: dict[str, Any]) -> str:
    """How a run ended, and what to do next."""
    folder = shlex.quote(summary["run"])  # to be copied into a shell
    named = named_functions(spec)
    if not summary["finished"] and not summary["given_up"]:
        return f"Interrupted at iteration {summary['iterations']}; resume with: vmt train --resume {folder}{named}"
    where = measured_on(spec, task)
    measured = {name: accuracy for name, accuracy in summary["phases"].items() if accuracy is not None}
    lines = [f"{name}: {accuracy:.2%} on {where}" for name, accuracy in measured.items()]
    lines += [
        f"{name}: {accuracy:.2%} on the {summary['choose_on']} target samples held apart, for choices"
        for name, accuracy in summary["choice_phases"].items()
    ]
    if (re_estimated := summary.get("adabn")) and re_estimated["target_accuracy"] is not None:
        lines.append(f"the same weights, re-normalised (AdaBN): {re_estimated['target_accuracy']:.2%} on {where}")
    if summary["collapsed"]:
        lines.append(f"Warning: {summary['collapsed']}")
    lines += [f"Warning: {sentence}" for sentence in summary["warnings"]]
    if best := summary["best"]:
        lines.append(f"The best model by {best['by']}, of iteration {best['step']}, is {summary['run']}/{BEST}.")
    lines.append(f"Model, log and curves are in {summary['run']} ({summary['seconds']:.0f} s of training).")
    lines.append(f"See whether it worked: vmt report {folder} -o report.html{named}")
    return "\n".join(lines)
