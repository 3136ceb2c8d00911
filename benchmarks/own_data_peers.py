"""The competitors of benchmarks/own_data.py: scikit-learn and skada, each with its own defaults.

Each is a function of a problem and a seed that returns predictions for the target's test part. Nobody sees a label of
the target. Pictures become vectors of their values, except for networks. scikit-learn's classifiers come twice: behind
a StandardScaler that was fitted on the source, and with each domain standardised by its own mean and spread. skada's
shallow methods are its own pipelines, which end with scikit-learn's SVC, behind a StandardScaler as in its examples.
skada's deep methods have their own defaults for everything but what they leave to the user: a network, Adam with a rate
of 0.001, and about 600 iterations of 64 samples of each domain.
"""

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from own_data_tasks import Array, Problem
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

Predict = Callable[[Problem, int], Array]


@dataclass(frozen=True)
class Peer:
    """A competitor: its name, the packages that it needs, and what it predicts."""

    name: str
    packages: tuple[str, ...]
    predict: Predict

    def missing(self) -> str:
        """The packages that are not installed, or an empty string."""
        return ", ".join(name for name in self.packages if not installed(name))

    def version(self) -> str:
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in self.packages)


def installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def flat(problem: Problem) -> tuple[Array, Array, Array]:
    """Source, target and test samples as vectors of float64."""
    source, target, test = (x.reshape(len(x), -1).astype(np.float64) for x in (problem.xs, problem.xt, problem.xt_test))
    return source, target, test


# --- scikit-learn ---


def classifier(name: str, seed: int) -> ClassifierMixin:
    if name == "svc":
        return SVC(random_state=seed)
    if name == "hgb":
        return HistGradientBoostingClassifier(random_state=seed)
    return MLPClassifier(random_state=seed)


def plain(name: str) -> Predict:
    """A classifier of the source, behind a StandardScaler that was fitted on the source."""

    def predict(problem: Problem, seed: int) -> Array:
        source, _, test = flat(problem)
        scale = StandardScaler().fit(source)
        model = classifier(name, seed).fit(scale.transform(source), problem.ys)
        return model.predict(scale.transform(test))  # type: ignore[no-any-return]

    return predict


def per_domain(name: str) -> Predict:
    """A classifier of the standardised source; the target is standardised by its own training samples."""

    def predict(problem: Problem, seed: int) -> Array:
        source, target, test = flat(problem)
        model = classifier(name, seed).fit(StandardScaler().fit_transform(source), problem.ys)
        return model.predict(StandardScaler().fit(target).transform(test))  # type: ignore[no-any-return]

    return predict


SKLEARN = [
    Peer(name + suffix, ("scikit-learn",), make(name))
    for name in ("svc", "hgb", "mlp")
    for suffix, make in (("", plain), ("-per-domain", per_domain))
]


# --- skada, shallow methods ---


def shallow(name: str) -> Predict:
    """A method of skada, behind a StandardScaler that both domains share."""

    def predict(problem: Problem, seed: int) -> Array:
        import skada

        source, target, test = flat(problem)
        method = getattr(skada, name)()
        steps = [step for _, step in method.steps] if hasattr(method, "steps") else [method]
        np.random.seed(seed)  # noqa: NPY002  skada's methods take no seed
        x, y, domains = together(source, problem.ys, target)
        pipeline = skada.make_da_pipeline(StandardScaler(), *steps).fit(x, y, sample_domain=domains)
        return pipeline.predict(test, sample_domain=np.full(len(test), -2))  # type: ignore[no-any-return]

    return predict


def together(source: Array, labels: Array, target: Array) -> tuple[Array, Array, Array]:
    """Samples, labels and domains as skada takes them: −1 is an unknown label, −2 is the target."""
    x = np.concatenate([source, target])
    y = np.concatenate([labels, np.full(len(target), -1)])
    return x, y, np.concatenate([np.ones(len(source), np.int64), np.full(len(target), -2)])


SHALLOW = {
    "skada-coral": "CORAL",
    "skada-subspace": "SubspaceAlignment",
    "skada-tca": "TransferComponentAnalysis",
    "skada-ot": "OTMapping",
    "skada-entropic-ot": "EntropicOTMapping",
    "skada-class-ot": "ClassRegularizerOTMapping",
    "skada-linear-ot": "LinearOTMapping",
    "skada-kmm": "KMMReweight",
    "skada-nearest": "NearestNeighborReweight",
    "skada-discriminator": "DiscriminatorReweight",
    "skada-jdot": "JDOTClassifier",
}
SKADA = [Peer(name, ("skada", "scikit-learn"), shallow(method)) for name, method in SHALLOW.items()]


# --- skada, deep methods ---

ITERATIONS, BATCH, FEATURES = 600, 64, 128


def deep(name: str) -> Predict:
    """A deep method of skada with a small network: fully connected for vectors, convolutions for pictures."""

    def predict(problem: Problem, seed: int) -> Array:
        import torch
        from skada import deep as methods

        torch.manual_seed(seed)
        source, target, test = for_network(problem)
        epochs = ITERATIONS // -(-max(len(source), len(target)) // BATCH)
        options: dict[str, Any] = {"optimizer": torch.optim.Adam, "lr": 1e-3, "batch_size": BATCH}
        options |= {"max_epochs": epochs, "train_split": None, "verbose": 0}
        if name == "CDAN":
            options["domain_classifier"] = discriminator(FEATURES * problem.classes)
        net = getattr(methods, name)(network(problem), "features", **options)
        x, y, domains = together(source, problem.ys, target)
        net.fit(x, y, sample_domain=domains)
        return net.predict(test, sample_domain=np.full(len(test), -2))  # type: ignore[no-any-return]

    return predict


def for_network(problem: Problem) -> list[Array]:
    """Vectors standardised by both domains together, or pictures (N, C, H, W) from 0 to 1."""
    if problem.is_pictures:
        first = [x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2) for x in samples(problem)]
        return [np.ascontiguousarray(x, np.float32) / 255 for x in first]
    scale = StandardScaler().fit(np.concatenate([problem.xs, problem.xt]))
    return [scale.transform(x).astype(np.float32) for x in samples(problem)]


def samples(problem: Problem) -> tuple[Array, Array, Array]:
    return problem.xs, problem.xt, problem.xt_test


def network(problem: Problem) -> Any:
    """A network whose layer `features` has 128 values; its `forward` takes the weights that skada passes along."""
    from torch import nn

    def dense(width: int) -> list[Any]:
        return [nn.LazyLinear(width), nn.BatchNorm1d(width), nn.ReLU()]

    def convolution(width: int) -> list[Any]:
        return [nn.LazyConv2d(width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first = [*convolution(32), *convolution(64), nn.Flatten()] if problem.is_pictures else dense(FEATURES)
            self.first, self.features = nn.Sequential(*first), nn.Sequential(*dense(FEATURES))
            self.last = nn.Linear(FEATURES, problem.classes)

        def forward(self, x: Any, sample_weight: Any = None) -> Any:
            return self.last(self.features(self.first(x)))

    import torch

    made = Network()
    made(torch.from_numpy(for_network(problem)[0][:2]))  # the lazy layers take their sizes from it
    return made


def discriminator(features: int) -> Any:
    """skada's discriminator with a sigmoid: the softmax over one output at its end is always 1, and learns nothing."""
    from skada.deep.modules import DomainClassifier
    from torch import nn

    made = DomainClassifier(num_features=min(features, 4096))
    made.classifier[-1] = nn.Sigmoid()
    return made


DEEP = [
    Peer(f"skada-deep-{name.lower()}", ("skada", "skorch", "torch"), deep(name))
    for name in ("MCC", "CDAN", "DeepCoral")
]
PEERS: dict[str, Peer] = {peer.name: peer for peer in (*SKLEARN, *SKADA, *DEEP)}
