"""Weights and learning rates that change over a phase."""

import math
from dataclasses import dataclass
from typing import Protocol

from vmt.errors import InputError


class Schedule(Protocol):
    """A number as a function of progress, which is 0 at the start of a phase and 1 at its end."""

    def __call__(self, progress: float) -> float: ...


Number = float | Schedule
"""A constant or a schedule."""


@dataclass(frozen=True)
class Ramp:
    """A number that goes from ``start`` to ``end`` while progress goes from ``begin`` to ``until``.

    It is constant before and after. ``shape`` is ``linear``, ``cosine`` or ``sigmoid`` (DANN's 2/(1+exp(−10p)) − 1).

    >>> weight = Ramp(0.0, 1.0, until=0.5)
    >>> [weight(progress) for progress in (0.0, 0.25, 0.5, 1.0)]
    [0.0, 0.5, 1.0, 1.0]
    """

    start: float
    end: float
    begin: float = 0.0
    until: float = 1.0
    shape: str = "linear"

    def __post_init__(self) -> None:
        if self.shape not in ("linear", "cosine", "sigmoid"):
            raise InputError(f"shape must be 'linear', 'cosine' or 'sigmoid', but got {self.shape!r}.")

    def __call__(self, progress: float) -> float:
        p = min(max((progress - self.begin) / max(self.until - self.begin, 1e-12), 0.0), 1.0)
        if self.shape == "cosine":
            p = 0.5 - 0.5 * math.cos(math.pi * p)
        elif self.shape == "sigmoid":
            p = 2 / (1 + math.exp(-10 * p)) - 1
        return self.start + (self.end - self.start) * p


@dataclass(frozen=True)
class WarmUp:
    """A number that grows in a straight line from 0 to ``value`` over the first ``share`` of a phase.

    >>> weight = WarmUp(0.06, share=0.5)
    >>> [weight(progress) for progress in (0.0, 0.25, 0.5, 1.0)]
    [0.0, 0.03, 0.06, 0.06]
    """

    value: Number
    share: float

    def __call__(self, progress: float) -> float:
        value = self.value(progress) if callable(self.value) else self.value
        return value * min(progress / self.share, 1.0)


def warmed_up(value: Number, share: float) -> Number:
    """``value`` with a warm-up over a share of the phase, or unchanged if the share or the value is 0."""
    if not 0 <= share <= 1:
        raise InputError(f"warm_up must be a share of the iterations, from 0 to 1, but got {share}.")
    return value if share == 0 or value == 0 else WarmUp(value, share)
