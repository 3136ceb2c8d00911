"""Data of one's own on the command line: what is read, what is chosen for it, and one line about each choice."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from vmt.data.files.own import EVALUATION_ONLY, ReadOptions, own_task
from vmt.data.files.paths import INPUT_FORMATS
from vmt.data.task import Task
from vmt.errors import InputError, few
from vmt.methods.systems import METHODS, dirt_t
from vmt.runs.recipes import Recipe, defaults_for, looks_for
from vmt.runs.run import DataSpec
from vmt.runs.settings import parameters
from vmt.step.context import sample_shape
from vmt.train.config import Config
from vmt.train.progress import STDOUT

FEW = 8
WEIGHTS = {"lambda_d": "λ_d", "lambda_s": "λ_s", "lambda_t": "λ_t"}


def load_own(data: DataSpec, say: Callable[[str], None], cache: bool = True) -> Task:
    """The samples of a run on one's own data."""
    assert data.source is not None
    assert data.target is not None
    check_places(data)
    how = ReadOptions(size_from(data.image_size), data.channels, data.label, cache, strict=True)
    use_labels = data.use_target_labels is not None
    task, notes = own_task(data.source, data.target, data.target_test, how, use_labels)
    for note in notes:
        say(note)
    return task


def check_places(data: DataSpec) -> None:
    """A run keeps the paths that it was given, and some are relative to where that was."""
    for name in ("source", "target", "target_test"):
        path = getattr(data, name)
        if path is not None and not Path(path).is_absolute() and not Path(path).exists():
            flag = f"--{name.replace('_', '-')}"
            raise InputError(
                f"{path} ({flag}) does not exist in {Path.cwd()}: give {INPUT_FORMATS}; for a run that has begun, go to the "
                "folder where it was begun."
            )


def voice(method: str) -> Callable[[str], None]:
    """Prints notes, and does not promise for a method what the method does not keep."""
    promise = EVALUATION_ONLY if method != "target_only" else "target_only trains on target labels"
    return lambda note: print(note.replace(EVALUATION_ONLY, promise), file=STDOUT)


def size_from(sides: Sequence[int] | None) -> tuple[int, int] | None:
    if sides is None:
        return None
    if len(sides) > 2:
        raise InputError(f"--image-size has {len(sides)} numbers: give height and width, or one side of a square.")
    return sides[0], sides[-1]


def own_recipe(task: Task, method: str, with_dirt_t: bool, device: str, iterations: int | None = None) -> Recipe:
    """Sensible settings for data that no recipe knows, and a run of this length."""
    chosen = defaults_for(sample_shape(task), max(len(task.source), len(task.target)), device)
    chosen = chosen if iterations is None else replace(chosen, iterations=iterations)
    every = looks_for(chosen.iterations)
    # A second thread hardly helps so thin a network, and on a busy machine it makes a run several times slower.
    config = Config(evaluate_every=every, checkpoint_every=every, threads=1 if chosen.net == "tiny" else 0)
    return replace(chosen.recipe(method, with_dirt_t), config=config)


def doubts(task: Task) -> Iterator[str]:
    """What can be trained on, and hardly learned from."""
    assert task.source.y is not None
    counts = task.source.y.bincount(minlength=len(task.classes)).tolist()
    scarce = [f"{name} ({count})" for name, count in zip(task.classes, counts, strict=True) if count < FEW]
    if scarce:
        yield f"classes with fewer than {FEW} samples to learn from: {few(scarce, 8)}"
    if len(task.target) < FEW:
        yield f"the target has only {len(task.target)} samples, whose statistics are mostly noise: more would help"


def choices(recipe: Recipe, task: Task) -> Iterator[str]:
    """What a run will do, a line each, with the flags that change it."""
    defaults = parameters(METHODS[recipe.method])
    used = {**defaults, **recipe.settings}
    shape = "×".join(str(side) for side in sample_shape(task))
    yield f"classes: {len(task.classes)}, {', '.join(task.classes[:8])}{', …' if len(task.classes) > 8 else ''}"
    yield (
        f"samples: {len(task.source)} of the source and {len(task.target)} of the target to train on, "
        f"{len(task.source_test or ())} of the source held out"
    )
    yield from doubts(task)
    if recipe.target_labels is not None:
        yield f"target labels: {len(task.target_labelled or ())}, weight {recipe.target_labels:g} (--use-target-labels)"
    yield f"network: {recipe.net}, for samples of {shape} (--net)"
    rate = used["lr"] if "lr" in used else defaults["optimiser"].lr
    yield f"iterations: {used['iterations']} of {recipe.method}, learning rate {rate:g} (--iterations, --lr)"
    if weights := [f"{sign} {used[name]:g}" for name, sign in WEIGHTS.items() if name in used]:
        yield f"weights: {', '.join(weights)} (--lambda-d, --lambda-s, --lambda-t)"
    if used.get("warm_up"):
        yield f"warm-up: λ_t grows from 0 over the first {used['warm_up']:.1%} of the iterations (--warm-up)"
    if "radius" in used:
        chosen = used["radius"] == defaults_for(sample_shape(task), len(task.target)).radius
        why = ", in proportion to the size of a sample" if chosen else ""
        yield f"radius of VAT: {used['radius']:.3g}{why} (--radius)"
    if recipe.dirt_t is not None:
        refine = {**parameters(dirt_t), **recipe.dirt_t}
        yield (
            f"then DIRT-T: {refine['iterations']} iterations, a new teacher every {refine['interval']}, "
            f"β {refine['beta']:g}, λ_t {refine['lambda_t']:g} (--dirt-t-iterations, --interval, --beta)"
        )
