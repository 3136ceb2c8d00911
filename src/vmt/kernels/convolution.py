"""3×3 convolutions of a bfloat16 network on a CUDA device.

:func:`convolve` converts weights once per update instead of once per pass, and has its own kernel for the gradient by
the weights: the library's spends much of its time on preparing and adding up, and cannot do several convolutions in one
launch.

:class:`Stem` is the first convolution, of one to three channels. Libraries pad so few channels to eight and spend a
fifth of all convolution time on it. As one small matrix product per tile of pixels, it takes as long as reading and
writing. It computes the same as ``F.conv2d`` with padding 1.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from vmt.kernels.forward_call import call
from vmt.kernels.launch import MOST_VALUES, can_launch, early, have_triton

GEOMETRY = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, not transposed, one group
# The pixels that a program of `by_weights` takes at a time, its warps and stages. Two such programs fit on each of the
# chip's processors at once, and no more than that are started.
ROWS, WARPS, STAGES = 64, 4, 3
PROGRAMS_PER_PROCESSOR = 2
# The rows and columns that a program takes at a time when it adds up parts.
PARTS, COLUMNS = 8, 256
# For the first convolution: the pixels that a program takes at a time, and the programs that share a gradient.
STEM_ROWS = 128
PROGRAMS = 132
TAPS = 9


# --- All convolutions but the first ---


@contextmanager
def bf16_weights(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Copy the convolutions' weights to bfloat16 once, for all calls of :func:`convolve` inside.

    The weights must not change inside.
    """
    weights = {id(p): p.detach() for module in modules for p in module.parameters() if p.ndim == 4}
    copies = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in weights.values()]
    if copies:
        torch._foreach_copy_(copies, list(weights.values()))
    with call.changed(bf16_weights=dict(zip(weights, copies, strict=True))):
        yield


def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """A 3×3 convolution with padding 1 and without bias."""
    copy = call.bf16_weights.get(id(weight))
    if copy is None:
        return torch.nn.functional.conv2d(x, weight, padding=1)
    y: Tensor = Convolution.apply(x.to(torch.bfloat16), weight, copy)  # type: ignore[no-untyped-call]
    return y


class Convolution(torch.autograd.Function):
    """A convolution by the bfloat16 copy of a weight, whose gradient goes to the weight itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, copy: Tensor) -> Tensor:
        ctx.save_for_backward(x, copy)
        return torch.nn.functional.conv2d(x, copy, padding=1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, copy = ctx.saved_tensors
        by_x, by_weight, _ = ctx.needs_input_grad
        ours = by_weight and serves(x, copy)
        dx: Tensor | None = None
        dw: Tensor | None = None
        if by_x or (by_weight and not ours):
            mask = [by_x, by_weight and not ours, False]
            dx, dw, _ = torch.ops.aten.convolution_backward(dy, x, copy, None, *GEOMETRY, mask)
        if ours:
            layout = torch.channels_last
            (dw,) = by_weights([dy.contiguous(memory_format=layout)], [x.contiguous(memory_format=layout)])
            dw = dw.permute(0, 3, 1, 2)
        return dx, None if dw is None else dw.float(), None


def serves(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernel can find the gradient by the weight: it needs multiples of 16 channels on a CUDA device."""
    outputs, inputs = weight.shape[:2]
    sixteens = outputs % 16 == 0 and inputs % 16 == 0
    return x.is_cuda and sixteens and have_triton() and can_launch(x.device, x.numel() // inputs * max(inputs, outputs))


@torch.library.custom_op("vmt::by_weights", mutates_args=())
def by_weights(dys: list[Tensor], xs: list[Tensor]) -> Tensor:
    """The gradients by the weights of several convolutions in one launch, in float32.

    The convolutions may differ only in the number of images. The result is (convolutions, outputs, 3, 3, inputs).
    """
    from vmt.kernels import triton_kernels

    inputs, outputs, (h, w) = xs[0].shape[1], dys[0].shape[1], xs[0].shape[2:]
    pixels = tuple(len(x) * h * w for x in xs)
    starts, each = parts_of(dys, xs)
    if len(xs) > 1 and starts[-1] * outputs * 9 * inputs > MOST_VALUES:
        middle = len(xs) // 2
        return torch.cat([by_weights(dys[:middle], xs[:middle]), by_weights(dys[middle:], xs[middle:])])
    block_in, block_out = channel_block(inputs), channel_block(outputs)
    partial = torch.empty(starts[-1], outputs, 3, 3, inputs, dtype=torch.float32, device=xs[0].device)
    triton_kernels.by_weights[3, starts[-1], (inputs // block_in) * (outputs // block_out)](
        tuple(xs), tuple(dys), partial, h, w, inputs, outputs, STARTS=starts[:-1], ROWS=pixels, EACH=each,
        BM=ROWS, BI=block_in, BO=block_out, num_warps=WARPS, num_stages=STAGES, **early(partial.device),
    )  # fmt: skip
    return added_up(partial, starts)


@by_weights.register_fake
def _(dys: list[Tensor], xs: list[Tensor]) -> Tensor:
    size = (len(xs), dys[0].shape[1], 3, 3, xs[0].shape[1])
    return torch.empty(size, dtype=torch.float32, device=xs[0].device)


def added_up(partial: Tensor, starts: tuple[int, ...]) -> Tensor:
    """Add up parts along dimension 0 in a fixed order; sum m has the parts from starts[m] to starts[m + 1]."""
    from vmt.kernels import triton_kernels

    total = partial.new_empty(len(starts) - 1, *partial.shape[1:])
    columns = partial[0].numel()
    triton_kernels.add_parts_of[-(-columns // COLUMNS), len(total)](
        partial, total, columns, STARTS=starts, BP=PARTS, BC=COLUMNS, **early(partial.device)
    )
    return total


def parts_of(dys: list[Tensor], xs: list[Tensor]) -> tuple[tuple[int, ...], int]:
    """Where the parts of each convolution begin, where the last one's end, and the number of pixels in a part.

    There are as many parts as the chip has room for at once, and at least one for each convolution.
    """
    inputs, outputs = xs[0].shape[1], dys[0].shape[1]
    blocks = 3 * (inputs // channel_block(inputs)) * (outputs // channel_block(outputs))
    most = max(len(xs), PROGRAMS_PER_PROCESSOR * processors(str(xs[0].device)) // blocks)
    pixels = [x.numel() // inputs for x in xs]
    each = -(-sum(pixels) // (most * ROWS)) * ROWS
    while sum(-(-n // each) for n in pixels) > most:
        each += ROWS
    return tuple(accumulate((-(-n // each) for n in pixels), initial=0)), each


@lru_cache(maxsize=8)
def processors(device: str) -> int:
    """The number of processors of a CUDA device; that of a small one for a CPU, where an interpreter runs kernels."""
    if torch.device(device).type != "cuda":
        return 8
    return torch.cuda.get_device_properties(device).multi_processor_count


def channel_block(channels: int) -> int:
    """The number of channels that one program takes."""
    return min(64, channels & -channels)


# --- The first convolution ---


def serves_stem(x: Tensor, convolution: nn.Conv2d) -> bool:
    """Whether :class:`Stem` can do a convolution: at most 3 channels in, a multiple of 16 out, bfloat16, CUDA."""
    few = convolution.in_channels <= 3 and convolution.out_channels % 16 == 0
    if not (few and x.is_cuda and torch.is_autocast_enabled("cuda") and have_triton()):
        return False
    values = len(x) * x.shape[2] * x.shape[3] * max(convolution.out_channels, patch(convolution.in_channels))
    return torch.get_autocast_dtype("cuda") == torch.bfloat16 and can_launch(x.device, values)


class Stem(torch.autograd.Function):
    """The first convolution: x and weight are in single precision, and the result is bfloat16 and channels_last."""

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
    from vmt.kernels import triton_kernels

    y = empty_output(x, weight)
    n, c, h, w = x.shape
    pixels, block = n * h * w, channel_block(len(weight))
    triton_kernels.stem_forward[-(-pixels // STEM_ROWS), len(weight) // block](
        x, weight, y, pixels, h, w, *x.stride(), *weight.stride(), len(weight),
        CIN=c, KP=patch(c), BM=STEM_ROWS, BN=block, **early(x.device),
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
    from vmt.kernels import triton_kernels

    n, c, h, w = x.shape
    outputs, pixels = dy.shape[1], n * h * w
    block, k = channel_block(outputs), patch(c)
    programs = min(PROGRAMS, -(-pixels // STEM_ROWS))
    each = -(-pixels // (programs * STEM_ROWS)) * STEM_ROWS
    partial = torch.empty(programs, k, outputs, dtype=torch.float32, device=x.device)
    triton_kernels.stem_by_weight[programs, outputs // block](
        x, dy, partial, pixels, h, w, *x.stride(), outputs, EACH=each, CIN=c, KP=k, BM=STEM_ROWS, BN=block,
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
    from vmt.kernels import triton_kernels

    dx = torch.empty_like(x)
    n, c, h, w = x.shape
    outputs, pixels = dy.shape[1], n * h * w
    block, k = channel_block(outputs), patch(c)
    spread = torch.empty(pixels, k, dtype=torch.bfloat16, device=x.device)
    triton_kernels.spread[(-(-pixels // STEM_ROWS),)](
        dy,
        weight,
        spread,
        pixels,
        *weight.stride(),
        COUT=outputs,
        CIN=c,
        KP=k,
        BM=STEM_ROWS,
        BN=block,
        **early(x.device),
    )
    triton_kernels.collect[(-(-pixels * c // 512),)](
        spread, dx, pixels * c, h, w, *dx.stride(), CIN=c, KP=k, BE=512, **early(x.device)
    )
    return dx


@stem_by_input.register_fake
def _(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(x)


def patch(channels: int) -> int:
    """The number of values under a 3×3 window, rounded up to a power of two that the tensor cores take."""
    return 16 if channels == 1 else 32
