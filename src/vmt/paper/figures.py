"""The data of the paper's three figures, from the models and the results of the tables' runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vmt.data.domains import Domain
from vmt.data.preprocess import Preprocess
from vmt.data.task import Task
from vmt.errors import InputError
from vmt.evaluate.accuracy import outputs_of
from vmt.evaluate.probe import subsample
from vmt.model import Model, load
from vmt.nets.networks import Staged, evaluating
from vmt.paper.experiment import Experiment, Job
from vmt.paper.results import results_of, runs_at_once
from vmt.paper.tables import M2S, VARIANTS, WARM, WITHOUT
from vmt.progress import Notify
from vmt.runs.folder import MODEL

Array = NDArray[np.float32]
LAMBDAS = tuple(i / 10 for i in range(11))
# Pairs at a time: each keeps the activations of a forward pass until the gradients of all classes are computed.
BATCH = 100


@dataclass(frozen=True)
class System:
    """One of the systems that a figure compares: an experiment at the end of one of its phases."""

    label: str
    experiment: Experiment
    phase: str

    def model(self, runs: Path, seed: int) -> Path:
        """The file of its model."""
        last = self.phase == self.experiment.phases[-1]
        return runs / self.job(seed).run / (MODEL if last else f"model_{self.phase}.safetensors")

    def job(self, seed: int) -> Job:
        """The job that trains it."""
        return Job(self.experiment, seed, self.phase)


def systems_of_tsne(instance_norm: bool) -> list[System]:
    """The systems of the t-SNE figure. With instance norm, VMT has a warm-up, without which some seeds fail."""
    vada = Experiment(M2S, "vada", instance_norm, dirt_t=True)
    vmt, warm = (WARM, ", warm-up") if instance_norm else (WITHOUT, "")
    return [
        System("Source only", Experiment(M2S, "source_only", instance_norm), "source_only"),
        System("VADA", vada, "vada"),
        System("VADA + DIRT-T", vada, "dirt_t"),
        System(f"VMT{warm}", vmt, "vmt"),
        System(f"VMT{warm} + DIRT-T", vmt, "dirt_t"),
    ]


def systems_of_norms(instance_norm: bool) -> list[System]:
    return [system for system in systems_of_tsne(instance_norm) if system.phase in ("vada", "vmt")]


SYSTEMS_OVER_TIME = [
    System("VAT: L_c, L_v (VADA)", *VARIANTS["L_c, L_v"]),
    System("VMT: L_c, L_m", *VARIANTS["L_c, L_m"]),
    System("both: L_c, L_v, L_m", *VARIANTS["L_c, L_v, L_m"]),
    System("both, warm-up", WARM, "vmt"),
]


@dataclass(frozen=True)
class FoundModels:
    """The models that exist, by the label of their system, and a message about each missing model."""

    models: dict[str, Model]
    missing: dict[str, str]


def find_models(systems: Sequence[System], runs: Path, seed: int, device: str) -> FoundModels:
    """Load the models of a figure; at least one must exist."""
    models, missing = {}, {}
    for system in systems:
        path = system.model(runs, seed)
        if path.is_file():
            models[system.label] = load(path, device=device)
        else:
            missing[system.label] = f"{system.label}: {path} does not exist; train it with {system.job(seed).command}."
    if not models:
        names = ", ".join(system.label for system in systems)
        raise InputError(
            f"{runs} holds none of the models of this figure ({names}, seed {seed}): train the first with "
            f"{systems[0].job(seed).command}, or give another folder with --runs."
        )
    return FoundModels(models, missing)


def both_test_sets(task: Task) -> tuple[Domain, Domain]:
    """The test sets of source and target, which the paper's figures show."""
    assert task.source_test is not None
    assert task.target_test is not None
    return task.source_test, task.target_test


# --- The last hidden layer ---


@dataclass(frozen=True)
class Embedding:
    """Samples of both domains as points in the plane, those of the source first."""

    points: Array
    classes: NDArray[np.int64]
    source: int
    """The number of source samples."""
    accuracy: float
    """The accuracy of the model on the target samples."""


def embed_samples(
    models: dict[str, Model], task: Task, samples: int, seed: int, notify: Notify
) -> dict[str, Embedding]:
    """The last hidden layer of each model, for the same samples of both test sets."""
    source, target = (subsample(domain, samples) for domain in both_test_sets(task))
    assert source.y is not None
    assert target.y is not None
    classes = torch.cat([source.y, target.y]).numpy()
    embeddings = {}
    for label, model in models.items():
        notify(f"t-SNE of {label}: {len(source)} samples of {source.name} and {len(target)} of {target.name}")
        (of_source, _), (of_target, predicted) = (last_hidden(model, domain.x) for domain in (source, target))
        accuracy = float((predicted == target.y.numpy()).mean())
        points = tsne(np.concatenate([of_source, of_target]), seed)
        embeddings[label] = Embedding(points, classes, len(source), accuracy)
    return embeddings


def last_hidden(model: Model, x: Tensor) -> tuple[Array, NDArray[np.int64]]:
    """The input of the last dense layer for each stored sample, and the predicted class."""
    features, logits = outputs_of(model.network, x, model.preprocess, ("hidden", "logits"), batch=500)
    return features.flatten(1).cpu().numpy(), logits.argmax(1).cpu().numpy()


def tsne(features: Array, seed: int) -> Array:
    """t-SNE to two dimensions, starting from the first two principal components."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(features) - 1) / 3)
    points: Array = TSNE(init="pca", perplexity=perplexity, random_state=seed).fit_transform(features)
    return points


# --- Gradient norms in between samples ---


def norms_by_model(models: dict[str, Model], task: Task, samples: int, notify: Notify) -> dict[str, dict[str, Any]]:
    """Mean, median and quartiles over pairs of the target test set for every λ, by model."""
    target = subsample(both_test_sets(task)[1], samples)
    norms = {}
    for label, model in models.items():
        notify(f"gradient norms of {label}: {len(target)} pairs of {target.name}, {len(LAMBDAS)} values of λ")
        found = norms_of_network(model.network, target.x, model.preprocess)
        low, middle, high = found.quantile(torch.tensor([0.25, 0.5, 0.75]), dim=1).tolist()
        norms[label] = {
            "lambda": list(LAMBDAS),
            "mean": found.mean(1).tolist(),
            "median": middle,
            "lower_quartile": low,
            "upper_quartile": high,
            "pairs": len(target),
        }
    return norms


NORMS = ("mean", "median", "lower_quartile", "upper_quartile")


def mean_over_seeds(by_seed: Mapping[int, Mapping[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The norms of each system, averaged over the seeds that have a model of it."""
    means = {}
    for label in dict.fromkeys(label for norms in by_seed.values() for label in norms):
        found = [norms[label] for norms in by_seed.values() if label in norms]
        averaged = {kind: np.mean([each[kind] for each in found], axis=0).tolist() for kind in NORMS}
        means[label] = {**found[0], **averaged, "seeds": len(found)}
    return means


def norms_of_network(network: Staged, x: Tensor, preprocess: Preprocess) -> Tensor:
    """The gradient norms (λ, samples) of a network between each stored sample and a random other one."""
    device = next(network.parameters()).device
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))

    def probabilities(inputs: Tensor) -> Tensor:
        logits: Tensor = network(inputs)["logits"]
        return logits.float().softmax(1)

    parts = []
    with evaluating(network):
        for pairs in torch.split(torch.stack([order, order.roll(1)], dim=1), BATCH):
            x_i, x_j = (preprocess(x[rows].to(device)) for rows in pairs.unbind(1))
            parts.append(norms_in_between(probabilities, x_i, x_j).cpu())
    return torch.cat(parts, dim=1)


def norms_in_between(
    f: Callable[[Tensor], Tensor], x_i: Tensor, x_j: Tensor, lambdas: Sequence[float] = LAMBDAS
) -> Tensor:
    """The gradient norm at x̃ = λ x_i + (1 − λ) x_j for every λ and pair: (λ, pairs)."""
    return torch.stack([gradient_norm(f, lam * x_i + (1 - lam) * x_j) for lam in lambdas])


def gradient_norm(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    r"""‖∂f/∂x‖_F = sqrt(Σ_k ‖∇_x f_k(x)‖²) for each sample, where f computes the class probabilities.

    The paper does not define the gradient norm of a classifier with K outputs; this is our reading. In f, samples must
    not depend on each other (evaluation mode), so that the gradient of their sum contains the gradient of each.
    """
    x = x.detach().requires_grad_()
    outputs = f(x)
    squares = torch.zeros(len(x), dtype=outputs.dtype, device=x.device)
    for k in range(outputs.shape[1]):
        (gradient,) = torch.autograd.grad(outputs[:, k].sum(), x, retain_graph=True)
        squares += gradient.flatten(1).square().sum(1)
    return squares.sqrt()


# --- Accuracy over time ---


@dataclass(frozen=True)
class Curve:
    """Accuracy over one phase of one run."""

    seed: int
    iterations: list[int]
    accuracy: list[float]
    seconds_per_iteration: float | None
    """The median over the intervals between evaluations, which excludes compiling and restarts, but not evaluation.

    None if other runs shared the GPU.
    """
    hardware: str


def accuracy_curves(systems: Sequence[System], results: Path) -> tuple[dict[str, list[Curve]], dict[str, str]]:
    """The curves by system, and a message about each system without a curve; at least one curve must exist."""
    curves: dict[str, list[Curve]] = {}
    missing: dict[str, str] = {}
    for system in systems:
        found = [result for result in results_of(results, system.experiment) if system.phase in result["accuracy"]]
        curves[system.label] = [curve_of(result, system.phase) for result in found]
        if not found:
            missing[system.label] = f"{system.label}: {results} has no result for it; run {system.job(0).command}."
    if not any(curves.values()):
        raise InputError(
            f"{results} holds none of the results of this figure: make the first with {systems[0].job(0).command}, or "
            "give another folder with --results."
        )
    return curves, missing


def curve_of(result: dict[str, Any], phase: str) -> Curve:
    end = result.get("phase_iterations", {}).get(phase, 40_000)
    points = [point for point in result["curve"] if point[0] <= end and point[1] is not None]
    timed = [(point[0], point[3]) for point in points if len(point) > 3 and point[3] is not None]
    rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(timed)]
    environment = result["environment"]
    return Curve(
        result["seed"],
        [point[0] for point in points],
        [100 * point[1] for point in points],
        median(rates) if rates and runs_at_once(result) == 1 else None,
        environment.get("gpu") or f"a CPU ({environment.get('machine')})",
    )
