"""AdaBN: a trained network with the batch-norm statistics of another domain, without training."""

import copy
import math
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vmt.data.domains import Domain
from vmt.data.preprocess import Preprocess
from vmt.device import default_torch_settings
from vmt.evaluate.accuracy import batch_for, network_inputs
from vmt.nets.networks import evaluating
from vmt.nets.norm import BatchNorm

Net = TypeVar("Net", bound=nn.Module)
# Batches of large images are at least this large: smaller ones have poor statistics.
FEWEST = 64


@torch.no_grad()
@default_torch_settings()
def adabn(network: Net, domain: Domain, preprocess: Preprocess) -> Net | None:
    """A copy of a network whose batch norms have the running statistics of a domain; None if it has no batch norm.

    The weights stay as they are, and no label is read. All samples pass through the network once, in large batches of
    random order, each normalised by its own statistics. Layers of this package and of torch are treated alike.

    >>> import torch, vmt
    >>> x, y = torch.randn(80, 4), torch.arange(80) % 2
    >>> model = vmt.adapt((x, y), x, "source_only", iterations=2, progress=False)
    >>> other = Domain(3 * x + 1, None, "other")
    >>> normalised = adabn(model.network, other, model.preprocess)
    >>> normalised is model.network
    False
    """
    network = copy.deepcopy(network)
    norms = [layer for layer in network.modules() if has_running_statistics(layer)]
    if not norms:
        return None
    moments = {layer: Moments() for layer in norms}

    def observe(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        # In evaluation mode a layer normalises by its running statistics: here, by those of this batch.
        mean, var = moments[layer].add(inputs[0])
        set_statistics(layer, mean, var)

    hooks = [layer.register_forward_pre_hook(observe) for layer in norms]
    # Random, because domains are often sorted by class; and equally large, because a small batch has poor statistics.
    order = torch.randperm(len(domain), generator=torch.Generator().manual_seed(0)).to(domain.x.device)
    device = next(network.parameters()).device
    most = max(FEWEST, batch_for(preprocess, device))
    batch = math.ceil(len(domain) / math.ceil(len(domain) / most))
    try:
        with evaluating(network):
            for x in network_inputs(domain.x, preprocess, device, batch, order):
                network(x)
    finally:
        for hook in hooks:
            hook.remove()
    for layer, seen in moments.items():
        if seen.count:  # a layer that was never called keeps its own
            # torch's running variance is the unbiased one.
            unbiased = isinstance(layer, _BatchNorm) and seen.count > 1
            set_statistics(layer, seen.mean, seen.var * (seen.count / (seen.count - 1) if unbiased else 1))
    return network


def has_running_statistics(layer: nn.Module) -> bool:
    """Whether a layer is a batch norm that uses running statistics in evaluation mode."""
    return isinstance(layer, BatchNorm | _BatchNorm) and layer.running_mean is not None


def set_statistics(layer: nn.Module, mean: Tensor, var: Tensor) -> None:
    assert isinstance(layer.running_mean, Tensor)
    assert isinstance(layer.running_var, Tensor)
    layer.running_mean.copy_(mean)
    layer.running_var.copy_(var)


class Moments:
    """Mean and biased variance of each channel, over all batches that were added."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.var = torch.zeros(())

    def add(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Add a batch (N, C, …) and return its own mean and variance, (C,) each."""
        others = [dim for dim in range(x.dim()) if dim != 1]
        var, mean = torch.var_mean(x.float(), dim=others, correction=0)
        count = x.numel() // x.shape[1]
        share = count / (self.count + count)
        apart = mean - self.mean
        self.var = self.var + share * (var - self.var) + share * (1 - share) * apart.square()
        self.mean = self.mean + share * apart
        self.count += count
        return mean, var
