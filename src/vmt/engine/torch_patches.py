"""Inductor's kernels launched early, and safe so: each waits for the one before it, first of all.

Left to itself, Inductor (2.11 to 2.13) lets a kernel read and write before it waits wherever it sees no need for what
the one before has written. It does not see all: not a buffer that the one before changes in place, nor seeds; and a
kernel that reads nothing does not wait at all, so that it may end before the one before it does, and the next begin too
soon. That shows as a wrong number now and then, or as an illegal memory access, most of all where a GPU is shared.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch._inductor
import torch.compiler.config
from torch._inductor import lowering
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.ir import TensorBox
from torch._inductor.virtualized import V
from torch.utils._pytree import tree_leaves


@contextmanager
def launched_early() -> Iterator[None]:
    """Within this context; without effect where Inductor does it in a way that is not known here."""
    if not hasattr(TritonKernel, "_filter_pdl"):
        yield
        return
    finished = TritonKernel._filter_pdl

    def filtered(kernel: TritonKernel, code: Any) -> None:
        finished(kernel, code)
        code._lines = waiting_first(code._lines)

    # Kernels that were kept without the waits are not these.
    tag = f"{torch.compiler.config.cache_key_tag} waiting first"
    with (
        torch._inductor.config.patch({"triton.enable_pdl": True}),
        torch.compiler.config.patch(cache_key_tag=tag),  # type: ignore[attr-defined]
        patch.object(TritonKernel, "_filter_pdl", filtered),
    ):
        yield


def waiting_first(lines: list[Any]) -> list[Any]:
    """A kernel's body with one wait, at its beginning; some of its lines are not yet text."""
    wait = TritonKernel.GDC_WAIT
    return [wait, *(line for line in lines if not (isinstance(line, str) and wait in line))]


Lower = Callable[..., Any]


@contextmanager
def reads_before_writes() -> Iterator[None]:
    """Within this context; without effect where Inductor has no such operations."""
    in_place = getattr(lowering, "inplace_foreach_ops", ())
    # Graphs that were kept without this are not these.
    tag = f"{torch.compiler.config.cache_key_tag} reads first"
    with (
        torch.compiler.config.patch(cache_key_tag=tag),  # type: ignore[attr-defined]
        patch.dict(lowering.lowerings, {op: after_reads(lowering.lowerings[op]) for op in in_place}),
    ):
        yield


def after_reads(lower: Lower) -> Lower:
    """An operation on a list of tensors that it changes, once what later operations need of them is computed."""

    def lowered(changed: list[TensorBox], *args: Any, **kwargs: Any) -> Any:
        names = set().union(*(box.get_read_names() for box in changed))
        # What only this operation still needs is computed within it.
        used_up = V.graph.user_to_last_uses.get(V.graph.current_node, ())
        kept = [value for node, value in V.graph.env.items() if node not in used_up]
        for box in tree_leaves(kept):
            if isinstance(box, TensorBox) and names & set(box.get_read_names()):
                box.realize()
        return lower(changed, *args, **kwargs)

    return lowered
