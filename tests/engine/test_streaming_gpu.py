"""Samples that are streamed to a CUDA device give the same steps as samples that are there.

python -m pytest -m gpu tests/engine/test_streaming_gpu.py
"""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.engine.test_engine_gpu import exact, quiet
from tests.train.test_streaming import made_task, network, on_disk
from vmt import methods
from vmt.data import Task
from vmt.data.stored import StoredSamples
from vmt.device import memory_for_samples
from vmt.engine.engine import Engine, Prepare, captured_graph, eager
from vmt.evaluate.accuracy import evaluate
from vmt.evaluate.probe import make_probe
from vmt.step.iteration import make_context
from vmt.step.state import build_state
from vmt.train.loop import place

__all__ = ["exact"]
pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
METHOD = methods.dirt_t(methods.vmt())
ENGINES = {
    "eager": eager(""),
    "captured": captured_graph("", quiet, compile=False),
    "compiled": captured_graph("", quiet, compile=True),
}


def trained(task: Task, prepare: Prepare, steps: int, name: str) -> dict[str, Tensor]:
    """The state after so many steps of each phase. All of a phase are asked for at once, so the host runs ahead."""
    state = build_state(METHOD, network, task.sample_shape, 0, CUDA)
    context = make_context(task, METHOD, state, seed=3, batch_size=8, bfloat16=False)
    assert (context.feed is None) == task.source.x.is_cuda
    engine = Engine("", "", prepare, state, context, 3)
    for number, phase in enumerate(METHOD.phases):
        engine.run(phase, 0, steps, number * steps)
    torch.cuda.synchronize()
    assert engine.name.startswith("eager" if name == "eager" else "captured"), engine.why
    return {**state.tensors(), **engine.metrics()}


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("where", ["disk", "host"])
@pytest.mark.usefixtures("exact")
def test_streamed_steps_are_those_of_resident_samples(name: str, where: str, tmp_path: Path) -> None:
    task = made_task(2_000)
    streamed = on_disk(task, tmp_path) if where == "disk" else task
    steps = 3 if name == "compiled" else 100
    expected = trained(task.to(CUDA), ENGINES[name], steps, name)
    found = trained(streamed.to(CUDA, labels_only=True), ENGINES[name], steps, name)
    for key, tensor in expected.items():
        if name == "compiled":  # the reading of samples is fused with what follows it, which may round differently
            torch.testing.assert_close(found[key], tensor, rtol=1e-3, atol=1e-3)
        else:
            assert torch.equal(found[key], tensor), key


def test_samples_are_placed_by_what_fits(tmp_path: Path) -> None:
    task = on_disk(made_task(2_000), tmp_path)
    assert memory_for_samples("auto", CUDA) > task.bytes
    resident, told = place(task, CUDA, "auto")
    assert "in memory" in told
    assert resident.source.x.is_cuda
    streamed, told = place(task, CUDA, "20KiB")
    assert "streamed from the disk" in told
    assert isinstance(streamed.source.x, StoredSamples)
    assert streamed.source.y is not None
    assert streamed.source.y.is_cuda
    in_host, told = place(made_task(2_000), CUDA, "20KiB")
    assert "streamed from the memory of the host" in told
    torch.manual_seed(0)
    model = network().to(CUDA)
    assert (
        evaluate(model, resident.target, task.preprocess)
        == evaluate(model, streamed.target, task.preprocess)
        == evaluate(model, in_host.target, task.preprocess)
    )


@pytest.mark.parametrize("where", ["disk", "host"])
def test_validators_of_streamed_samples_are_those_of_resident_ones(where: str, tmp_path: Path) -> None:
    task = made_task(400)
    streamed = on_disk(task, tmp_path) if where == "disk" else task
    torch.manual_seed(0)
    model = network().to(CUDA)
    found = []
    for placed in (task.to(CUDA), streamed.to(CUDA, labels_only=True)):
        probe = make_probe(placed, 200)
        assert probe is not None
        found.append(probe.validate(model, None)["validators"])
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        assert found[1][name] == pytest.approx(value, rel=1e-4), name
