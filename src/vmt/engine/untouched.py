"""Trying a step out without a trace: weights, statistics, moments, counters and generators end as they began."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from vmt.state import State


@contextmanager
def untouched(state: State) -> Iterator[None]:
    """Whatever runs inside, the state and torch's generators are put back, in place."""
    saved = {name: tensor.clone() for name, tensor in state.tensors().items()}
    device = state.step.device
    devices = [device] if device.type == "cuda" else []
    modes = {module: module.training for role in state.roles.values() for module in role.modules()}
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            state.restore_(saved)
            for module, training in modes.items():
                module.training = training
