"""Batch normalisation that keeps the passes in one batch apart.

A training step sends several inputs through the same network: source, target, mixed, perturbed, adversarial. Each must
be normalised with its own statistics, and only the clean target pass may move the running ones. Concatenating them
into one batch is faster; :func:`passes` says where one ends and the next begins.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# What the current forward call holds: the sizes of its passes and which of them update running statistics.
# None outside `passes`: one pass that updates, like any other BatchNorm.
_sizes: tuple[int, ...] | None = None
_updating: tuple[int, ...] = (0,)


@contextmanager
def passes(sizes: tuple[int, ...], updating: tuple[int, ...]) -> Iterator[None]:
    """Within this context a batch is a concatenation of passes of these sizes; those listed update statistics."""
    global _sizes, _updating
    before = _sizes, _updating
    _sizes, _updating = sizes, updating
    try:
        yield
    finally:
        _sizes, _updating = before


class BatchNorm(nn.Module):
    """Batch norm over the channel dimension 1, of (N, C) or (N, C, …), per pass.

    ε 1e-3 and a running average that moves by 0.01 (TensorFlow's momentum 0.99), with the *biased* variance.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-3, momentum: float = 0.01) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        sizes = _sizes or (len(x),)
        if len(sizes) == 1:
            return self.one_pass(x, update=0 in _updating)
        chunks = [self.one_pass(chunk, i in _updating) for i, chunk in enumerate(torch.split(x, list(sizes)))]
        return torch.cat(chunks)

    def one_pass(self, x: Tensor, update: bool) -> Tensor:
        if not update:
            return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)
        # With momentum 1 the kernel leaves this batch's mean and unbiased variance in the buffers it is given.
        mean, var = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
        y = F.batch_norm(x, mean, var, self.weight, self.bias, training=True, momentum=1.0, eps=self.eps)
        n = x.numel() // x.shape[1]
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * ((n - 1) / n), self.momentum)
        return y

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, eps={self.eps}, momentum={self.momentum}"


class InstanceNorm(nn.Module):
    """Per image and channel to mean 0 and variance 1, then a learned scale and shift per channel."""

    def __init__(self, channels: int, eps: float = 1e-3) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)
