"""Normalisation as operators with Triton kernels.

:class:`NormaliseActivate` does what follows a convolution, normalise → LeakyReLU → pool → dropout → noise, in one
operator forward and one backward; :func:`reference` computes the same in PyTorch. :class:`NormaliseImages` is instance
norm.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vmt.kernels.forward_call import call
from vmt.kernels.launch import MOST_PROGRAMS, can_launch, early, have_triton

# --- What follows a convolution ---


@dataclass(frozen=True)
class Tiles:
    """How the work of a kernel is divided."""

    rows: int
    """The rows that a program takes at a time."""
    warps: int
    programs: int = 0
    """About how many programs share a reduction: enough to fill a large chip, and few enough to add up their sums."""
    least: int = 1
    """How many times ``rows`` a program of a reduction must have to be worth starting."""
    few_rows: int = 16_384
    """If a group has no more rows than this, a map has so few programs that each may add up FEW_PARTS partial sums."""


STATISTICS = Tiles(64, 8, 256, 4)
FORWARD, FORWARD_POOLED = Tiles(64, 4), Tiles(16, 4)
SUMS, SUMS_POOLED = Tiles(64, 8, 256, 2), Tiles(32, 4, 1024, 1, few_rows=0)
BACKWARD, BACKWARD_POOLED = Tiles(64, 4), Tiles(16, 4)
MOST_PARTS, FEW_PARTS = 256, 32


@dataclass(frozen=True)
class After:
    """What follows the norm: LeakyReLU, and at the end of a block max-pool 2, dropout and noise."""

    slope: float = 0.1
    pool: bool = False
    dropout: float = 0.0
    noise: float = 0.0


def fusable(x: Tensor, channels: int, sizes: tuple[int, ...]) -> bool:
    """Whether the kernels can follow a convolution of x to this many channels.

    They need images on a CUDA device, passes of one size, a multiple of 16 channels and not too many pixels, and do not
    support double precision.
    """
    if not (x.is_cuda and x.ndim == 4 and have_triton()) or x.dtype == torch.float64:
        return False
    pixels = x.shape[2] * x.shape[3]
    fits = sizes[0] * pixels <= MOST_PROGRAMS * FORWARD.rows and can_launch(x.device, len(x) * pixels * channels)
    return channels % 16 == 0 and len(set(sizes)) == 1 and fits


class NormaliseActivate(torch.autograd.Function):
    """The result, and the mean and biased variance of each group. Differentiable once."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float, after: After
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, weight, bias = x.contiguous(memory_format=torch.channels_last), weight.contiguous(), bias.contiguous()
        # Seeds are drawn from torch's generator, which a captured graph advances and the training loop seeds.
        draws = after.dropout > 0 or after.noise > 0
        seeds, which = next_seed(str(x.device)) if draws else (no_seeds(str(x.device)), 0)
        settings = (which, groups, eps, after.slope, after.pool, after.dropout, after.noise)
        y, mean, var, scale, shift = torch.ops.vmt.normalise_activate(x, weight, bias, seeds, *settings)
        ctx.save_for_backward(x, mean, var, scale, shift, seeds)
        ctx.settings = settings[:-1]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(mean, var)
        return y, mean, var

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if gradients[0] is None:  # nothing downstream depends on y
            return (None,) * 6
        dy = gradients[0].contiguous(memory_format=torch.channels_last)
        dx, hat, total = torch.ops.vmt.normalise_activate_backward(dy, *ctx.saved_tensors, *ctx.settings)
        wanted = ctx.needs_input_grad
        return dx, hat.sum(0) if wanted[1] else None, total.sum(0) if wanted[2] else None, None, None, None


def reference(x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float, after: After) -> Tensor:
    """What :class:`NormaliseActivate` computes, in plain PyTorch."""
    parts = [F.batch_norm(part, None, None, weight, bias, True, 0.0, eps) for part in x.chunk(groups)]
    y = F.leaky_relu(torch.cat(parts), after.slope)
    y = F.max_pool2d(y, 2) if after.pool else y
    y = F.dropout(y, after.dropout)
    return y + after.noise * torch.randn_like(y) if after.noise else y


@torch.library.custom_op("vmt::normalise_activate", mutates_args=())
def normalise_activate(
    x: Tensor, weight: Tensor, bias: Tensor, seeds: Tensor, which: int, groups: int, eps: float, slope: float,
    pool: bool, dropout: float, noise: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    from vmt.kernels import triton_kernels

    n, c, h, w = x.shape
    y, mean, var, scale, shift = shapes_forward(x, groups, pool)
    pixels = n * h * w // groups
    parts, rows, block = division(STATISTICS, groups, pixels, c)
    partial = mean.new_empty(groups, parts, 2, c)
    triton_kernels.statistics[groups, parts, c // block](
        x, partial, pixels, c, S=parts, ROWS=rows, BR=STATISTICS.rows, BC=block, num_warps=STATISTICS.warps,
        **early(x.device),
    )  # fmt: skip
    partial = few_parts(partial, block)
    outputs = pixels // 4 if pool else pixels
    tiles = FORWARD_POOLED if pool else FORWARD
    triton_kernels.forward_map[groups, -(-outputs // tiles.rows), c // block](
        x, partial, weight, bias, mean, var, scale, shift, y, seeds, which,
        outputs, pixels, c, eps, slope, *dropping(dropout), noise, h, w,
        PARTS=partial.shape[1], POOL=pool, DROP=dropout > 0, NOISE=noise > 0,
        BR=tiles.rows, BC=block, num_warps=tiles.warps, **early(x.device),
    )  # fmt: skip
    return y, mean, var, scale, shift


@normalise_activate.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor, seeds: Tensor, which: int, groups: int, eps: float, slope: float,
    pool: bool, dropout: float, noise: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    return shapes_forward(x, groups, pool)


@torch.library.custom_op("vmt::normalise_activate_backward", mutates_args=())
def normalise_activate_backward(
    dy: Tensor, x: Tensor, mean: Tensor, var: Tensor, scale: Tensor, shift: Tensor, seeds: Tensor, which: int,
    groups: int, eps: float, slope: float, pool: bool, dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    from vmt.kernels import triton_kernels

    n, c, h, w = x.shape
    dx, hat, total = shapes_backward(x, mean)
    pixels = n * h * w // groups
    outputs = pixels // 4 if pool else pixels
    tiles = SUMS_POOLED if pool else SUMS
    parts, rows, block = division(tiles, groups, outputs, c)
    partial = mean.new_empty(groups, parts, 2, c)
    flags = {"POOL": pool, "DROP": dropout > 0, "BC": block, **early(x.device)}
    triton_kernels.gradient_sums[groups, parts, c // block](
        dy, x, scale, shift, seeds, which, partial, outputs, c, slope, *dropping(dropout), h, w,
        S=parts, ROWS=rows, BR=tiles.rows, num_warps=tiles.warps, **flags,
    )  # fmt: skip
    partial = few_parts(partial, block)
    tiles = BACKWARD_POOLED if pool else BACKWARD
    triton_kernels.backward_map[groups, -(-outputs // tiles.rows), c // block](
        dy, x, partial, mean, var, scale, shift, hat, total, seeds, which, dx,
        outputs, pixels, c, eps, slope, *dropping(dropout), h, w,
        PARTS=partial.shape[1], BR=tiles.rows, num_warps=tiles.warps, **flags,
    )  # fmt: skip
    return dx, hat, total


@normalise_activate_backward.register_fake
def _(
    dy: Tensor, x: Tensor, mean: Tensor, var: Tensor, scale: Tensor, shift: Tensor, seeds: Tensor, which: int,
    groups: int, eps: float, slope: float, pool: bool, dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return shapes_backward(x, mean)


def dropping(dropout: float) -> tuple[int, float]:
    """The probability of dropping in 65536ths, and the factor for the values that are kept."""
    return round(dropout * 65536), 1 / (1 - dropout)


def shapes_forward(x: Tensor, groups: int, pool: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    n, c, h, w = x.shape
    assert not (pool and (h % 2 or w % 2)), "the kernels pool even numbers of rows and columns"
    size = (n, c, h // 2, w // 2) if pool else (n, c, h, w)
    y = torch.empty(size, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    mean, var, scale, shift = (torch.empty(groups, c, dtype=torch.float32, device=x.device) for _ in range(4))
    return y, mean, var, scale, shift


def shapes_backward(x: Tensor, mean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by x, and by γ and β for each group."""
    return torch.empty_like(x), torch.empty_like(mean), torch.empty_like(mean)


def few_parts(partial: Tensor, block: int) -> Tensor:
    """Partial sums that are few enough for every program of a map to add them up."""
    from vmt.kernels import triton_kernels

    groups, parts, _, channels = partial.shape
    if parts <= FEW_PARTS:
        return partial
    total = partial.new_empty(groups, 1, 2, channels)
    triton_kernels.add_parts[groups, 2, channels // block](
        partial, total, channels, S=parts, BC=block, **early(partial.device)
    )
    return total


def division(tiles: Tiles, groups: int, rows: int, channels: int) -> tuple[int, int, int]:
    """The parts of a group (a power of two), the rows of a part, and the channels that one program takes."""
    block = min(64, channels & -channels)
    wanted = min(MOST_PARTS, tiles.programs * block // (groups * channels))
    if rows <= tiles.few_rows:
        wanted = min(wanted, FEW_PARTS)
    parts = 1
    while 2 * parts <= wanted and 2 * parts * tiles.least * tiles.rows <= rows:
        parts *= 2
    return parts, -(-rows // (parts * tiles.rows)) * tiles.rows, block


SEEDS_AT_ONCE = 4


def next_seed(device: str) -> tuple[Tensor, int]:
    """A tensor of seeds, and which of them to take.

    Seeds are drawn a few at a time and stay in one tensor, because a draw is a launch and so is taking a tensor apart.
    """
    if not call.seeds:
        seeds = torch.ops.vmt.fresh_seeds(SEEDS_AT_ONCE, torch.device(device))
        call.seeds.extend((seeds, which) for which in range(SEEDS_AT_ONCE))
    return call.seeds.pop()


@torch.library.custom_op("vmt::fresh_seeds", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def fresh_seeds(n: int, device: torch.device) -> Tensor:
    """Seeds from torch's generator. Without an operator, compilers would draw again in each kernel that reads them."""
    return torch.randint(2**62, (n,), device=device)


@fresh_seeds.register_fake
def _(n: int, device: torch.device) -> Tensor:
    return torch.empty(n, dtype=torch.int64, device=device)


@cache
def no_seeds(device: str) -> Tensor:
    """A placeholder for kernels that draw nothing. It is kept forever, because a captured graph keeps reading it."""
    return torch.zeros(1, dtype=torch.int64, device=device)


# --- Instance norm ---

# A program holds all pixels of a channel.
MOST_PIXELS = 4096
WARPS = 4


def serves_images(x: Tensor) -> bool:
    """Whether the kernels can normalise x: small images in single precision on a CUDA device."""
    small = x.ndim == 4 and x.shape[2] * x.shape[3] <= MOST_PIXELS
    return small and x.is_cuda and x.dtype == torch.float32 and have_triton() and can_launch(x.device, x.numel())


class NormaliseImages(torch.autograd.Function):
    """Normalise each channel of each image to mean 0 and variance 1, then scale and shift. Differentiable once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        y: Tensor
        weight, bias = weight.contiguous(), bias.contiguous()
        y, mean, rate = torch.ops.vmt.normalise_images(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, rate)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        by_x, by_weight, by_bias, _ = ctx.needs_input_grad
        dx, of_images = torch.ops.vmt.normalise_images_backward(dy, *ctx.saved_tensors, by_x)
        affine = of_images.sum(0) if by_weight or by_bias else (None, None)
        return dx if by_x else None, affine[0] if by_weight else None, affine[1] if by_bias else None, None


@torch.library.custom_op("vmt::normalise_images", mutates_args=())
def normalise_images(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    from vmt.kernels import triton_kernels

    # Grey images that are tiled to three channels share memory. The result does not, and has other strides.
    (n, c, h, w), y = x.shape, torch.empty_like(x)
    mean, rate = x.new_empty(n, c), x.new_empty(n, c)
    triton_kernels.instance_forward[n, c](
        x, weight, bias, y, mean, rate, h * w, w, *x.stride(), *y.stride(), eps,
        C=c, BP=power_of_two(h * w), num_warps=WARPS, **early(x.device),
    )  # fmt: skip
    return y, mean, rate


@normalise_images.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(*x.shape[:2]), x.new_empty(*x.shape[:2])


@torch.library.custom_op("vmt::normalise_images_backward", mutates_args=())
def normalise_images_backward(
    dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rate: Tensor, by_x: bool
) -> tuple[Tensor, Tensor]:
    """The gradient by x, if ``by_x``, and those by weight and bias for each image."""
    from vmt.kernels import triton_kernels

    (n, c, h, w), (dx, of_images) = x.shape, instance_shapes_backward(x, by_x)
    of_dx = dx.stride() if by_x else (0, 0, 0, 0)
    triton_kernels.instance_backward[n, c](
        dy, x, weight, mean, rate, dx, of_images, h * w, w, *x.stride(), *dy.stride(), *of_dx,
        C=c, BP=power_of_two(h * w), BY_X=by_x, num_warps=WARPS, **early(x.device),
    )  # fmt: skip
    return dx, of_images


@normalise_images_backward.register_fake
def _(dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rate: Tensor, by_x: bool) -> tuple[Tensor, Tensor]:
    return instance_shapes_backward(x, by_x)


def instance_shapes_backward(x: Tensor, by_x: bool) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x) if by_x else x.new_empty(0), x.new_empty(len(x), 2, x.shape[1])


def power_of_two(n: int) -> int:
    """The smallest power of two that is n or more."""
    return 1 << (n - 1).bit_length()
