"""Weight gradients of many layers and passes in one launch.

The gradient by the weights of a convolution on a small map is too little work to fill a large chip, and nobody waits
for it before the optimiser's step. So in a traced step all that are alike are found together, just before that step.
"""

from typing import cast

import torch
from torch.fx import Graph, Node

from vmt.nets import convolution  # noqa: F401  (registers the operator)

BY_WEIGHTS = torch.ops.vmt.by_weights.default


def join_weight_gradients(graph: Graph) -> None:
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
