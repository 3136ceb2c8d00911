"""SplitMix64: 64 random bits for each place of a sequence, in integer arithmetic that is the same on every device."""

import torch
from torch import Tensor

from vmt.kernels.launch import early

GOLDEN = 0x9E3779B97F4A7C15


def random_bits_in_torch(step: Tensor, key: Tensor, places: Tensor, frozen: bool) -> Tensor:
    """The first numbers of the sequence of a key at a step, as many as ``places`` (see :func:`multiples`)."""
    start = mix64((torch.zeros_like(step) if frozen else step) * signed(GOLDEN) + key)
    return mix64(start + places)


def multiples(n: int, device: str) -> Tensor:
    """1 … n times the golden ratio.

    It is a table because compilers treat the formula as an index, which overflows.
    """
    return torch.arange(1, n + 1, device=device) * signed(GOLDEN)


def mix64(bits: Tensor) -> Tensor:
    """SplitMix64's output function: every input bit influences every output bit."""
    bits = (bits ^ shift_right(bits, 30)) * signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ shift_right(bits, 27)) * signed(0x94D049BB133111EB)
    return bits ^ shift_right(bits, 31)


def shift_right(bits: Tensor, by: int) -> Tensor:
    """A logical right shift; torch's is arithmetic."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def signed(value: int) -> int:
    """64 bits as a signed number in two's complement: torch has no unsigned 64-bit arithmetic."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


@torch.library.custom_op("vmt::random_bits", mutates_args=())
def random_bits(step: Tensor, key: Tensor, n: int, frozen: bool) -> Tensor:
    """:func:`random_bits_in_torch` for the first ``n`` places, as one kernel instead of about twenty."""
    from vmt.kernels import triton_kernels

    out = torch.empty(n, dtype=torch.int64, device=step.device)
    triton_kernels.random_bits[(-(-n // triton_kernels.BLOCK),)](
        step, out, key, n, FROZEN=frozen, BLOCK=triton_kernels.BLOCK, **early(step.device)
    )
    return out


@random_bits.register_fake
def _(step: Tensor, key: Tensor, n: int, frozen: bool) -> Tensor:
    return torch.empty(n, dtype=torch.int64, device=step.device)
