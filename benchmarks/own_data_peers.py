"""The competitors of benchmarks/own_data.py: scikit-learn and skada, each with its own defaults.

Each is a function of a problem and a seed that returns predictions for the target's test part. Pictures are passed to
them as vectors of their values. Nobody sees a label of the target. scikit-learn's classifiers come twice: behind a
StandardScaler that was fitted on the source, and with each domain standardised by its own mean and spread.
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
PEERS: dict[str, Peer] = {peer.name: peer for peer in SKLEARN}
