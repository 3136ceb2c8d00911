"""A user's network, or one of ours, put on its device in the way that it runs best there and is still right."""

from contextlib import suppress

import torch
from torch import Tensor, nn

from vmt.nets.adapter import keeps_statistics
from vmt.nets.norm import BatchNorm
from vmt.nets.staged import Staged, evaluating


def fitted(network: Staged, shape: tuple[int, ...], device: torch.device) -> Staged:
    """The same network: weights channels_last, which convolutions are fastest with, if it runs so, and marked
    ``one_by_one`` if its passes cannot share a batch.

    What does not run so: ``x.view(len(x), -1)`` behind a convolution, and weights of five dimensions.
    """
    network.one_by_one = network.one_by_one or any(map(keeps_statistics, network.modules()))
    samples = torch.zeros(2, *shape, dtype=torch.float32, device=device)
    for layout in (torch.channels_last, torch.contiguous_format):
        with suppress(RuntimeError):  # what fails in either is left for training to complain of
            network.to(device).to(memory_format=layout)  # type: ignore[call-overload]
            network.one_by_one = network.one_by_one or regroups(network, samples)
            break
    return network


@torch.no_grad()
def regroups(network: Staged, samples: Tensor) -> bool:
    """Whether a batch norm sees other rows than one per sample, such as one per patch: where a pass ends among them
    is not known."""
    rows: set[int] = set()

    def look(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        rows.add(len(given[0]))

    hooks = [layer.register_forward_pre_hook(look) for layer in network.modules() if isinstance(layer, BatchNorm)]
    try:
        with evaluating(network):
            network(samples)
    finally:
        for hook in hooks:
            hook.remove()
    return bool(rows - {len(samples)})
