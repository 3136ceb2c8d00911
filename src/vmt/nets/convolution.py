"""3×3 convolutions of a bfloat16 network on a CUDA device.

Weights are converted once per update instead of once per pass. The gradient by the weight is a kernel of our own: the
library's spends much of its time on preparing and adding up, and cannot do several convolutions in one launch.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from vmt.draws import have_triton
from vmt.launch import early

GEOMETRY = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, not transposed, one group
# Pixels that a program of the kernel takes at a time, its warps and stages; two such programs fit on each of the
# chip's processors at once, and no more than that are started.
ROWS, WARPS, STAGES = 64, 4, 3
PROGRAMS_PER_PROCESSOR = 2
# The bfloat16 copy of a weight, by the identity of the weight.
_halves: dict[int, Tensor] = {}


@contextmanager
def halved(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Within this context, while weights do not change, :func:`convolve` finds their copies."""
    global _halves
    weights = {id(p): p.detach() for module in modules for p in module.parameters() if p.ndim == 4}
    copies = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in weights.values()]
    if copies:
        torch._foreach_copy_(copies, list(weights.values()))
    before, _halves = _halves, dict(zip(weights, copies, strict=True))
    try:
        yield
    finally:
        _halves = before


def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """3×3 with padding 1, without bias."""
    copy = _halves.get(id(weight))
    if copy is None:
        return torch.nn.functional.conv2d(x, weight, padding=1)
    y: Tensor = Convolution.apply(x.to(torch.bfloat16), weight, copy)  # type: ignore[no-untyped-call]
    return y


class Convolution(torch.autograd.Function):
    """By the weight's copy, through which its gradient reaches the weight."""

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
            parts = by_weights([dy.contiguous(memory_format=layout)], [x.contiguous(memory_format=layout)])
            dw = parts.sum(0).permute(0, 3, 1, 2)
        return dx, None if dw is None else dw.float(), None


def serves(x: Tensor, weight: Tensor) -> bool:
    """Channels in sixteens, where there are kernels."""
    return x.is_cuda and weight.shape[0] % 16 == 0 and weight.shape[1] % 16 == 0 and have_triton()


@torch.library.custom_op("vmt::by_weights", mutates_args=())
def by_weights(dys: list[Tensor], xs: list[Tensor]) -> Tensor:
    """Gradients by the weights of convolutions that are alike but for the number of images, in one launch. In parts to
    be added up, each (outputs, 3, 3, inputs) in float32: :func:`parts_of` says how many belong to each of them."""
    from vmt.nets import convolution_kernels

    inputs, outputs, (h, w) = xs[0].shape[1], dys[0].shape[1], xs[0].shape[2:]
    pixels = [len(x) * h * w for x in xs]
    counts, each = parts_of(dys, xs)
    block_in, block_out = block(inputs), block(outputs)
    partial = torch.empty(sum(counts), outputs, 3, 3, inputs, device=xs[0].device)
    starts = tuple(sum(counts[:m]) for m in range(len(counts)))
    convolution_kernels.by_weights[3, sum(counts), (inputs // block_in) * (outputs // block_out)](
        tuple(xs), tuple(dys), partial, h, w, inputs, outputs, STARTS=starts, ROWS=tuple(pixels), EACH=each,
        BM=ROWS, BI=block_in, BO=block_out, num_warps=WARPS, num_stages=STAGES, **early(partial.device),
    )  # fmt: skip
    return partial


@by_weights.register_fake
def _(dys: list[Tensor], xs: list[Tensor]) -> Tensor:
    counts, _ = parts_of(dys, xs)
    return torch.empty(sum(counts), dys[0].shape[1], 3, 3, xs[0].shape[1], device=xs[0].device)


def parts_of(dys: list[Tensor], xs: list[Tensor]) -> tuple[list[int], int]:
    """How many parts each convolution is cut into, and pixels in a part: as few as the chip has room for at once."""
    inputs, outputs = xs[0].shape[1], dys[0].shape[1]
    blocks = 3 * (inputs // block(inputs)) * (outputs // block(outputs))
    most = max(len(xs), PROGRAMS_PER_PROCESSOR * processors(str(xs[0].device)) // blocks)
    pixels = [x.numel() // inputs for x in xs]
    each = -(-sum(pixels) // (most * ROWS)) * ROWS
    while sum(-(-n // each) for n in pixels) > most:
        each += ROWS
    return [-(-n // each) for n in pixels], each


@lru_cache(maxsize=8)
def processors(device: str) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def block(channels: int) -> int:
    """Channels that one program takes."""
    return min(64, channels & -channels)
