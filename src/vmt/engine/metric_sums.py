"""Sums of a step's metrics, which stay on the device until the means are read."""

from collections.abc import Mapping

import torch
from torch import Tensor

TOTAL, STEPS = "tally/total", "tally/steps"
"""The names of the sums in a checkpoint."""


class MetricSums:
    """Every metric of a step in one vector: adding a step's metrics takes two kernels, and reading them one copy."""

    def __init__(self) -> None:
        self.shapes: dict[str, torch.Size] = {}
        self.total: Tensor | None = None
        self.steps = 0

    def add_(self, metrics: dict[str, Tensor]) -> None:
        """Add a step's metrics on the device alone, so that a captured graph may contain this call.

        The caller counts the step in ``steps``.
        """
        values = torch.cat([tensor.reshape(-1).float() for tensor in metrics.values()])
        if not self.shapes:
            self.shapes = {name: tensor.shape for name, tensor in metrics.items()}
        if self.total is None or self.total.shape != values.shape:  # what was restored measured something else
            self.total, self.steps = torch.zeros_like(values), 0
        self.total += values

    def means(self) -> dict[str, Tensor]:
        """The means since the last call, on the CPU. Here, the host waits for the device."""
        if self.total is None or not self.steps:
            return {}
        values = self.total.cpu() / self.steps
        self.reset()
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = zip(self.shapes.items(), torch.split(values, sizes), strict=True)
        return {name: part.view(shape) for (name, shape), part in parts}

    def tensors(self) -> dict[str, Tensor]:
        """The sums and the number of steps as a checkpoint stores them; empty if no step was added."""
        if self.total is None or not self.steps:
            return {}
        return {TOTAL: self.total, STEPS: torch.tensor(self.steps)}

    def restore_(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        """Continue from a checkpoint's sums, in place if a graph already adds to this vector."""
        total, steps = tensors[TOTAL].to(device), int(tensors[STEPS])
        if self.total is None:
            self.total, self.steps = total, steps
        elif self.total.shape == total.shape:
            self.total.copy_(total)
            self.steps = steps

    def reset(self) -> None:
        """Start again from zero, in place, because a captured graph keeps adding to the same vector."""
        self.steps = 0
        if self.total is not None:
            self.total.zero_()
