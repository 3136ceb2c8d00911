"""Networks that are not trained by gradients: a kernel classifier that is fitted in closed form, and an average.

Both are made by ``method="auto"`` (:mod:`vmt.runs.auto`), and cannot be asked for by name.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vmt.errors import InputError
from vmt.nets.networks import Staged
from vmt.nets.registry import KERNEL

# Pictures are averaged over squares until they have at most this many pixels on a side.
SIDE = 12


class Standardise(nn.Module):
    """x ↦ (x − mean) · scale, for each feature."""

    mean: Tensor
    scale: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) * self.scale


class Kernel(nn.Module):
    """exp(−‖x − c‖² / width) for each of the centres c: (N, F) → (N, centres)."""

    points: Tensor
    width: Tensor

    def __init__(self, centres: int, features: int) -> None:
        super().__init__()
        self.register_buffer("points", torch.zeros(centres, features))
        self.register_buffer("width", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(-squared_distances(x, self.points) / self.width)


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """(N, M): ‖a_n − b_m‖² of rows (N, F) and (M, F)."""
    return (a.square().sum(1, keepdim=True) - 2 * a @ b.T + b.square().sum(1)).clamp_min(0)


def values_of(shape: Sequence[int]) -> tuple[nn.Module, int]:
    """A layer that makes one row of numbers of a sample, and their count; large pictures are shrunk."""
    if len(shape) == 1:
        return nn.Flatten(), shape[0]
    square = math.ceil(max(shape[1:]) / SIDE)
    small = [max(1, side // square) for side in shape[1:]]
    pool = nn.AvgPool2d((min(square, shape[1]), min(square, shape[2])))
    return nn.Sequential(pool, nn.Flatten()), shape[0] * small[0] * small[1]


def kernel(shape: tuple[int, ...], classes: int, centres: int) -> Staged:
    """Logits that are linear in the kernels of a sample with some centres.

    >>> kernel((5,), classes=3, centres=20).taps
    ('features', 'logits')
    """
    rows, features = values_of(shape)
    return Staged(
        {
            "features": nn.Sequential(rows, Standardise(features)),
            "logits": nn.Sequential(Kernel(centres, features), nn.Linear(centres, classes, bias=False)),
        }
    )


def centres_of(network: Staged) -> int:
    """The number of centres of a kernel classifier."""
    return next(len(layer.points) for layer in network.modules() if isinstance(layer, Kernel))


class Together(nn.Module):
    """The log-probabilities of several networks, side by side: (N, …) → (N, networks × classes)."""

    def __init__(self, members: Sequence[Staged]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([member(x)["logits"].log_softmax(1) for member in self.members], 1)


class Mean(nn.Module):
    """The logarithm of the mean probabilities: (N, networks × classes) → (N, classes)."""

    weights: Tensor

    def __init__(self, classes: int, weights: Sequence[float]) -> None:
        super().__init__()
        self.classes = classes
        shares = torch.tensor(weights) / sum(weights)
        self.register_buffer("weights", shares[:, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        probabilities = x.view(len(x), -1, self.classes).exp()
        return (self.weights * probabilities).sum(1).clamp_min(1e-12).log()


def average(members: Sequence[Staged], classes: int, weights: Sequence[float] | None = None) -> Staged:
    """A network whose probabilities are the means of those of its members, which read the same samples."""
    if not members:
        raise InputError("an average needs a network.")
    separate = any(member.separate_passes for member in members)
    mean = Mean(classes, weights or [1.0] * len(members))
    return Staged({"features": Together(members), "logits": mean}, separate_passes=separate)


def composed(
    name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any], member: Callable[[Any], Staged]
) -> Staged:
    """The network of this name; ``member`` builds one of an average."""
    if name == KERNEL:
        return kernel(shape, classes, centres_in(options))
    members = [member(each) for each in options["members"]]
    return average(members, classes, weights_in(options, len(members)))


def weights_in(options: Mapping[str, Any], members: int) -> list[float] | None:
    """The weights of the members that the options of a saved average name; by default all are equal."""
    weights = options.get("weights")
    if weights is None:
        return None
    if not isinstance(weights, list) or len(weights) != members:
        raise ValueError(f"an average of {members} networks with the weights {weights!r}")
    if not all(isinstance(each, int | float) and 0 < each < math.inf for each in weights):
        raise ValueError(f"an average with the weights {weights!r}")
    return [float(each) for each in weights]


def centres_in(options: Mapping[str, Any]) -> int:
    """The number of centres that the options of a saved kernel classifier name."""
    centres = options["centres"]
    if not isinstance(centres, int) or not 1 <= centres <= 10**6:
        raise ValueError(f"a kernel classifier with {centres!r} centres")
    return centres
