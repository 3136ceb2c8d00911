"""Dropout and noise on a CPU: they have the right distribution in every memory layout."""

import pytest
import torch
from torch import Tensor

from vmt.nets.networks import Dropout, GaussianNoise

pytestmark = pytest.mark.usefixtures("one_thread")

LAYOUTS = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "with gaps": lambda x: torch.cat([x, x], 3)[..., : x.shape[3]],
    "vectors": lambda x: x.flatten(1),
}


def ones(layout: str, dtype: torch.dtype) -> Tensor:
    return LAYOUTS[layout](torch.ones(50, 8, 16, 17, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("p", [0.2, 0.5])
def test_dropout_drops_a_share_and_keeps_the_mean(layout: str, dtype: torch.dtype, p: float) -> None:
    torch.manual_seed(0)
    x = ones(layout, dtype).requires_grad_()
    y = Dropout(p)(x)
    assert y.shape == x.shape
    assert y.dtype == dtype
    kept = y != 0
    assert kept.double().mean().item() == pytest.approx(1 - p, abs=0.01)
    torch.testing.assert_close(
        y[kept], torch.full_like(y[kept], 1 / (1 - p)), rtol=0.01 if dtype == torch.bfloat16 else 1e-5, atol=0
    )
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y.detach()), "the gradient is dropped where the value is"
    # Neighbours are dropped independently: no pattern from how bits are cut out of words.
    flat = kept.flatten().double()
    for lag in (1, 2, 3, 4, 8):
        both = (flat[lag:] * flat[:-lag]).mean().item()
        assert both == pytest.approx((1 - p) ** 2, abs=0.015)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_noise_is_normal(layout: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = ones(layout, dtype)
    noise = (GaussianNoise(0.5)(x) - x).double()
    assert noise.mean().item() == pytest.approx(0, abs=0.01)
    assert noise.std().item() == pytest.approx(0.5, abs=0.01)


def test_both_draw_again_at_each_call_and_do_nothing_in_evaluation() -> None:
    x = ones("channels_last", torch.float32)
    for layer in (Dropout(0.5), GaussianNoise(1.0)):
        assert not torch.equal(layer(x), layer(x))
        assert torch.equal(layer.eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
