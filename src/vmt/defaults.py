"""What is used where nothing was asked for, by the kind of samples and how many there are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vmt.method import decay_for
from vmt.recipes import Recipe, taken
from vmt.train.config import Config, torch_device

LONGEST = 5_000
# At least so many iterations, and so many times through the data, up to the longest. For images on a CPU a few minutes'
# worth of a thin network, with a faster rate.
VECTOR_ITERATIONS, CPU_ITERATIONS, EPOCHS = 1_000, 600, 5
# The paper's, for 3×32×32 values in [-1, 1]: its change per value serves images of any size.
RADIUS, VALUES = 3.5, 3072
# Per value, for vectors of unit variance.
VECTOR_RADIUS = 0.3
# The share of a run in which λ_t grows: the domains are to meet before clusters are sharpened.
WARM_UP = 0.125
# What a method may take of these.
WEIGHTS = ("lambda_d", "lambda_s", "lambda_t", "warm_up", "radius")


@dataclass(frozen=True)
class Defaults:
    """Settings for samples of one kind."""

    net: str
    lambda_d: float
    lambda_s: float
    lambda_t: float
    warm_up: float
    radius: float
    lr: float
    iterations: int

    def recipe(self, method: str = "vmt", dirt_t: bool = False) -> Recipe:
        """A method with those of them that it takes, and DIRT-T after it if asked for, as long as the method."""
        settings = taken(method, {name: getattr(self, name) for name in WEIGHTS})
        settings |= {"iterations": self.iterations, "lr": self.lr, "decay": decay_for(self.iterations)}
        refine: dict[str, Any] | None = None
        if dirt_t:
            refine = {"lambda_t": self.lambda_t, "radius": self.radius, "iterations": self.iterations}
            refine |= {"interval": interval_for(self.iterations)} | ({} if method == "vmt" else {"mix": None})
        return Recipe(method, settings, refine, self.net)


def interval_for(iterations: int) -> int:
    """How long a teacher of DIRT-T stays: ten of them in a phase."""
    return max(1, iterations // 10)


def looks_for(iterations: int) -> int:
    """Iterations between two evaluations: six in a run, and more in a long one."""
    return max(1, min(500, iterations // 6))


def defaults_for(shape: Sequence[int], samples: int, device: str = "auto") -> Defaults:
    """Settings for samples of a shape, (features,) or (channels, height, width), of which a domain has so many.

    Those of vectors were chosen on small tasks made for it (docs/own-data.md); the weights for images are the paper's.

    >>> chosen = defaults_for((9,), samples=20_000)
    >>> chosen.net, chosen.lambda_t, round(chosen.radius, 3), chosen.iterations
    ('mlp', 0.3, 0.9, 1562)
    """

    def length(least: int) -> int:
        return min(LONGEST, max(least, EPOCHS * samples // Config.batch_size))

    if len(shape) == 1:
        radius = VECTOR_RADIUS * math.sqrt(shape[0])
        return Defaults("mlp", 1e-2, 0.1, 0.3, WARM_UP, radius, 3e-3, length(VECTOR_ITERATIONS))
    radius = RADIUS * math.sqrt(math.prod(shape) / VALUES)
    if torch_device(device).type == "cpu":
        return Defaults("tiny", 1e-2, 1.0, 1e-2, WARM_UP, radius, 3e-3, length(CPU_ITERATIONS))
    return Defaults("small", 1e-2, 1.0, 1e-2, WARM_UP, radius, 1e-3, LONGEST)
