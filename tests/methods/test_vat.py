"""Virtual adversarial training: its direction, its radius, and what it must not change."""

import inspect
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor, nn

from tests.small import CLASSES, blobs, build, context
from vmt import losses, methods
from vmt.losses import adversarial_point, slope, soft_cross_entropy, unit
from vmt.methods.nodes import Batch, Tap
from vmt.methods.nouns import Method, measure
from vmt.nets.norm import BatchNorm
from vmt.step.iteration import NodeValues, apply, step
from vmt.step.plan import plan

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("shape", [(5, 7), (4, 3, 8, 8), (6, 1, 3, 5)])
@pytest.mark.parametrize("radius", [3.5, 0.5])
def test_radius_is_that_of_each_sample(shape: tuple[int, ...], radius: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator)
    # Gradients of very different length: dividing all by the first sample's norm would show.
    lengths = 10.0 ** torch.arange(-3, shape[0] - 3).view(-1, *[1] * (len(shape) - 1))
    gradient = torch.randn(shape, generator=generator) * lengths
    r = adversarial_point(x, gradient, radius) - x
    torch.testing.assert_close(r.flatten(1).norm(dim=1), torch.full((shape[0],), radius), rtol=1e-4, atol=1e-4)
    cosine = torch.cosine_similarity(r.flatten(1), gradient.flatten(1))
    torch.testing.assert_close(cosine, torch.ones(shape[0]), rtol=1e-4, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(arrays(np.float64, (3, 2, 2, 2), elements=st.floats(-1e3, 1e3)))
def test_unit_scales_each_sample_and_never_beyond_one(direction: np.ndarray) -> None:
    x = torch.from_numpy(direction)
    norms = x.flatten(1).norm(dim=1)
    expected = norms / norms.clamp_min(1e-6)
    torch.testing.assert_close(unit(x).flatten(1).norm(dim=1), expected)


def test_the_squared_norm_has_a_floor() -> None:
    gradient = torch.zeros(3, 4)
    gradient[1, 0], gradient[2, 0] = 1e-8, 1e-3
    r = adversarial_point(torch.zeros(3, 4), gradient, 3.5).norm(dim=1)
    # Below ‖g‖ = 1e-6 the step is 3.5 · ‖g‖ / 1e-6: shorter than the radius, and 0 for no gradient.
    torch.testing.assert_close(r, torch.tensor([0.0, 0.035, 3.5]), rtol=1e-4, atol=1e-6)


def test_bfloat16_gradients_are_scaled_in_single_precision() -> None:
    gradient = torch.randn(4, 3, 16, 16).bfloat16()
    assert unit(gradient).dtype == torch.float32
    torch.testing.assert_close(unit(gradient).flatten(1).norm(dim=1), torch.ones(4), rtol=1e-5, atol=1e-5)


def small_net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def test_slope_is_the_finite_difference_gradient_of_each_sample() -> None:
    net = small_net()
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    label = torch.randn(4, 3, dtype=torch.float64).softmax(-1)
    found = slope(x, label, net(x))
    expected, h = torch.zeros(4, 5, dtype=torch.float64), 1e-5
    with torch.no_grad():
        for k in range(5):
            e = torch.zeros(5, dtype=torch.float64)
            e[k] = h
            ahead, behind = (soft_cross_entropy(label, net(x + sign * e)) for sign in (1, -1))
            expected[:, k] = (ahead - behind) / (2 * h)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    assert not found.requires_grad
    assert all(p.grad is None for p in net.parameters())


def test_the_direction_is_worse_than_random_ones() -> None:
    """One power step from a large ξ changes the prediction more than steps of that length in random directions."""
    net = small_net()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 5, dtype=torch.float64, generator=generator)
    clean = net(x).detach().softmax(-1)
    near = (x + 0.5 * unit(torch.randn(40, 5, dtype=torch.float64, generator=generator))).requires_grad_()
    attacked = adversarial_point(x, slope(near, clean, net(near)), 0.5)
    with torch.no_grad():
        worst = soft_cross_entropy(clean, net(attacked)).mean()
        at_random = [x + 0.5 * unit(torch.randn(40, 5, dtype=torch.float64, generator=generator)) for _ in range(20)]
        assert worst > max(soft_cross_entropy(clean, net(other)).mean() for other in at_random)


def vat_pass(built: Callable[[], None] = lambda: None) -> tuple[NodeValues, Tap, Tap]:
    """Run the passes of VADA's classifier update: the values, and the taps at x + ξd and at x + r of the target."""
    method = methods.vada(lambda_d=0, lambda_s=0, lambda_t=1.0, xi=0.5)
    state = build(method)
    built()
    update = method.phases[0].updates[0]
    values = NodeValues(update, state, context(), 0)
    for each in plan(update, {name: module.taps for name, module in state.roles.items()}):
        values.run(each)
    (term,) = (t for t in update.terms if t.name == "L_v(target)")
    attacked = term.reads[1]
    assert isinstance(attacked, Tap)
    return values, attacked.view.input.reads[1], attacked  # type: ignore[return-value]


def test_in_the_step_the_radius_is_per_sample_and_the_adversarial_point_is_a_constant() -> None:
    values, found, attacked = vat_pass()
    x, moved = values(Batch("target")), values(attacked.view.input)
    torch.testing.assert_close((moved - x).norm(dim=1), torch.full((len(x),), 3.5, dtype=x.dtype))
    assert not moved.requires_grad
    assert not values(found).requires_grad
    assert values(attacked).requires_grad


def test_vat_starts_at_xi_from_each_sample() -> None:
    values, found, _ = vat_pass()
    near = values(found.view.input).detach()
    distance = (near - values(Batch("target"))).norm(dim=1)
    torch.testing.assert_close(distance, torch.full_like(distance, 0.5))


def test_batch_norm_is_in_training_mode_in_every_pass_of_vat(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[bool] = []
    forward = BatchNorm.forward

    def watched(self: BatchNorm, x: Tensor) -> Tensor:
        modes.append(self.training)
        return forward(self, x)

    monkeypatch.setattr(BatchNorm, "forward", watched)
    vat_pass(built=modes.clear)  # building a network tries it in evaluation mode
    assert len(modes) >= 3  # clean, near, attacked
    assert all(modes)


@pytest.mark.parametrize("method", [methods.vada(xi=0.5), methods.vmt(xi=0.5)], ids=lambda m: m.name)
def test_gradients_of_the_callers_loop_are_kept(method: Method) -> None:
    state = build(method)
    for module in state.roles.values():
        for p in module.parameters():
            p.grad = torch.full_like(p, 7.0)
    step(method.phases[0], state, context())
    grads = [p.grad for module in state.roles.values() for p in module.parameters()]
    assert all(g is not None and bool((g == 7.0).all()) for g in grads)


def test_losses_never_zero_gradients_or_switch_modes() -> None:
    source = inspect.getsource(losses)
    assert "zero_grad" not in source
    assert ".eval(" not in source
    assert ".backward(" not in source


def test_vat_is_first_order_only() -> None:
    """The classifier's gradient is that of CE(p, f(x + r)) for a given r; it does not flow through the search for r."""
    method = methods.vada(lambda_d=0, lambda_s=0, lambda_t=1.0, xi=0.5, entropy=False)
    update = method.phases[0].updates[0]
    (term,) = (t for t in update.terms if t.name == "L_v(target)")
    values, _, attacked = vat_pass()
    clean, moved = values(term.reads[0]).detach(), values(attacked.view.input).detach()
    network = values.state.roles["classifier"]
    parameters = list(network.parameters())
    in_step = torch.autograd.grad(term.loss(clean, values(attacked)).mean(), parameters, allow_unused=True)
    again = network(moved)["logits"]
    alone = torch.autograd.grad(term.loss(clean, again).mean(), parameters, allow_unused=True)
    for ours, theirs in zip(in_step, alone, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_term_of_weight_zero_is_not_differentiated() -> None:
    method = methods.source_only()
    update = method.phases[0].updates[0]
    state = build(method)

    def spy(logits: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        assert logits.shape[1] == CLASSES
        return logits.sum(1)

    watched = replace(update, terms=(*update.terms, measure("spy", spy, update.terms[0].reads[0])))
    metrics = apply(watched, plan(watched, {n: m.taps for n, m in state.roles.items()}), state, context(blobs()), 0)
    assert not metrics["classifier/spy"].requires_grad
