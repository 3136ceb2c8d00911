"""The step recorded once as a CUDA graph and replayed with one launch."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import torch

from vmt.engine.memsets import memsets_as_kernels
from vmt.errors import InputError
from vmt.kernels.launch import can_launch, have_triton
from vmt.ranks.group import ALONE, Ranks
from vmt.step.state import State

WARM_UP = 3


def captured(advance: Callable[[], None], state: State, ranks: Ranks = ALONE) -> Callable[[], None]:
    """``advance`` as a graph. From now on, everything that it uses must stay at its address in memory."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with rolled_back(state):
        # Capture requires a warm-up on another stream, in which libraries choose algorithms and take workspaces.
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream), drawing_with_torch_alone():
                for _ in range(WARM_UP):
                    advance()
        finally:  # also after a failure: what still runs there must not change the state once it is rolled back
            torch.cuda.current_stream().wait_stream(stream)
        # NCCL has a thread that asks the device for what is done, and must not end the capture with it.
        errors = "thread_local" if ranks.has_group else "global"
        with cleaned_up(state.step.device), torch.cuda.graph(graph, capture_error_mode=errors):
            advance()
    if have_triton() and can_launch(state.step.device):
        with suppress(RuntimeError, OSError, AttributeError):  # without it, the graph is a little slower
            memsets_as_kernels(graph.raw_cuda_graph(), state.step.device)
    graph.instantiate()
    return Replay(graph, advance)


@dataclass(frozen=True)
class Replay:
    """A graph, and the step that it was made from, which keeps alive the kernels and tables that the graph uses."""

    graph: torch.cuda.CUDAGraph
    advance: Callable[[], None]

    def __call__(self) -> None:
        self.graph.replay()


@contextmanager
def rolled_back(state: State) -> Iterator[None]:
    """Undo, in place, all changes inside to the state and to torch's generators."""
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
    """Refuse a step that draws from a generator of Python or NumPy: once recorded, it would repeat the same draws."""
    before = other_generators()
    yield
    if other_generators() != before:
        raise InputError("it draws from a generator of Python or NumPy, and a recorded step would repeat those draws.")


def other_generators() -> tuple[object, ...]:
    """The states of the global generators of Python and NumPy."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002  (user code may draw from it)
    return random.getstate(), name, np.asarray(keys).tobytes(), tuple(rest)


@contextmanager
def cleaned_up(device: torch.device) -> Iterator[None]:
    """After a failed capture, restore the stream and the generator, so that the step can run as it is written.

    torch leaves its capture stream current, and its generator unusable outside of a capture.
    """
    stream = torch.cuda.current_stream(device)
    try:
        yield
    except Exception:
        torch.cuda.set_stream(stream)
        generator = torch.cuda.default_generators[stream.device_index]
        generator.graphsafe_set_state(generator.clone_state())  # a copy of the state does not belong to the capture
        raise
