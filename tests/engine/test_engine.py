"""The engines on a CPU: the loop that they share, the traced step, and what happens when something fails."""

import os
import random
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

from vmt.device import bfloat16_helps
from vmt.engine import make_engine
from vmt.engine.bench import Workload, workload
from vmt.engine.capture import rolled_back
from vmt.engine.engine import Engine, MetricSums, Prepared, or_eager, remember_compiled_kernels
from vmt.errors import InputError
from vmt.methods.nouns import Phase, Ramp
from vmt.step.draws import seed_layers
from vmt.step.iteration import StepContext, step
from vmt.step.state import State

CPU = torch.device("cpu")


def small(**changes: object) -> Workload:
    return workload((8, 8, 8), False, CPU, batch_size=4, samples=300, side=8, **changes)  # type: ignore[arg-type]


def tensors(work: Workload) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in work.state.tensors().items()}


def test_engine_does_the_steps_and_averages_their_metrics() -> None:
    by_engine, by_hand = small(), small()
    engine = by_engine.engine("eager")
    engine.run(by_engine.method.phases[0], 0, 3, 0)
    seen = []
    for i in range(3):
        seed_layers(0, i, CPU)
        seen.append(step(by_hand.method.phases[0], by_hand.state, by_hand.context))
    wanted = tensors(by_hand)
    for name, tensor in tensors(by_engine).items():
        assert torch.equal(tensor, wanted[name]), name
    metrics = engine.metrics()
    assert metrics.keys() == seen[0].keys()
    for name, mean in metrics.items():
        assert mean.shape == seen[0][name].shape
        torch.testing.assert_close(mean, torch.stack([m[name].float() for m in seen]).mean(0))
    assert engine.metrics() == {}


def test_steps_do_not_depend_on_how_they_are_divided_into_calls() -> None:
    at_once, in_pieces = small(), small()
    at_once.engine("eager").run(at_once.method.phases[0], 0, 4, 0)
    for first, count in ((0, 1), (1, 2), (3, 1)):
        in_pieces.engine("eager").run(in_pieces.method.phases[0], first, count, first)
    wanted = tensors(at_once)
    for name, tensor in tensors(in_pieces).items():
        assert torch.equal(tensor, wanted[name]), name


def test_schedules_follow_the_progress_of_the_phase() -> None:
    work = small()
    ramp = Ramp(0.0, 8.0)
    context = replace(work.context, scalars={ramp: torch.zeros(())})
    seen: list[float] = []

    def prepare(phase: Phase, state: State, context: StepContext) -> Prepared:
        return Prepared(lambda: seen.append(float(context.scalars[ramp])), MetricSums(), "watching", "")

    phase = replace(work.method.phases[0], iterations=8)
    Engine("", "", prepare, work.state, context, 0).run(phase, 2, 3, 2)
    assert seen == [2.0, 3.0, 4.0]


def test_what_a_phase_keeps_is_freed_before_the_next_one_is_prepared() -> None:
    work = small()
    kept: list[weakref.ref[Callable[[], None]]] = []

    def prepare(phase: Phase, state: State, context: StepContext) -> Prepared:
        assert all(each() is None for each in kept)

        def advance() -> None:
            pass

        kept.append(weakref.ref(advance))
        return Prepared(advance, MetricSums(), "watching", "")

    engine = Engine("", "", prepare, work.state, work.context, 0)
    for first, phase in enumerate(work.method.phases):
        engine.run(phase, 0, 1, first)
        engine.run(phase, 1, 1, first)
    assert len(kept) == len(work.method.phases) == 2


def test_a_rolled_back_step_leaves_no_trace() -> None:
    work = small()
    before, generator = tensors(work), torch.get_rng_state()
    work.state.roles["classifier"].eval()
    with rolled_back(work.state):
        work.state.roles["classifier"].train()
        step(work.method.phases[0], work.state, work.context)
        torch.randn(3)
    for name, tensor in tensors(work).items():
        assert torch.equal(tensor, before[name]), name
    assert torch.equal(generator, torch.get_rng_state())
    assert not work.state.roles["classifier"].training


def test_a_step_that_cannot_be_prepared_runs_eagerly_and_says_why() -> None:
    def prepare(phase: Phase, state: State, context: StepContext) -> Prepared:
        raise RuntimeError("this module depends on its values\nand more")

    output: list[str] = []
    work = small()
    attempt = or_eager(prepare, "captured", output.append)
    engine = Engine("captured", "", attempt, work.state, work.context, 0)
    engine.run(work.method.phases[0], 0, 1, 0)
    assert engine.name == "eager"
    assert "captured" in engine.why
    assert "this module depends on its values" in engine.why
    assert output == [engine.why]
    assert int(work.state.step) == 1


class DependsOnValues(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.mean()) > 0 else -x


def test_module_that_depends_on_values_is_not_compiled_but_runs() -> None:
    work = small()
    for role in ("classifier", "ema"):
        work.state.roles[role].stages["hidden"].append(DependsOnValues())
    before = tensors(work)
    output: list[str] = []
    engine = make_engine("compiled", work.state, work.context, 0, say=output.append)
    engine.run(work.method.phases[0], 0, 1, 0)
    assert engine.name == "eager"
    assert "compiled" in engine.why
    reference = small()
    for role in ("classifier", "ema"):
        reference.state.roles[role].stages["hidden"].append(DependsOnValues())
    for name, tensor in tensors(reference).items():
        assert torch.equal(tensor, before[name])
    reference.engine("eager").run(reference.method.phases[0], 0, 1, 0)
    for name, tensor in tensors(reference).items():
        assert torch.equal(tensor, tensors(work)[name]), f"the failed attempt left a trace in {name}"


@pytest.mark.parametrize("draw", [random.random, np.random.rand], ids=["Python", "NumPy"])
def test_a_network_that_draws_without_torch_is_not_compiled(draw: Callable[[], float]) -> None:
    """Its draws would be the same at every step."""

    class Skipping(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if draw() < 0.5 else x.tanh()

    work = small()
    for role in ("classifier", "ema"):
        work.state.roles[role].stages["hidden"].append(Skipping())
    engine = make_engine("compiled", work.state, work.context, 0)
    engine.run(work.method.phases[0], 0, 1, 0)
    assert engine.name == "eager"
    assert "NumPy" in engine.why


@pytest.mark.parametrize(("choice", "text"), [("fast", "fast.*auto"), ("captured", "captured.*CUDA")])
def test_impossible_choices_are_refused(choice: str, text: str) -> None:
    work = small()
    with pytest.raises(InputError, match=text):
        make_engine(choice, work.state, work.context, 0)


def test_auto_is_eager_on_a_cpu() -> None:
    work = small()
    engine = make_engine("auto", work.state, work.context, 0, iterations=100_000)
    assert engine.name == "eager"
    assert "CPU" in engine.why


@pytest.mark.parametrize("has", [True, False])
def test_bfloat16_only_where_the_chip_has_it(has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    supports: Callable[[], bool] = lambda: has  # noqa: E731
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", supports)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", supports)
    helps, sentence = bfloat16_helps(CPU)
    assert helps is has
    assert ("no bfloat16 instructions" in sentence) is not has


@pytest.fixture
def no_folder_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "")  # so that it is put back whatever the code sets
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("no_folder_named")
def test_compiled_kernels_are_kept_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert remember_compiled_kernels() == tmp_path / "vmt" / "inductor"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/elsewhere")
    assert remember_compiled_kernels() == Path("/elsewhere")


@pytest.mark.usefixtures("no_folder_named")
def test_kernels_of_inductor_and_of_vmt_are_kept_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = pytest.importorskip("triton.knobs")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = remember_compiled_kernels()
    assert folder is not None
    assert Path(knobs.cache.dir) == Path(triton_cache_dir(0)) == folder / "triton"
    monkeypatch.setenv("TRITON_CACHE_DIR", "/elsewhere")
    remember_compiled_kernels()
    assert knobs.cache.dir == "/elsewhere"


@pytest.mark.usefixtures("no_folder_named")
def test_a_user_without_a_writable_folder_can_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert remember_compiled_kernels() is None
    assert not {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"} & os.environ.keys()


def test_fused_weight_gradients_are_the_same_gradients() -> None:
    """Before and after fusing, with the operator restated in PyTorch; updates still happen in the right order."""
    from torch.fx import Interpreter
    from torch.fx.experimental.proxy_tensor import make_fx

    from vmt.engine.compile import BY_WEIGHTS, fuse_weight_gradients

    def restated(dys: list[Tensor], xs: list[Tensor]) -> Tensor:
        size = (dys[0].shape[1], xs[0].shape[1], 3, 3)
        own = [torch.nn.grad.conv2d_weight(x, size, dy, padding=1) for dy, x in zip(dys, xs, strict=True)]
        return torch.stack(own).permute(0, 1, 3, 4, 2)

    class Restated(Interpreter):
        def call_function(self, target: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
            return super().call_function(restated if target is BY_WEIGHTS else target, args, kwargs)  # type: ignore[arg-type]

    def update(w: Tensor, v: Tensor, average: Tensor, *images: Tensor) -> list[Tensor]:
        a, b, c, d, e, f = images
        found = [BY_WEIGHTS([a], [b]).sum(0), BY_WEIGHTS([c], [d]).sum(0), BY_WEIGHTS([e], [f]).sum(0)]
        w.sub_(found[0] + found[1])
        average.lerp_(w, 0.5)
        v.sub_(BY_WEIGHTS([c], [d]).sum(0) + found[2])
        return [found[0].norm()]

    torch.manual_seed(0)
    images = [torch.randn(n, 16, side, side) for n, side in ((3, 4), (3, 4), (5, 4), (5, 4), (2, 8), (2, 8))]
    weights = [torch.randn(16, 3, 3, 16) for _ in range(3)]
    graph = make_fx(update, tracing_mode="fake")(*[w.clone() for w in weights], *images)
    results = []
    for fused in (False, True):
        if fused:
            fuse_weight_gradients(graph.graph)
            graph.graph.lint()
            graph.recompile()
        own = [w.clone() for w in weights]
        found = Restated(graph).run(*own, *images)
        results.append([*own, *found])
    nodes = [node for node in graph.graph.nodes if node.target is BY_WEIGHTS]
    assert sorted(len(node.args[0]) for node in nodes) == [1, 1, 2]
    for before, after in zip(*results, strict=True):
        torch.testing.assert_close(before, after)
