"""The whole iteration as one compiled graph.

The step is run once under a tracer that sees every tensor operation, those of the backward passes included, so draws,
gathers, forward passes, the adversarial direction, gradients, Adam, the weight average and the metrics come out as one
flat list. Inductor then fuses across all of them. Compiling the networks alone leaves some 600 small kernels outside.
"""

from collections.abc import Callable
from contextlib import nullcontext
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
from vmt.engine.metric_sums import MetricSums
from vmt.engine.torch_patches import launched_early, reads_before_writes
from vmt.kernels import convolution  # noqa: F401  (registers the operator)
from vmt.kernels.launch import launches_early
from vmt.methods.nouns import Phase, Update
from vmt.methods.schedules import Number, Schedule
from vmt.nets.norm import normalised_together
from vmt.step.context import StepContext
from vmt.step.iteration import step
from vmt.step.state import State


class Held:
    """A schedule that stays at a number. Two of them are two, however equal: each gets a tensor of its own."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, progress: float) -> float:
        return self.value


def constants_as_tensors(phase: Phase, context: StepContext, device: torch.device) -> tuple[Phase, StepContext]:
    """The same phase with a schedule in the place of each weight and learning rate that has none; but a weight of zero
    stays as it is, for its term is only measured."""
    held: dict[Schedule, Tensor] = {}

    def hold(number: Number, dtype: torch.dtype) -> Number:
        if callable(number) or number == 0:
            return number
        schedule = Held(number)
        held[schedule] = torch.full((), number, dtype=dtype, device=device)
        return schedule

    def holding(update: Update) -> Update:
        # Adam's step size is computed in double precision, losses in single.
        adam = replace(update.optimiser, lr=hold(update.optimiser.lr, torch.float64))
        terms = tuple(replace(term, weight=hold(term.weight, torch.float32)) for term in update.terms)
        return replace(update, optimiser=adam, terms=terms)

    phase = replace(phase, updates=tuple(map(holding, phase.updates)))
    return phase, replace(context, scalars={**context.scalars, **held})


BY_WEIGHTS = torch.ops.vmt.by_weights.default


def fuse_weight_gradients(graph: Graph) -> None:
    """In place. What uses the gradients before the optimiser does is arithmetic on them alone, and moves along."""
    waiting: dict[Node, None] = {}
    for node in list(graph.nodes):
        depends = any(needed in waiting for needed in node.all_input_nodes)
        if node.op == "output" or (depends and (mutates(node) or node.target is BY_WEIGHTS)):
            join_before(node, list(waiting), graph)
            waiting = {}
        elif depends or node.target is BY_WEIGHTS:
            waiting[node] = None


def join_before(end: Node, waiting: list[Node], graph: Graph) -> None:
    """Gradients of equal shapes as one operation before ``end``, and behind it what waits for them."""
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
    """Of both inputs but for the number of images."""
    return tuple(given.meta["val"].shape[1:] for given in inputs(node))


def mutates(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def compiled_step(phase: Phase, state: State, context: StepContext, sums: MetricSums) -> Callable[[], None]:
    """One iteration of a phase as a function without arguments that works in place on the state and the sums."""
    phase, context = constants_as_tensors(phase, context, state.step.device)
    with rolled_back(state), normalised_together():
        # Once as it is: tables that are made on first use must exist before the tracer looks.
        with drawing_with_torch_alone():
            sums.add_(step(phase, state, context))
        reachable = reached(state, context, sums)
        graph, tensors = traced(lambda: sums.add_(step(phase, state, context)), reachable)
    run = compiled_graph(graph, tensors)

    @torch.no_grad()
    def advance() -> None:
        run(*tensors)

    with rolled_back(state):
        advance()  # what compiles may still fail when it is run: better here, where there is another way
    sums.reset()
    return advance


@torch.no_grad()
def compiled_graph(graph: GraphModule, tensors: list[Tensor]) -> Callable[..., Any]:
    """From the cache of an earlier process where the graph is the same: its numbers are tensors, so it is for every
    seed, weight and learning rate."""
    mode = FakeTensorMode(shape_env=ShapeEnv())  # Inductor only looks into its cache where shapes have an environment.
    stand_ins: list[Tensor | int | torch.SymInt | None] = [
        mode.from_tensor(tensor, static_shapes=True) for tensor in tensors
    ]
    fuse_weight_gradients(graph.graph)
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


def reached(state: State, context: StepContext, sums: MetricSums) -> list[Tensor]:
    """Every tensor that outlives a step, each once."""
    tensors: list[Tensor] = [state.step]
    for module in state.roles.values():
        tensors += [*module.parameters(), *module.buffers()]
    for optimiser in state.optimisers.values():
        tensors += optimiser.tensors().values()
    for domain in context.streams.values():
        tensors += [domain.x] if domain.y is None else [domain.x, domain.y]
    tensors += context.scalars.values()
    tensors += [] if sums.total is None else [sums.total]
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
