"""A step recorded once as a CUDA graph and replayed with one launch."""

from collections.abc import Callable
from contextlib import suppress

import torch

from vmt.draws import have_triton
from vmt.engine.memsets import memsets_as_kernels
from vmt.engine.untouched import untouched
from vmt.state import State

WARM_UP = 3


def captured(advance: Callable[[], None], state: State) -> Callable[[], None]:
    """``advance`` as a graph. Everything it touches must stay where it is in memory from now on."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with untouched(state):
        # On a stream of its own, as capture requires: libraries choose their algorithms and take their workspaces here.
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                advance()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            advance()
    if have_triton():
        with suppress(RuntimeError, OSError, AttributeError):  # a driver that will not: the graph is good as it is
            memsets_as_kernels(graph.raw_cuda_graph(), state.step.device)
    graph.instantiate()
    return graph.replay
