"""The whole iteration as one compiled graph.

The step runs once under a tracer that records every tensor operation, those of the backward passes included. Draws,
gathers, forward passes, the adversarial direction, gradients, the optimiser, the weight average and the metrics become
one flat list of operations, and Inductor fuses across all of them. If only the networks were compiled, about 600 small
kernels would stay outside.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
import torch._inductor
from torch import Tensor
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from vmt.engine.capture import drawing_with_torch_alone, rolled_back
from vmt.engine.engine import MetricSums
from vmt.engine.torch_patches import corrected_inductor
from vmt.kernels import convolution  # noqa: F401  (registers the operator)
from vmt.kernels.launch import launches_early
from vmt.methods.nodes import Schedule
from vmt.methods.nouns import Number, Phase, Update
from vmt.nets.norm import normalised_together
from vmt.step.iteration import StepContext, step
from vmt.step.state import State

BY_WEIGHTS = torch.ops.vmt.by_weights.default


def compiled_step(phase: Phase, state: State, context: StepContext, sums: MetricSums) -> Callable[[], None]:
    """One iteration of a phase as a function without arguments that works in place on the state and the sums."""
    phase, context = constants_as_tensors(phase, context, state.step.device)
    with rolled_back(state), normalised_together():
        # Once without the tracer: tables that are made on first use must exist before the tracer sees them.
        with drawing_with_torch_alone():
            sums.add_(step(phase, state, context))
        reachable = lasting_tensors(state, context, sums)
        graph, tensors = trace_step(lambda: sums.add_(step(phase, state, context)), reachable)
    run = compiled_graph(graph, tensors)

    @torch.no_grad()
    def advance() -> None:
        run(*tensors)

    with rolled_back(state):
        advance()  # a step that compiles may still fail when it runs; here, the caller can still choose another way
    sums.reset()
    return advance


# --- Constants as tensors ---


def constants_as_tensors(phase: Phase, context: StepContext, device: torch.device) -> tuple[Phase, StepContext]:
    """The same phase with each constant weight and learning rate as a tensor.

    A number would be part of the compiled step, and another λ would need another compilation; a tensor serves all
    values. A weight of zero stays a constant, because its term is only measured and not optimised.
    """
    tensors: dict[Schedule, Tensor] = {}

    def as_schedule(number: Number, dtype: torch.dtype) -> Number:
        if callable(number) or number == 0:
            return number
        schedule = Constant(number)
        tensors[schedule] = torch.full((), number, dtype=dtype, device=device)
        return schedule

    def with_schedules(update: Update) -> Update:
        # Optimisers compute their step size in double precision; losses are in single precision.
        optimiser = replace(update.optimiser, lr=as_schedule(update.optimiser.lr, torch.float64))
        terms = tuple(replace(term, weight=as_schedule(term.weight, torch.float32)) for term in update.terms)
        return replace(update, optimiser=optimiser, terms=terms)

    phase = replace(phase, updates=tuple(map(with_schedules, phase.updates)))
    return phase, replace(context, scalars={**context.scalars, **tensors})


class Constant:
    """A schedule that never changes. Each one is different from all others, so that each gets its own tensor."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, progress: float) -> float:
        return self.value


# --- Tracing ---


def lasting_tensors(state: State, context: StepContext, sums: MetricSums) -> list[Tensor]:
    """Every tensor that outlives a step, each once."""
    tensors: list[Tensor] = [state.step]
    for module in state.roles.values():
        tensors += [*module.parameters(), *module.buffers()]
    for optimiser in state.optimisers.values():
        tensors += optimiser.tensors().values()
    feed = context.feed
    for name, domain in context.streams.items():
        tensors += [] if feed is not None and feed.feeds(name) else [domain.x]
        tensors += [] if domain.y is None else [domain.y]
    tensors += [] if feed is None else feed.inputs.values()
    tensors += context.scalars.values()
    tensors += [] if sums.total is None else [sums.total]
    return list({id(tensor): tensor for tensor in tensors}.values())


def trace_step(advance: Callable[[], None], reachable: list[Tensor]) -> tuple[GraphModule, list[Tensor]]:
    """What ``advance`` does to these tensors, as a graph of tensor operations, and the arguments of the graph."""

    def on_arguments(*_: Tensor) -> list[Tensor]:
        advance()
        return []

    # On one thread: the tracer belongs to a thread, and backward passes otherwise run on other threads.
    with torch.autograd.set_multithreading_enabled(False):
        module = make_fx(on_arguments)(*reachable)
    used = []
    for argument, tensor in zip(module.graph.find_nodes(op="placeholder"), reachable, strict=True):
        if argument.users:
            used.append(tensor)
        else:
            module.graph.erase_node(argument)  # used by other phases only: the graph is the same without them
    module.recompile()
    return module, used


# --- Compiling ---


@torch.no_grad()
def compiled_graph(graph: GraphModule, tensors: list[Tensor]) -> Callable[..., Any]:
    """The graph as a compiled function, from the cache of an earlier process if it compiled the same graph.

    Weights, learning rates and seeds are tensors, so the graph is the same for all of them.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv())  # Inductor uses its cache only if shapes have an environment.
    stand_ins: list[Tensor | int | torch.SymInt | None] = [
        mode.from_tensor(tensor, static_shapes=True) for tensor in tensors
    ]
    fuse_weight_gradients(graph.graph)
    graph.recompile()
    launch_early = tensors[0].is_cuda and launches_early(str(tensors[0].device))
    with tracing(TracingContext(mode)), corrected_inductor(launch_early):
        run: Callable[..., Any] = torch._inductor.compile(graph, stand_ins)
    return run


def fuse_weight_gradients(graph: Graph) -> None:
    """Compute weight gradients of equal shapes with one launch, in place.

    The weight gradient of a convolution on a small map is too little work to fill a large chip, and nothing needs it
    before the optimiser does. So gradients wait until then for others like them. What uses a gradient earlier is
    arithmetic on gradients alone, and waits with them.
    """
    waiting: dict[Node, None] = {}
    for node in list(graph.nodes):
        depends = any(needed in waiting for needed in node.all_input_nodes)
        if node.op == "output" or (depends and (mutates(node) or node.target is BY_WEIGHTS)):
            fuse_before(node, list(waiting), graph)
            waiting = {}
        elif depends or node.target is BY_WEIGHTS:
            waiting[node] = None


def fuse_before(end: Node, waiting: list[Node], graph: Graph) -> None:
    """Insert gradients of equal shapes as one operation before ``end``, then the operations that wait for them."""
    alike: dict[object, list[Node]] = {}
    for node in waiting:
        if node.target is BY_WEIGHTS:
            alike.setdefault(shapes(node), []).append(node)
    for nodes in alike.values():
        dys, xs = map(list, zip(*map(inputs, nodes), strict=True))
        with graph.inserting_before(end):
            together = graph.call_function(BY_WEIGHTS, (dys, xs))
            for i, node in enumerate(nodes):
                own = graph.call_function(torch.ops.aten.slice.Tensor, (together, 0, i, i + 1))
                node.replace_all_uses_with(own)
        for node in nodes:
            waiting.remove(node)
            graph.erase_node(node)
    for node in waiting:
        end.prepend(node)


def inputs(node: Node) -> tuple[Node, Node]:
    """The gradient at the output and the input of the one convolution of a node."""
    (dy,), (x,) = cast("tuple[list[Node], list[Node]]", node.args)
    return dy, x


def shapes(node: Node) -> tuple[torch.Size, ...]:
    """The shapes of both inputs without the number of images."""
    return tuple(given.meta["val"].shape[1:] for given in inputs(node))


def mutates(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
