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
PEERS: dict[str, Peer] = {peer.name: peer for peer in (*SKLEARN, *SKADA)}
