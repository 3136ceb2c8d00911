"""The random numbers of a training step, except dropout and noise: a pure function of (seed, step, rank, name).

No generator carries state from one draw to the next. A draw hashes its name, the run's seed and the step counter into
the start of a SplitMix64 sequence, in integer arithmetic on the device. So a resumed run draws the same numbers as an
unbroken one, the order of the draws does not matter, every device draws the same numbers, and a captured CUDA graph
draws new numbers at each replay, because it reads the step from a tensor.

Tests pass in recorded values with :class:`RecordedDraws`.
"""

import copy
import hashlib
from collections.abc import Callable

import torch
from torch import Tensor

from vmt.kernels.launch import can_launch, have_triton
from vmt.kernels.random_bits import multiples, random_bits_in_torch, shift_right, signed

BETA_TABLE = 1 << 12
SMALLEST_UNIFORM = 2.0**-24
# Up to this many values are compared pairwise on a GPU, in one small kernel; its work grows with their square.
FEW = 1024


def key(seed: int, name: str) -> int:
    """A hash of a seed and a name: 64 bits."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "little")


def on_rank(rank: int, name: str) -> str:
    """The name of a draw on one of several ranks. Rank 0 draws the same numbers as a run without others."""
    return f"rank {rank}/{name}" if rank else name


class SeededDraws:
    """The draws of a rank. ``step`` () int64 is the run's step counter, which the training step advances."""

    def __init__(self, seed: int, step: Tensor, rank: int = 0) -> None:
        self.seed = seed
        self.step = step
        self.rank = rank
        self.tables: dict[object, Tensor] = {}

    def at(self, step: Tensor) -> "SeededDraws":
        """The draws of the same run by another step counter, on the device of that counter."""
        other = copy.copy(self)
        other.step, other.tables = step, {}
        return other

    def table(self, make: Callable[..., Tensor], *which: object) -> Tensor:
        """A constant tensor, made once on the device of the step.

        It stays in memory as long as these draws do, because captured graphs read it at its address.
        """
        if (make, which) not in self.tables:
            self.tables[make, which] = make(*which, str(self.step.device))
        return self.tables[make, which]

    def bits(self, name: str, n: int, frozen: bool = False) -> Tensor:
        """``n`` random words of 64 bits: (n,) int64."""
        hashed = self.table(key_on, self.seed, on_rank(self.rank, name))
        if self.step.is_cuda and have_triton() and can_launch(self.step.device, n):
            bits: Tensor = torch.ops.vmt.random_bits(self.step, hashed, n, frozen)
            return bits
        return random_bits_in_torch(self.step, hashed, self.table(multiples, n), frozen)

    def uniform(self, name: str, n: int, frozen: bool = False) -> Tensor:
        """``n`` values strictly between 0 and 1, (n,): 23 bits and a half are exact in float32."""
        return (shift_right(self.bits(name, n, frozen), 41).float() + 0.5) * 2.0**-23

    def normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        uniform = self.uniform(name, torch.Size(shape).numel())
        return (torch.erfinv(2 * uniform - 1) * 2**0.5).view(shape)

    def beta(self, name: str, alpha: float, n: int, frozen: bool = False) -> Tensor:
        uniform = self.uniform(name, n, frozen)
        if alpha == 1:
            return uniform
        # Rejection sampling would need a loop whose length depends on data; the inverse CDF only needs a table.
        table = self.table(beta_quantiles, alpha)  # (BETA_TABLE + 1,)
        place = uniform * BETA_TABLE  # (n,)
        below = place.long().clamp_max(BETA_TABLE - 1)
        return torch.lerp(table[below], table[below + 1], place - below)

    def permutation(self, name: str, n: int) -> Tensor:
        return self.bits(name, n).argsort()

    def choice(self, name: str, population: int, n: int) -> Tensor:
        if population <= 64 * n:
            return self.permutation(name, population)[:n]
        # Sorting a large population for a small batch is slow. Independent draws without their repeats have the same
        # distribution, and among 2n draws from more than 64n values it is all but certain that n are different.
        drawn = shift_right(self.bits(name, 2 * n), 2) % population  # (2n,)
        different_first = seen_before(drawn).to(torch.int32).argsort(stable=True)
        return drawn[different_first[:n]]


def seen_before(values: Tensor) -> Tensor:
    """Whether each value of a row occurs earlier in it: (n,) → (n,) bool."""
    if values.is_cuda and len(values) <= FEW:
        return (values[:, None] == values[None, :]).tril(-1).any(1)
    ordered, places = values.sort(stable=True)  # stable, so that the first of equal values stays first
    repeated = torch.cat([ordered.new_zeros(1, dtype=torch.bool), ordered[1:] == ordered[:-1]])
    return torch.empty_like(repeated).scatter_(0, places, repeated)


def key_on(seed: int, name: str, device: str) -> Tensor:
    """The key as a tensor () int64, which a compiled step reads, so that one compilation serves every seed."""
    return torch.tensor(signed(key(seed, name)), device=device)


def beta_quantiles(alpha: float, device: str) -> Tensor:
    """The quantiles of Beta(α, α) at evenly spaced probabilities: (BETA_TABLE + 1,)."""
    from scipy.special import betaincinv  # slow to import, and needed here only

    at = torch.linspace(0, 1, BETA_TABLE + 1, dtype=torch.float64)
    # For large α the quantiles of 0 and 1 are far from all others, and no uniform number comes as near to 0 or 1.
    at = at.clamp(SMALLEST_UNIFORM, 1 - SMALLEST_UNIFORM)
    return torch.as_tensor(betaincinv(alpha, alpha, at.numpy()), dtype=torch.float32, device=device)


class RecordedDraws:
    """Draws that were recorded elsewhere: ``values(name)`` returns the values, for any kind of draw."""

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


def seed_layers(seed: int, step: int, device: torch.device, rank: int = 0) -> None:
    """Seed torch's generator for a step. Dropout and noise draw from it, because that is fast inside fused kernels.

    On CUDA this is the generator of the current device; the engine makes the device of the run the current one.
    """
    seed_generators(key(seed, on_rank(rank, f"layers/{step}")) >> 1, device)


def seed_generators(value: int, device: torch.device) -> None:
    """Seed torch's generator on the CPU and, for a CUDA device, the generator of the current device.

    ``torch.manual_seed`` would seed the generators of all GPUs, and the others belong to the caller.
    """
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        torch.cuda.manual_seed(value)
