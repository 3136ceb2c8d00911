"""Mistakes that were found in other implementations, each with a test that would show it here."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vmt
from tests.small import BATCH, FEATURES, N, blobs, build, context, recorded
from vmt import methods
from vmt.data import Domain
from vmt.engine.capture import rolled_back
from vmt.methods.nodes import SLOPE
from vmt.methods.nouns import Method
from vmt.nets import Staged, cnn, mlp
from vmt.nets.norm import BatchNorm
from vmt.step.draws import SeededDraws
from vmt.step.iteration import NodeValues, step
from vmt.step.plan import plan
from vmt.step.state import State, build_state

pytestmark = pytest.mark.usefixtures("one_thread")


def copies(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in module.named_parameters()}


# 1. An average that aliases the live weights.


@pytest.mark.parametrize("method", [methods.vmt(), methods.source_only()], ids=lambda m: m.name)
def test_the_average_over_50_steps_has_its_closed_form(method: Method) -> None:
    """ē₅₀ = 0.998⁵⁰ θ₀ + 0.002 Σ 0.998⁵⁰⁻ⁱ θᵢ, from the live weights written down after each step."""
    state = build(method)
    start = copies(state.roles["ema"])
    live = []
    for i in range(50):
        step(method.phases[0], state, context(draws=recorded(i)))
        live.append(copies(state.roles["classifier"]))
    weights = 0.002 * 0.998 ** np.arange(49, -1, -1)
    for name, average in state.roles["ema"].named_parameters():
        expected = 0.998**50 * start[name].numpy()
        expected = expected + sum(w * each[name].numpy() for w, each in zip(weights, live, strict=True))
        np.testing.assert_allclose(average.numpy(), expected, rtol=1e-9, atol=1e-12)
        # It lags behind: neither where it began nor where the weights are.
        assert not torch.allclose(average, start[name], rtol=0, atol=1e-7)
        assert not torch.allclose(average, live[-1][name], rtol=0, atol=1e-7)


def test_the_average_is_not_the_live_weights() -> None:
    state = build(methods.vmt())
    own = {p.data_ptr() for p in state.roles["classifier"].parameters()}
    assert not own & {p.data_ptr() for p in state.roles["ema"].parameters()}
    with torch.no_grad():
        for p in state.roles["classifier"].parameters():
            p.fill_(7.0)
    assert not any(bool((p == 7.0).all()) for p in state.roles["ema"].parameters())
    assert not any(p.requires_grad for p in state.roles["ema"].parameters())


def test_the_average_starts_at_the_weights_and_shares_the_live_statistics() -> None:
    state = build_state(methods.vmt(), lambda: mlp((FEATURES,), 3), (FEATURES,), seed=1, device=torch.device("cpu"))
    classifier, ema = state.roles["classifier"], state.roles["ema"]
    for a, b in zip(classifier.parameters(), ema.parameters(), strict=True):
        assert torch.equal(a, b)
    classifier.train()(torch.randn(6, FEATURES))
    for name, buffer in classifier.named_buffers():
        assert ema.get_buffer(name) is buffer
    # What is evaluated: averaged weights, current statistics.
    assert [name for name in state.tensors() if "ema" in name and "running" in name] == []


# 2. Batch norm: momentum, pollution, logits.


def first_norm(state: State) -> tuple[nn.Linear, BatchNorm]:
    dense, norm = list(state.roles["classifier"].stages["features"][1].children())[:2]  # type: ignore[index]
    assert isinstance(dense, nn.Linear)
    assert isinstance(norm, BatchNorm)
    return dense, norm


@pytest.mark.parametrize(
    "method",
    [methods.vmt(), methods.vmt(mix="hidden"), methods.vada(), methods.dann(), methods.vmt(vat=False)],
    ids=["vmt", "vmt on hidden", "vada", "dann", "vmt without vat"],
)
def test_statistics_move_by_a_hundredth_of_the_clean_target_passes_alone(method: Method) -> None:
    state = build(method)
    dense, norm = first_norm(state)
    mean, var = norm.running_mean.clone(), norm.running_var.clone()
    draws, target = recorded(), blobs()["target"]
    for update in ("discriminator", "classifier"):  # the weights change only after both passes
        z = dense(target.x[draws.choice(f"{update}/target/indices", N, BATCH)]).detach()
        mean = 0.99 * mean + 0.01 * z.mean(0)
        var = 0.99 * var + 0.01 * z.var(0, unbiased=False)
    step(method.phases[0], state, context(draws=draws))
    torch.testing.assert_close(norm.running_mean, mean)
    torch.testing.assert_close(norm.running_var, var)


@pytest.mark.parametrize("build_net", [cnn, mlp])
def test_the_last_layer_is_normalised(build_net: type[Staged]) -> None:
    net = build_net((1, 8, 8), 5)
    assert isinstance(list(net.stages["logits"].children())[-1], BatchNorm)
    z = net.train()(100 * torch.randn(32, 1, 8, 8))["logits"]
    assert float(z.detach().square().mean()) == pytest.approx(1, abs=0.05)


# 4. With ξ = 1e-6, the direction of VAT comes from dropout and noise; without them there is none.


def slopes(dropout: float, xi: float) -> Tensor:
    """Norms of VAT's slopes at x + ξd for a single-precision network."""
    method = methods.vada(lambda_d=0, lambda_s=0, lambda_t=1.0)
    state = build_state(
        method,
        lambda: mlp((FEATURES,), 3, width=16, dropout=dropout, noise=dropout),
        (FEATURES,),
        seed=0,
        device=torch.device("cpu"),
    )
    torch.manual_seed(0)
    update = method.phases[0].updates[0]
    here = context({n: Domain(d.x.float(), d.y, n) for n, d in blobs().items()}, SeededDraws(0, state.step), xi=xi)
    values = NodeValues(update, state, here, 0)
    for each in plan(update, {n: m.taps for n, m in state.roles.items()}):
        values.run(each)
    (found,) = (value for node, value in values.known.items() if getattr(node, "name", "") == SLOPE)
    return found.norm(dim=1)


def test_a_tiny_xi_needs_stochastic_layers_and_a_larger_one_does_not() -> None:
    assert float(slopes(dropout=0.2, xi=1e-6).median()) > 1e-3
    assert float(slopes(dropout=0, xi=1e-6).median()) < 1e-4
    assert float(slopes(dropout=0, xi=0.5).median()) > 1e-3


def test_xi_depends_on_the_network_unless_the_method_sets_it() -> None:
    """ξ comes from the context for the role, or from the method's own argument."""
    results = []
    for method, xi in ((methods.vada(), 0.5), (methods.vada(), 1e-3), (methods.vada(xi=1e-3), 0.5)):
        state = build(method)
        results.append(float(step(method.phases[0], state, context(xi=xi))["classifier/L_v(target)"]))
    assert results[0] != results[1]
    assert results[1] == pytest.approx(results[2], rel=1e-12)


# 5. Draws that do not change from step to step, and warm-up steps that leave traces.


def test_batches_are_drawn_anew_at_each_step() -> None:
    method = methods.source_only()
    found = []
    for at_step in (0, 1):  # the same weights both times
        state = build(method)
        state.step += at_step
        found.append(float(step(method.phases[0], state, context(draws=SeededDraws(0, state.step)))["classifier/L_y"]))
    assert found[0] != found[1]


def test_a_step_leaves_modes_and_gradient_switches_as_they_were() -> None:
    method = methods.dirt_t(methods.vmt())
    state = build(method)
    wants = {r: [p.requires_grad for p in m.parameters()] for r, m in state.roles.items()}
    rng = torch.get_rng_state()
    for phase in method.phases:
        step(phase, state, context())
    assert {r: [p.requires_grad for p in m.parameters()] for r, m in state.roles.items()} == wants
    assert all(p.grad is None for m in state.roles.values() for p in m.parameters())
    assert torch.equal(torch.get_rng_state(), rng)  # no dropout, no noise: nothing else may draw from it


def test_a_step_that_is_rolled_back_leaves_no_traces() -> None:
    """Engines warm up so. Weights, statistics, moments, averages, the step counter and the generator stay the same."""
    method = methods.vmt()
    state = build(method, lambda: mlp((FEATURES,), 3, width=5, dropout=0.3, noise=0.3))
    step(method.phases[0], state, context())
    before, rng = {n: t.clone() for n, t in state.tensors().items()}, torch.get_rng_state()
    with rolled_back(state):
        step(method.phases[0], state, context())
        assert not torch.equal(state.step, before["step"])
    assert all(torch.equal(t, before[n]) for n, t in state.tensors().items())
    assert torch.equal(torch.get_rng_state(), rng)


# The core needs neither torchvision nor timm.

BLOCKED = """
import importlib, pkgutil, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torchvision", "timm"):
            raise ImportError(f"{name} was imported")
sys.meta_path.insert(0, Blocked())
import vmt
names = [m.name for m in pkgutil.walk_packages(vmt.__path__, "vmt.") if not m.name.endswith("__main__")]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "triton":  # comes with torch for CUDA only
            raise
print(len(names), sorted(n for n in sys.modules if n.split(".")[0] in ("torchvision", "timm")))
"""


def test_the_core_imports_neither_torchvision_nor_timm() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    modules, found = done.stdout.split(maxsplit=1)
    assert int(modules) > 20
    assert found.strip() == "[]"
    for path in Path(vmt.__file__).parent.rglob("*.py"):
        text = path.read_text()
        assert "import torchvision" not in text, path
        assert "import timm" not in text, path
