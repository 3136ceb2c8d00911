r"""Directions in input space for virtual adversarial training: where to look, and how far to go."""

import torch
from torch import Tensor

from vmt.losses import soft_cross_entropy
from vmt.widths import wide

# The authors' program floors the squared norm here, so that a vanishing gradient gives a step shorter than the radius
# instead of one of arbitrary direction and full length.
SQUARED_NORM_FLOOR = 1e-12


def unit(direction: Tensor) -> Tensor:
    """Each sample scaled to L2 norm 1 over all of its own values (and no others)."""
    flat = wide(direction).flatten(1)
    squared = flat.square().sum(1, keepdim=True).clamp_min(SQUARED_NORM_FLOOR)
    return (flat * squared.rsqrt()).view(direction.shape)


def slope(x: Tensor, label: Tensor, logits: Tensor) -> Tensor:
    r"""The gradient at ``x`` of :math:`\mathrm{CE}(p, f(x))`; ``logits`` are those at ``x``, p is a soft label."""
    # The sum, not the mean: the floor in `unit` is meant for per-sample gradients.
    (gradient,) = torch.autograd.grad(soft_cross_entropy(label, logits).sum(), x)
    return gradient


def adversarial(x: Tensor, slope: Tensor, radius: float) -> Tensor:
    r"""Eq. 3's :math:`x + r`, :math:`\|r\| = \epsilon` per sample, by one power step: along the slope found at
    :math:`x + \xi d`, a random point beside :math:`x`. First-order only: the result is a constant."""
    return x + radius * unit(slope)
