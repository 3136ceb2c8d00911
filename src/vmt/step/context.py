"""What stays the same from step to step: the domains, the draws, and numbers that only the loop changes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vmt.data.domains import Domain
from vmt.data.task import Task
from vmt.errors import InputError
from vmt.methods.nodes import Draws, Start
from vmt.methods.nouns import Method, Number, Schedule
from vmt.nets.adapter import xi_for
from vmt.step.draws import SeededDraws
from vmt.step.plan import plan
from vmt.step.state import State


@dataclass(frozen=True)
class StepContext:
    """What a step reads and does not change."""

    streams: Mapping[str, Domain]
    preprocess: Callable[[Tensor], Tensor]
    """From stored samples (B, …) to the network's input, (B, C, H, W) or (B, C)."""
    batch_size: Mapping[str, int]
    """Samples per batch of each stream."""
    draws: Draws
    xi: Mapping[str, float]
    """VAT's first step for each role for which the method leaves it open."""
    scalars: Mapping[Schedule, Tensor]
    """The current value () of each schedule. The engine sets it before each step."""
    bfloat16: bool = False
    """Run the networks in bfloat16; statistics, logits, losses and optimiser state stay in float32."""

    def number(self, number: Number) -> float | Tensor:
        """The current value of a constant or of a schedule."""
        return self.scalars[number] if callable(number) else number


def make_context(
    task: Task, method: Method, state: State, *, seed: int, batch_size: int, bfloat16: bool
) -> StepContext:
    """The context of a run. It holds target labels only if the method trains on them, as the upper bound does."""
    target = task.target
    if not method.reads_labels_of("target"):
        target = target.without_labels()
    elif target.y is None:
        raise InputError(f"method {method.name!r} trains on target labels, but {target.name} has none.")
    streams = {"source": task.source, "target": target}
    if method.reads_labels_of("labelled target"):
        if task.target_labelled is None:
            raise InputError(f"method {method.name!r} trains on target labels, but no label of {target.name} is known.")
        streams["labelled target"] = task.target_labelled
    device = task.source.x.device
    return StepContext(
        streams=streams,
        preprocess=task.preprocess,
        batch_size={name: min(batch_size, len(domain)) for name, domain in streams.items()},
        draws=SeededDraws(seed, state.step),
        xi={
            role: xi_for(state.roles[role], task.preprocess(target.x[:8])) for role in roles_with_open_xi(method, state)
        },
        scalars={schedule: torch.zeros((), dtype=torch.float32, device=device) for schedule in schedules_of(method)},
        bfloat16=bfloat16,
    )


def roles_with_open_xi(method: Method, state: State) -> set[str]:
    """Roles for which the method does not set the length ξ of VAT's first step."""
    taps = {name: module.taps for name, module in state.roles.items()}
    views = [view for update in method.updates() for each in plan(update, taps) for view in each.views]
    return {view.role for view in views if isinstance(view.input, Start) and view.input.xi is None}


def schedules_of(method: Method) -> set[Schedule]:
    """Every learning rate and weight of a method that is a schedule."""
    numbers = [n for update in method.updates() for n in (update.optimiser.lr, *(t.weight for t in update.terms))]
    return {n for n in numbers if callable(n)}
