"""The importance-weighted source risk, against the same formulas written in another way."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from tests.validator_cases import random_logits
from vmt import validators
from vmt.validators.risk import LEAST, STRENGTHS, four_fifths, logistic_regression


def test_dev_risk() -> None:
    random = np.random.default_rng(0)
    w, losses = random.gamma(1.0, size=50), random.gamma(2.0, size=50)
    u = w * losses
    eta = -np.cov(u, w, ddof=1)[0, 1] / np.var(w, ddof=1)
    expected = u.mean() + eta * w.mean() - eta
    ours = validators.dev_risk(torch.from_numpy(w), torch.from_numpy(losses))
    assert float(ours) == pytest.approx(expected, abs=1e-6)


def test_dev_without_variance_is_the_plain_mean() -> None:
    losses = torch.tensor([1.0, 2.0, 6.0])
    assert float(validators.dev_risk(torch.ones(3), losses)) == pytest.approx(3)
    assert float(validators.dev_risk(torch.tensor([2.0]), torch.tensor([4.0]))) == pytest.approx(8)


@pytest.mark.parametrize("weight", [1 / 999, 0.1, 0.7])
@pytest.mark.parametrize("count", [300, 900])
def test_weights_that_differ_by_rounding_alone_have_no_variance(count: int, weight: float) -> None:
    losses = torch.from_numpy(np.random.default_rng(0).gamma(2.0, size=count))
    found = validators.dev_risk(torch.full((count,), weight, dtype=torch.float64), losses)
    assert float(found) == pytest.approx(weight * float(losses.mean()))


def test_dev_of_features_that_only_tell_the_domain() -> None:
    """Then all source samples have the same weight, and the risk is this weight times their loss."""
    source, target, validation = (torch.full((200, 5), value) for value in (0.3, 0.9, 0.3))
    logits, labels = random_logits(200, 4), torch.arange(200) % 4
    weight = validators.density_ratio(source, target, validation)[0]
    expected = -weight * torch.nn.functional.cross_entropy(logits.double(), labels)
    assert float(validators.dev(source, target, validation, logits, labels)) == pytest.approx(float(expected))


def test_dev_refuses_shapes_that_would_broadcast() -> None:
    """Weights (n, 1) times losses (n,) would be an n × n table, whose mean is not the weighted risk."""
    with pytest.raises(ValueError, match="weights and losses"):
        validators.dev_risk(torch.ones(5, 1), torch.ones(5))


def test_the_domain_classifier_is_at_its_minimum() -> None:
    x = torch.cat([random_logits(90, 3, 1.0), torch.ones(90, 1)], 1).double()
    y = (x[:, 0] + random_logits(90, 1, 0.5, 5)[:, 0] > 0.2).double()
    ours = logistic_regression(x, y, torch.tensor(STRENGTHS, dtype=torch.float64))
    for row, strength in zip(ours, STRENGTHS, strict=True):

        def objective(w: np.ndarray, strength: float = strength) -> float:
            z = x.numpy() @ w
            return float(np.mean(np.logaddexp(0, z) - y.numpy() * z) + strength / 2 * (w[:-1] ** 2).sum())

        theirs = minimize(objective, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).x
        assert objective(row.numpy()) <= objective(theirs) + 1e-12
        assert row.numpy() == pytest.approx(theirs, abs=1e-4 / min(1, strength * 100))


def test_density_ratio() -> None:
    """The ratio of two unit Gaussians at a distance of two is known, and the estimate is near it."""
    source, target = random_logits(3000, 2, 1.0), random_logits(1500, 2, 1.0, 1) + torch.tensor([2.0, 0.0])
    at = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    true = torch.exp(2 * at[:, 0] - 2).double()
    torch.testing.assert_close(validators.density_ratio(source, target, at), true, rtol=0.25, atol=0.0)


def test_density_ratio_restated() -> None:
    source, target, at = random_logits(50, 3), random_logits(40, 3, seed=1) + 1, random_logits(9, 3, seed=2)
    (fit_s, held_s), (fit_t, held_t) = four_fifths(source.double()), four_fifths(target.double())
    assert len(held_s) == 10
    assert sorted(map(tuple, torch.cat([fit_s, held_s]).tolist())) == sorted(map(tuple, source.double().tolist()))
    x = np.concatenate([fit_s.numpy(), fit_t.numpy()])
    y = np.array([1.0] * len(fit_s) + [0.0] * len(fit_t))
    middle, scale = x.mean(0), x.std(0)
    tried = []
    for strength in STRENGTHS:

        def objective(w: np.ndarray, strength: float = strength) -> float:
            z = (x - middle) / scale @ w[:3] + w[3]
            return float(np.mean(np.logaddexp(0, z) - y * z) + strength / 2 * (w[:3] ** 2).sum())

        w = minimize(objective, np.zeros(4), method="BFGS", options={"gtol": 1e-10}).x

        def odds(of: Tensor, w: np.ndarray = w) -> np.ndarray:
            return np.asarray((of.double().numpy() - middle) / scale @ w[:3] + w[3])

        tried.append(((odds(held_s) > 0).mean() + (odds(held_t) <= 0).mean(), odds(at)))
    best = max(range(len(tried)), key=lambda i: (tried[i][0], -i))
    p = 1 / (1 + np.exp(-tried[best][1]))
    expected = 50 / 40 * (1 - p) / p
    assert validators.density_ratio(source, target, at).numpy() == pytest.approx(expected, rel=1e-4)


def test_weights_stay_finite_where_the_domains_are_apart() -> None:
    source, target = random_logits(40, 2), random_logits(40, 2) + 1000
    w = validators.density_ratio(source, target, target)
    assert float(w.max()) <= 1 / LEAST
    assert bool(w.isfinite().all())
    same = torch.ones(20, 3)
    assert bool(validators.density_ratio(same, same, same).isfinite().all())


def test_dev_is_higher_for_the_better_model() -> None:
    features = random_logits(200, 3, 1.0)
    labels = (features[:, 0] > 0).long()
    right = torch.stack([-features[:, 0], features[:, 0]], 1) * 3
    target = random_logits(200, 3, 1.0, 1) + 0.3
    held_out = random_logits(200, 3, 1.0, 2)
    good = validators.dev(held_out, target, features, right, labels)
    assert float(good) > float(validators.dev(held_out, target, features, -right, labels))
