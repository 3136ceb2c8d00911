"""Memsets in a captured CUDA graph, replaced by kernels that do the same.

Libraries clear a few bytes before many of their convolutions. In a CUDA graph such a memset takes about five
microseconds, because it interrupts a row of kernels that would follow each other without a gap. A kernel that writes
the same bytes takes one. torch cannot edit a captured graph, so this module calls the CUDA driver through ctypes.

The gain: there are 26 memsets in a VMT iteration, and replacing them saves 0.04 ms of 2.70 ms (1.5 %) on an H200.
Everything works without it: :func:`vmt.engine.capture.captured` uses the graph as it is if the driver refuses.
"""

import ctypes
from ctypes import POINTER, byref, c_size_t, c_uint, c_void_p
from functools import lru_cache

import torch

MEMSET = 2  # CU_GRAPH_NODE_TYPE_MEMSET
LARGEST = 1 << 20
ALIGNED = 16


def memsets_as_kernels(graph: int, device: torch.device) -> int:
    """Replace the memsets of a graph that is not yet instantiated, and return how many were replaced.

    Raises RuntimeError where CUDA refuses; the graph then still does the same.
    """
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
        if memset.is_plain:
            replace(cuda, c_void_p(graph), node, memset, device)
            replaced += 1
    return replaced


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
    def is_plain(self) -> bool:
        """Whether a memset writes one row of zeros in whole words, as before a convolution."""
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


def replace(cuda: ctypes.CDLL, graph: c_void_p, node: c_void_p, memset: MemsetNode, device: torch.device) -> None:
    """Replace a memset by a kernel, between the same nodes before and after it."""
    before, after = (neighbours(f, node) for f in (cuda.cuGraphNodeGetDependencies, cuda.cuGraphNodeGetDependentNodes))
    function, threads, block = clearing_kernel(str(device))
    words = memset.bytes // 4
    # Triton's kernels take further pointers for scratch memory, which this one does not use.
    given = [ctypes.c_uint64(memset.dst), ctypes.c_int32(words)] + [ctypes.c_uint64(0)] * 4
    parameters = (c_void_p * len(given))(*(ctypes.cast(byref(value), c_void_p) for value in given))
    kernel = KernelNode(
        function, (c_uint * 3)(-(-words // block), 1, 1), (c_uint * 3)(threads, 1, 1), 0, parameters, None, None, None
    )
    added = c_void_p(0)
    check(cuda.cuGraphAddKernelNode_v2(byref(added), graph, before, c_size_t(len(before)), byref(kernel)))
    try:
        for follower in map(c_void_p, list(after)):
            check(cuda.cuGraphAddDependencies(graph, byref(added), byref(follower), c_size_t(1)))
    except RuntimeError:
        # A node that does not wait for the kernel could write before the kernel clears, so the kernel must not stay.
        check(cuda.cuGraphDestroyNode(added))
        raise
    check(cuda.cuGraphDestroyNode(node))


def neighbours(ask: "ctypes._NamedFuncPointer", node: c_void_p) -> "ctypes.Array[c_void_p]":
    """The nodes that a driver's function names for a node."""
    count = c_size_t(0)
    check(ask(node, None, byref(count)))
    found = (c_void_p * count.value)()
    if count.value:
        check(ask(node, found, byref(count)))
    return found


@lru_cache(maxsize=8)
def clearing_kernel(device: str) -> tuple[int, int, int]:
    """A kernel that clears words: its handle, the threads in a block, and the words that a block clears."""
    from vmt.kernels.triton_kernels import BLOCK, clear

    compiled = clear[(1,)](torch.zeros(4, dtype=torch.int32, device=device), 4, BLOCK=BLOCK, num_warps=4)
    return int(compiled.function), 32 * 4, BLOCK


def check(result: int) -> None:
    if result != 0:
        raise RuntimeError(f"CUDA error {result} while a graph was changed")
