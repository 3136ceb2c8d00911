"""Fixtures for the tests of the core."""

import os
import sys
from collections.abc import Iterator

# Before torch is imported, and inherited by the commands that tests start: their tensors are tiny too.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.pop("VMT_CACHE", None)  # tests name their own
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # clusters of tests are on the loopback address
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import pytest
import torch

if not torch.cuda.is_available():
    # Before triton is imported. Nothing but tests/test_kernels*.py runs its kernels on a CPU.
    os.environ["TRITON_INTERPRET"] = "1"

from vmt.data import Task, domain, make_task


@pytest.fixture
def task() -> Task:
    """Four classes of vectors; the target is the source moved a little, without labels."""
    torch.manual_seed(0)
    y = torch.arange(200) % 4
    x = torch.randn(200, 6) + 3 * torch.randn(4, 6)[y]
    return make_task(domain(x, y, name="source"), domain(x + 0.5, name="target"))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For tiny tensors, where threads that wait for each other cost more than they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a CUDA device where there is none."""
    if torch.cuda.is_available():
        return
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if needing:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]


@pytest.fixture
def own_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests in which a user's own package, called ``mine``, may be imported: no other test sees it."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.split(".")[0] == "mine"]:
            del sys.modules[name]

    forget()
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    forget()
