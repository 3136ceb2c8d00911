"""Memsets in a captured graph as kernels.

Libraries clear a few bytes before many of their convolutions. In a CUDA graph such a memset costs some five
microseconds, for it breaks a row of kernels that would follow each other without a gap; a kernel that writes the same
bytes costs one. There are 26 in an iteration of VMT.
"""

import ctypes
from ctypes import POINTER, byref, c_size_t, c_uint, c_void_p
from functools import lru_cache

import torch

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
    from vmt.engine.clear_kernel import BLOCK, clear

    compiled = clear[(1,)](torch.zeros(4, dtype=torch.int32, device=device), 4, BLOCK=BLOCK, num_warps=4)
    return int(compiled.function), 32 * 4, BLOCK


def check(result: int) -> None:
    if result != 0:
        raise RuntimeError(f"CUDA error {result} while a graph was changed")
