r"""Scores of predictions on unlabelled target samples. Higher is better for all of them.

Each function takes logits, works in double precision and returns one number as a 0-d tensor on the logits' device.
:math:`p_n = \mathrm{softmax}(z_n)`, N samples, K classes, natural logarithms.
"""

import math

import torch
from torch import Tensor

TEMPERATURE = 0.05  # SND's
LAMBDA = 0.55  # MixVal's
ROWS = 1024  # of SND's N × N similarities at a time


def probabilities(logits: Tensor) -> Tensor:
    return logits.double().softmax(1)


def shannon(p: Tensor) -> Tensor:
    """Entropy of each row in nats; a probability of zero counts for nothing."""
    return -torch.xlogy(p, p).sum(-1)


def source_accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    r""":math:`\frac1N \sum_n [\arg\max z_n = y_n]` on labelled source samples that were not trained on.

    Fooled by the shift itself: it says nothing about the target. It does see a run that has fallen apart.
    """
    return (logits.argmax(1) == labels).double().mean()


def entropy(logits: Tensor) -> Tensor:
    r""":math:`-\frac1N \sum_n H(p_n)`, in [−ln K, 0].

    Fooled by collapse: one class for everything, said with certainty, is the best there is. Never use it alone.
    """
    return -shannon(probabilities(logits)).mean()


def diversity(logits: Tensor) -> Tensor:
    r""":math:`H(\frac1N \sum_n p_n)`, in [0, ln K]: how evenly the classes are used.

    Fooled by noise: predictions at random are perfectly diverse.
    """
    return shannon(probabilities(logits).mean(0))


def information_maximisation(logits: Tensor) -> Tensor:
    r""":math:`H(\frac1N \sum_n p_n) - \frac1N \sum_n H(p_n)`, in [0, ln K]: certain, and not always of the same class.

    Fooled by confident mistakes that are spread over the classes, and unfair to a target of unequal classes.
    """
    return diversity(logits) + entropy(logits)


def bnm(logits: Tensor) -> Tensor:
    r""":math:`\lVert P \rVert_* / N`, the nuclear norm of the N × K probabilities (batch nuclear norm).

    In :math:`[1/\sqrt{NK}, \sqrt{K/N}]` for K ≤ N, and :math:`1/\sqrt N` when everything is one class. Depends on N:
    compare only scores of equally many samples. Fooled as information maximisation is.
    """
    p = probabilities(logits)
    gram = p.T @ p if p.shape[1] <= p.shape[0] else p @ p.T  # the smaller of the two has the same singular values
    squares: Tensor = torch.linalg.eigvalsh(gram)
    return squares.clamp_min(0).sqrt().sum() / len(p)


def snd(logits: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    r"""Soft neighbourhood density: the mean entropy of each sample's similarities to all *others*,

    .. math:: \frac1N \sum_n H(\mathrm{softmax}_{m \ne n}(\langle \hat p_n, \hat p_m \rangle / T)),
        \quad \hat p = p / \lVert p \rVert_2 .

    In [0, ln(N − 1)], so compare only scores of equally many samples. Fooled by collapse: when all samples are alike,
    every neighbourhood is dense and the score is the largest possible. One sample has no neighbours and scores 0.
    """
    p = torch.nn.functional.normalize(probabilities(logits), dim=1)
    count = len(p)
    if count < 2:
        return p.new_zeros(())
    rows = torch.arange(count, device=p.device)
    dense = []
    for block in torch.split(rows, ROWS):
        similar = p[block] @ p.T / temperature
        similar[rows[: len(block)], block] = -torch.inf  # itself is not its neighbour
        dense.append(shannon(similar.softmax(1)))
    return torch.cat(dense).mean()


def mano(logits: Tensor, power: float = 4.0, threshold: float = 5.0) -> Tensor:
    r"""Matrix norm of normalised logits: :math:`(\frac1{NK} \sum_{nk} Q_{nk}^p)^{1/p}` with p = 4.

    Q is the softmax where the predictions are far from uniform, :math:`-\frac1{NK} \sum_{nk} \ln p_{nk} > 5`, and else
    :math:`1 + z + z^2/2` with its row minimum taken away and its row sum divided by; a row of equal values is uniform.
    Fooled by collapse, as entropy is. Of two classes the latter Q is always (0, 1), so that the score says nothing.
    """
    z = logits.double()  # a tensor of its own, or at least never written to
    log_p = z.log_softmax(1)
    taylor = 1 + z + z.square() / 2
    taylor = taylor - taylor.amin(1, keepdim=True)
    total = taylor.sum(1, keepdim=True)
    taylor = torch.where(total > 0, taylor / total.clamp_min(1e-300), 1 / z.shape[1])
    q = torch.where(-log_p.mean() > threshold, log_p.exp(), taylor)
    return q.pow(power).mean().pow(1 / power)


def agreement(logits: Tensor, student: Tensor) -> Tensor:
    r""":math:`\frac1N \sum_n [\arg\max z_n = \arg\max z'_n]`: how often the weight average and the weights being
    trained predict the same, in [0, 1].

    Fooled by anything that stands still: a small learning rate, or collapse.
    """
    return (logits.argmax(1) == student.argmax(1)).double().mean()


def partners(count: int, device: torch.device | str = "cpu") -> Tensor:
    """For each sample another one to mix it with: the next in a fixed random order, so never itself."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    partner = torch.empty_like(order)
    partner[order] = order.roll(-1)
    return partner.to(device)


def mixval(logits: Tensor, mixed: Tensor, partner: Tensor) -> Tensor:
    r"""MixVal: how often the prediction on :math:`\lambda x_n + (1 - \lambda) x_{m(n)}`, λ = 0.55, is that on
    :math:`x_n`, in [0, 1].

    The mean of two shares: over pairs of equal predictions (clusters are tight) and over pairs of different ones
    (borders are half way). ``mixed`` are the logits of the mixtures, in evaluation mode, and ``partner`` is m. Where
    one kind of pair does not occur, the score is the other's share: a collapse, which has no pairs of different
    predictions, scores 1. Fooled by that, and by smoothness without truth.
    """
    own = logits.argmax(1)
    kept = (mixed.argmax(1) == own).double()
    same = (own == own[partner]).double()
    intra = (kept * same).sum() / same.sum()
    inter = (kept * (1 - same)).sum() / (1 - same).sum()
    return torch.stack([intra, inter]).nanmean()


def collapse_alarm(logits: Tensor, prior: Tensor, least: float = 0.6, expected: int = 10) -> str | None:
    """One sentence when the predictions look collapsed, so that no score of them should be trusted; else None.

    ``prior`` are the shares of the classes among the source's labels. The alarm rings when the mean prediction has
    less than ``least`` of the prior's entropy (for equal classes, 0.6 ln K), or when a class of which that prior lets
    one expect ``expected`` samples or more is predicted for none.
    """
    p = probabilities(logits)
    prior = prior.double().to(p.device)
    used = torch.stack([shannon(p.mean(0)), shannon(prior)])
    counts = p.argmax(1).bincount(minlength=p.shape[1])
    missing = (counts == 0) & (prior * len(p) >= expected)
    have, full, empty = [*used.tolist(), int(missing.sum())]
    if math.isnan(have):
        return "the predictions are not numbers"
    if have < least * full:
        return f"the mean prediction has {have / full:.0%} of the entropy of the source's classes"
    if empty:
        return f"{empty} of {p.shape[1]} classes {'is' if empty == 1 else 'are'} never predicted"
    return None
