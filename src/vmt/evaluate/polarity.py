"""Whether the pictures of the target are negatives of those of the source: dark on bright for bright on dark.

This is common: print against a screen, X-rays of another device, ink against chalk. No method that aligns the domains
undoes it, because every picture changes by more than the classes differ. It can be seen without labels, so that the
networks can be trained on inverted pictures as well, and simple models on negatives.
"""

from dataclasses import replace

import torch
from torch import Tensor

from vmt.data.domains import Domain
from vmt.data.preprocess import Preprocess
from vmt.data.task import Task
from vmt.device import default_torch_settings
from vmt.evaluate.probe import sample_rows, subsample

SAMPLES = 500
"""At most this many pictures of each domain are compared."""
LEAST_SKEWNESS, MOST_CORRELATION = 0.2, -0.5


@default_torch_settings()
def target_is_negative(task: Task) -> bool:
    """Whether the pictures of the target look like negatives of those of the source.

    In both domains, most pixels belong to a background that is darker than the rest, or brighter, and in one it is the
    former, in the other the latter: the skewnesses of the values have different signs. And the mean pictures of the
    domains are each other's negatives: their correlation over the pixels is negative.
    """
    if not task.source.is_images:
        return False
    (one, mean), (other, own) = (_skewness_and_mean(part, task.preprocess) for part in (task.source, task.target))
    if one * other >= 0 or min(abs(one), abs(other)) < LEAST_SKEWNESS:
        return False
    return float(torch.corrcoef(torch.stack([mean, own]))[0, 1]) < MOST_CORRELATION


def in_polarity_of_target(source: Domain, task: Task) -> Domain:
    """Samples of the source; their negatives if the target looks like negatives of the source."""
    if not target_is_negative(task):
        return source
    values = task.preprocess.values
    return replace(source, x=values.low + values.high - source.x[:])


def _skewness_and_mean(part: Domain, preprocess: Preprocess) -> tuple[float, Tensor]:
    """The skewness of the values of the pictures, and the mean picture as a vector."""
    x = sample_rows(subsample(part.without_labels(), SAMPLES).x, preprocess)
    centred = x - x.mean()
    skewness = centred.pow(3).mean() / centred.square().mean().clamp_min(1e-12).pow(1.5)
    return float(skewness), x.mean(0)
