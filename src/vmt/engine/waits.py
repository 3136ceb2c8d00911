"""Inductor's kernels launched early, and safe so: each waits for the one before it, first of all.

Left to itself, Inductor (2.11 to 2.13) lets a kernel read and write before it waits wherever it sees no need for what
the one before has written. It does not see all: not a buffer that the one before changes in place, nor seeds; and a
kernel that reads nothing does not wait at all, so that it may end before the one before it does, and the next begin too
soon. That shows as a wrong number now and then, or as an illegal memory access, most of all where a GPU is shared.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch._inductor
import torch.compiler.config
from torch._inductor.codegen.triton import TritonKernel


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
