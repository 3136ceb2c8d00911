"""Whole steps with the Triton kernels, in Triton's interpreter on a CPU, compared with the plain step; and what the
kernels leave to PyTorch. tests/engine/test_engine_gpu.py runs larger steps on a GPU."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vmt import methods
from vmt.data import Domain, Preprocess
from vmt.engine.capture import rolled_back
from vmt.engine.compile import BY_WEIGHTS, fuse_weight_gradients, lasting_tensors, trace_step
from vmt.engine.engine import MetricSums
from vmt.kernels import launch
from vmt.kernels.convolution import serves, serves_stem
from vmt.kernels.forward_call import BatchStatistics
from vmt.kernels.launch import have_triton
from vmt.kernels.normalisation import fusable, serves_images
from vmt.methods.nouns import Method
from vmt.nets import cnn, networks, norm
from vmt.nets.networks import ConvBlock, Dropout, GaussianNoise, Stage
from vmt.nets.norm import move_running_statistics
from vmt.step.draws import SeededDraws
from vmt.step.iteration import StepContext, step
from vmt.step.state import build_state
from vmt.train.loop import run_events

pytestmark = [
    pytest.mark.skipif(not have_triton(), reason="Triton is not installed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: Triton compiles for it"),
]
CPU = torch.device("cpu")
VMT = methods.vmt(lambda_t=0.06)


@contextmanager
def as_on_cuda() -> Iterator[None]:
    """Tensors claim to be on a CUDA device.

    Triton's interpreter stores bfloat16 as 16-bit integers: it truncates where a GPU rounds, and would multiply
    matrices as integers. Both are corrected here.
    """
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def widened(values: TensorHandle) -> TensorHandle:
        if values.dtype.scalar != tl.bfloat16:
            return values
        return TensorHandle((values.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def rounded(builder: InterpreterBuilder, values: TensorHandle, kind: tl.dtype) -> TensorHandle:
        if values.dtype.scalar != tl.float32 or kind.scalar != tl.bfloat16:
            return cast(builder, values, kind)
        bits = torch.from_numpy(np.ascontiguousarray(values.data)).bfloat16().view(torch.int16)
        return TensorHandle(bits.numpy().view(np.uint16), tl.bfloat16)

    dot, cast = InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl
    enabled, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpreterBuilder, "create_dot", lambda s, a, b, *rest: dot(s, widened(a), widened(b), *rest))
        patch.setattr(InterpreterBuilder, "cast_impl", rounded)
        patch.setattr(torch, "is_autocast_enabled", lambda _: enabled("cpu"))
        patch.setattr(torch, "get_autocast_dtype", lambda _: dtype("cpu"))
        patch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
        yield


class Work:
    """A tiny task from grey images to coloured ones. Weights, biases and statistics are not the initial ones."""

    def __init__(
        self, method: Method, side: tuple[int, int], batch: tuple[int, int], bfloat16: bool, **of_network: object
    ) -> None:
        random = torch.Generator().manual_seed(0)
        streams = {}
        for name, channels in (("source", 1), ("target", 3)):
            x = torch.randint(0, 256, (20, channels, *side), generator=random, dtype=torch.uint8)
            streams[name] = Domain(x, torch.randint(0, 5, (20,), generator=random), name)
        shape, network = (3, *side), {"widths": (16, 16, 16), "dropout": 0.0, "noise": 0.0, "depth": 1, **of_network}
        self.state = build_state(method, lambda: cnn(shape, 5, **network), shape, 0, CPU)  # type: ignore[arg-type]
        for tensor in self.state.roles["classifier"].state_dict().values():
            if tensor.ndim == 1:
                tensor += 0.3 * torch.rand(tensor.shape, generator=random)
        self.context = StepContext(
            streams,
            Preprocess(3, side, (2 / 255,), (-1.0,)),
            dict(zip(streams, batch, strict=True)),
            SeededDraws(0, self.state.step),
            dict.fromkeys(self.state.roles, 0.5),
            {},
            bfloat16,
        )
        self.phase = method.phases[-1]
        run_events(self.phase, self.state, 0)
        self.first = self.tensors()

    def step(self) -> dict[str, Tensor]:
        return step(self.phase, self.state, self.context)

    def tensors(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.state.tensors().items()}

    def moved(self, kind: str) -> dict[str, Tensor]:
        """How far running statistics have moved, or Adam's first moments: after one step, half the gradient."""
        return {name: tensor - self.first[name] for name, tensor in self.tensors().items() if kind in name}


def figures(metrics: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without shares and accuracies, which a rounding error can change."""
    return {name: value for name, value in metrics.items() if "share" not in name and "accuracy" not in name}


def step_both(plain: Work, ours: Work, rtol: float, atol: float) -> None:
    """Do one step of each, the second with the kernels, and compare what they log."""
    wanted = figures(plain.step())
    with as_on_cuda():
        found = figures(ours.step())
    for metric, value in wanted.items():
        torch.testing.assert_close(found[metric], value, rtol=rtol, atol=atol, msg=lambda m, at=metric: f"{at}: {m}")


# Passes of one size and of several, maps of even and odd sizes, and every kind of pass.
STEPS = {
    "vmt": lambda bfloat16: Work(VMT, (8, 8), (3, 3), bfloat16, instance_norm=True),
    "dann": lambda bfloat16: Work(methods.dann(), (7, 10), (5, 3), bfloat16, instance_norm=True),
    "dirt_t": lambda bfloat16: Work(methods.dirt_t(VMT, mix="hidden"), (8, 8), (3, 3), bfloat16, widths=(16, 32, 16)),
    "source_only": lambda bfloat16: Work(
        methods.source_only(statistics="target"), (8, 8), (6, 6), bfloat16, instance_norm=True
    ),
}


@pytest.mark.parametrize("name", ["vmt", "dann", "source_only"])
@pytest.mark.usefixtures("one_thread")
def test_step_with_the_kernels_is_the_step(name: str) -> None:
    plain, ours = STEPS[name](False), STEPS[name](False)
    step_both(plain, ours, rtol=2e-4, atol=2e-5)
    for kind in ("/m.", "running"):
        moved = ours.moved(kind)
        for key, tensor in plain.moved(kind).items():
            atol = 5e-4 * float(tensor.abs().max()) + 2e-7
            torch.testing.assert_close(moved[key], tensor, rtol=0, atol=atol, msg=lambda m, at=key: f"{at}: {m}")


@pytest.mark.parametrize("name", ["dirt_t", "source_only"])
@pytest.mark.usefixtures("one_thread")
def test_bfloat16_step_with_the_kernels_has_the_same_direction(name: str) -> None:
    """Compared with the plain step in single precision, nearly as close as the plain step in bfloat16."""
    single, ours = STEPS[name](False), STEPS[name](True)
    step_both(single, ours, rtol=0.1, atol=0.02)
    for kind, cosine, length in (("classifier/classifier/m.", 0.98, 0.08), ("running", 0.999, 0.02)):
        a, b = (torch.cat([moved.flatten() for moved in work.moved(kind).values()]) for work in (single, ours))
        assert float(F.cosine_similarity(a, b, dim=0)) > cosine, kind
        assert abs(float(b.norm() / a.norm()) - 1) < length, kind


@pytest.mark.usefixtures("one_thread")
def test_traced_step_does_the_same_with_fused_weight_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients of two equal convolutions of a block take one launch."""
    for kernels, condition in ((norm, "fusable"), (norm, "serves_images"), (networks, "serves_stem")):
        monkeypatch.setattr(kernels, condition, lambda *_: False)  # these kernels are not tested here
    work = Work(methods.source_only(), (4, 4), (4, 4), bfloat16=True, depth=2)
    with rolled_back(work.state):
        work.step()  # tables that are made on first use must exist before the step is traced
    reachable = lasting_tensors(work.state, work.context, MetricSums())
    results = []
    with as_on_cuda():
        with rolled_back(work.state):
            graph, arguments = trace_step(lambda: bool(work.step()), reachable)
        for wanted in (5, 3):
            if results:
                fuse_weight_gradients(graph.graph)
                graph.recompile()
            assert sum(node.target is BY_WEIGHTS for node in graph.graph.nodes) == wanted
            with rolled_back(work.state), torch.no_grad():
                graph(*arguments)
                results.append(work.tensors())
    assert int(results[0]["step"]) == 1
    for name, tensor in results[0].items():
        torch.testing.assert_close(results[1][name], tensor, msg=lambda m, at=name: f"{at}: {m}")


# What the kernels leave to PyTorch.


def of_size(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor without memory."""
    return torch.empty(shape, dtype=dtype, device="meta")


def test_more_than_a_launch_can_take_is_left_to_pytorch() -> None:
    """Kernels count values in 32 bits, and a grid has at most 65,535 tiles of 64 pixels of one pass."""
    with as_on_cuda(), torch.autocast("cpu", torch.bfloat16):
        assert fusable(of_size(4 * 4095, 64, 32, 32), 64, (4095,) * 4)
        assert not fusable(of_size(4096, 64, 32, 32), 64, (4096,))
        assert not fusable(of_size(84, 3, 224, 224), 16, (84,))
        assert not fusable(of_size(5 * 80, 3, 224, 224), 112, (80,) * 5)
        small, large = nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 192, 3, padding=1)
        assert serves_stem(of_size(600, 3, 224, 224), small)
        assert not serves_stem(of_size(700, 3, 224, 224), small)
        assert serves(of_size(200, 64, 224, 224), large.weight)
        assert not serves(of_size(250, 64, 224, 224), large.weight)
        assert serves_images(of_size(100_000, 3, 64, 64))
        assert not serves_images(of_size(200_000, 3, 64, 64))


def test_doubles_and_half_precision_are_left_to_pytorch() -> None:
    with as_on_cuda():
        assert not fusable(of_size(4, 16, 8, 8, dtype=torch.float64), 16, (4,))
        with torch.autocast("cpu", torch.float16):
            assert not serves_stem(of_size(4, 3, 8, 8), nn.Conv2d(3, 16, 3, padding=1))


@pytest.mark.parametrize(("current", "launches"), [(0, False), (1, True)])
def test_kernels_are_launched_on_the_current_device_alone(
    current: int, launches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(launch, "kernels_run", lambda _: True)
    assert launch.can_launch(torch.device("cuda:1")) is launches


def end_of_block(dropout: float) -> Callable[[Tensor], Tensor]:
    return Stage(ConvBlock(3, 16), nn.MaxPool2d(2), Dropout(dropout), GaussianNoise(0.0))


def test_everything_can_be_dropped() -> None:
    with as_on_cuda():
        assert not end_of_block(dropout=1.0)(torch.randn(2, 3, 4, 4)).any()


def test_outside_of_a_step_the_generator_decides_what_is_dropped() -> None:
    """A second call does not use seeds that the first has left over."""
    network, x = end_of_block(dropout=0.5), torch.randn(2, 3, 4, 4)
    seen = []
    with as_on_cuda():
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            seen.append(network(x))
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])


def test_a_layer_used_twice_moves_its_statistics_twice() -> None:
    """Also for a compiler, which reads all tensors of one operation before it writes any."""

    def moved(mean: Tensor, var: Tensor) -> Tensor:
        uses = [BatchStatistics(torch.full((1, 1), value), torch.ones(1, 1), mean, var, 0.5) for value in (2.0, 8.0)]
        move_running_statistics(uses, (0,))
        return mean.clone()

    assert float(torch.func.functionalize(moved)(torch.zeros(1), torch.ones(1))) == 4.5
