"""Each loss equals its equation in NumPy, has the right gradient, and passes none to labels that are held constant."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from vmt import losses

pytestmark = pytest.mark.usefixtures("one_thread")

EXTREMES = np.array([[0, 0, 0], [60, -60, 0], [-1e3, 1e3, 999.5], [1e4, 1e4, -1e4], [1e-8, -1e-8, 0]], dtype=np.float64)
LOGITS = {"random": np.random.RandomState(0).randn(7, 5) * 3, "extreme": EXTREMES}
SOME = arrays(np.float64, (6, 4), elements=st.floats(-30, 30))
PARTNERS = st.permutations(range(6)).map(list)


def log_softmax(z: np.ndarray) -> np.ndarray:
    z = z - z.max(1, keepdims=True)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def cross_entropy(p: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.array(
        [
            -sum(pk * lk for pk, lk in zip(row, log_row, strict=True))
            for row, log_row in zip(p, log_softmax(z), strict=True)
        ]
    )


def bce(z: np.ndarray, label: int) -> np.ndarray:
    sign = 1 if label == 1 else -1
    return np.logaddexp(0, -sign * z)


def other(z: np.ndarray) -> np.ndarray:
    return np.roll(z, 1, axis=1)[::-1].copy()


def pair(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(1)
    return random.rand(len(z)), random.permutation(len(z))


def equal(found: Tensor, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", LOGITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equations(kind: str, dtype: torch.dtype) -> None:
    # NumPy gets the values that PyTorch gets, rounded to the dtype.
    z = torch.from_numpy(LOGITS[kind]).to(dtype).double().numpy()
    w = other(z)
    lam, partner = pair(z)
    lam = torch.from_numpy(lam).to(dtype).double().numpy()
    y = np.arange(len(z)) % z.shape[1]
    tz, tw, tl = (torch.from_numpy(a).to(dtype) for a in (z, w, lam))
    tp = torch.from_numpy(partner)
    p = np.exp(log_softmax(z))
    at = lam[:, None]

    equal(losses.source_cross_entropy(tz, torch.from_numpy(y)), -log_softmax(z)[np.arange(len(z)), y])
    equal(losses.conditional_entropy(tz), cross_entropy(p, z))
    equal(losses.virtual_adversarial(tz, tw), cross_entropy(p, w))
    equal(losses.teacher_cross_entropy(tz, tw), cross_entropy(p, w))
    equal(losses.virtual_mixup_on_probabilities(tz, tw, tl, tp), cross_entropy(at * p + (1 - at) * p[partner], w))
    mixed_logits = tl.double()[:, None] * tz.double() + (1 - tl.double()[:, None]) * tz.double()[tp]
    if kind == "extreme" and dtype == torch.float32:
        return  # a mix of logits near 1e4 is only exact to 1e-3 in single precision
    equal(losses.virtual_mixup(tz, tw, tl, tp), cross_entropy(np.exp(log_softmax(mixed_logits.numpy())), w))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_domain_losses(dtype: torch.dtype) -> None:
    values = np.array([[0.3], [-2.0], [0.0], [80.0], [-80.0], [5e3], [-5e3]])
    source, target = torch.from_numpy(values).to(dtype), torch.from_numpy(-2 * values).to(dtype)
    s, t = source.double().numpy()[:, 0], target.double().numpy()[:, 0]
    for found, expected in zip(
        losses.discriminator_loss(source, target), (0.5 * bce(s, 1), 0.5 * bce(t, 0)), strict=True
    ):
        equal(found, expected)
    for found, expected in zip(
        losses.domain_confusion(source, target), (0.5 * bce(s, 0), 0.5 * bce(t, 1)), strict=True
    ):
        equal(found, expected)


@settings(max_examples=40, deadline=None)
@given(SOME, SOME)
def test_confusion_is_the_discriminator_loss_with_labels_swapped(source: np.ndarray, target: np.ndarray) -> None:
    s, t = torch.from_numpy(source[:, :1]), torch.from_numpy(target[:, :1])
    confused = losses.domain_confusion(s, t)
    swapped = losses.discriminator_loss(source=t, target=s)
    torch.testing.assert_close(confused[0], swapped[1])
    torch.testing.assert_close(confused[1], swapped[0])


@settings(max_examples=40, deadline=None)
@given(SOME, SOME, PARTNERS)
def test_lambda_one_is_clean_and_zero_is_the_partner(z: np.ndarray, w: np.ndarray, partner: list[int]) -> None:
    clean, of_mixed, j = torch.from_numpy(z), torch.from_numpy(w), torch.tensor(partner)
    one, zero = torch.ones(6, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    for loss in (losses.virtual_mixup, losses.virtual_mixup_on_probabilities):
        torch.testing.assert_close(loss(clean, of_mixed, one, j), losses.virtual_adversarial(clean, of_mixed))
        torch.testing.assert_close(loss(clean, of_mixed, zero, j), losses.virtual_adversarial(clean[j], of_mixed))
    torch.testing.assert_close(losses.mixed(clean, one, j), clean)


@settings(max_examples=40, deadline=None)
@given(SOME, SOME)
def test_entropy_is_bounded_and_below_cross_entropy(z: np.ndarray, w: np.ndarray) -> None:
    entropy = losses.conditional_entropy(torch.from_numpy(z))
    assert (entropy >= 0).all()
    assert (entropy <= np.log(4) + 1e-9).all()
    assert (losses.virtual_adversarial(torch.from_numpy(z), torch.from_numpy(w)) >= entropy - 1e-9).all()
    # Only differences between logits matter.
    torch.testing.assert_close(losses.conditional_entropy(torch.from_numpy(z) + 7.0), entropy)


def test_mixed_works_on_images_and_per_sample() -> None:
    x = torch.randn(3, 2, 4, 4)
    lam, partner = torch.tensor([1.0, 0.0, 0.25]), torch.tensor([1, 2, 0])
    mixed = losses.mixed(x, lam, partner)
    torch.testing.assert_close(mixed[0], x[0])
    torch.testing.assert_close(mixed[1], x[2])
    torch.testing.assert_close(mixed[2], 0.25 * x[2] + 0.75 * x[0])


SEEDED = torch.Generator().manual_seed(0)
LAM, PARTNER, Y = (
    torch.rand(4, dtype=torch.float64, generator=SEEDED),
    torch.tensor([2, 0, 3, 1]),
    torch.tensor([0, 2, 1, 2]),
)
HELD = torch.randn(4, 3, dtype=torch.float64, generator=SEEDED)
IN_STUDENT: dict[str, Callable[[Tensor], Tensor]] = {
    "L_y": lambda z: losses.source_cross_entropy(z, Y),
    "L_c": losses.conditional_entropy,
    "L_v": lambda z: losses.virtual_adversarial(HELD, z),
    "L_m": lambda z: losses.virtual_mixup(HELD, z, LAM, PARTNER),
    "L_m on probabilities": lambda z: losses.virtual_mixup_on_probabilities(HELD, z, LAM, PARTNER),
    "teacher": lambda z: losses.teacher_cross_entropy(HELD, z),
    "discriminator": lambda z: torch.cat(losses.discriminator_loss(z[:, :1], z[:, 1:2])),
    "confusion": lambda z: torch.cat(losses.domain_confusion(z[:, :1], z[:, 1:2])),
    "weighted confusion": lambda z: torch.cat(losses.weighted_domain_confusion(z[:, :1], z[:, 1:2], HELD, -HELD)),
}
WITH_LABEL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "L_v": losses.virtual_adversarial,
    "L_m": lambda clean, z: losses.virtual_mixup(clean, z, LAM, PARTNER),
    "L_m on probabilities": lambda clean, z: losses.virtual_mixup_on_probabilities(clean, z, LAM, PARTNER),
    "teacher": losses.teacher_cross_entropy,
}


@pytest.mark.parametrize("name", IN_STUDENT)
def test_gradient(name: str) -> None:
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(IN_STUDENT[name], (z,))


@pytest.mark.parametrize("name", WITH_LABEL)
def test_no_gradient_reaches_a_virtual_label(name: str) -> None:
    clean = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    of_clean, of_z = torch.autograd.grad(WITH_LABEL[name](clean, z).sum(), (clean, z), allow_unused=True)
    assert of_clean is None
    assert of_z.abs().max() > 1e-3


def test_entropy_gradient_flows_through_both_factors() -> None:
    z = torch.tensor([[1.0, -0.5, 0.2]], dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(losses.conditional_entropy(z).sum(), z)
    p, entropy = z.softmax(-1), losses.conditional_entropy(z)
    torch.testing.assert_close(found, -p * (p.log() + entropy[:, None]))
    # With the first factor held, the gradient would be p − p = 0 everywhere.
    assert found.abs().max() > 0.1


@pytest.mark.parametrize("name", IN_STUDENT)
def test_bfloat16_logits_are_computed_with_in_single_precision(name: str) -> None:
    z = (3 * torch.randn(4, 3)).bfloat16()
    found = IN_STUDENT[name](z)
    assert found.dtype in (torch.float32, torch.float64)
    torch.testing.assert_close(found, IN_STUDENT[name](z.float()))


def test_agreement_is_the_l1_distance_of_predictions() -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 7, 4))
    ours = losses.agreement(torch.tensor(a), torch.tensor(b)).numpy()
    np.testing.assert_allclose(ours, np.abs(np.exp(log_softmax(a)) - np.exp(log_softmax(b))).sum(1), atol=1e-6)


def test_diversity_is_the_clipped_squared_distance_of_mean_features() -> None:
    """A channel of a map is one feature, so its mean is over samples and positions."""
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 5, 3, 2, 2))
    distance = np.square((a - b).mean((0, 2, 3))).sum()
    near, far = torch.tensor(a, requires_grad=True), torch.tensor(b)
    assert float(losses.diversity(near, far).detach()) == pytest.approx(-distance, abs=1e-6)
    clipped = losses.diversity(near, far, ceiling=distance / 2)
    assert float(clipped.detach()) == pytest.approx(-distance / 2)
    (gradient,) = torch.autograd.grad(clipped.sum(), near)
    assert not gradient.any(), "nothing pushes once the ceiling is reached"


def test_mmd_is_the_biased_estimate_with_a_floor() -> None:
    random = np.random.default_rng(0)
    s, t = random.standard_normal((6, 3)), random.standard_normal((5, 3)) + 1

    def kernel(a: np.ndarray, b: np.ndarray) -> float:
        squared = np.square(a[:, None] - b[None]).sum(-1)
        return float(np.mean(sum(np.exp(-squared / (2 * sigma)) for sigma in losses.BANDWIDTHS)))

    expected = kernel(s, s) + kernel(t, t) - 2 * kernel(s, t)
    ours = losses.maximum_mean_discrepancy(torch.tensor(s), torch.tensor(t))
    assert float(ours) == pytest.approx(expected, abs=1e-6)
    assert float(losses.maximum_mean_discrepancy(torch.tensor(s), torch.tensor(s))) == pytest.approx(1e-4)


def entropies(p: np.ndarray) -> np.ndarray:
    return np.array([-sum(pk * np.log(pk) for pk in row if pk > 0) for row in p])


def confusion_of_classes(z: np.ndarray, temperature: float, w: np.ndarray | None = None) -> float:
    """MCC's equation in loops; the weights of the samples can be given, because they are held constant."""
    (n, k), p = z.shape, np.exp(log_softmax(z / temperature))
    if w is None:
        certainty = 1 + np.exp(-entropies(p))
        w = n * certainty / certainty.sum()
    c = np.array([[sum(w[i] * p[i, a] * p[i, b] for i in range(n)) for b in range(k)] for a in range(k)])
    c = c / c.sum(1, keepdims=True)
    return float((c.sum() - np.trace(c)) / k)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_class_confusion_is_the_normalised_confusion_off_the_diagonal(temperature: float) -> None:
    z = LOGITS["random"]
    found = losses.class_confusion(torch.from_numpy(z), temperature)
    assert found.shape == (1,)
    assert float(found) == pytest.approx(confusion_of_classes(z, temperature), abs=1e-12)
    weights = losses.certainty_weights(torch.from_numpy(z / temperature))
    assert float(weights.mean()) == pytest.approx(1)
    assert int(weights.argmax()) == int(entropies(np.exp(log_softmax(z / temperature))).argmin())


def test_gradient_of_class_confusion_holds_the_weights_of_the_samples_constant() -> None:
    z = torch.from_numpy(LOGITS["random"].copy()).requires_grad_()
    (found,) = torch.autograd.grad(losses.class_confusion(z).sum(), z)
    start = LOGITS["random"]
    w = losses.certainty_weights(torch.from_numpy(start) / 2.5).numpy()
    for at in np.ndindex(start.shape):
        step = np.zeros_like(start)
        step[at] = 1e-5
        slope = (confusion_of_classes(start + step, 2.5, w) - confusion_of_classes(start - step, 2.5, w)) / 2e-5
        assert float(found[at]) == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_class_confusion_is_finite_where_no_sample_has_a_class(dtype: torch.dtype) -> None:
    z = torch.tensor([[5.0, 4.0, -9e3], [3.0, 5.0, -8e3]]).to(dtype).requires_grad_()
    loss = losses.class_confusion(z)
    assert loss.dtype == torch.float32
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    assert 0 < float(loss.detach()) < 1
    assert gradient.isfinite().all()
    assert gradient[:, :2].abs().min() > 0
