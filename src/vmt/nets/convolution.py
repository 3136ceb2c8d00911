"""3×3 convolutions of a bfloat16 network on a CUDA device.

Weights are converted once per update instead of once per pass. On small maps the gradient by the weight is a kernel of
our own: the library's spends more time on preparing and adding up than on multiplying.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vmt.draws import have_triton

GEOMETRY = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, not transposed, one group
SMALL_MAP = 256
ROWS = 128
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
            dy = dy.contiguous(memory_format=torch.channels_last)
            dw = torch.ops.vmt.by_weight(dy, x.contiguous(memory_format=torch.channels_last))
        return dx, None if dw is None else dw.float(), None


def serves(x: Tensor, weight: Tensor) -> bool:
    """Small maps of channels in sixteens, where there are kernels."""
    small = x.shape[2] * x.shape[3] <= SMALL_MAP
    return small and x.is_cuda and weight.shape[0] % 16 == 0 and weight.shape[1] % 16 == 0 and have_triton()


@torch.library.custom_op("vmt::by_weight", mutates_args=())
def by_weight(dy: Tensor, x: Tensor) -> Tensor:
    """The gradient by the weight, in float32, laid out channels_last."""
    from vmt.nets import convolution_kernels

    n, inputs, h, w = x.shape
    outputs, rows = dy.shape[1], n * h * w
    parts = max(1, min(32 if h * w > 64 else 16, rows // (2 * ROWS)))
    each = -(-rows // (parts * ROWS)) * ROWS
    block_in, block_out = min(64, inputs & -inputs), min(64, outputs & -outputs)
    partial = torch.empty(parts, outputs, 3, 3, inputs, device=x.device)
    convolution_kernels.by_weight[parts, 9, (inputs // block_in) * (outputs // block_out)](
        x, dy, partial, rows, h, w, inputs, outputs, EACH=each, BM=ROWS, BI=block_in, BO=block_out, num_stages=3
    )
    return partial.sum(0).permute(0, 3, 1, 2)


@by_weight.register_fake
def _(dy: Tensor, x: Tensor) -> Tensor:
    size = (dy.shape[1], x.shape[1], 3, 3)
    return torch.empty(size, device=x.device, memory_format=torch.channels_last)
