"""The whole iteration as one compiled graph.

The step is run once under a tracer that sees every tensor operation, those of the backward passes included, so draws,
gathers, forward passes, the adversarial direction, gradients, Adam, the weight average and the metrics come out as one
flat list. Inductor then fuses across all of them. Compiling the networks alone leaves some 600 small kernels outside.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch._inductor
from torch import Tensor
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from vmt.engine.held import with_numbers_held
from vmt.engine.joined import join_weight_gradients
from vmt.engine.order import reads_before_writes
from vmt.engine.tally import Tally
from vmt.engine.untouched import drawing_with_torch_alone, untouched
from vmt.engine.waits import launched_early
from vmt.launch import launches_early
from vmt.method import Phase
from vmt.nets.norm import normalised_together
from vmt.state import State
from vmt.step import Setting, step


def compiled_step(phase: Phase, state: State, setting: Setting, tally: Tally) -> Callable[[], None]:
    """One iteration of a phase as a function without arguments that works in place on the state and the tally."""
    phase, setting = with_numbers_held(phase, setting, state.step.device)
    with untouched(state), normalised_together():
        # Once as it is: tables that are made on first use must exist before the tracer looks.
        with drawing_with_torch_alone():
            tally.add_(step(phase, state, setting))
        reachable = reached(state, setting, tally)
        graph, tensors = traced(lambda: tally.add_(step(phase, state, setting)), reachable)
    run = compiled_graph(graph, tensors)

    @torch.no_grad()
    def advance() -> None:
        run(*tensors)

    with untouched(state):
        advance()  # what compiles may still fail when it is run: better here, where there is another way
    tally.reset()
    return advance


@torch.no_grad()
def compiled_graph(graph: GraphModule, tensors: list[Tensor]) -> Callable[..., Any]:
    """From the cache of an earlier process where the graph is the same: its numbers are tensors, so it is for every
    seed, weight and learning rate."""
    mode = FakeTensorMode(shape_env=ShapeEnv())  # Inductor only looks into its cache where shapes have an environment.
    stand_ins: list[Tensor | int | torch.SymInt | None] = [
        mode.from_tensor(tensor, static_shapes=True) for tensor in tensors
    ]
    join_weight_gradients(graph.graph)
    graph.recompile()
    early = tensors[0].is_cuda and launches_early(str(tensors[0].device))
    # Reordering loops for the sake of fusion fails an assertion of Inductor where a foreach kernel is concerned.
    options = {"triton.enable_pdl": False, "loop_ordering_after_fusion": False}
    with (
        tracing(TracingContext(mode)),
        torch._inductor.config.patch(options),
        reads_before_writes(),
        launched_early() if early else nullcontext(),
    ):
        run: Callable[..., Any] = torch._inductor.compile(graph, stand_ins)
    return run


def reached(state: State, setting: Setting, tally: Tally) -> list[Tensor]:
    """Every tensor that outlives a step, each once."""
    tensors: list[Tensor] = [state.step]
    for module in state.roles.values():
        tensors += [*module.parameters(), *module.buffers()]
    for optimiser in state.optimisers.values():
        tensors += optimiser.tensors().values()
    for domain in setting.streams.values():
        tensors += [domain.x] if domain.y is None else [domain.x, domain.y]
    tensors += setting.scalars.values()
    tensors += [] if tally.total is None else [tally.total]
    return list({id(tensor): tensor for tensor in tensors}.values())


def traced(advance: Callable[[], None], reachable: list[Tensor]) -> tuple[GraphModule, list[Tensor]]:
    """What ``advance`` does to these tensors, as a graph of tensor operations, and those that are its arguments."""

    def on_arguments(*_: Tensor) -> list[Tensor]:
        advance()
        return []

    # On one thread: the tracer is a property of the thread, and backward passes otherwise run on others.
    with torch.autograd.set_multithreading_enabled(False):
        module = make_fx(on_arguments)(*reachable)
    used = []
    for argument, tensor in zip(module.graph.find_nodes(op="placeholder"), reachable, strict=True):
        if argument.users:
            used.append(tensor)
        else:
            module.graph.erase_node(argument)  # of another phase: without it the graph is that of this phase alone
    module.recompile()
    return module, used
