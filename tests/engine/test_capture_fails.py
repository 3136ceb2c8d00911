"""Where capturing or compiling fails, training continues without, from the state that it had."""

import ctypes
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from vmt.engine import memsets
from vmt.engine.bench import workload
from vmt.engine.engine import Engine, captured_graph, compiled, eager
from vmt.kernels.launch import kernels_run


class DependsOnValues(nn.Module):
    """Waits for the device, which a capture does not allow."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.detach().mean()) > 0 else -x


@pytest.mark.gpu
def test_step_that_cannot_be_captured_runs_as_it_is_written() -> None:
    """With dropout and noise, whose generator the failed capture has used."""
    output: list[str] = []
    results = []
    for prepare in (eager(""), captured_graph("", output.append, compile=False)):
        work = workload((16, 16, 16), False, torch.device("cuda"), batch_size=16, samples=500, side=16)
        for role in ("classifier", "ema"):
            work.state.roles[role].stages["hidden"].append(DependsOnValues())
        stream = torch.cuda.current_stream()
        engine = Engine("", "", prepare, work.state, work.context, work.seed)
        engine.run(work.method.phases[0], 0, 2, 0)
        assert engine.name == "eager"
        assert torch.cuda.current_stream() == stream
        results.append(engine.metrics())
    assert "captured" in output[-1]
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value, rtol=1e-2, atol=1e-3, msg=lambda m, at=name: f"{at}: {m}")


def test_step_that_compiles_but_fails_runs_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from vmt.engine import compile as whole_step

    def failing(graph: object, tensors: list[Tensor]) -> Callable[..., None]:
        def run(*given: Tensor) -> None:
            given[1].zero_()  # a weight
            raise AssertionError("expected size 3==3, stride 1==64 at dim=1")

        return run

    monkeypatch.setattr(whole_step, "compiled_graph", failing)
    results, output = [], []
    for prepare in (eager(""), compiled("", output.append)):
        work = workload((4, 4, 4), False, torch.device("cpu"), batch_size=2, samples=20, side=4)
        engine = Engine("", "", prepare, work.state, work.context, work.seed)
        engine.run(work.method.phases[0], 0, 1, 0)
        assert engine.name == "eager"
        results.append(work.state.tensors())
    assert "expected size 3==3" in output[-1]
    for name, tensor in results[0].items():
        assert torch.equal(tensor, results[1][name]), name


def test_without_triton_kernels_if_it_cannot_build_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from vmt.kernels import triton_kernels

    class Kernel:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            raise RuntimeError("Failed to find C compiler.")

    monkeypatch.setattr(triton_kernels, "random_bits", Kernel())
    with pytest.warns(UserWarning, match=r"cpu.*Failed to find C compiler"):
        assert not kernels_run.__wrapped__("cpu")


class RefusingDriver:
    """Adds nodes, but only one edge."""

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


def test_memset_stays_if_a_kernel_cannot_replace_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel must not stay if not every node that uses the memory waits for it."""
    monkeypatch.setattr(memsets, "clearing_kernel", lambda _: (1, 128, 512))
    driver, node, cleared = RefusingDriver(), ctypes.c_void_p(5), memsets.MemsetNode(4096, 0, 0, 4, 16, 1)
    with pytest.raises(RuntimeError, match="801"):
        memsets.replace(driver, ctypes.c_void_p(1), node, cleared, torch.device("cuda"))  # type: ignore[arg-type]
    assert driver.destroyed == [77]
