"""The small layers that the paper's networks are made of."""

import math
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vmt.nets.norm import BatchNorm, wide

Weighted = TypeVar("Weighted", nn.Linear, nn.Conv2d)


class GaussianNoise(nn.Module):
    """Adds N(0, σ²) while training."""

    def __init__(self, std: float) -> None:
        super().__init__()
        self.std = std

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.std > 0:
            return x + self.std * torch.randn_like(x)
        return x

    def extra_repr(self) -> str:
        return f"std={self.std}"


class GlobalAveragePool(nn.Module):
    """The mean over all positions, per channel, in full precision even of a bfloat16 map."""

    def forward(self, x: Tensor) -> Tensor:
        return wide(x).mean((2, 3))


def initialised(layer: Weighted) -> Weighted:
    """The authors' initialisation: a normal of std √(1.3·2/fan_in), truncated at two standard deviations; bias 0."""
    std = math.sqrt(1.3 * 2 / layer.weight[0].numel())
    nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class ConvolutionBeforeNorm(nn.Conv2d):
    """A convolution that a batch norm follows.

    The norm takes the bias out of every output again, so its gradient is zero but for rounding. Adam would turn that
    rounding into full steps; here the bias gets no gradient, which also saves a pass over the activations. The running
    means include it, as in the authors' program.
    """

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        if x.is_cuda and torch.is_autocast_enabled("cuda") and (spare := -weight.shape[1] % 8):
            # Tensor cores read eight bfloat16 channels at a time; with three, the library takes a slow path.
            x, weight = F.pad(x, (0, 0, 0, 0, 0, spare)), F.pad(weight, (0, 0, 0, 0, 0, spare))
        bias = None if self.bias is None else self.bias.detach()
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)


class LinearBeforeNorm(nn.Linear):
    """A dense layer that a batch norm follows: the bias gets no gradient, as in :class:`ConvolutionBeforeNorm`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, None if self.bias is None else self.bias.detach())


class FullPrecision(nn.Sequential):
    """Layers that run in single precision (or in double) inside a bfloat16 network."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            x = wide(x)
            for layer in self:
                x = layer(x)
            return x


def conv_block(inputs: int, outputs: int) -> nn.Sequential:
    """conv 3×3 → BN → LeakyReLU 0.1."""
    conv = initialised(ConvolutionBeforeNorm(inputs, outputs, 3, padding=1))
    return nn.Sequential(conv, BatchNorm(outputs), nn.LeakyReLU(0.1))


def dense_block(inputs: int, outputs: int) -> nn.Sequential:
    """dense → BN → LeakyReLU 0.1, for vectors."""
    return nn.Sequential(initialised(LinearBeforeNorm(inputs, outputs)), BatchNorm(outputs), nn.LeakyReLU(0.1))


def logits_layer(inputs: int, classes: int) -> nn.Sequential:
    """The last layer: dense, then BN. The paper's logits are batch-normalised."""
    return FullPrecision(initialised(LinearBeforeNorm(inputs, classes)), BatchNorm(classes))
