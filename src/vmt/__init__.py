"""Unsupervised domain adaptation with Virtual Mixup Training.

>>> import numpy as np, vmt
>>> ys = np.arange(60) % 3
>>> xs = np.random.default_rng(0).normal(size=(60, 5)) + 2 * ys[:, None]
>>> model = vmt.adapt(source=(xs, ys), target=xs + 0.5, iterations=2, progress=False)
>>> model.predict_proba(xs).shape
(60, 3)
"""

__version__ = "0.1.0"

from typing import TYPE_CHECKING

from vmt._imports import install, lazy
from vmt.errors import InputError

if TYPE_CHECKING:
    from vmt import export, losses, methods, validators
    from vmt.api import adapt, search
    from vmt.estimator import VMTClassifier, label_free_score
    from vmt.estimator_search import VMTSearch
    from vmt.many.map_runs import map_runs
    from vmt.model import Model, load
    from vmt.runs.callbacks import Callback, GiveUp
    from vmt.trackers import MLflow
    from vmt.train import Config

__all__ = [
    "Callback",
    "Config",
    "GiveUp",
    "InputError",
    "MLflow",
    "Model",
    "VMTClassifier",
    "VMTSearch",
    "adapt",
    "export",
    "label_free_score",
    "load",
    "losses",
    "map_runs",
    "methods",
    "search",
    "validators",
]

install()
__getattr__, __dir__ = lazy(
    __name__,
    {
        "Callback": "vmt.runs.callbacks",
        "Config": "vmt.train.config",
        "GiveUp": "vmt.runs.callbacks",
        "MLflow": "vmt.trackers",
        "Model": "vmt.model",
        "VMTClassifier": "vmt.estimator",
        "VMTSearch": "vmt.estimator_search",
        "adapt": "vmt.api",
        "label_free_score": "vmt.estimator",
        "load": "vmt.model",
        "map_runs": "vmt.many.map_runs",
        "search": "vmt.api",
    },
)
