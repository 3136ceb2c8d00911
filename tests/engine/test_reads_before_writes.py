"""Lists of tensors that a compiled step changes in place: what was read before is of before."""

from unittest.mock import patch

import torch
from torch import Tensor
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from vmt.engine.torch_patches import reads_before_writes


def update(weight: Tensor, x: Tensor, logged: Tensor) -> list[Tensor]:
    """A step that logs a loss of the weight it had."""
    loss = (x + weight).square()
    gradient = (2 * (x + weight)).sum(0, keepdim=True)
    torch._foreach_add_([weight], [-0.1 * gradient])
    logged.copy_(loss)
    return []


def test_a_loss_that_is_only_logged_is_of_the_weights_before_the_update() -> None:
    """Among the operations that the compiler makes of it, in their order: here it would do so on a CPU as on a GPU."""
    tensors = [torch.ones(1), torch.arange(16.0), torch.zeros(16)]
    mode = FakeTensorMode(shape_env=ShapeEnv())
    stand_ins = [mode.from_tensor(tensor, static_shapes=True) for tensor in tensors]
    graph = GraphLowering(make_fx(update)(*tensors), example_inputs=stand_ins, shape_env=mode.shape_env)
    with (
        torch.no_grad(),
        V.set_fake_mode(mode),
        V.set_graph_handler(graph),
        patch.object(GraphLowering, "has_feature", lambda *_: True),  # launches for whole lists, as a GPU has
        reads_before_writes(),
    ):
        graph.run(*stand_ins)
        operations = {operation.get_name(): operation for operation in graph.operations}
        reads = {name: operation.get_read_names() for name, operation in operations.items()}
        changes = {name: operation.get_mutation_names() for name, operation in operations.items()}

    def needed_for(name: str) -> set[str]:
        return {name}.union(*(needed_for(read) for read in reads[name] if read in operations))

    (logs,) = (name for name, changed in changes.items() if "logged_1" in changed)
    (writes,) = (name for name, changed in changes.items() if "weight_1" in changed)
    reading = [name for name in operations if name in needed_for(logs) and "weight_1" in reads[name]]
    order = list(operations)
    assert reading
    assert all(order.index(name) < order.index(writes) for name in reading)
    assert needed_for(writes) & needed_for(logs) <= {writes}, "the update waits for nothing that it does not need"
