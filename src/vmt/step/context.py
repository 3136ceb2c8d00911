"""From a task, a method and a config to what the step needs."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from vmt.data.task import Task
from vmt.device import bfloat16_helps, usable_cores
from vmt.errors import InputError
from vmt.methods.nodes import Start
from vmt.methods.nouns import Method
from vmt.methods.schedules import Schedule
from vmt.nets.adapter import xi_for
from vmt.nets.staged import Staged
from vmt.step.draws import SeededDraws
from vmt.step.plan import plan
from vmt.step.state import State
from vmt.step.step import Setting
from vmt.train.config import Config

# Values in a batch of one domain below which one CPU thread is enough: 64 grey images of 28×28 have 50,176.
SMALL_BATCH = 60_000


def sample_shape(task: Task) -> tuple[int, ...]:
    """The shape of one sample as the network sees it."""
    preprocess = task.preprocess
    return (preprocess.channels,) if preprocess.size is None else (preprocess.channels, *preprocess.size)


def make_setting(task: Task, method: Method, state: State, config: Config) -> Setting:
    """Target labels reach the step only when the method is trained on them, as the upper bound is."""
    target = task.target
    if not method.reads_labels_of("target"):
        target = target.without_labels()
    elif target.y is None:
        raise InputError(f"method {method.name!r} trains on target labels, but {target.name} has none.")
    streams = {"source": task.source, "target": target}
    if method.reads_labels_of("labelled target"):
        if task.target_labelled is None:
            raise InputError(f"method {method.name!r} trains on target labels, but no label of {target.name} is known.")
        streams["labelled target"] = task.target_labelled
    device = task.source.x.device
    return Setting(
        streams=streams,
        preprocess=task.preprocess,
        batch_size={name: min(config.batch_size, len(domain)) for name, domain in streams.items()},
        draws=SeededDraws(config.seed, state.step),
        xi={
            role: xi_for(state.roles[role], task.preprocess(target.x[:8])) for role in roles_with_open_xi(method, state)
        },
        scalars={schedule: torch.zeros((), dtype=torch.float32, device=device) for schedule in schedules_of(method)},
        bfloat16=chosen_precision(config, task)[0],
    )


def chosen_precision(config: Config, task: Task) -> tuple[bool, str]:
    """Whether the networks run in bfloat16, and a sentence that says why."""
    if config.precision != "auto":
        return config.precision == "bfloat16", f"{config.precision}: as asked for."
    if not task.source.is_images:
        return False, "float32: networks for vectors are small."
    return bfloat16_helps(task.source.x.device)


@contextmanager
def cpu_threads(config: Config, task: Task) -> Iterator[None]:
    """Train with as many threads as suit the task; a function of task and config alone, or a resumed run could differ.

    For batches of small images two threads gain a tenth on an idle machine and lose two thirds on a busy one.
    """
    before = torch.get_num_threads()
    small = config.batch_size * math.prod(sample_shape(task)) < SMALL_BATCH
    torch.set_num_threads(min(config.threads, usable_cores()) or (1 if small else before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def predictor_of(method: Method, state: State) -> Staged:
    """The network that predicts: the method's predictor roles, one after the other."""
    parts = [state.roles[name] for name in method.predictor]
    if len(parts) == 1:
        return parts[0]
    return Staged({name: stage for part in parts for name, stage in part.stages.items()})


def roles_with_open_xi(method: Method, state: State) -> set[str]:
    """Roles whose VAT leaves the length of the first step to us."""
    taps = {name: module.taps for name, module in state.roles.items()}
    views = [view for update in method.updates() for each in plan(update, taps) for view in each.views]
    return {view.role for view in views if isinstance(view.input, Start) and view.input.xi is None}


def schedules_of(method: Method) -> set[Schedule]:
    numbers = [n for update in method.updates() for n in (update.optimiser.lr, *(t.weight for t in update.terms))]
    return {n for n in numbers if callable(n)}
