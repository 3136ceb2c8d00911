"""Kernels of Inductor that are launched early wait before they touch memory. What they do on a GPU:
tests/kernels/test_launches_gpu.py."""

import torch._inductor
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.utils import IndentedBuffer

from vmt.engine.torch_patches import launched_early

WAIT, LAUNCH = TritonKernel.GDC_WAIT, TritonKernel.GDC_LAUNCH


def finished(*lines: str) -> list[str]:
    """What becomes of a kernel's body."""
    body = IndentedBuffer()
    for line in lines:
        body.writeline(line)
    object.__new__(TritonKernel)._filter_pdl(body)
    return body.getvalue().splitlines()


def test_kernel_waits_first_and_once() -> None:
    with launched_early():
        assert torch._inductor.config.triton.enable_pdl
        lines = finished("a = load(p)", WAIT, LAUNCH, "b = load(q)", WAIT, LAUNCH, "store(r)")
    assert lines == [WAIT, "a = load(p)", "b = load(q)", LAUNCH, "store(r)"]


def test_kernel_that_reads_nothing_waits_too() -> None:
    """Or it ends before the one before it, and the next begins before that one has ended."""
    assert finished("store(r)") == ["store(r)"], "Inductor has changed: is the context still needed?"
    with launched_early():
        assert finished("store(r)") == [WAIT, "store(r)"]
    assert finished("store(r)") == ["store(r)"]
    assert not torch._inductor.config.triton.enable_pdl
