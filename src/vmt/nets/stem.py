"""The first convolution of a bfloat16 network on a CUDA device: 3×3 on one to three channels.

Libraries pad so few channels to eight and spend a fifth of all convolution time here. As one small matrix product per
tile of pixels it costs what reading and writing cost. :class:`Stem` computes what ``F.conv2d`` with
padding 1 does.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vmt.draws import have_triton
from vmt.launch import can_launch, early
from vmt.nets.convolution import added_up

ROWS = 128
PROGRAMS = 132
TAPS = 9


def serves_stem(x: Tensor, convolution: nn.Conv2d) -> bool:
    """Few channels in, sixteens out, on a CUDA device, in a network that runs in bfloat16."""
    few = convolution.in_channels <= 3 and convolution.out_channels % 16 == 0
    if not (few and x.is_cuda and torch.is_autocast_enabled("cuda") and have_triton()):
        return False
    values = len(x) * x.shape[2] * x.shape[3] * max(convolution.out_channels, patch(convolution.in_channels))
    return torch.get_autocast_dtype("cuda") == torch.bfloat16 and can_launch(x.device, values)


class Stem(torch.autograd.Function):
    """Takes x and w in single precision as they are, returns bfloat16 channels_last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        y: Tensor = torch.ops.vmt.stem(x, weight)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        by_x, by_weight = ctx.needs_input_grad
        dx = torch.ops.vmt.stem_by_input(dy, x, weight) if by_x else None
        return dx, torch.ops.vmt.stem_by_weight(dy, x) if by_weight else None


@torch.library.custom_op("vmt::stem", mutates_args=())
def stem(x: Tensor, weight: Tensor) -> Tensor:
    from vmt.nets import stem_kernels

    y = empty_output(x, weight)
    n, c, h, w = x.shape
    pixels, block = n * h * w, channel_block(len(weight))
    stem_kernels.forward[-(-pixels // ROWS), len(weight) // block](
        x, weight, y, pixels, h, w, *x.stride(), *weight.stride(), len(weight),
        CIN=c, KP=patch(c), BM=ROWS, BN=block, **early(x.device),
    )  # fmt: skip
    return y


@stem.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return empty_output(x, weight)


def empty_output(x: Tensor, weight: Tensor) -> Tensor:
    size = (len(x), len(weight), *x.shape[2:])
    return torch.empty(size, dtype=torch.bfloat16, device=x.device, memory_format=torch.channels_last)


@torch.library.custom_op("vmt::stem_by_weight", mutates_args=())
def stem_by_weight(dy: Tensor, x: Tensor) -> Tensor:
    from vmt.nets import stem_kernels

    n, c, h, w = x.shape
    outputs, pixels = dy.shape[1], n * h * w
    block, k = channel_block(outputs), patch(c)
    programs = min(PROGRAMS, -(-pixels // ROWS))
    each = -(-pixels // (programs * ROWS)) * ROWS
    partial = torch.empty(programs, k, outputs, dtype=torch.float32, device=x.device)
    stem_kernels.by_weight[programs, outputs // block](
        x, dy, partial, pixels, h, w, *x.stride(), outputs, EACH=each, CIN=c, KP=k, BM=ROWS, BN=block,
        **early(x.device),
    )  # fmt: skip
    total = added_up(partial, (0, programs))[0, : TAPS * c].view(3, 3, c, outputs)
    return total.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)


@stem_by_weight.register_fake
def _(dy: Tensor, x: Tensor) -> Tensor:
    size = (dy.shape[1], x.shape[1], 3, 3)
    return torch.empty(size, dtype=torch.float32, device=x.device, memory_format=torch.channels_last)


@torch.library.custom_op("vmt::stem_by_input", mutates_args=())
def stem_by_input(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    from vmt.nets import stem_kernels

    dx = torch.empty_like(x)
    n, c, h, w = x.shape
    outputs, pixels = dy.shape[1], n * h * w
    block, k = channel_block(outputs), patch(c)
    spread = torch.empty(pixels, k, dtype=torch.bfloat16, device=x.device)
    stem_kernels.spread[(-(-pixels // ROWS),)](
        dy, weight, spread, pixels, *weight.stride(), COUT=outputs, CIN=c, KP=k, BM=ROWS, BN=block, **early(x.device)
    )
    stem_kernels.collect[(-(-pixels * c // 512),)](
        spread, dx, pixels * c, h, w, *dx.stride(), CIN=c, KP=k, BE=512, **early(x.device)
    )
    return dx


@stem_by_input.register_fake
def _(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(x)


def channel_block(channels: int) -> int:
    return min(64, channels & -channels)


def patch(channels: int) -> int:
    """Values under a 3×3 window, up to the next power of two that the tensor cores take."""
    return 16 if channels == 1 else 32
