"""Kernels that are launched early, on a CUDA device.

python -m pytest -m gpu tests/kernels/test_launches_gpu.py
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch._inductor.utils import run_and_get_code

from tests.engine.test_engine_gpu import CUDA, engine, exact, quiet, small, tensors
from vmt.engine.bench import workload
from vmt.engine.engine import captured_graph, compiled

__all__ = ["exact"]  # a fixture
pytestmark = pytest.mark.gpu


def test_every_kernel_of_the_compiler_waits_before_it_touches_memory() -> None:
    work = small(bfloat16=True)
    with torch._inductor.config.patch(force_disable_caches=True):
        _, (code,) = run_and_get_code(compiled("", quiet), work.method.phases[0], work.state, work.context)
    kernels = re.findall(r"@triton\.jit\n(.*?)\n'''", code, re.DOTALL)
    assert len(kernels) > 20
    for kernel in kernels:
        # A combined kernel has a branch for each part, and waits in each branch.
        for branch in re.split(r"\n    (?:el)?if pid", kernel)[1:] or [kernel]:
            before, wait, _ = branch.partition("gdc_wait()")
            assert wait, kernel
            assert "tl.load" not in before, kernel
            assert "tl.store" not in before, kernel


@contextmanager
def busy() -> Iterator[None]:
    """Another stream keeps all processors busy, so that kernels wait for room and end in unusual orders."""
    over = threading.Event()

    def work() -> None:
        matrix = torch.ones(1024, 1024, device=CUDA)
        with torch.cuda.stream(torch.cuda.Stream()):
            while not over.is_set():
                for _ in range(10):
                    matrix @ matrix
                torch.cuda.current_stream().synchronize()

    other = threading.Thread(target=work)
    other.start()
    try:
        yield
    finally:
        over.set()
        other.join()


@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.usefixtures("exact")
def test_a_busy_device_changes_nothing(phase: int) -> None:
    """A kernel that does not wait for what it reads would change the result here."""
    work = workload("small", True, CUDA, batch_size=32, samples=500)
    run = engine(work, captured_graph("", quiet, compile=True))
    run.run(work.method.phases[phase], 0, 1, 0)
    assert run.name == "captured (compiled)"
    before, found = tensors(work), []
    for around in (nullcontext, nullcontext, busy, busy):
        work.state.restore_(before)
        with around():
            run.run(work.method.phases[phase], 0, 100, 0)
            torch.cuda.synchronize()
        found.append(tensors(work))
    for other in found[1:]:
        for name, tensor in found[0].items():
            assert torch.equal(tensor, other[name]), name
