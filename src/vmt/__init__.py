"""Unsupervised domain adaptation with Virtual Mixup Training.

>>> import numpy as np, vmt
>>> ys = np.arange(60) % 3
>>> xs = np.random.default_rng(0).normal(size=(60, 5)) + 2 * ys[:, None]
>>> model = vmt.adapt(source=(xs, ys), target=xs + 0.5, iterations=2, progress=False)
>>> model.predict_proba(xs).shape
(60, 3)
"""

__version__ = "0.1.0"

from typing import TYPE_CHECKING, Any

from vmt import export, losses, methods, validators
from vmt.api import adapt
from vmt.errors import InputError
from vmt.model import Model, load
from vmt.train import Config

if TYPE_CHECKING:
    from vmt.estimator import VMTClassifier

__all__ = [
    "Config",
    "InputError",
    "Model",
    "VMTClassifier",
    "adapt",
    "export",
    "load",
    "losses",
    "methods",
    "validators",
]


def __getattr__(name: str) -> Any:
    # scikit-learn is slow to import, and only the estimator needs it.
    if name == "VMTClassifier":
        from vmt.estimator import VMTClassifier

        return VMTClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
