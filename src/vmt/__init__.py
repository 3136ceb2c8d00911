"""Unsupervised domain adaptation with Virtual Mixup Training.

>>> import numpy as np, vmt
>>> ys = np.arange(60) % 3
>>> xs = np.random.default_rng(0).normal(size=(60, 5)) + 2 * ys[:, None]
>>> model = vmt.adapt(source=(xs, ys), target=xs + 0.5, iterations=2, progress=False)
>>> model.predict_proba(xs).shape
(60, 3)
"""

__version__ = "0.1.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vmt.errors import InputError

if TYPE_CHECKING:
    from vmt import export, losses, methods, validators
    from vmt.api import adapt
    from vmt.estimator import VMTClassifier
    from vmt.model import Model, load
    from vmt.train import Config

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
# Imported when they are first asked for: torch and scikit-learn take seconds, which `vmt --help` need not wait for.
_HOMES = {
    "Config": "vmt.train",
    "Model": "vmt.model",
    "VMTClassifier": "vmt.estimator",
    "adapt": "vmt.api",
    "load": "vmt.model",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    inside = f"{__name__}.{name}"
    try:
        return import_module(inside)  # vmt.methods, vmt.data …
    except ModuleNotFoundError as error:
        if error.name != inside:
            raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
