"""The forward call of a network that the current thread is in: what its layers and kernels share.

A layer gets only its input, but what it computes depends on the call as a whole: on where one pass ends in the batch,
which passes update running statistics, and which seeds and bfloat16 weights are available. All of that is in one
object per thread. :func:`vmt.nets.norm.passes`, :func:`vmt.nets.norm.normalised_together` and
:func:`vmt.kernels.convolution.bf16_weights` set it for the calls inside them.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class BatchStatistics:
    """Mean and biased variance of each pass, computed by a batch norm, and the running statistics that they update."""

    mean: Tensor
    var: Tensor
    running_mean: Tensor
    running_var: Tensor
    momentum: float


class ForwardCall(threading.local):
    """The forward call of the current thread."""

    def __init__(self) -> None:
        self.sizes: tuple[int, ...] | None = None
        """The number of samples in each pass. None means that the batch is one pass, as in any other network."""
        self.updating: tuple[int, ...] = (0,)
        """The passes that update running statistics."""
        self.together = False
        """Whether all passes are normalised by one formula, as is best for a compiler."""
        self.statistics: list[BatchStatistics] = []
        """What updates running statistics when the call ends."""
        self.seeds: list[tuple[Tensor, int]] = []
        """Seeds for dropout and noise that have been drawn and not yet used: a tensor of seeds and a place in it."""
        self.bf16_weights: Mapping[int, Tensor] = {}
        """The bfloat16 copies of weights, by the ``id`` of the weight."""

    @contextmanager
    def changed(self, **values: Any) -> Iterator[None]:
        """Set attributes inside, and restore them afterwards."""
        before = {name: getattr(self, name) for name in values}
        self.set(values)
        try:
            yield
        finally:
            self.set(before)

    def set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)


call = ForwardCall()
