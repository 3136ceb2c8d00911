"""Choosing a model without target labels: scores that need none. Higher is better for every one of them.

Each validator is a plain function of logits and features. :data:`VALIDATORS` says what each needs; :func:`scores`
computes those for which everything is there:

>>> import torch
>>> from vmt.validators import Evidence, scores
>>> sorted(scores(Evidence(target=torch.randn(50, 3))))
['bnm', 'diversity', 'entropy', 'im', 'mano', 'snd']

During training they are computed at every look (``evaluate_every``) on a fixed sample of each domain
(``validate_samples``): the *training* part of the target, without labels, and source samples that are held out. The
record in ``log.jsonl`` then has, beside ``target`` and ``source``,

``validators``
    a number for each name, or null where it is not finite;
``alarm``
    null, or a sentence of :func:`collapse_alarm`: no score of a collapsed model is to be trusted;
``validated``
    how many target samples the scores are of; scores of different numbers are not comparable.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from vmt import names
from vmt.errors import InputError
from vmt.validators.clusters import adjusted_mutual_information, ami_source, class_ami
from vmt.validators.predictions import (
    agreement,
    bnm,
    collapse_alarm,
    diversity,
    entropy,
    information_maximisation,
    mano,
    mixval,
    partners,
    snd,
    source_accuracy,
)
from vmt.validators.risk import density_ratio, dev, dev_risk

__all__ = [
    "DEFAULT",
    "VALIDATORS",
    "Evidence",
    "Validator",
    "adjusted_mutual_information",
    "agreement",
    "ami_source",
    "bnm",
    "check_name",
    "class_ami",
    "collapse_alarm",
    "density_ratio",
    "dev",
    "dev_risk",
    "diversity",
    "entropy",
    "information_maximisation",
    "mano",
    "mixval",
    "partners",
    "scores",
    "snd",
    "source_accuracy",
]


@dataclass(frozen=True)
class Evidence:
    """What a model said about samples of both domains, in evaluation mode; any of it may be missing."""

    target: Tensor | None = None
    """Logits of target samples, without labels."""
    target_features: Tensor | None = None
    student: Tensor | None = None
    """Logits of the same samples by the network whose weight average predicts."""
    mixed: Tensor | None = None
    """Logits of each target sample mixed with its partner."""
    partner: Tensor | None = None
    source: Tensor | None = None
    """Logits of labelled source samples that were not trained on."""
    source_features: Tensor | None = None
    source_labels: Tensor | None = None
    trained_features: Tensor | None = None
    """Features of source samples that were trained on."""


@dataclass(frozen=True)
class Validator:
    """A score, the parts of the evidence it reads, in order, and what it measures, in a few words."""

    score: Callable[..., Tensor]
    needs: tuple[str, ...]
    text: str


# What each reads, in order.
_FUNCTIONS: dict[str, tuple[Callable[..., Tensor], tuple[str, ...]]] = {
    "source_accuracy": (source_accuracy, ("source", "source_labels")),
    "entropy": (entropy, ("target",)),
    "diversity": (diversity, ("target",)),
    "im": (information_maximisation, ("target",)),
    "bnm": (bnm, ("target",)),
    "snd": (snd, ("target",)),
    "mano": (mano, ("target",)),
    "class_ami": (class_ami, ("target_features", "target")),
    "ami_source": (ami_source, ("target_features", "target", "source", "source_labels")),
    "mixval": (mixval, ("target", "mixed", "partner")),
    "agreement": (agreement, ("target", "student")),
    "dev": (dev, ("trained_features", "target_features", "source_features", "source", "source_labels")),
}
VALIDATORS: dict[str, Validator] = {
    name: Validator(*_FUNCTIONS[name], text=text) for name, text in names.VALIDATORS.items()
}
DEFAULT = names.VALIDATOR


def scores(evidence: Evidence, leave_out: tuple[str, ...] = ()) -> dict[str, float | None]:
    """Every validator for which the evidence is there, as numbers: two transfers from the device for all of them.

    A score that is not a finite number is None, and so is a score of what is not: some would pass for good ones.
    """
    have = {f.name: value for f in fields(evidence) if (value := getattr(evidence, f.name)) is not None}
    able = {n: v for n, v in VALIDATORS.items() if n not in leave_out and all(part in have for part in v.needs)}
    if not able:
        return {}
    finite = dict(zip(have, torch.stack([part.isfinite().all() for part in have.values()]).tolist(), strict=True))
    sound = {n: v for n, v in able.items() if all(finite[part] for part in v.needs)}
    values = [v.score(*(have[part] for part in v.needs)) for v in sound.values()]
    found = dict(zip(sound, torch.stack(values).tolist() if values else (), strict=True))
    return {name: found[name] if math.isfinite(found.get(name, math.nan)) else None for name in able}


def check_name(name: str) -> str:
    """The name of a validator, or a sentence that lists them."""
    if name not in list(VALIDATORS):  # a list, for what has no hash is no name either
        raise InputError(f"there is no validator {name!r}: choose one of {', '.join(VALIDATORS)}.")
    return name
