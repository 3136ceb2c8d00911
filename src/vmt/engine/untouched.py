"""Trying a step out without a trace: weights, statistics, moments, counters and generators end as they began."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from vmt.errors import InputError
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


@contextmanager
def drawing_with_torch_alone() -> Iterator[None]:
    """Refuses a step that draws from the generators of Python or NumPy: recorded, it would draw once and for all."""
    before = other_generators()
    yield
    if other_generators() != before:
        raise InputError("it draws from Python's or NumPy's generator, which a recorded step would do only once.")


def other_generators() -> tuple[object, ...]:
    name, keys, *rest = np.random.get_state()  # noqa: NPY002  (the one that users' code draws from unawares)
    return random.getstate(), name, np.asarray(keys).tobytes(), tuple(rest)
