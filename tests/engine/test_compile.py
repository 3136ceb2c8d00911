"""The step as a graph of tensor operations, as it is compiled."""

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.node import map_arg

from tests.engine.test_engine import CPU, small, tensors
from vmt import methods
from vmt.engine.bench import Workload
from vmt.engine.capture import rolled_back
from vmt.engine.compile import constants_as_tensors, lasting_tensors, trace_step
from vmt.engine.engine import MetricSums
from vmt.methods.augment import Augmentation, augmented
from vmt.methods.nouns import SGD, Adam, Method
from vmt.nets.norm import normalised_together
from vmt.step.draws import seed_layers
from vmt.step.iteration import step

STRONG = Augmentation(crop=0.5, flip=True, colour=0.3, strength=0.5)


def graph_of(work: Workload, sums: MetricSums) -> tuple[GraphModule, list[Tensor]]:
    """The graph of the first phase that is compiled, and its arguments."""
    phase, context = constants_as_tensors(work.method.phases[0], work.context, CPU)
    with rolled_back(work.state), normalised_together():
        sums.add_(step(phase, work.state, context))
        reachable = lasting_tensors(work.state, context, sums)
        graph, arguments = trace_step(lambda: sums.add_(step(phase, work.state, context)), reachable)
    sums.reset()
    return graph, arguments


def test_one_graph_serves_every_seed_weight_and_learning_rate() -> None:
    """VMT's graph is the same with DIRT-T after it and without."""

    def operations(work: Workload) -> list[tuple[str, object]]:
        """The operations of its graph, without the names of its nodes."""
        nodes = list(graph_of(work, MetricSums())[0].graph.nodes)
        number = {node: i for i, node in enumerate(nodes)}
        return [
            (node.op if node.op == "placeholder" else str(node.target), map_arg(node.args, number.__getitem__))
            for node in nodes
        ]

    usual = methods.dirt_t(methods.vmt(vat=False))
    other = methods.vmt(lambda_d=0.03, lambda_s=0.5, lambda_t=0.02, vat=False, optimiser=Adam(lr=2e-4))
    assert operations(small(method=other, seed=5)) == operations(small(method=usual))


@pytest.mark.parametrize(
    "method",
    [
        methods.vmt_mcc(),
        augmented(methods.cdan(optimiser=SGD(weight_decay=1e-3, clip_norm=1.0, backbone_rate=0.1)), STRONG),
    ],
    ids=lambda method: method.name,
)
def test_traced_step_is_the_step(method: Method) -> None:
    plain, by_graph = (small(method=method) for _ in range(2))
    phase, state, sums = by_graph.method.phases[0], by_graph.state, MetricSums()
    graph, arguments = graph_of(by_graph, sums)
    before = tensors(by_graph)
    for name, tensor in tensors(plain).items():
        assert torch.equal(tensor, before[name]), f"tracing changed {name}"
    with torch.no_grad():
        for i in range(2):
            seed_layers(0, i, CPU)
            graph(*arguments)
    sums.steps = 2
    engine = plain.engine("eager")
    engine.run(phase, 0, 2, 0)
    wanted, metrics = tensors(plain), engine.metrics()
    for name, tensor in tensors(by_graph).items():
        torch.testing.assert_close(tensor, wanted[name], rtol=1e-3, atol=2e-3, msg=name)
    for name, mean in sums.means().items():
        torch.testing.assert_close(mean, metrics[name], rtol=1e-3, atol=1e-3, msg=name)
    assert int(state.step) == 2
