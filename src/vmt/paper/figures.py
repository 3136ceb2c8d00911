"""The paper's three figures, from what the tables' runs left behind: their models and their results."""

import shlex
from collections.abc import Callable, Sequence
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
from vmt.evaluate.inference import outputs_of
from vmt.evaluate.probe import subsample
from vmt.model import Model, load
from vmt.nets.staged import Staged
from vmt.paper.experiment import Experiment
from vmt.paper.results import at_once, results_of
from vmt.paper.tables import M2S, VARIANTS, WARM, WITHOUT
from vmt.runs.folder import MODEL

LAMBDAS = tuple(i / 10 for i in range(11))
# Each sample keeps the activations of a forward pass until all classes have been differentiated.
BATCH = 100


def gradient_norm(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    r"""‖∂f/∂x‖_F = sqrt(Σ_k ‖∇_x f_k(x)‖²) for each sample, where f gives the probabilities of the classes.

    The paper speaks of the gradient norm of the classifier; for a classifier of K outputs this is our reading. Samples
    must not see each other in f (evaluation mode), so that the gradient of a sum over samples is each sample's own.
    """
    x = x.detach().requires_grad_()
    outputs = f(x)
    squares = torch.zeros(len(x), dtype=outputs.dtype, device=x.device)
    for k in range(outputs.shape[1]):
        (gradient,) = torch.autograd.grad(outputs[:, k].sum(), x, retain_graph=True)
        squares += gradient.flatten(1).square().sum(1)
    return squares.sqrt()


def norms_in_between(
    f: Callable[[Tensor], Tensor], x_i: Tensor, x_j: Tensor, lambdas: Sequence[float] = LAMBDAS
) -> Tensor:
    """The gradient norm at x̃ = λ x_i + (1 − λ) x_j for every λ and pair: (λ, pairs)."""
    return torch.stack([gradient_norm(f, lam * x_i + (1 - lam) * x_j) for lam in lambdas])


def norms_of_network(network: Staged, x: Tensor, preprocess: Preprocess) -> Tensor:
    """The same for a trained network and stored samples, each paired with a random other one: (λ, samples)."""
    network.eval()
    device = next(network.parameters()).device
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))

    def probabilities(inputs: Tensor) -> Tensor:
        logits: Tensor = network(inputs)["logits"]
        return logits.float().softmax(1)

    parts = []
    for pairs in torch.split(torch.stack([order, order.roll(1)], dim=1), BATCH):
        x_i, x_j = (preprocess(x[chosen].to(device)) for chosen in pairs.unbind(1))
        parts.append(norms_in_between(probabilities, x_i, x_j).cpu())
    return torch.cat(parts, dim=1)


Array = NDArray[np.float32]


@dataclass(frozen=True)
class System:
    """What a figure compares: a run of the tables at the end of one of its phases."""

    label: str
    experiment: Experiment
    phase: str

    def model(self, runs: Path, seed: int) -> Path:
        """Where its run keeps the model of that moment."""
        last = self.phase == self.experiment.phases[-1]
        return runs / f"{self.experiment.name}_{seed}" / (MODEL if last else f"model_{self.phase}.safetensors")

    def command(self, seed: int) -> str:
        """What makes it."""
        first = "" if self.phase == self.experiment.phases[-1] else " --phases 1"
        return f"vmt paper run all --only {shlex.quote(self.experiment.name)} --seeds {seed}{first} --data DATA"


def systems_of_tsne(instance_norm: bool) -> list[System]:
    """With instance norm VMT is with warm-up: the paper's constant λ_t leaves some seeds behind."""
    vada = Experiment(M2S, "vada", instance_norm, dirt_t=True)
    vmt, warm = (WARM, ", warm-up") if instance_norm else (WITHOUT, "")
    return [
        System("Source only", Experiment(M2S, "source_only", instance_norm), "source_only"),
        System("VADA", vada, "vada"),
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
    """The models that are there, and a sentence about each that is not."""

    models: dict[str, Model]
    missing: dict[str, str]


def find_models(systems: Sequence[System], runs: Path, seed: int, device: str) -> FoundModels:
    """None at all is an error."""
    models, missing = {}, {}
    for system in systems:
        path = system.model(runs, seed)
        if path.is_file():
            models[system.label] = load(path, device=device)
        else:
            missing[system.label] = f"{system.label}: there is no {path}; {system.command(seed)} makes it."
    if not models:
        first = systems[0]
        names = ", ".join(system.label for system in systems)
        raise InputError(
            f"{runs} holds none of the models of this figure ({names}, seed {seed}): {first.command(seed)} makes the "
            "first, and so on; or give another folder with --runs."
        )
    return FoundModels(models, missing)


def tested(task: Task) -> tuple[Domain, Domain]:
    """The test sets of a task, which the paper's figures are about."""
    assert task.source_test is not None
    assert task.target_test is not None
    return task.source_test, task.target_test


def last_hidden(model: Model, x: Tensor) -> tuple[Array, NDArray[np.int64]]:
    """The input of the last dense layer for each stored sample, and the predicted class."""
    features, logits = outputs_of(model.network, x, model.preprocess, ("hidden", "logits"), batch=500)
    return features.flatten(1).cpu().numpy(), logits.argmax(1).cpu().numpy()


def embedded(features: Array, seed: int) -> Array:
    """t-SNE to two dimensions, begun from the two main directions."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(features) - 1) / 3)
    places: Array = TSNE(init="pca", perplexity=perplexity, random_state=seed).fit_transform(features)
    return places


@dataclass(frozen=True)
class Cloud:
    """The samples of both domains in the plane, those of the source first, with their classes."""

    places: Array
    classes: NDArray[np.int64]
    source: int
    """How many are of the source."""
    accuracy: float
    """How many of the others the model gets right."""


def clouds(
    models: dict[str, Model], task: Task, samples: int, seed: int, say: Callable[[str], None]
) -> dict[str, Cloud]:
    """One per model: at most so many samples of each test set, the same for all."""
    source, target = (subsample(domain, samples) for domain in tested(task))
    assert source.y is not None
    assert target.y is not None
    classes = torch.cat([source.y, target.y]).numpy()
    result = {}
    for label, model in models.items():
        say(f"t-SNE of {label}: {len(source)} samples of {source.name} and {len(target)} of {target.name}")
        (of_source, _), (of_target, predicted) = (last_hidden(model, domain.x) for domain in (source, target))
        right = float((predicted == target.y.numpy()).mean())
        result[label] = Cloud(embedded(np.concatenate([of_source, of_target]), seed), classes, len(source), right)
    return result


def norms(models: dict[str, Model], task: Task, samples: int, say: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Mean, median and quartiles over pairs of the target test set, for every λ."""
    target = subsample(tested(task)[1], samples)
    result = {}
    for label, model in models.items():
        say(f"gradient norms of {label}: {len(target)} pairs of {target.name}, {len(LAMBDAS)} values of λ")
        found = norms_of_network(model.network, target.x, model.preprocess)
        low, middle, high = found.quantile(torch.tensor([0.25, 0.5, 0.75]), dim=1).tolist()
        result[label] = {
            "lambda": list(LAMBDAS),
            "mean": found.mean(1).tolist(),
            "median": middle,
            "lower_quartile": low,
            "upper_quartile": high,
            "pairs": len(target),
        }
    return result


@dataclass(frozen=True)
class Curve:
    """Accuracy over one phase of one run."""

    seed: int
    iterations: list[int]
    accuracy: list[float]
    seconds_per_iteration: float | None
    """The median between looks, so that compiling and restarts are left out; evaluation is in it. None where other runs
    shared the GPU."""
    hardware: str


def curves(systems: Sequence[System], results: Path) -> tuple[dict[str, list[Curve]], dict[str, str]]:
    """The curves by system, and a sentence about each system that has none. No curve at all is an error."""
    found: dict[str, list[Curve]] = {}
    missing: dict[str, str] = {}
    for system in systems:
        records = [r for r in results_of(results, system.experiment) if system.phase in r["accuracy"]]
        found[system.label] = [curve_of(record, system.phase) for record in records]
        if not records:
            missing[system.label] = f"{system.label}: no result in {results}; {system.command(0)} makes it."
    if not any(found.values()):
        raise InputError(
            f"{results} holds none of the results of this figure: {systems[0].command(0)} makes the first; or give "
            "another folder with --results."
        )
    return found, missing


def curve_of(record: dict[str, Any], phase: str) -> Curve:
    end = record.get("phase_iterations", {}).get(phase, 40_000)
    points = [point for point in record["curve"] if point[0] <= end and point[1] is not None]
    timed = [(point[0], point[3]) for point in points if len(point) > 3 and point[3] is not None]
    rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(timed)]
    environment = record["environment"]
    return Curve(
        record["seed"],
        [point[0] for point in points],
        [100 * point[1] for point in points],
        median(rates) if rates and at_once(record) == 1 else None,
        environment.get("gpu") or f"a CPU ({environment.get('machine')})",
    )
