r"""The class shares of an unlabelled target, estimated from samples, and a source that is drawn in these shares.

Methods that align the domains assume that both have about the same proportions of classes. If they do not, batch norm,
a discriminator and confident clusters all move target samples into classes that the target has few of. The remedy is a
source with the proportions of the target. They are not known, but they can be estimated without a network:

1. Standardise each domain by itself, which undoes most shifts of sensors, contrast and brightness, and fit a logistic
   regression to the source.
2. Estimate the shares of the target by expectation–maximisation over its predictions (Saerens et al., 2002).
3. Repeat with the source weighted to have these shares. At first, the means and variances of the domains differ because
   their shares differ; with each round, less of that difference is mistaken for a shift.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from vmt.data.domains import Domain
from vmt.data.task import Task
from vmt.device import default_torch_settings
from vmt.evaluate.polarity import in_polarity_of_target
from vmt.evaluate.probe import sample_rows, source_shares, subsample
from vmt.validators.class_shares import ClassShares

Array = NDArray[np.float64]

SAMPLES = 3000
"""At most this many samples of each domain are used."""
ROUNDS = 5
CAUTION = 0.1
"""The weight of the source's shares beside the target's samples, so that a poor model leaves the shares as they are."""
SMALLEST_SHARE = 1e-3
LEAST_ACCURACY = 0.5
"""A model that recognises less than this part of what guessing leaves, on the source itself, is not asked."""
LEAST_ON_OTHERS, FOLDS = 0.25, 3
"""The same for samples of the source that a model was not fitted to, by cross-validation with this many folds."""
FEWEST = 3
"""The source keeps this many samples of a class, even if the target seems to have none."""


@default_torch_settings()
def estimated_shares(task: Task) -> ClassShares | None:
    """The class shares of a task's target by its samples; None if a simple model cannot tell the source's classes."""
    from sklearn.linear_model import LogisticRegression  # only here: importing it takes a while

    prior = source_shares(task).double().numpy()
    source, target = subsample(task.source, SAMPLES), subsample(task.target.without_labels(), SAMPLES)
    source = in_polarity_of_target(source, task)
    assert source.y is not None
    xs, xt = (sample_rows(part.x, task.preprocess).numpy() for part in (source, target))
    y = source.y.cpu().numpy()
    guessing = float(prior.max())
    if _accuracy_on_others(_standardised(xs), y) - guessing < LEAST_ON_OTHERS * (1 - guessing):
        return None
    shares, accuracy = prior, 0.0
    for _ in range(ROUNDS):
        weights = (shares / np.maximum(prior, SMALLEST_SHARE))[y]
        model = LogisticRegression(max_iter=200).fit(_standardised(xs, weights), y, sample_weight=weights)
        accuracy = float(model.score(_standardised(xs, weights), y))
        p = np.full((len(xt), len(prior)), 1e-6)
        p[:, model.classes_] += model.predict_proba(_standardised(xt))
        shares = _maximised(p, np.maximum(shares, SMALLEST_SHARE), prior)
    if accuracy - guessing < LEAST_ACCURACY * (1 - guessing):
        return None
    chance = np.sqrt(2 / math.pi * prior * (1 - prior) * (1 / len(xs) + 1 / len(xt))).sum() / 2
    return ClassShares(tuple(prior.tolist()), tuple(shares.tolist()), float(chance))


@default_torch_settings()
def drawn_in_shares(source: Domain, shares: tuple[float, ...]) -> Domain:
    """As many samples of a labelled domain, in these shares of the classes; samples are repeated or left out.

    The draw is always the same, so that a resumed run has the same source.
    """
    assert source.y is not None
    generator = torch.Generator().manual_seed(0)
    rows = []
    for k, share in enumerate(shares):
        members = torch.nonzero(source.y.cpu() == k).flatten()
        if len(members):
            members = members[torch.randperm(len(members), generator=generator)]
            count = max(round(share * len(source)), min(FEWEST, len(members)))
            rows.append(members.repeat(-(-count // len(members)))[:count])
    return source.subset(torch.cat(rows).sort().values)


def drawn_in_equal_shares(source: Domain) -> Domain:
    """A labelled domain in which every class has as many samples as the largest one, at most twice the mean.

    Samples of the others are repeated. The draw is always the same, as in :func:`drawn_in_shares`.
    """
    assert source.y is not None
    counts = source.y.cpu().bincount()
    present = counts > 0
    most = min(int(counts.max()), math.ceil(2 * len(source) / int(present.sum())))
    shares = present * (most / len(source))
    return drawn_in_shares(source, tuple(shares.double().tolist()))


def _accuracy_on_others(x: Array, y: NDArray[np.int64]) -> float:
    """The accuracy of a logistic regression on samples that it was not fitted to, by cross-validation.

    On its own samples, a model with more features than samples is right even about noise.
    """
    from sklearn.linear_model import LogisticRegression

    fold = np.random.default_rng(0).permutation(len(y)) % FOLDS
    right = 0
    for held in (fold == k for k in range(FOLDS)):
        if len(np.unique(y[~held])) > 1:
            model = LogisticRegression(max_iter=200).fit(x[~held], y[~held])
            right += int((model.predict(x[held]) == y[held]).sum())
    return right / len(y)


def _standardised(x: Array, weights: Array | None = None) -> Array:
    mean = np.average(x, axis=0, weights=weights)
    spread = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weights))
    return (x - mean) / np.maximum(spread, 1e-6)


def _maximised(p: Array, trained_with: Array, prior: Array) -> Array:
    """The most likely shares, given predictions (N, K) of a model that was trained with other shares.

    A Dirichlet distribution around the source's shares holds back changes that the predictions do not demand.
    """
    shares = trained_with
    for _ in range(200):
        q = p * (shares / trained_with)
        q /= q.sum(1, keepdims=True)
        shares = np.maximum((q.mean(0) + CAUTION * prior) / (1 + CAUTION), SMALLEST_SHARE)
        shares = shares / shares.sum()
    return shares
