"""What is left behind where CUDA refuses: a step that cannot be captured, a graph that cannot be changed."""

import ctypes

import pytest
import torch
from torch import Tensor, nn

from vmt.engine import memsets
from vmt.engine.prepare import captured_graph, eager
from vmt.engine.running import Engine
from vmt.engine.workload import workload


class Looking(nn.Module):
    """Waits for the device, which a capture forbids."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.detach().mean()) > 0 else -x


@pytest.mark.gpu
def test_step_that_cannot_be_captured_runs_as_it_is_written() -> None:
    """With dropout and noise, whose generator the failed capture had in its hands."""
    said: list[str] = []
    results = []
    for prepare in (eager(""), captured_graph("", said.append, compile=False)):
        work = workload((16, 16, 16), False, torch.device("cuda"), batch_size=16, samples=500, side=16)
        for role in ("classifier", "ema"):
            work.state.roles[role].stages["hidden"].append(Looking())
        stream = torch.cuda.current_stream()
        engine = Engine("", "", prepare, work.state, work.setting, work.seed)
        engine.run(work.method.phases[0], 0, 2, 0)
        assert engine.name == "eager"
        assert torch.cuda.current_stream() == stream
        results.append(engine.metrics())
    assert "could not be captured" in said[-1]
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value, rtol=1e-2, atol=1e-3, msg=lambda m, at=name: f"{at}: {m}")


class RefusingDriver:
    """Adds nodes, but after the first edge no more."""

    def __init__(self) -> None:
        self.edges = 0
        self.destroyed: list[int | None] = []

    def cuGraphNodeGetDependencies(self, node: object, found: object, count: "ctypes._CArgObject") -> int:
        count._obj.value = 0
        return 0

    def cuGraphNodeGetDependentNodes(self, node: object, found: object, count: "ctypes._CArgObject") -> int:
        count._obj.value = 2
        return 0

    def cuGraphAddKernelNode_v2(self, added: "ctypes._CArgObject", *_: object) -> int:
        added._obj.value = 77
        return 0

    def cuGraphAddDependencies(self, *_: object) -> int:
        self.edges += 1
        return 0 if self.edges == 1 else 801

    def cuGraphDestroyNode(self, node: ctypes.c_void_p) -> int:
        self.destroyed.append(node.value)
        return 0


def test_memset_stays_where_its_kernel_cannot_take_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that not all who read the memory wait for must not stay."""
    monkeypatch.setattr(memsets, "clearing", lambda _: (1, 128, 512))
    driver, node, cleared = RefusingDriver(), ctypes.c_void_p(5), memsets.MemsetNode(4096, 0, 0, 4, 16, 1)
    with pytest.raises(RuntimeError, match="801"):
        memsets.replace(driver, ctypes.c_void_p(1), node, cleared, torch.device("cuda"))  # type: ignore[arg-type]
    assert driver.destroyed == [77]
