"""Batch normalisation that keeps the passes in one batch apart.

A training step sends several inputs through the same network: source, target, mixed, perturbed, adversarial. Each must
be normalised with its own statistics, and only the clean target pass may update the running ones. It is faster to
concatenate them into one batch; :func:`passes` says where one ends and the next begins.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vmt.errors import InputError
from vmt.kernels.forward_call import BatchStatistics, call
from vmt.kernels.normalisation import After, NormaliseActivate, NormaliseImages, fusable, serves_images
from vmt.losses import at_least_float32

# The buffers that follow the batches. Others may be infinite, such as the masks of attention layers.
RUNNING_STATISTICS = ("running_mean", "running_var")


@contextmanager
def passes(sizes: tuple[int, ...], updating: tuple[int, ...]) -> Iterator[None]:
    """Inside, a batch is a concatenation of passes of these sizes; those in ``updating`` update running statistics."""
    with call.changed(sizes=sizes, updating=updating, statistics=[], seeds=[]):
        yield
        move_running_statistics(call.statistics, updating)


@contextmanager
def normalised_together() -> Iterator[None]:
    """Inside, the passes of a batch are normalised by one formula instead of one after the other.

    This is meant for compilers, which fuse the formula with its neighbours. Without a compiler it is slower than
    separate calls.
    """
    with call.changed(together=True):
        yield


class BatchNorm(nn.Module):
    """Batch norm over the channel dimension 1, of (N, C) or (N, C, …), per pass.

    ε 1e-3 and a running average that moves by 0.01 (TensorFlow's momentum 0.99), with the *biased* variance.
    """

    running_mean: Tensor
    running_var: Tensor
    frozen = False
    """Whether training uses the running statistics, too, and leaves them as they are."""

    def __init__(self, channels: int, eps: float = 1e-3, momentum: float = 0.01) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        if self.frozen or not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        sizes = call.sizes or (len(x),)
        if len(sizes) > 1 and sum(sizes) != len(x):
            raise InputError(
                f"a batch norm has {len(x)} rows for {sum(sizes)} samples, so that it cannot keep passes apart: set "
                "separate_passes of the network to True."
            )
        if call.together and len(set(sizes)) == 1:
            return self.all_passes(x, len(sizes))
        if len(sizes) == 1:
            return self.one_pass(x, update=0 in call.updating)
        chunks = [self.one_pass(chunk, i in call.updating) for i, chunk in enumerate(torch.split(x, list(sizes)))]
        return torch.cat(chunks)

    def one_pass(self, x: Tensor, update: bool) -> Tensor:
        if not update:
            return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)
        # With momentum 1, torch stores the batch's mean and unbiased variance in the buffers that it is given.
        mean, var = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
        y = F.batch_norm(x, mean, var, self.weight, self.bias, training=True, momentum=1.0, eps=self.eps)
        n = x.numel() // x.shape[1]
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * ((n - 1) / n), self.momentum)
        return y

    def all_passes(self, x: Tensor, groups: int) -> Tensor:
        rows, mean, var = NormaliseGroups.apply(grouped(x, groups), self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        self.saw(mean, var)
        return ungrouped(rows, x)

    def fuses(self, x: Tensor) -> bool:
        """Whether a kernel can do the norm together with what follows it, for a convolution of x."""
        return self.training and not self.frozen and fusable(x, len(self.weight), call.sizes or (len(x),))

    def activated(self, x: Tensor, after: After, bias: Tensor) -> Tensor:
        """The norm of x and what follows it.

        ``bias`` is the bias of the convolution before, which x does not include: the norm would cancel it, so it is
        added to the running mean alone.
        """
        groups = len(call.sizes or (len(x),))
        if call.sizes is None:
            call.seeds.clear()  # what another call left may have been drawn before the generator was seeded again
        y: Tensor
        y, mean, var = NormaliseActivate.apply(x, self.weight, self.bias, groups, self.eps, after)  # type: ignore[no-untyped-call]
        if call.updating:
            self.saw(mean + bias.detach(), var)
        return y

    def saw(self, mean: Tensor, var: Tensor) -> None:
        """Update the running statistics: for all layers together at the end of :func:`passes`, or else now."""
        seen = BatchStatistics(mean, var, self.running_mean, self.running_var, self.momentum)
        if call.sizes is None:
            move_running_statistics([seen], call.updating)
        else:
            call.statistics.append(seen)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, eps={self.eps}, momentum={self.momentum}"


@torch.no_grad()
def move_running_statistics(seen: list[BatchStatistics], updating: tuple[int, ...]) -> None:
    """Update the running statistics of all layers with a few launches instead of two for each layer.

    A layer that is used twice is updated twice: its second use is in a second round.
    """
    uses: dict[int, int] = {}
    rounds: dict[tuple[int, float], list[BatchStatistics]] = {}
    for each in seen:
        layer = id(each.running_mean)
        uses[layer] = uses.get(layer, 0) + 1
        rounds.setdefault((uses[layer], each.momentum), []).append(each)
    for (_, momentum), alike in rounds.items():
        running = [running for each in alike for running in (each.running_mean, each.running_var)]
        for i in updating:
            batch = [values[i] for each in alike for values in (each.mean, each.var)]
            torch._foreach_lerp_(running, batch, momentum)


class NormaliseGroups(torch.autograd.Function):
    r"""Batch norm of equally large groups of rows (groups, rows, C), each with its own statistics.

    With :math:`s = \gamma / \sqrt{\sigma^2 + \epsilon}` per group and channel, :math:`y = s (x - \mu) + \beta`, and the
    gradient of :math:`x` is :math:`s (g - \bar g - \hat x\, \overline{g \hat x})`, bars being means over the group.
    Statistics and sums are in float32 whatever the type of x. They are sums of :math:`x - \mu`, because sums of x
    itself would cancel if its mean is large. Differentiable once. The result is not a view, so that the layer after it
    may change it in place.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        rows = at_least_float32(x)
        mean = rows.mean(1)
        from_mean = rows - mean[:, None]
        var = from_mean.square().mean(1)
        y = from_mean * (weight * (var + eps).rsqrt())[:, None] + bias
        ctx.save_for_backward(x, weight, mean, var)
        ctx.eps = eps
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(mean, var)
        return y.to(x.dtype), mean, var

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if gradients[0] is None:  # nothing depends on y
            return (None,) * 4
        x, weight, mean, var = ctx.saved_tensors
        g = at_least_float32(gradients[0])
        rate = (var + ctx.eps).rsqrt()
        hat = (at_least_float32(x) - mean[:, None]) * rate[:, None]
        sum_g, sum_g_hat, n = g.sum(1), (g * hat).sum(1), hat.shape[1]
        dx = (weight * rate)[:, None] * (g - (sum_g / n)[:, None] - hat * (sum_g_hat / n)[:, None])
        wanted = ctx.needs_input_grad
        return (
            dx.to(x.dtype) if wanted[0] else None,
            sum_g_hat.sum(0) if wanted[1] else None,
            sum_g.sum(0) if wanted[2] else None,
            None,
        )


def grouped(x: Tensor, groups: int) -> Tensor:
    """(N, C, …) as (groups, samples and positions, C): a view if x is channels_last."""
    return x.movedim(1, -1).reshape(groups, -1, x.shape[1])


def ungrouped(rows: Tensor, like: Tensor) -> Tensor:
    return rows.view(len(like), *like.shape[2:], like.shape[1]).movedim(-1, 1)


class InstanceNorm(nn.Module):
    """Normalise each channel of each image to mean 0 and variance 1, then apply a learned scale and shift."""

    def __init__(self, channels: int, eps: float = 1e-3) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and serves_images(x):
            y: Tensor = NormaliseImages.apply(x, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
            return y
        return F.instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)
