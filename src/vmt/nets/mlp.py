"""A classifier for vectors, with the same taps as the paper's CNN."""

import math

from torch import nn

from vmt.nets.layers import Dropout, GaussianNoise, dense_block, initialised, logits_layer
from vmt.nets.staged import Staged


def mlp(
    shape: tuple[int, ...],
    classes: int,
    width: int = 64,
    dropout: float = 0.1,
    noise: float = 0.1,
) -> Staged:
    """Four dense layers of ``width``, dropout and Gaussian noise after the second (``features``), BN on the logits.

    >>> mlp((5,), classes=3).taps
    ('features', 'hidden', 'logits')
    """
    inputs = math.prod(shape)
    regularise: list[nn.Module] = [Dropout(dropout), GaussianNoise(noise)]
    return Staged(
        {
            "features": nn.Sequential(nn.Flatten(), dense_block(inputs, width), dense_block(width, width), *regularise),
            "hidden": nn.Sequential(dense_block(width, width), dense_block(width, width)),
            "logits": logits_layer(width, classes),
        }
    )


def discriminator(features: int, hidden: int = 100) -> Staged:
    """d: flattened features → dense ReLU → one logit, positive for source. No batch norm.

    >>> discriminator(features=4096).taps
    ('domain',)
    """
    layers = nn.Sequential(
        nn.Flatten(), initialised(nn.Linear(features, hidden)), nn.ReLU(), initialised(nn.Linear(hidden, 1))
    )
    return Staged({"domain": layers})
