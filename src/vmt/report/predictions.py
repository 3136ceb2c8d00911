"""The trained network of a run, and what it predicts for samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vmt.data.files.own import read_labelled
from vmt.data.files.stream import InputSpec
from vmt.data.preprocess import Preprocess
from vmt.data.task import Task
from vmt.device import torch_device
from vmt.errors import InputError
from vmt.evaluate.accuracy import feature_tap, outputs_of
from vmt.model import check_trusted, load
from vmt.nets.backbone import same_backbone
from vmt.nets.factory import NetSpec, factory_name
from vmt.nets.networks import Staged
from vmt.runs.folder import model_at_the_end
from vmt.runs.record import RunRecord
from vmt.step.state import build_state, predictor_of
from vmt.train.checkpoint import CHECKPOINTS, load_latest

BATCH = 250
Floats = NDArray[np.float32]


def trusted_net(run: RunRecord, nets: Sequence[str]) -> str | None:
    """The function that builds the network of a run, if ``nets`` names it."""
    return next((net for net in nets if factory_name(net) == factory_name(run.spec.recipe.net)), None)


def trained_network(run: RunRecord, task: Task, device: str, nets: Sequence[str]) -> tuple[Staged, str]:
    """The network of a run, and its origin: the model at the end of the run or, until then, its last checkpoint.

    A user-defined network is imported only if ``nets`` names its function.
    """
    recipe, trusted = run.spec.recipe, trusted_net(run, nets)
    model_file = model_at_the_end(run.folder)
    if model_file.is_file():
        model = load(model_file, trusted, device, head_alone=True)
        if model.spec.shape != task.sample_shape or len(model.classes) != len(task.classes):
            raise InputError("its model does not fit the data as they are now")
        return model.network, "the finished model"
    checkpoint = load_latest(run.folder / CHECKPOINTS)
    if checkpoint is None:
        raise InputError("it has neither a model nor a checkpoint yet")
    method = recipe.build()
    spec = NetSpec(recipe.net, task.sample_shape, len(task.classes), recipe.net_options)
    # Importing a function runs its code, so a function that only the run's file names is not imported.
    net = check_trusted(spec, trusted, run.folder)
    state = build_state(method, net.build, task.sample_shape, recipe.config.seed, torch_device(device))
    names = state.tensors()  # a checkpoint also holds the best network, and sums for the next log record
    state.restore_({name: tensor for name, tensor in checkpoint[0].items() if name in names})
    return predictor_of(method, state), f"the checkpoint at iteration {int(state.step):,}"


def accuracy_alone(
    run: RunRecord,
    test: str,
    label: str | None,
    device: str,
    nets: Sequence[str],
    features: Sequence[str],
) -> tuple[float, int] | None:
    """The accuracy of a run's model on labelled samples and their number, without the data of the run.

    It is None without a model.
    """
    own = run.spec.data.features
    named = next((name for name in features if own and same_backbone(name, own)), None)
    try:
        model = load(model_at_the_end(run.folder), trusted_net(run, nets), device, named)
    except InputError:
        return None
    reads = InputSpec(model.preprocess, model.features, label)
    samples, _ = read_labelled(test, model.classes, reads, model.backbone)
    evaluation = model.evaluate(samples.x, samples.y)
    assert evaluation.accuracy is not None
    return evaluation.accuracy, evaluation.samples


@dataclass(frozen=True)
class Predictions:
    """What a network predicts for samples, one row per sample."""

    predicted: NDArray[np.int64]
    confidence: Floats
    hidden: Floats
    """The last hidden layer."""


def predict(network: Staged, x: Tensor, preprocess: Preprocess, advance: Callable[[int], None]) -> Predictions:
    """Predict stored samples; ``advance`` is called with the number of samples that are done."""
    logits, hidden = outputs_of(network, x, preprocess, ("logits", feature_tap(network)), BATCH, advance)
    confidence, predicted = logits.softmax(1).max(1)
    return Predictions(predicted.cpu().numpy(), confidence.nan_to_num().cpu().numpy(), hidden.flatten(1).cpu().numpy())
