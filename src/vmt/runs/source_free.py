"""Refining a saved model on the target alone: its task, its recipe, and the weights that it starts from.

There is no source. In its place are the samples of the target with the classes that the model predicts for them, so
that a run is watched and reported as any other: what is called the source there is the model's own opinion. DIRT-T,
which does the refining, reads the target alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from vmt.data.files.own import EVALUATION_ONLY, read_as_trained, read_labelled
from vmt.data.files.stream import InputSpec
from vmt.data.preprocess import check_range
from vmt.data.task import Task
from vmt.errors import InputError, as_flag
from vmt.evaluate.accuracy import logits_of
from vmt.model import Model, load
from vmt.nets.factory import NetSpec
from vmt.nets.networks import Staged
from vmt.runs.recipes import (
    REFINE,
    Recipe,
    evaluations_for,
    interval_for,
    names_of_net_settings,
    own_recipe,
    with_settings,
)
from vmt.runs.spec import DataSpec
from vmt.train.config import Config


def starting_model(data: DataSpec, network: str | None, device: str) -> Model:
    """The model that a run refines; ``network`` names its function again, if it has one."""
    assert data.from_model is not None
    return load(data.from_model, network, device, data.features)


def target_task(
    data: DataSpec, cache: bool, network: str | None, memory: str, device: str
) -> tuple[Task, tuple[str, ...]]:
    """A task without a source, and notes on how the files were read.

    In place of the source, it has the samples of the target with the classes that the model predicts for them.
    """
    model = starting_model(data, network, device)
    assert data.target is not None
    reads = InputSpec(model.preprocess, model.features, data.label)
    own = read_as_trained(data.target, model.classes, reads, model.backbone, memory, cache=cache)
    notes = own.notes
    target = replace(own.domain, x=model.preprocess.fit(own.domain.x))
    if target.is_images:
        check_range(target.x, model.preprocess.values)
    test = None
    if data.target_test is not None:
        test, more = read_labelled(data.target_test, model.classes, reads, model.backbone, memory)
        notes += more
    elif own.labels is not None and (own.labels >= 0).any():
        known = torch.from_numpy(own.labels >= 0).nonzero().flatten()
        test = replace(target.subset(known), y=torch.from_numpy(own.labels)[known])
        notes += (f"{EVALUATION_ONLY}: accuracy is measured on the {len(test)} labelled samples of {target.name}",)
    predicted = logits_of(model.network, target.x, model.preprocess).argmax(1).cpu()
    task = Task(
        name="own data",
        source=replace(target, y=predicted, name=f"{target.name}, as {Path(str(data.from_model)).name} sees it"),
        source_test=None,
        target=target.without_labels(),
        target_test=None if test is None else replace(test, x=model.preprocess.fit(test.x)),
        classes=tuple(model.classes),
        preprocess=model.preprocess,
        backbone=model.backbone,
    )
    return task, notes


def refining_recipe(
    data: DataSpec, task: Task, asked: Mapping[str, Any], dirt_t: bool, device: str, network: str | None
) -> Recipe:
    """The recipe of ``vmt train --from``: DIRT-T alone, the network of the model, and the settings in ``asked``."""
    asked = dict(asked)
    asked.pop("net", None)  # it names the function of the model's network, or nothing new
    if not asked.pop("match_shares", False):
        fixed = [name for name in ("instance_norm", *names_of_net_settings()) if name in asked]
    else:
        fixed = ["match_shares"]
    if fixed:
        raise InputError(
            f"{as_flag(fixed[0])} cannot be combined with --from: the model has its network, and no source."
        )
    if (method := asked.pop("method", REFINE)) != REFINE or dirt_t:
        what = "--dirt-t" if dirt_t else f"--method {method}"
        raise InputError(f"{what} cannot be combined with --from, which refines the model by DIRT-T: leave it out.")
    pretrained = task.preprocess.mean is not None
    recipe = own_recipe(task, REFINE, False, device, asked.get("iterations"), pretrained)
    length = recipe.settings["iterations"]
    spec = starting_model(data, network, "cpu").spec
    recipe = replace(
        recipe,
        settings={**recipe.settings, "interval": interval_for(length), "head_first": 0.0},  # no part of it is new
        net=spec.name,
        net_options=dict(spec.options),
        config=Config(evaluate_every=evaluations_for(length), checkpoint_every=evaluations_for(length)),
        match_shares=False,
    )
    return with_settings(recipe, asked, as_flag)


def starting_network(data: DataSpec, net: NetSpec) -> Callable[[], Staged]:
    """A function that builds the network that ``net`` describes, with the weights of the model."""
    weights = starting_model(data, net.factory, "cpu").network.state_dict()

    def build() -> Staged:
        network = net.build()  # which knows what layers are not to be trained
        network.load_state_dict(weights)
        return network

    return build
