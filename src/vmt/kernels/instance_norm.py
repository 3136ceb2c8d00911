"""Instance norm of small images on a CUDA device: one kernel forward and one backward instead of a dozen.

:class:`NormaliseImages` computes the same as ``F.instance_norm``.
"""

from typing import Any

import torch
from torch import Tensor

from vmt.kernels.launch import can_launch, early, have_triton

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

    (n, c, h, w), (dx, of_images) = x.shape, shapes_backward(x, by_x)
    of_dx = dx.stride() if by_x else (0, 0, 0, 0)
    triton_kernels.instance_backward[n, c](
        dy, x, weight, mean, rate, dx, of_images, h * w, w, *x.stride(), *dy.stride(), *of_dx,
        C=c, BP=power_of_two(h * w), BY_X=by_x, num_warps=WARPS, **early(x.device),
    )  # fmt: skip
    return dx, of_images


@normalise_images_backward.register_fake
def _(dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rate: Tensor, by_x: bool) -> tuple[Tensor, Tensor]:
    return shapes_backward(x, by_x)


def shapes_backward(x: Tensor, by_x: bool) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x) if by_x else x.new_empty(0), x.new_empty(len(x), 2, x.shape[1])


def power_of_two(n: int) -> int:
    """The smallest power of two that is n or more."""
    return 1 << (n - 1).bit_length()
