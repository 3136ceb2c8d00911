r"""Deep embedded validation (DEV): the target risk, estimated from source samples that resemble the target."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

# Strengths of the L2 penalty of the domain classifier; the one with the best held-out accuracy is used.
STRENGTHS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
HELD_OUT = 0.2
# P(source) is at least this; otherwise single weights could be almost infinite.
LEAST = 1e-3
# Weights whose relative difference is smaller than this are equal.
ROUNDING = 1e-9
# Step lengths of Newton's method.
STEPS = torch.tensor([1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.0], dtype=torch.float64)


def dev(source: Tensor, target: Tensor, validation: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """The negative risk of :func:`dev_risk` with cross-entropy as the loss, so that higher is better.

    ``source`` and ``target`` are features of training samples; ``validation``, ``logits`` and ``labels`` belong to
    source samples that were *not* trained on. It is fooled if the domains are easy to tell apart: then a few source
    samples have all the weight. The estimated risk may be negative.
    """
    losses = F.cross_entropy(logits.double(), labels, reduction="none")
    return -dev_risk(density_ratio(source, target, validation), losses)


def dev_risk(weights: Tensor, losses: Tensor) -> Tensor:
    r"""The importance-weighted risk with a control variate: for :math:`u = w\,l`,
    :math:`\bar u + \eta \bar w - \eta`, where :math:`\eta = -\mathrm{cov}(u, w) / \mathrm{var}(w)`.

    If the weights do not vary, η is 0. Both arguments have one value per sample.
    """
    if weights.shape != losses.shape or weights.dim() != 1:
        raise ValueError(
            f"weights and losses must be vectors of equal length, but have shapes {tuple(weights.shape)} and "
            f"{tuple(losses.shape)}."
        )
    w, u = weights.double(), weights.double() * losses.double()
    apart = w - w.mean()
    # Rounded, the mean of equal weights may differ from them, and η would be a quotient of rounding errors.
    varies = apart.abs().max() > ROUNDING * w.abs().max()
    spread = torch.where(varies, apart.square().sum(), 1.0)
    eta = torch.where(varies, -(apart * (u - u.mean())).sum() / spread, 0.0)
    return u.mean() + eta * (w.mean() - 1)


def density_ratio(source: Tensor, target: Tensor, at: Tensor) -> Tensor:
    r""":math:`w(x) = \frac{N_s}{N_t} \frac{P(\mathrm{target} \mid x)}{P(\mathrm{source} \mid x)}` at some features.

    P is a logistic regression on standardised features, fitted to four fifths of the samples with each of
    :data:`STRENGTHS`; the one with the best balanced accuracy on the last fifth is used.
    """
    source, target, at = (part.double().flatten(1) for part in (source, target, at))
    fit_s, held_s = four_fifths(source)
    fit_t, held_t = four_fifths(target)
    both = torch.cat([fit_s, fit_t])
    centre, scale = both.mean(0), both.std(0, correction=0)
    scale = torch.where(scale > 1e-12, scale, 1.0)

    def ready(x: Tensor) -> Tensor:
        x = (x - centre) / scale
        return torch.cat([x, x.new_ones(len(x), 1)], 1)

    is_source = torch.cat([both.new_ones(len(fit_s)), both.new_zeros(len(fit_t))])
    solutions = logistic_regression(ready(both), is_source, both.new_tensor(STRENGTHS))
    right = (ready(held_s) @ solutions.T > 0).double().mean(0) + (ready(held_t) @ solutions.T <= 0).double().mean(0)
    log_odds = ready(at) @ solutions[right.argmax()]  # log-odds of source; among equals, the strongest penalty
    p = log_odds.sigmoid().clamp(LEAST, 1 - LEAST)
    return len(source) / len(target) * (1 - p) / p


def four_fifths(x: Tensor) -> tuple[Tensor, Tensor]:
    """The samples to fit and those held out, in a fixed random order; a single sample is in both."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)
    held = max(1, math.floor(HELD_OUT * len(x)))
    return (x, x) if len(x) < 2 else (x[order[held:]], x[order[:held]])


def logistic_regression(x: Tensor, y: Tensor, strengths: Tensor, iterations: int = 50) -> Tensor:
    r"""One row of weights for each strength α, minimising the mean logistic loss :math:`+ \frac\alpha2 \lVert w
    \rVert^2`. The last column of ``x`` is constant, and its weight has no penalty.

    Newton's method for all strengths at once. Each step has the best of a few lengths, so the loss never rises.
    """
    count, width = x.shape
    penalty = strengths[:, None] * torch.ones(width, dtype=x.dtype, device=x.device)
    penalty[:, -1] = 0
    lengths = STEPS.to(x.device)[:, None, None]
    w = x.new_zeros(len(strengths), width)

    def objective(w: Tensor) -> Tensor:
        z = w @ x.T
        return (F.softplus(z) - y * z).mean(-1) + (penalty * w.square()).sum(-1) / 2

    for _ in range(iterations):
        p = (w @ x.T).sigmoid()
        gradient = (p - y) @ x / count + penalty * w
        curvature = ((p * (1 - p))[:, :, None] * x).mT @ x / count + torch.diag_embed(penalty + 1e-12)
        step = torch.linalg.solve(curvature, gradient)
        tried = w - lengths * step
        chosen = objective(tried).argmin(0)
        w = tried[chosen, torch.arange(len(w), device=w.device)]
        if gradient.abs().max() < 1e-9:
            break
    return w
