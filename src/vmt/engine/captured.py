"""A step recorded once as a CUDA graph and replayed with one launch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch

from vmt.draws import have_triton
from vmt.engine.memsets import memsets_as_kernels
from vmt.engine.untouched import drawing_with_torch_alone, untouched
from vmt.launch import can_launch
from vmt.state import State

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
    with untouched(state):
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
