"""The patches of torch's compiler: what they correct, whether torch still needs them, and what happens without them.

tests/kernels/test_launches_gpu.py checks on a GPU what the kernels do.
"""

import warnings
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
import torch._inductor
from torch import Tensor
from torch._inductor import lowering
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.graph import GraphLowering
from torch._inductor.utils import IndentedBuffer
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tests.engine.test_engine import small
from vmt.engine import make_engine, torch_patches
from vmt.engine.torch_patches import (
    KNOWN_VERSIONS,
    attribute_replaced,
    corrected_inductor,
    is_known_torch,
    reads_before_writes,
    waits_before_memory,
)

WAIT, LAUNCH = TritonKernel.GDC_WAIT, TritonKernel.GDC_LAUNCH


def no_longer_needed(patch: str) -> None:
    """Say so in the summary of the tests."""
    pytest.skip(f"torch {torch.__version__} is right without {patch}: this patch can go")


# Reads before writes.


def update(weight: Tensor, x: Tensor, logged: Tensor) -> list[Tensor]:
    """A step that logs a loss of the weight before the update."""
    loss = (x + weight).square()
    gradient = (2 * (x + weight)).sum(0, keepdim=True)
    torch._foreach_add_([weight], [-0.1 * gradient])
    logged.copy_(loss)
    return []


def reads_come_first(within: AbstractContextManager[None]) -> bool:
    """Whether the logged loss reads the weight before the update writes it, in the operations that Inductor makes."""
    tensors = [torch.ones(1), torch.arange(16.0), torch.zeros(16)]
    mode = FakeTensorMode(shape_env=ShapeEnv())
    stand_ins = [mode.from_tensor(tensor, static_shapes=True) for tensor in tensors]
    graph = GraphLowering(make_fx(update)(*tensors), example_inputs=stand_ins, shape_env=mode.shape_env)
    with (
        torch.no_grad(),
        V.set_fake_mode(mode),
        V.set_graph_handler(graph),
        attribute_replaced(GraphLowering, "has_feature", lambda *_: True),  # kernels for whole lists, as on a GPU
        within,
    ):
        graph.run(*stand_ins)
        operations = {operation.get_name(): operation for operation in graph.operations}
        reads = {name: operation.get_read_names() for name, operation in operations.items()}
        changes = {name: operation.get_mutation_names() for name, operation in operations.items()}

    def needed_for(name: str) -> set[str]:
        return {name}.union(*(needed_for(read) for read in reads[name] if read in operations))

    (logs,) = (name for name, changed in changes.items() if "logged_1" in changed)
    (writes,) = (name for name, changed in changes.items() if "weight_1" in changed)
    reading = [name for name in operations if name in needed_for(logs) and "weight_1" in reads[name]]
    order = list(operations)
    assert reading
    first = all(order.index(name) < order.index(writes) for name in reading)
    if first:
        assert needed_for(writes) & needed_for(logs) <= {writes}, "the update waits for nothing that it does not need"
    return first


def test_logged_loss_is_of_the_weights_before_the_update() -> None:
    assert reads_come_first(reads_before_writes())


def test_torch_still_needs_reads_before_writes() -> None:
    if reads_come_first(nullcontext()):
        no_longer_needed("reads_before_writes")


def test_step_is_not_compiled_where_reads_cannot_be_ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(lowering, "inplace_foreach_ops")
    work = small()
    engine = make_engine("compiled", work.state, work.context, 0)
    engine.run(work.method.phases[0], 0, 1, 0)
    assert engine.name == "eager"
    assert torch.__version__ in engine.why


# Waits.


def finished(*lines: str) -> list[str]:
    """What Inductor makes of a kernel's body."""
    body = IndentedBuffer()
    for line in lines:
        body.writeline(line)
    object.__new__(TritonKernel)._filter_pdl(body)
    return body.getvalue().splitlines()


def test_kernel_waits_first_and_once() -> None:
    with waits_before_memory():
        assert torch._inductor.config.triton.enable_pdl
        lines = finished("a = load(p)", WAIT, LAUNCH, "b = load(q)", WAIT, LAUNCH, "store(r)")
    assert lines == [WAIT, "a = load(p)", "b = load(q)", LAUNCH, "store(r)"]


def test_kernel_that_reads_nothing_waits_too() -> None:
    """Otherwise it can end before the kernel before it, and the next one begins too soon."""
    with waits_before_memory():
        assert finished("store(r)") == [WAIT, "store(r)"]
    assert not torch._inductor.config.triton.enable_pdl


def test_torch_still_needs_waits_before_memory() -> None:
    late, never = finished("a = load(p)", WAIT, "b = load(q)"), finished("store(r)")
    if late[0] == never[0] == WAIT:
        no_longer_needed("waits_before_memory")
    assert never == ["store(r)"]


def test_unknown_torch_launches_nothing_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "99.0.1")
    torch_patches.warn_of_late_launches.cache_clear()
    plain = TritonKernel._filter_pdl
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for _ in range(2):
            with corrected_inductor(launch_early=True):
                assert TritonKernel._filter_pdl is plain
                assert not torch._inductor.config.triton.enable_pdl
    assert ["99.0.1" in str(each.message) for each in shown] == [True], "it warns once"
    torch_patches.warn_of_late_launches.cache_clear()


# All of them.


def test_patches_end_with_their_context_even_after_an_error() -> None:
    def state() -> tuple[object, ...]:
        return (
            dict(lowering.lowerings),
            TritonKernel._filter_pdl,
            torch.compiler.config.cache_key_tag,
            torch._inductor.config.triton.enable_pdl,
        )

    def broken() -> None:
        with corrected_inductor(launch_early=True):
            assert state()[0] != before[0]
            assert state()[2] != before[2], "what is compiled with the patches has its own cache key"
            raise KeyError

    before = state()
    with pytest.raises(KeyError):
        broken()
    assert state() == before


def test_this_torch_is_known() -> None:
    if not is_known_torch():
        pytest.skip(f"add {torch.__version__} to {KNOWN_VERSIONS} once test_launches_gpu.py passes with it")
