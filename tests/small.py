"""The small setting that the tests of the core share: a tiny double-precision MLP on tiny made-up domains."""

import zlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from vmt.data import Domain
from vmt.methods.nodes import Draws, Schedule
from vmt.methods.nouns import Method
from vmt.nets import Staged, mlp
from vmt.step.draws import RecordedDraws
from vmt.step.iteration import StepContext
from vmt.step.state import NetworkFactory, State, build_state, fresh_optimisers, share_buffers

FEATURES, CLASSES, N, BATCH, WIDTH = 4, 3, 20, 6, 5


def numbers(name: str) -> np.random.RandomState:
    """Random numbers that belong to a name."""
    return np.random.RandomState(zlib.crc32(name.encode()))


def blobs() -> dict[str, Domain]:
    """Two labelled domains of N vectors each."""
    made = {}
    for name in ("source", "target"):
        random = numbers(name)
        y = torch.from_numpy(random.randint(0, CLASSES, N))
        x = torch.from_numpy(random.randn(N, FEATURES)) + y[:, None] + (name == "target")
        made[name] = Domain(x, y, name)
    return made


def recorded(at_step: int = 0, n: int = BATCH, shape: tuple[int, ...] = (FEATURES,)) -> RecordedDraws:
    """Every draw as numpy makes it from its name and the step."""

    def values(name: str) -> Tensor:
        random, kind = numbers(f"{at_step}/{name}"), name.rsplit("/", 1)[1]
        if kind == "indices":
            return torch.from_numpy(random.choice(N, n, replace=False))
        if kind == "partner":
            return torch.from_numpy(random.permutation(n))
        return torch.from_numpy(random.rand(n) if kind == "lambda" else random.randn(n, *shape))

    return RecordedDraws(values)


def network() -> Staged:
    return mlp((FEATURES,), CLASSES, width=WIDTH, dropout=0, noise=0)


def build(
    method: Method, factory: NetworkFactory = network, shape: tuple[int, ...] = (FEATURES,), seed: int = 0
) -> State:
    """A state in double precision, every weight, bias and statistic away from its trivial initial value."""
    state = build_state(method, factory, shape, seed=seed, device=torch.device("cpu"))
    for role, module in state.roles.items():
        module.double()
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point() and tensor.dim() == 1:
                noise = torch.from_numpy(numbers(f"{role}/{name}").rand(*tensor.shape))
                tensor.add_(noise)
    for role, made in method.roles.items():
        if hasattr(made, "shared_statistics") and made.shared_statistics:
            share_buffers(state.roles[made.of], state.roles[role])
    state.optimisers = fresh_optimisers(method, state)
    return state


def context(
    streams: Mapping[str, Domain] | None = None,
    draws: Draws | None = None,
    scalars: Mapping[Schedule, Tensor] | None = None,
    xi: float = 0.5,
) -> StepContext:
    streams = blobs() if streams is None else streams
    roles = {"classifier": xi}
    sizes = dict.fromkeys(streams, BATCH)
    return StepContext(streams, lambda x: x, sizes, draws or recorded(), roles, scalars or {})
