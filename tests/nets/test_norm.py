"""Batch norm with several passes in one batch: each is normalised as if alone, and only some move the statistics."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vmt.nets.norm import BatchNorm, InstanceNorm, normalised_together, passes

pytestmark = pytest.mark.usefixtures("one_thread")

CHANNELS = 3
# One pass after the other, and all by one formula, as for compilers.
WAYS = pytest.mark.parametrize("way", [nullcontext, normalised_together], ids=["separately", "together"])
SHAPES = {"2-D": (CHANNELS,), "4-D": (CHANNELS, 4, 5)}


def layer(seed: int = 0) -> BatchNorm:
    generator = torch.Generator().manual_seed(seed)
    norm = BatchNorm(CHANNELS).double()
    with torch.no_grad():
        for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            tensor.copy_(0.5 + torch.rand(CHANNELS, generator=generator, dtype=torch.float64))
    return norm


def inputs(sizes: tuple[int, ...], shape: tuple[int, ...], seed: int = 1) -> list[Tensor]:
    """One batch per pass, each with another mean and scale."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(n, *shape, generator=generator, dtype=torch.float64) * (1 + i) + 3 * i).requires_grad_()
        for i, n in enumerate(sizes)
    ]


def statistics(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    rows = x.detach().transpose(0, 1).reshape(CHANNELS, -1).numpy()
    return rows.mean(1), rows.var(1)  # numpy's variance is the biased one


def restated(norm: BatchNorm, x: Tensor) -> Tensor:
    dims = [d for d in range(x.dim()) if d != 1]
    mean, var = x.mean(dims, keepdim=True), x.var(dims, keepdim=True, unbiased=False)
    shape = [1, CHANNELS, *[1] * (x.dim() - 2)]
    return (x - mean) / (var + 1e-3).sqrt() * norm.weight.view(shape) + norm.bias.view(shape)


@WAYS
def test_a_large_mean_costs_no_precision(way: type[AbstractContextManager[None]]) -> None:
    """In single precision, with a mean a thousand times the spread: sums of squares would lose the spread."""
    exact, single = layer(), layer().float()
    rounded = (1000 + torch.cat(inputs((16, 16), (CHANNELS,))).detach()).float()
    found = []
    for norm, x in ((exact, rounded.double().requires_grad_()), (single, rounded.clone().requires_grad_())):
        with way(), passes((16, 16), (1,)):
            y = norm(x)
        upstream = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        gradients = torch.autograd.grad(y, (x, norm.weight), upstream)
        found.append((y, *gradients, norm.running_var))
    for wanted, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours.double(), wanted, rtol=2e-3, atol=2e-3)


@WAYS
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("sizes", [(4, 4), (4, 4, 4, 4), (2, 7, 3), (6,)], ids=str)
@pytest.mark.parametrize("updating", [(), (0,), (1,), (0, 1)], ids=str)
def test_concatenated_passes_equal_separate_ones(
    way: type[AbstractContextManager[None]],
    shape: tuple[int, ...],
    sizes: tuple[int, ...],
    updating: tuple[int, ...],
) -> None:
    updating = tuple(i for i in updating if i < len(sizes))
    together, apart = layer(), layer()
    parts = inputs(sizes, shape)
    pulls = inputs(sizes, shape, seed=9)
    with way(), passes(sizes, updating):
        y = together(torch.cat(parts))
    found = torch.autograd.grad((y * torch.cat(pulls).detach()).sum(), [*parts, together.weight, together.bias])

    alone = []
    for i, part in enumerate(parts):
        with passes((len(part),), (0,) if i in updating else ()):
            alone.append(apart(part))
    plain = [restated(apart, part) for part in parts]
    torch.testing.assert_close(y, torch.cat(plain))
    torch.testing.assert_close(torch.cat(alone), torch.cat(plain))
    total = sum((a * p.detach()).sum() for a, p in zip(plain, pulls, strict=True))
    assert isinstance(total, Tensor)
    for ours, theirs in zip(found, torch.autograd.grad(total, [*parts, apart.weight, apart.bias]), strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(together.running_mean, apart.running_mean)
    torch.testing.assert_close(together.running_var, apart.running_var)


@WAYS
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("sizes", [(4, 3, 5), (4, 4, 4)], ids=["unequal", "equal"])
@pytest.mark.parametrize("updating", [(), (1,), (2,), (0, 2)], ids=str)
def test_only_listed_passes_move_the_statistics_by_a_hundredth(
    way: type[AbstractContextManager[None]],
    shape: tuple[int, ...],
    sizes: tuple[int, ...],
    updating: tuple[int, ...],
) -> None:
    norm, parts = layer(), inputs(sizes, shape)
    mean, var = norm.running_mean.numpy().copy(), norm.running_var.numpy().copy()
    with way(), passes(sizes, updating):
        norm(torch.cat(parts))
    for i in updating:
        of_batch = statistics(parts[i])
        mean, var = 0.99 * mean + 0.01 * of_batch[0], 0.99 * var + 0.01 * of_batch[1]
    np.testing.assert_allclose(norm.running_mean.numpy(), mean, rtol=1e-12)
    np.testing.assert_allclose(norm.running_var.numpy(), var, rtol=1e-12)


def test_statistics_over_many_steps_have_the_closed_form() -> None:
    """rₙ = 0.99ⁿ r₀ + 0.01 Σ 0.99ⁿ⁻ⁱ mᵢ, the TensorFlow momentum 0.99."""
    norm, n = layer(), 100
    start = norm.running_mean.numpy().copy(), norm.running_var.numpy().copy()
    moments = []
    for i in range(n):
        (x,) = inputs((5,), (CHANNELS, 2, 2), seed=i)
        norm(x)
        moments.append(statistics(x))
    weights = 0.01 * 0.99 ** np.arange(n - 1, -1, -1)
    for k, running in enumerate((norm.running_mean, norm.running_var)):
        expected = 0.99**n * start[k] + sum(w * m[k] for w, m in zip(weights, moments, strict=True))
        np.testing.assert_allclose(running.numpy(), expected, rtol=1e-10)


def test_outside_of_passes_it_is_one_pass_that_updates() -> None:
    norm, within = layer(), layer()
    (x,) = inputs((6,), SHAPES["4-D"])
    y = norm(x)
    with passes((6,), (0,)):
        torch.testing.assert_close(within(x), y)
    torch.testing.assert_close(norm.running_mean, within.running_mean)
    torch.testing.assert_close(norm.running_var, within.running_var)
    assert not torch.equal(norm.running_mean, layer().running_mean)
    torch.testing.assert_close(y, restated(norm, x))


def test_passes_end_with_their_context_even_after_an_error() -> None:
    def broken() -> None:
        with passes((2, 2), ()), passes((1, 1, 2), (0,)):
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    norm, (x,) = layer(), inputs((5,), (CHANNELS,))
    torch.testing.assert_close(norm(x), restated(norm, x))
    assert not torch.equal(norm.running_mean, layer().running_mean)


def test_evaluation_uses_the_running_statistics_and_leaves_them() -> None:
    norm = layer().eval()
    (x,) = inputs((6,), SHAPES["4-D"])
    with passes((2, 4), (0, 1)):
        y = norm(x)
    at = (1, CHANNELS, 1, 1)
    scale = (norm.running_var + 1e-3).rsqrt().view(at) * norm.weight.view(at)
    torch.testing.assert_close(y, (x - norm.running_mean.view(at)) * scale + norm.bias.view(at))
    assert torch.equal(norm.running_mean, layer().running_mean)
    assert torch.equal(norm.running_var, layer().running_var)


@WAYS
@pytest.mark.parametrize("shape", [(CHANNELS,), (CHANNELS, 2, 2)], ids=["2-D", "4-D"])
@pytest.mark.parametrize("updating", [(), (1,)], ids=str)
def test_gradients_in_double_precision(
    way: type[AbstractContextManager[None]], shape: tuple[int, ...], updating: tuple[int, ...]
) -> None:
    norm = layer()

    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        with way(), passes((4, 4), updating):
            return torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (x,))

    parts = torch.cat(inputs((4, 4), shape)).detach().requires_grad_()
    assert torch.autograd.gradcheck(forward, (parts, norm.weight, norm.bias))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(2, 5), min_size=1, max_size=5), st.integers(0, 100))
def test_a_pass_does_not_depend_on_another(sizes: list[int], seed: int) -> None:
    norm, parts = layer(), inputs(tuple(sizes), (CHANNELS,), seed)
    with passes(tuple(sizes), ()):
        before = torch.split(norm(torch.cat(parts)), sizes)
        changed = torch.split(norm(torch.cat([*parts[:-1], 100 * parts[-1] + 7])), sizes)
    for one, other in zip(before[:-1], changed[:-1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_instance_norm_is_per_image_and_channel_and_affine() -> None:
    norm = InstanceNorm(2).double()
    x = torch.randn(3, 2, 4, 4, dtype=torch.float64) * torch.tensor([1.0, 5.0, 20.0]).view(3, 1, 1, 1) + 4
    expected = (x - x.mean((2, 3), keepdim=True)) / (x.var((2, 3), keepdim=True, unbiased=False) + 1e-3).sqrt()
    torch.testing.assert_close(norm(x), expected)
    assert [p.numel() for p in norm.parameters()] == [2, 2]
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([2.0, -1.0]))
        norm.bias.copy_(torch.tensor([0.5, 3.0]))
    shifted = expected * torch.tensor([2.0, -1.0]).view(2, 1, 1) + torch.tensor([0.5, 3.0]).view(2, 1, 1)
    torch.testing.assert_close(norm(x), shifted)
    torch.testing.assert_close(norm.eval()(x), shifted)
    # Contrast and brightness of an image make no difference, whatever else is in the batch.
    torch.testing.assert_close(norm(2 * x[:1] + 1), norm(x)[:1], rtol=1e-2, atol=1e-2)


def test_float32_keeps_statistics_in_float32_under_bfloat16() -> None:
    norm = BatchNorm(CHANNELS)
    x = torch.randn(6, CHANNELS, 4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        norm(x.bfloat16())
    assert norm.running_mean.dtype == norm.running_var.dtype == torch.float32
    expected = 0.01 * x.bfloat16().float().mean((0, 2, 3))
    torch.testing.assert_close(norm.running_mean, expected, rtol=1e-3, atol=1e-5)


@WAYS
def test_the_layer_after_a_norm_may_work_in_place(way: Callable[[], AbstractContextManager[None]]) -> None:
    norm = BatchNorm(3)
    x = torch.randn(8, 3, 4, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    gradients = []
    for in_place in (False, True):
        with way(), passes((4, 4), ()):
            y = norm(x)
            loss = torch.relu_(y) if in_place else torch.relu(y)
        gradients.append(torch.autograd.grad(loss.square().sum(), [x, norm.weight]))
    torch.testing.assert_close(gradients[0], gradients[1])
