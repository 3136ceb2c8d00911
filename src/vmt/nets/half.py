"""Weights of a bfloat16 network, converted once per update instead of once per pass."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

# The bfloat16 copy of a weight, by the identity of the weight.
_halves: dict[int, Tensor] = {}


@contextmanager
def halved(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Within this context, while weights do not change, :func:`half_of` finds their copies."""
    weights = {id(p): p.detach() for module in modules for p in module.parameters() if p.ndim == 4}
    copies = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in weights.values()]
    if copies:
        torch._foreach_copy_(copies, list(weights.values()))
    before = dict(_halves)
    _halves.update(zip(weights, copies, strict=True))
    try:
        yield
    finally:
        _halves.clear()
        _halves.update(before)


def half_of(weight: Tensor) -> Tensor:
    """The weight's copy, through which gradients reach the weight; or the weight itself where there is none."""
    copy = _halves.get(id(weight))
    if copy is None:
        return weight
    half: Tensor = Half.apply(weight, copy)  # type: ignore[no-untyped-call]
    return half


class Half(torch.autograd.Function):
    """The second argument in place of the first, whose gradient it hands on."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, copy: Tensor) -> Tensor:
        ctx.kind = weight.dtype
        return copy.view_as(copy)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].to(ctx.kind), None
