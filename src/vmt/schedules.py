"""Numbers that may change over a phase: weights and learning rates."""

import math
from dataclasses import dataclass
from typing import Protocol


class Schedule(Protocol):
    """A number as a function of progress, 0 at the start of a phase and 1 at its end."""

    def __call__(self, progress: float) -> float: ...


Number = float | Schedule


@dataclass(frozen=True)
class Ramp:
    """From ``start`` to ``end`` while progress goes from ``begin`` to ``until``; constant before and after.

    ``shape`` is ``linear``, ``cosine``, or ``sigmoid`` (DANN's 2/(1+exp(−10p)) − 1).

    >>> weight = Ramp(0.0, 1.0, until=0.5)
    >>> [weight(progress) for progress in (0.0, 0.25, 0.5, 1.0)]
    [0.0, 0.5, 1.0, 1.0]
    """

    start: float
    end: float
    begin: float = 0.0
    until: float = 1.0
    shape: str = "linear"

    def __call__(self, progress: float) -> float:
        p = min(max((progress - self.begin) / max(self.until - self.begin, 1e-12), 0.0), 1.0)
        if self.shape == "cosine":
            p = 0.5 - 0.5 * math.cos(math.pi * p)
        elif self.shape == "sigmoid":
            p = 2 / (1 + math.exp(-10 * p)) - 1
        return self.start + (self.end - self.start) * p
