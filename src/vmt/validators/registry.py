"""The validators that have a name: what each measures, what it reads and where its function is defined.

This module does not import PyTorch, so that the command line can list the validators quickly.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vmt.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Validator:
    """A score of a model that needs no target labels."""

    function: str
    """The module in ``vmt.validators`` and the function in it."""
    needs: tuple[str, ...]
    """The parts of the evidence that the function reads, in order."""
    text: str
    """What the score measures, in a few words."""

    @property
    def score(self) -> "Callable[..., Tensor]":
        """The function, which is imported when it is used."""
        module, _, name = self.function.partition(".")
        function: Callable[..., Any] = getattr(import_module(f"vmt.validators.{module}"), name)
        return function


VALIDATORS: dict[str, Validator] = {
    "source_accuracy": Validator(
        "predictions.source_accuracy", ("source", "source_labels"), "accuracy on held-out source samples"
    ),
    "entropy": Validator("predictions.entropy", ("target",), "certainty"),
    "diversity": Validator("predictions.diversity", ("target",), "even use of the classes"),
    "im": Validator(
        "predictions.information_maximisation", ("target",), "information maximisation: certainty and even use"
    ),
    "bnm": Validator("predictions.bnm", ("target",), "nuclear norm of the predictions"),
    "snd": Validator("predictions.snd", ("target",), "density of soft neighbourhoods"),
    "mano": Validator("predictions.mano", ("target",), "norm of normalised logits"),
    "class_ami": Validator("clusters.class_ami", ("target_features", "target"), "agreement of classes and clusters"),
    "ami_source": Validator(
        "clusters.ami_source",
        ("target_features", "target", "source", "source_labels"),
        "agreement of classes and clusters × accuracy on held-out source samples",
    ),
    "neighbours": Validator(
        "clusters.neighbour_agreement", ("neighbours", "target"), "agreement of classes and neighbourhoods of samples"
    ),
    "mixval": Validator("predictions.mixval", ("target", "mixed", "partner"), "stability of predictions on mixtures"),
    "agreement": Validator("predictions.agreement", ("target", "student"), "agreement of weight average and weights"),
    "dev": Validator(
        "risk.dev",
        ("trained_features", "target_features", "source_features", "source", "source_labels"),
        "importance-weighted source risk, negative",
    ),
}
# Below this value of ``neighbours``, the nearest samples have other classes too often to tell which classes are right,
# as pixels of photographs do. It is about half of the lowest value on the tasks of benchmarks/validators_tasks.py.
INFORMATIVE = 0.25
# The one to choose models by; docs/choosing.md explains why.
DEFAULT = "ami_source"


def check_name(name: str) -> str:
    """Return the name if a validator has it; otherwise raise an error."""
    if name not in list(VALIDATORS):  # a list, because a value that cannot be hashed is not a name either
        raise InputError(f"there is no validator {name!r}: choose one of {', '.join(VALIDATORS)}.")
    return name
