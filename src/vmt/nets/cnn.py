"""The paper's convolutional classifiers, for any image size and channel count that survives two poolings."""

from torch import nn

from vmt.errors import InputError
from vmt.nets.layers import ConvBlock, Dropout, GaussianNoise, GlobalAveragePool, Stage, logits_layer
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
    dropout and Gaussian noise; the discriminator looks at what comes out of the second (``features``).

    >>> import torch
    >>> net = cnn((3, 32, 32), classes=10, instance_norm=True)
    >>> {tap: tuple(value.shape) for tap, value in net(torch.zeros(2, 3, 32, 32)).items()}
    {'features': (2, 64, 8, 8), 'hidden': (2, 64), 'logits': (2, 10)}
    """
    if len(shape) != 3 or min(shape[1:]) < SMALLEST_SIDE:
        raise InputError(
            f"a CNN needs images of at least {SMALLEST_SIDE}×{SMALLEST_SIDE} pixels, but a sample has shape {shape}: "
            "use net='mlp' for vectors, or larger images"
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
