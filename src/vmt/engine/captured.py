"""A step recorded once as a CUDA graph and replayed with one launch."""

from collections.abc import Callable

import torch

from vmt.engine.untouched import untouched
from vmt.state import State

WARM_UP = 3


def captured(advance: Callable[[], None], state: State) -> Callable[[], None]:
    """``advance`` as a graph. Everything it touches must stay where it is in memory from now on."""
    graph = torch.cuda.CUDAGraph()
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
    return graph.replay
