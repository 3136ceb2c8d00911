"""A step recorded once as a CUDA graph and replayed with one launch."""

import ctypes
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import POINTER, byref, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from vmt.errors import InputError
from vmt.kernels.launch import can_launch, have_triton
from vmt.step.state import State


@contextmanager
def rolled_back(state: State) -> Iterator[None]:
    """Whatever runs inside, the state and torch's generators are put back, in place."""
    saved = {name: tensor.clone() for name, tensor in state.tensors().items()}
    device = state.step.device
    devices = [device] if device.type == "cuda" else []
    modes = {module: module.training for role in state.roles.values() for module in role.modules()}
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            state.restore_(saved)
            for module, training in modes.items():
                module.training = training


@contextmanager
def drawing_with_torch_alone() -> Iterator[None]:
    """Refuses a step that draws from the generators of Python or NumPy: recorded, it would draw once and for all."""
    before = other_generators()
    yield
    if other_generators() != before:
        raise InputError("it draws from Python's or NumPy's generator, which a recorded step would do only once.")


def other_generators() -> tuple[object, ...]:
    name, keys, *rest = np.random.get_state()  # noqa: NPY002  (the one that users' code draws from unawares)
    return random.getstate(), name, np.asarray(keys).tobytes(), tuple(rest)


MEMSET = 2  # CU_GRAPH_NODE_TYPE_MEMSET
LARGEST = 1 << 20
ALIGNED = 16


class MemsetNode(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = (
        ("dst", ctypes.c_uint64),
        ("pitch", c_size_t),
        ("value", c_uint),
        ("element_size", c_uint),
        ("width", c_size_t),
        ("height", c_size_t),
    )

    @property
    def bytes(self) -> int:
        return int(self.width * self.element_size)

    @property
    def plain(self) -> bool:
        """One row of zeros in whole words, as they are cleared before a convolution."""
        whole = self.bytes % 4 == 0 and self.dst % ALIGNED == 0
        return self.height == 1 and self.value == 0 and whole and 0 < self.bytes <= LARGEST


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("parameters", POINTER(c_void_p)),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    )


def memsets_as_kernels(graph: int, device: torch.device) -> int:
    """In a graph that is not yet instantiated; returns how many were replaced. Raises RuntimeError where CUDA refuses,
    and leaves a graph that still does the same."""
    cuda = ctypes.CDLL("libcuda.so.1")
    count = c_size_t(0)
    check(cuda.cuGraphGetNodes(c_void_p(graph), None, byref(count)))
    nodes = (c_void_p * count.value)()
    check(cuda.cuGraphGetNodes(c_void_p(graph), nodes, byref(count)))
    replaced = 0
    for node in map(c_void_p, list(nodes)):
        kind = ctypes.c_int(-1)
        check(cuda.cuGraphNodeGetType(node, byref(kind)))
        if kind.value != MEMSET:
            continue
        memset = MemsetNode()
        check(cuda.cuGraphMemsetNodeGetParams(node, byref(memset)))
        if memset.plain:
            replace(cuda, c_void_p(graph), node, memset, device)
            replaced += 1
    return replaced


def replace(cuda: ctypes.CDLL, graph: c_void_p, node: c_void_p, memset: MemsetNode, device: torch.device) -> None:
    """A kernel that waits for what the memset waited for, and that is waited for in its place."""
    before, after = (neighbours(f, node) for f in (cuda.cuGraphNodeGetDependencies, cuda.cuGraphNodeGetDependentNodes))
    function, threads, block = clearing(str(device))
    words = memset.bytes // 4
    given = [ctypes.c_uint64(memset.dst), ctypes.c_int32(words)] + [ctypes.c_uint64(0)] * 4  # and unused scratch memory
    parameters = (c_void_p * len(given))(*(ctypes.cast(byref(value), c_void_p) for value in given))
    kernel = KernelNode(
        function, (c_uint * 3)(-(-words // block), 1, 1), (c_uint * 3)(threads, 1, 1), 0, parameters, None, None, None
    )
    added = c_void_p(0)
    check(cuda.cuGraphAddKernelNode_v2(byref(added), graph, before, c_size_t(len(before)), byref(kernel)))
    try:
        for follower in map(c_void_p, list(after)):
            check(cuda.cuGraphAddDependencies(graph, byref(added), byref(follower), c_size_t(1)))
    except RuntimeError:  # a kernel that not all wait for could clear what they have already written
        check(cuda.cuGraphDestroyNode(added))
        raise
    check(cuda.cuGraphDestroyNode(node))


def neighbours(ask: "ctypes._NamedFuncPointer", node: c_void_p) -> "ctypes.Array[c_void_p]":
    count = c_size_t(0)
    check(ask(node, None, byref(count)))
    found = (c_void_p * count.value)()
    if count.value:
        check(ask(node, found, byref(count)))
    return found


@lru_cache(maxsize=8)
def clearing(device: str) -> tuple[int, int, int]:
    """A kernel that clears words: its handle, threads in a block, and words that a block clears."""
    from vmt.kernels.triton_kernels import BLOCK, clear

    compiled = clear[(1,)](torch.zeros(4, dtype=torch.int32, device=device), 4, BLOCK=BLOCK, num_warps=4)
    return int(compiled.function), 32 * 4, BLOCK


def check(result: int) -> None:
    if result != 0:
        raise RuntimeError(f"CUDA error {result} while a graph was changed")


WARM_UP = 3


@contextmanager
def cleaned_up(device: torch.device) -> Iterator[None]:
    """A capture that fails leaves torch on its stream, and torch's generator unusable outside of a capture: both are
    put right, so that the step can run as it is written."""
    stream = torch.cuda.current_stream(device)
    try:
        yield
    except Exception:
        torch.cuda.set_stream(stream)
        generator = torch.cuda.default_generators[stream.device_index]
        generator.graphsafe_set_state(generator.clone_state())  # a copy of the state knows nothing of the capture
        raise


@dataclass(frozen=True)
class Replay:
    """A graph, and the step that it was made from: with that go the kernels and tables that the graph uses."""

    graph: torch.cuda.CUDAGraph
    advance: Callable[[], None]

    def __call__(self) -> None:
        self.graph.replay()


def captured(advance: Callable[[], None], state: State) -> Callable[[], None]:
    """``advance`` as a graph. Everything it touches must stay where it is in memory from now on."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with rolled_back(state):
        # On a stream of its own, as capture requires: libraries choose their algorithms and take their workspaces here.
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream), drawing_with_torch_alone():
                for _ in range(WARM_UP):
                    advance()
        finally:  # after a failure too: what still runs there must not change the state once it is put back
            torch.cuda.current_stream().wait_stream(stream)
        with cleaned_up(state.step.device), torch.cuda.graph(graph):
            advance()
    if have_triton() and can_launch(state.step.device):
        with suppress(RuntimeError, OSError, AttributeError):  # a driver that will not: the graph is good as it is
            memsets_as_kernels(graph.raw_cuda_graph(), state.step.device)
    graph.instantiate()
    return Replay(graph, advance)
