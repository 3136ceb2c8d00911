"""Weights and learning rates as tensors, so that one compiled step serves all their values.

A number in a compiled step is a part of it: another λ would be another step, and compiled anew.
"""

from dataclasses import replace

import torch
from torch import Tensor

from vmt.method import Phase, Update
from vmt.schedules import Number, Schedule
from vmt.step import Setting


class Held:
    """A schedule that stays at a number. Two of them are two, however equal: each gets a tensor of its own."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, progress: float) -> float:
        return self.value


def with_numbers_held(phase: Phase, setting: Setting, device: torch.device) -> tuple[Phase, Setting]:
    """The same phase with a schedule in the place of each weight and learning rate that has none; but a weight of zero
    stays as it is, for its term is only measured."""
    held: dict[Schedule, Tensor] = {}

    def hold(number: Number, dtype: torch.dtype) -> Number:
        if callable(number) or number == 0:
            return number
        schedule = Held(number)
        held[schedule] = torch.full((), number, dtype=dtype, device=device)
        return schedule

    def holding(update: Update) -> Update:
        # Adam's step size is computed in double precision, losses in single.
        adam = replace(update.optimiser, lr=hold(update.optimiser.lr, torch.float64))
        terms = tuple(replace(term, weight=hold(term.weight, torch.float32)) for term in update.terms)
        return replace(update, optimiser=adam, terms=terms)

    phase = replace(phase, updates=tuple(map(holding, phase.updates)))
    return phase, replace(setting, scalars={**setting.scalars, **held})
