"""Sums of a step's metrics, kept on the device until somebody asks."""

import torch
from torch import Tensor


class Tally:
    """Every metric of a step in one vector, so that adding a step's costs two kernels and reading them one copy."""

    def __init__(self) -> None:
        self.shapes: dict[str, torch.Size] = {}
        self.total: Tensor | None = None
        self.steps = 0

    def add_(self, metrics: dict[str, Tensor]) -> None:
        """On the device alone: a captured graph may hold this call. Whoever runs the step counts it in ``steps``."""
        values = torch.cat([tensor.reshape(-1).float() for tensor in metrics.values()])
        if self.total is None:
            self.shapes = {name: tensor.shape for name, tensor in metrics.items()}
            self.total = torch.zeros_like(values)
        self.total += values

    def means(self) -> dict[str, Tensor]:
        """The means since the last call, on the CPU. This is where the host waits for the device."""
        if self.total is None or not self.steps:
            return {}
        values = self.total.cpu() / self.steps
        self.reset()
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = zip(self.shapes.items(), torch.split(values, sizes), strict=True)
        return {name: part.view(shape) for (name, shape), part in parts}

    def reset(self) -> None:
        """In place: a captured graph goes on adding to the same vector."""
        self.steps = 0
        if self.total is not None:
            self.total.zero_()
