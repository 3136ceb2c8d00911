"""Whether networks can be used: their weights and their predictions must be finite numbers.

A learning rate that is too large can leave infinite weights after a step whose losses were still finite, or finite
weights that are so large that the predictions are not numbers. So both are checked before anything is saved.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vmt.data.preprocess import Preprocess
from vmt.errors import few
from vmt.evaluate.accuracy import logits_of
from vmt.nets.norm import RUNNING_STATISTICS


def fault_in_weights(networks: Mapping[str, nn.Module]) -> str | None:
    """What is wrong with the weights or running statistics of networks, by their roles; None if all are finite."""
    tensors: dict[str, Tensor] = {}
    for role, network in networks.items():
        tensors |= {f"{role}.{name}": weight.detach() for name, weight in network.named_parameters()}
        buffers = {f"{role}.{name}": buffer for name, buffer in network.named_buffers()}
        tensors |= {name: buffer for name, buffer in buffers.items() if name.endswith(RUNNING_STATISTICS)}
    if not tensors:
        return None
    finite = torch.stack([tensor.isfinite().all() for tensor in tensors.values()]).tolist()  # the host waits once
    wrong = [name for name, is_finite in zip(tensors, finite, strict=True) if not is_finite]
    return f"weights are infinite or not a number ({few(wrong)})" if wrong else None


def fault_in_predictions(network: nn.Module, samples: Mapping[str, Tensor], preprocess: Preprocess) -> str | None:
    """What is wrong with a network's predictions for stored samples, by their domains; None if all are finite."""
    for name, x in samples.items():
        if not logits_of(network, x, preprocess).log_softmax(1).isfinite().all():
            return f"predictions for the {name} are infinite or not a number"
    return None
