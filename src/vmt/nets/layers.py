"""The small layers that the paper's networks are made of."""

import math
from typing import TypeVar

import torch
from torch import Tensor, nn

from vmt.nets.norm import BatchNorm

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
    """The mean over all positions, per channel."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def initialised(layer: Weighted) -> Weighted:
    """The authors' initialisation: a normal of std √(1.3·2/fan_in), truncated at two standard deviations; bias 0."""
    std = math.sqrt(1.3 * 2 / layer.weight[0].numel())
    nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def conv_block(inputs: int, outputs: int) -> nn.Sequential:
    """conv 3×3 → BN → LeakyReLU 0.1. BN cancels the bias in every output, but the running means include it."""
    conv = initialised(nn.Conv2d(inputs, outputs, 3, padding=1))
    return nn.Sequential(conv, BatchNorm(outputs), nn.LeakyReLU(0.1))


def dense_block(inputs: int, outputs: int) -> nn.Sequential:
    """dense → BN → LeakyReLU 0.1, for vectors."""
    return nn.Sequential(initialised(nn.Linear(inputs, outputs)), BatchNorm(outputs), nn.LeakyReLU(0.1))


def logits_layer(inputs: int, classes: int) -> nn.Sequential:
    """The last layer: dense, then BN. The paper's logits are batch-normalised."""
    return nn.Sequential(initialised(nn.Linear(inputs, classes)), BatchNorm(classes))
