r"""Scores of predictions on unlabelled target samples. Higher is better for all of them.

Each function takes logits, works in double precision and returns one number as a 0-d tensor on the logits' device.
:math:`p_n = \mathrm{softmax}(z_n)`, N samples, K classes, natural logarithms.
"""

import math

import torch
from torch import Tensor

TEMPERATURE = 0.05
"""The temperature of SND."""
LAMBDA = 0.55
"""The weight of a sample in the mixtures of MixVal."""
ROWS = 1024
"""Rows of SND's N × N similarities that are computed at a time."""


def probabilities(logits: Tensor) -> Tensor:
    return logits.double().softmax(1)


def shannon(p: Tensor) -> Tensor:
    """Entropy of each row in nats, with 0 ln 0 = 0."""
    return -torch.xlogy(p, p).sum(-1)


def source_accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    r""":math:`\frac1N \sum_n [\arg\max z_n = y_n]` on labelled source samples that were not trained on.

    It is fooled by the shift itself, because it says nothing about the target. It does recognise a failed run.
    """
    return (logits.argmax(1) == labels).double().mean()


def entropy(logits: Tensor) -> Tensor:
    r""":math:`-\frac1N \sum_n H(p_n)`, in [−ln K, 0].

    It is fooled by collapse: predicting one class with certainty has the best score. Never use it alone.
    """
    return -shannon(probabilities(logits)).mean()


def diversity(logits: Tensor) -> Tensor:
    r""":math:`H(\frac1N \sum_n p_n)`, in [0, ln K]: how evenly the classes are used.

    It is fooled by noise: random predictions are perfectly diverse.
    """
    return shannon(probabilities(logits).mean(0))


def information_maximisation(logits: Tensor) -> Tensor:
    r""":math:`H(\frac1N \sum_n p_n) - \frac1N \sum_n H(p_n)`, in [0, ln K]: certain, but not all one class.

    It is fooled by confident mistakes that are spread over the classes, and too low for a target with unequal classes.
    """
    return diversity(logits) + entropy(logits)


def bnm(logits: Tensor) -> Tensor:
    r""":math:`\lVert P \rVert_* / N`, the nuclear norm of the N × K probabilities (batch nuclear norm).

    It is in :math:`[1/\sqrt{NK}, \sqrt{K/N}]` for K ≤ N, and :math:`1/\sqrt N` if one class is predicted for all. It
    depends on N, so compare only scores of equally many samples. It is fooled as information maximisation is.
    """
    p = probabilities(logits)
    gram = p.T @ p if p.shape[1] <= p.shape[0] else p @ p.T  # both have the same positive eigenvalues
    squares: Tensor = torch.linalg.eigvalsh(gram)
    return squares.clamp_min(0).sqrt().sum() / len(p)


def snd(logits: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    r"""Soft neighbourhood density: the mean entropy of each sample's similarities to all *others*,

    .. math:: \frac1N \sum_n H(\mathrm{softmax}_{m \ne n}(\langle \hat p_n, \hat p_m \rangle / T)),
        \quad \hat p = p / \lVert p \rVert_2 .

    It is in [0, ln(N − 1)], so compare only scores of equally many samples. It is fooled by collapse: if all samples
    are alike, every neighbourhood is dense and the score is the largest possible. A single sample scores 0.
    """
    p = torch.nn.functional.normalize(probabilities(logits), dim=1)
    count = len(p)
    if count < 2:
        return p.new_zeros(())
    rows = torch.arange(count, device=p.device)
    dense = []
    for block in torch.split(rows, ROWS):
        similar = p[block] @ p.T / temperature
        similar[rows[: len(block)], block] = -torch.inf  # a sample is not its own neighbour
        dense.append(shannon(similar.softmax(1)))
    return torch.cat(dense).mean()


def mano(logits: Tensor, power: float = 4.0, threshold: float = 5.0) -> Tensor:
    r"""Matrix norm of normalised logits: :math:`(\frac1{NK} \sum_{nk} Q_{nk}^p)^{1/p}` with p = 4.

    Q is the softmax if the predictions are far from uniform, :math:`-\frac1{NK} \sum_{nk} \ln p_{nk} > 5`. Otherwise it
    is :math:`1 + z + z^2/2` minus the minimum of its row, divided by the sum of its row; a row of equal values becomes
    uniform. It is fooled by collapse, as entropy is. With two classes the latter Q is always (0, 1), so the score says
    nothing.
    """
    z = logits.double()  # may be the caller's tensor, so it is never written to
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

    It is fooled by anything that stands still: a small learning rate, or collapse.
    """
    return (logits.argmax(1) == student.argmax(1)).double().mean()


def partners(count: int, device: torch.device | str = "cpu") -> Tensor:
    """For each sample another one to mix it with: the next in a fixed random order, so never the sample itself."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    partner = torch.empty_like(order)
    partner[order] = order.roll(-1)
    return partner.to(device)


def mixval(logits: Tensor, mixed: Tensor, partner: Tensor) -> Tensor:
    r"""MixVal: how often the prediction on :math:`\lambda x_n + (1 - \lambda) x_{m(n)}`, λ = 0.55, is that on
    :math:`x_n`, in [0, 1].

    It is the mean of two shares: over pairs of equal predictions (are clusters tight?) and over pairs of different ones
    (are borders half way?). ``mixed`` are the logits of the mixtures in evaluation mode, and ``partner`` is m. If one
    kind of pair does not occur, the score is the share among the other. It is fooled by collapse, which has no pairs of
    different predictions and scores 1, and by predictions that are smooth and wrong.
    """
    own = logits.argmax(1)
    kept = (mixed.argmax(1) == own).double()
    same = (own == own[partner]).double()
    intra = (kept * same).sum() / same.sum()
    inter = (kept * (1 - same)).sum() / (1 - same).sum()
    return torch.stack([intra, inter]).nanmean()


def collapse_alarm(logits: Tensor, prior: Tensor, least: float = 0.6, expected: int = 10) -> str | None:
    """A message if the predictions look collapsed, so that none of their scores can be trusted; otherwise None.

    ``prior`` has the shares of the classes among the source labels. The alarm is raised if the entropy of the mean
    prediction is less than ``least`` times that of the prior (for equal classes, 0.6 ln K), or if a class is never
    predicted of which the prior makes ``expected`` samples or more likely.
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
