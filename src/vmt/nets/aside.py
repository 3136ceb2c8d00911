"""Convolution weights of a bfloat16 network on a CUDA device: converted once per update, their gradients found aside.

Nothing waits for a weight's gradient until the optimiser does. So it is computed on a second stream, by the tensor
cores, while the main stream goes on through the layers, mostly limited by memory. A captured graph keeps the fork.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

THREE_BY_THREE = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, not transposed, one group


class Aside:
    """The bfloat16 copies of weights during an update, and the parts of their gradients found so far."""

    def __init__(self, weights: Iterable[Tensor]) -> None:
        named = {id(weight): weight.detach() for weight in weights}
        copies = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in named.values()]
        if copies:
            torch._foreach_copy_(copies, list(named.values()))
        self.copies = dict(zip(named, copies, strict=True))
        self.parts: dict[int, list[Tensor]] = {}
        self.listening = True

    def add(self, weight: int, gradient: Callable[[], Tensor]) -> None:
        if self.listening:
            self.parts.setdefault(weight, []).append(gradient())

    @contextmanager
    def ignoring(self) -> Iterator[None]:
        """For gradients by the input alone, whatever else may require one."""
        before, self.listening = self.listening, False
        try:
            yield
        finally:
            self.listening = before

    def joined(self, parameters: Sequence[Tensor], found: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients that autograd found, with those found aside put in their places."""
        if not self.parts:
            return list(found)
        parts = list(self.parts.values())
        sums = joined([part for each in parts for part in each], [len(each) for each in parts])
        by_weight = dict(zip(self.parts, sums, strict=True))
        self.parts = {}
        return [by_weight.get(id(p), g) for p, g in zip(parameters, found, strict=True)]


_current: Aside | None = None


@contextmanager
def weights_aside(modules: Iterable[nn.Module]) -> Iterator[Aside]:
    """Within this context, while weights do not change, :func:`convolve` uses it."""
    global _current
    before = _current
    _current = Aside(p for module in modules for p in module.parameters() if p.ndim == 4)
    try:
        yield _current
    finally:
        _current = before


def aside_of(weight: Tensor) -> Aside | None:
    """What looks after a weight's gradient, if anything does."""
    return _current if _current is not None and id(weight) in _current.copies else None


def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """3×3 with padding 1, without bias."""
    aside = aside_of(weight)
    if aside is None:
        return torch.nn.functional.conv2d(x, weight, padding=1)
    y: Tensor = Convolution.apply(x.to(torch.bfloat16), weight, aside)  # type: ignore[no-untyped-call]
    return y


class Convolution(torch.autograd.Function):
    """By the weight's copy; its gradient goes to ``aside``, not to autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, aside: Aside) -> Tensor:
        copy = aside.copies[id(weight)]
        ctx.save_for_backward(x, copy)
        ctx.weight, ctx.aside = id(weight), aside
        return torch.nn.functional.conv2d(x, copy, padding=1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, None, None]:
        x, copy = ctx.saved_tensors
        by_x, by_weight, _ = ctx.needs_input_grad
        if by_weight:
            ctx.aside.add(ctx.weight, lambda: torch.ops.vmt.by_weight_aside(dy, x, copy))
        if not by_x:
            return None, None, None
        mask = [True, False, False]
        dx = torch.ops.aten.convolution_backward(dy, x, copy, None, *THREE_BY_THREE, mask)[0]
        return dx, None, None


@lru_cache(maxsize=8)
def side_stream(device: str) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@contextmanager
def on_side_stream(*read: Tensor) -> Iterator[torch.cuda.Stream]:
    """Run inside on the second stream, once what is read is there, which stays in memory until that is done."""
    side = side_stream(str(read[0].device))
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield side
    for tensor in read:
        tensor.record_stream(side)


@torch.library.custom_op("vmt::by_weight_aside", mutates_args=())
def by_weight_aside(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The gradient by the weight. Not there before :func:`joined` has been called."""
    main = torch.cuda.current_stream()
    with on_side_stream(dy, x):
        mask = [False, True, False]
        gradient: Tensor = torch.ops.aten.convolution_backward(dy, x, weight, None, *THREE_BY_THREE, mask)[1]
    gradient.record_stream(main)
    return gradient


@by_weight_aside.register_fake
def _(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(weight)


@torch.library.custom_op("vmt::joined", mutates_args=())
def joined(parts: list[Tensor], counts: list[int]) -> list[Tensor]:
    """Wait for the second stream; sum the parts of each weight's gradient, in float32."""
    torch.cuda.current_stream().wait_stream(side_stream(str(parts[0].device)))
    sums: list[Tensor] = []
    for k in range(max(counts)):
        starts = [sum(counts[:i]) for i in range(len(counts))]
        chosen = [(i, parts[start + k]) for i, start in enumerate(starts) if k < counts[i]]
        wide = [torch.empty_like(part, dtype=torch.float32) for _, part in chosen]
        torch._foreach_copy_(wide, [part for _, part in chosen])
        if k:
            torch._foreach_add_([sums[i] for i, _ in chosen], wide)
        else:
            sums = wide
    return sums


@joined.register_fake
def _(parts: list[Tensor], counts: list[int]) -> list[Tensor]:
    starts = [sum(counts[:i]) for i in range(len(counts))]
    return [torch.empty_like(parts[start], dtype=torch.float32) for start in starts]
