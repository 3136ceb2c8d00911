"""The networks of the package: the paper's CNNs, an MLP for vectors with the same taps, and the discriminator."""

import math

from torch import nn

from vmt.errors import InputError
from vmt.nets.layers import (
    ConvBlock,
    Dropout,
    GaussianNoise,
    GlobalAveragePool,
    Stage,
    dense_block,
    initialised,
    logits_layer,
)
from vmt.nets.norm import InstanceNorm
from vmt.nets.staged import Staged

# Two max-pools of 2 must leave at least one pixel for the last three convolutions.
SMALLEST_SIDE = 4


def cnn(
    shape: tuple[int, ...],
    classes: int,
    widths: tuple[int, int, int] = (64, 64, 64),
    instance_norm: bool = False,
    dropout: float = 0.5,
    noise: float = 1.0,
    depth: int = 3,
) -> Staged:
    """Nine convolutions in three blocks; ``widths`` 64-64-64 is the paper's small net, 96-192-192 its large one.

    ``depth`` is the number of convolutions in a block; the paper's is 3. The first two blocks end with max-pool,
    dropout and Gaussian noise; the discriminator reads the output of the second (``features``).

    >>> import torch
    >>> net = cnn((3, 32, 32), classes=10, instance_norm=True)
    >>> {tap: tuple(value.shape) for tap, value in net(torch.zeros(2, 3, 32, 32)).items()}
    {'features': (2, 64, 8, 8), 'hidden': (2, 64), 'logits': (2, 10)}
    """
    if len(shape) != 3 or min(shape[1:]) < SMALLEST_SIDE:
        raise InputError(
            f"a CNN needs images of at least {SMALLEST_SIDE}×{SMALLEST_SIDE} pixels, but a sample has shape {shape}: "
            "use net='mlp' for vectors, or larger images."
        )
    channels = shape[0]

    def block(inputs: int, width: int) -> list[nn.Module]:
        return [ConvBlock(width if i else inputs, width) for i in range(depth)]

    def pool() -> list[nn.Module]:
        return [nn.MaxPool2d(2), Dropout(dropout), GaussianNoise(noise)]

    first, second, third = widths
    normalise: list[nn.Module] = [InstanceNorm(channels)] if instance_norm else []
    encoder = [*normalise, *block(channels, first), *pool(), *block(first, second), *pool()]
    return Staged(
        {
            "features": Stage(*encoder),
            "hidden": Stage(*block(second, third), GlobalAveragePool()),
            "logits": logits_layer(third, classes),
        }
    )


def mlp(
    shape: tuple[int, ...],
    classes: int,
    width: int = 64,
    dropout: float = 0.1,
    noise: float = 0.1,
) -> Staged:
    """Four dense layers of ``width``; dropout and Gaussian noise after the second (``features``); BN on the logits.

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
    """The discriminator d: flattened features → dense ReLU → one logit, positive for source, without batch norm.

    >>> discriminator(features=4096).taps
    ('domain',)
    """
    layers = nn.Sequential(
        nn.Flatten(), initialised(nn.Linear(features, hidden)), nn.ReLU(), initialised(nn.Linear(hidden, 1))
    )
    return Staged({"domain": layers})
