r"""The shares of the classes in an unlabelled target, estimated from predictions.

Methods that align the domains assume that both have about the same proportions of classes. Where that is wrong, they
move target samples to classes that the target lacks, and no label-free score notices it. :func:`estimate_class_shares`
does, if the difference is large.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vmt.errors import few
from vmt.validators.predictions import probabilities

# A difference of less than this says little: models that err on a balanced target reach 0.2 (docs/other-classes.md).
LEAST_DIFFERENCE = 0.24
# A difference must exceed this multiple of the one that resampling of the source gives.
NOISE_FACTOR = 1.5
RESAMPLINGS = 10
ITERATIONS = 500
# A class is named as rare or frequent if its share changes by these factors.
RARE, FREQUENT = 0.5, 1.5
# How the sentence begins.
SEEMS = "the target seems to lack classes, or to have other class proportions than the source"


@dataclass(frozen=True)
class ClassShares:
    """The share of each class in both domains."""

    source: tuple[float, ...]
    target: tuple[float, ...]
    """Estimated."""
    noise: float
    """The difference that chance makes likely, if the shares are equal."""

    @property
    def difference(self) -> float:
        """The total variation distance: the part of the target that would have to change its class."""
        return sum(abs(s - t) for s, t in zip(self.source, self.target, strict=True)) / 2

    @property
    def differ(self) -> bool:
        """Whether the proportions are very different, beyond what errors of a good model explain."""
        return self.difference > max(LEAST_DIFFERENCE, NOISE_FACTOR * self.noise)

    def warning(self, classes: Sequence[str]) -> str | None:
        """A sentence if the proportions are very different; otherwise None."""
        return self.sentence(classes) if self.differ else None

    def sentence(self, classes: Sequence[str], matched: bool = False) -> str:
        """How the proportions differ, and what follows; ``matched`` if the source was drawn in those of the target."""
        ratios = {k: t / s for k, (s, t) in enumerate(zip(self.source, self.target, strict=True)) if s > 0}
        order = sorted(ratios, key=lambda k: ratios[k])
        rare = [classes[k] for k in order if ratios[k] < RARE]
        frequent = [classes[k] for k in reversed(order) if ratios[k] > FREQUENT]
        names = [f"{what} {few(group, 5)}" for what, group in (("few or no", rare), ("more", frequent)) if group]
        found = f" ({'; '.join(names)})" if names else ""
        what = f"{SEEMS}{found}"
        if matched:
            return (
                f"{what}: the source is drawn in the estimated proportions; if you know that the proportions are the "
                "same, use --no-match-shares (docs/other-classes.md)."
            )
        return (
            f"{what}: by the predictions, {self.difference:.0%} of it would have to change class; if that is so, "
            "aligning the domains moves samples to wrong classes, so compare with --method source_only "
            "(docs/other-classes.md)."
        )


def estimate_class_shares(target: Tensor, source: Tensor, labels: Tensor, prior: Tensor) -> ClassShares:
    r"""Estimate the class shares of an unlabelled target.

    ``target`` and ``source`` are logits (N, K) of target samples and of labelled source samples, best of samples that
    were not trained on. ``prior`` (K) has the shares of the classes among the source's labels. The estimate is the mean
    of two: the shares of the predicted classes, and these shares corrected by the confusion of classes on the source
    (:func:`corrected_shares`). The first is too close to the source if the domains were aligned; the second relies on
    confusions being the same in both domains.

    >>> labels = torch.arange(300) % 3
    >>> logits = 4 * torch.nn.functional.one_hot(labels, 3)
    >>> shares = estimate_class_shares(logits[labels < 2], logits, labels, torch.full((3,), 1 / 3))
    >>> [round(share, 1) for share in shares.target], shares.differ
    ([0.5, 0.5, 0.0], True)
    """
    target, source, labels = (part.detach().cpu() for part in (target, source, labels))
    prior = prior.detach().cpu().double()
    shares = labels.bincount(minlength=len(prior)).double() / len(labels)
    generator = torch.Generator().manual_seed(0)

    def resampled() -> float:
        """The difference between the shares of the source and the estimate for a target that is drawn from it."""
        rows = torch.randint(len(source), (len(source),), generator=generator)
        others = torch.randint(len(source), (len(target),), generator=generator)
        estimate = _mean_estimate(source[others], source[rows], labels[rows])
        return float((estimate - shares).abs().sum() / 2)

    noise = sum(resampled() for _ in range(RESAMPLINGS)) / RESAMPLINGS
    return ClassShares(tuple(prior.tolist()), tuple(_mean_estimate(target, source, labels).tolist()), noise)


def _mean_estimate(target: Tensor, source: Tensor, labels: Tensor) -> Tensor:
    predicted = target.argmax(1).bincount(minlength=target.shape[1]).double() / len(target)
    return (predicted + corrected_shares(target, source, labels)) / 2


def corrected_shares(target: Tensor, source: Tensor, labels: Tensor) -> Tensor:
    r"""Black-box shift estimation: the shares q ≥ 0 for which :math:`C q` is the mean prediction on the target.

    :math:`C_{jk}` is the mean probability of class j on source samples of class k. The q of least Kullback–Leibler
    divergence is found by expectation–maximisation, so that no share is negative. A class without source samples is
    taken to be predicted without error.
    """
    classes = target.shape[1]
    members = torch.nn.functional.one_hot(labels, classes).double()
    counts = members.sum(0)
    confusion = torch.where(counts > 0, probabilities(source).T @ members / counts.clamp_min(1), torch.eye(classes))
    mean = probabilities(target).mean(0)
    shares = torch.full((classes,), 1 / classes, dtype=torch.float64)
    for _ in range(ITERATIONS):
        shares = shares * (confusion.T @ (mean / (confusion @ shares).clamp_min(1e-12)))
        shares = shares / shares.sum()
    return shares
