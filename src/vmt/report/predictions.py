"""What a trained network says about samples, and where its last hidden layer puts them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vmt.data.preprocess import Preprocess
from vmt.data.task import Task
from vmt.device import torch_device
from vmt.errors import InputError
from vmt.evaluate.inference import feature_tap, outputs_of
from vmt.model import check_trusted, load
from vmt.nets.factory import NetSpec, factory_name
from vmt.nets.staged import Staged
from vmt.runs.folder import model_at_the_end
from vmt.runs.record import RunRecord
from vmt.step.state import build_state, predictor_of
from vmt.train.checkpoint import load_latest
from vmt.train.loop import CHECKPOINTS

BATCH = 250


NEIGHBOURS = 10


Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Seen:
    """One row per sample."""

    predicted: NDArray[np.int64]
    confidence: Floats
    hidden: Floats


def trained_network(run: RunRecord, task: Task, device: str, nets: Sequence[str] = ()) -> tuple[Staged, str]:
    """The network of a run, and where it is from: its model or, while it is not finished, its last checkpoint. Of the
    functions that build one, only those among ``nets`` are imported."""
    recipe = run.spec.recipe
    trusted = next((net for net in nets if factory_name(net) == factory_name(recipe.net)), None)
    if model_at_the_end(run.folder).is_file():
        model = load(run.folder, trusted, device)
        if model.spec.shape != task.sample_shape or len(model.classes) != len(task.classes):
            raise InputError("its model does not fit the data that are there now")
        return model.network, "the finished model"
    found = load_latest(run.folder / CHECKPOINTS)
    if found is None:
        raise InputError("it has neither a model nor a checkpoint yet")
    method = recipe.build()
    # Not a function that only the run's own file names: importing it would run its code.
    net = check_trusted(
        NetSpec(recipe.net, task.sample_shape, len(task.classes), recipe.net_options), trusted, run.folder
    )
    state = build_state(method, net.build, task.sample_shape, recipe.config.seed, torch_device(device))
    own = state.tensors()  # a checkpoint also holds the best network, and the sums for the next log record
    state.restore_({name: tensor for name, tensor in found[0].items() if name in own})
    return predictor_of(method, state), f"the checkpoint at iteration {int(state.step):,}"


def look(network: Staged, x: Tensor, preprocess: Preprocess, tick: Callable[[int], None]) -> Seen:
    """Predictions, confidences and the last hidden layer of stored samples."""
    logits, hidden = outputs_of(network, x, preprocess, ("logits", feature_tap(network)), BATCH, tick)
    confidence, predicted = logits.softmax(1).max(1)
    return Seen(predicted.cpu().numpy(), confidence.nan_to_num().cpu().numpy(), hidden.flatten(1).cpu().numpy())


def flat_map(hidden: Floats, how: str) -> tuple[Floats | None, str]:
    """Points in the unit square for rows of features, and how they came about; None where there is nothing to see."""
    spread = hidden.std(0)
    if len(hidden) < 3 or not np.isfinite(spread).all() or float(spread.max()) < 1e-9:
        return None, "The last hidden layer is the same for every sample: there is nothing to map."
    # Columns keep their scale: a direction in which nothing varies is noise.
    centred = (hidden - hidden.mean(0)).astype(np.float64)
    if how == "tsne" and len(hidden) >= 30:
        from sklearn.manifold import TSNE

        perplexity = min(30.0, (len(hidden) - 1) / 3)
        fitted = TSNE(init="pca", perplexity=perplexity, max_iter=500, random_state=0).fit_transform(centred)
        points, name = np.asarray(fitted, np.float64), f"t-SNE (perplexity {perplexity:.0f})"
    else:
        u, s, _ = np.linalg.svd(centred, full_matrices=False)
        points, name = np.zeros((len(hidden), 2)), "PCA"
        points[:, : min(2, s.size)] = (u * s)[:, :2]
        if s.size:
            name += f" (first two directions, {(s[:2] ** 2).sum() / (s**2).sum():.0%} of the variance)"
    low, high = points.min(0), points.max(0)
    # Lengths mean something along principal components; in t-SNE the map may fill its square.
    side = np.where(high > low, high - low, 1.0) if name.startswith("t-SNE") else (float((high - low).max()) or 1.0)
    return ((points - (low + high) / 2) / side + 0.5).astype(np.float32), name


def mixing(source: Floats, target: Floats) -> float:
    """The share of source samples among the nearest neighbours of target samples, as if there were as many of each."""
    from sklearn.neighbors import NearestNeighbors

    both = np.concatenate([source, target])
    count = min(NEIGHBOURS, len(both) - 1)
    nearest = NearestNeighbors(n_neighbors=count + 1).fit(both).kneighbors(target, return_distance=False)[:, 1:]
    from_source = float((nearest < len(source)).sum()) / len(source)
    from_target = float((nearest >= len(source)).sum()) / max(1, len(target) - 1)
    return from_source / (from_source + from_target)
