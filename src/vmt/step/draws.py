"""Every random number of a training step but dropout and noise: a pure function of (seed, step, name).

No generator carries state from one draw to the next. A draw hashes its name, the run's seed and the step counter into
the start of a SplitMix64 sequence, in integer arithmetic on the device. So a resumed run draws what the unbroken one
would have drawn, the order in which draws are asked for does not matter, the same numbers come out on every device,
and a captured CUDA graph draws anew at each replay, because the step is a tensor that it reads.

A test hands in recorded values with :class:`RecordedDraws`.
"""

import hashlib
from collections.abc import Callable

import torch
from scipy.special import betaincinv
from torch import Tensor

from vmt.kernels.launch import can_launch, have_triton
from vmt.kernels.random_bits import multiples, random_bits_in_torch, shift_right, signed

BETA_TABLE = 1 << 12
SMALLEST_UNIFORM = 2.0**-24
# A GPU compares so many values with one another in one small kernel. That work grows with the square of their number.
FEW = 1024


def key(seed: int, name: str) -> int:
    """64 bits that stand for a seed and a name."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "little")


class SeededDraws:
    """Draws of a run. ``step`` is the run's step counter, a 0-d int64 tensor that the training step advances."""

    def __init__(self, seed: int, step: Tensor) -> None:
        self.seed = seed
        self.step = step
        self.tables: dict[object, Tensor] = {}

    def table(self, make: Callable[..., Tensor], *which: object) -> Tensor:
        """Made once, on the device of the step. It stays where it is for as long as these draws are in use, because a
        captured graph goes on reading it there."""
        if (make, which) not in self.tables:
            self.tables[make, which] = make(*which, str(self.step.device))
        return self.tables[make, which]

    def bits(self, name: str, n: int, frozen: bool = False) -> Tensor:
        hashed = self.table(key_on, self.seed, name)
        if self.step.is_cuda and have_triton() and can_launch(self.step.device, n):
            found: Tensor = torch.ops.vmt.random_bits(self.step, hashed, n, frozen)
            return found
        return random_bits_in_torch(self.step, hashed, self.table(multiples, n), frozen)

    def uniform(self, name: str, n: int, frozen: bool = False) -> Tensor:
        """Strictly between 0 and 1: 23 bits and a half are exact in float32."""
        return (shift_right(self.bits(name, n, frozen), 41).float() + 0.5) * 2.0**-23

    def normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        uniform = self.uniform(name, torch.Size(shape).numel())
        return (torch.erfinv(2 * uniform - 1) * 2**0.5).view(shape)

    def beta(self, name: str, alpha: float, n: int, frozen: bool = False) -> Tensor:
        uniform = self.uniform(name, n, frozen)
        if alpha == 1:
            return uniform
        # Rejection sampling would need a loop whose length depends on data; the inverse CDF needs a look-up.
        table = self.table(beta_quantiles, alpha)
        place = uniform * BETA_TABLE
        below = place.long().clamp_max(BETA_TABLE - 1)
        return torch.lerp(table[below], table[below + 1], place - below)

    def permutation(self, name: str, n: int) -> Tensor:
        return self.bits(name, n).argsort()

    def choice(self, name: str, population: int, n: int) -> Tensor:
        if population <= 64 * n:
            return self.permutation(name, population)[:n]
        # Sorting a large population for a small batch is slow. Dropping the repeats from a longer row of independent
        # draws gives the same distribution; among 2n draws from more than 64n values, n differ all but surely.
        drawn = shift_right(self.bits(name, 2 * n), 2) % population
        first = seen_before(drawn).to(torch.int32).argsort(stable=True)
        return drawn[first[:n]]


def seen_before(values: Tensor) -> Tensor:
    """Whether each value of a row has come earlier in it."""
    if values.is_cuda and len(values) <= FEW:
        return (values[:, None] == values[None, :]).tril(-1).any(1)
    ordered, places = values.sort(stable=True)  # so that the first of equal ones stays before the others
    repeated = torch.cat([ordered.new_zeros(1, dtype=torch.bool), ordered[1:] == ordered[:-1]])
    return torch.empty_like(repeated).scatter_(0, places, repeated)


def key_on(seed: int, name: str, device: str) -> Tensor:
    """A key as a tensor: a compiled step reads it, so that one compilation serves every seed."""
    return torch.tensor(signed(key(seed, name)), device=device)


def beta_quantiles(alpha: float, device: str) -> Tensor:
    at = torch.linspace(0, 1, BETA_TABLE + 1, dtype=torch.float64)
    # Those of 0 and 1 are 0 and 1, far from all others where α is large, and a uniform number never comes so near.
    at = at.clamp(SMALLEST_UNIFORM, 1 - SMALLEST_UNIFORM)
    return torch.as_tensor(betaincinv(alpha, alpha, at.numpy()), dtype=torch.float32, device=device)


class RecordedDraws:
    """Draws recorded elsewhere: ``values(name)`` returns what to use, whatever kind of draw is asked for."""

    def __init__(self, values: Callable[[str], Tensor]) -> None:
        self.values = values

    def normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self.values(name).view(shape)

    def beta(self, name: str, alpha: float, n: int, frozen: bool = False) -> Tensor:
        return self.values(name)

    def permutation(self, name: str, n: int) -> Tensor:
        return self.values(name)

    def choice(self, name: str, population: int, n: int) -> Tensor:
        return self.values(name)


def seed_layers(seed: int, step: int, device: torch.device) -> None:
    """Dropout and noise draw from torch's own generator, fast inside fused kernels: seed it anew for each step. On a
    CUDA device, that of the current one, which the engine has made the run's."""
    seed_generators(key(seed, f"layers/{step}") >> 1, device)


def seed_generators(value: int, device: torch.device) -> None:
    """Torch's generator on the CPU and, for a CUDA device, that of the current one. ``torch.manual_seed`` would seed
    those of every GPU, which are the caller's."""
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        torch.cuda.manual_seed(value)
