"""The networks of other papers, whose systems are compared with the paper's: DANN, DSN, DRCN and self-ensembling.

The pages of the methods say where each layer is from. All of them have the taps ``features`` (of the convolutions),
``hidden`` and ``logits``; those of DANN and DSN have ``code`` between them, the output of the first dense layer.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import prod

from torch import nn

from vmt.errors import InputError
from vmt.nets.networks import Dropout, FullPrecision, GlobalAveragePool, Staged
from vmt.nets.norm import BatchNorm

SLOPE = 0.01
CODE = 1024


def images_only(shape: tuple[int, ...], name: str, least: int) -> None:
    if len(shape) != 3 or min(shape[1:]) < least:
        raise InputError(f"the network {name} needs images of {least}×{least} pixels or more, but got shape {shape}.")


def convolution(inputs: int, outputs: int, size: int = 5) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, padding=size // 2), nn.ReLU())


def dense(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU())


def dann_mnist(shape: tuple[int, ...], classes: int, width: int = 100) -> Staged:
    """DANN's network for MNIST: two convolutions, then two dense layers of ``width``."""
    images_only(shape, "dann_mnist", 8)
    channels, height, wide = shape
    flat = 48 * (height // 4) * (wide // 4)
    return Staged(
        {
            "features": nn.Sequential(
                convolution(channels, 32), nn.MaxPool2d(2), convolution(32, 48), nn.MaxPool2d(2), nn.Flatten()
            ),
            "code": dense(flat, width),
            "hidden": dense(width, width),
            "logits": FullPrecision(nn.Linear(width, classes)),
        }
    )


def dann_svhn(shape: tuple[int, ...], classes: int, widths: tuple[int, int] = (3072, 2048)) -> Staged:
    """DANN's network for SVHN: three convolutions, then dense layers of 3,072 and 2,048."""
    images_only(shape, "dann_svhn", 8)
    channels, height, wide = shape
    flat = 128 * ((height + 3) // 4) * ((wide + 3) // 4)
    pool = nn.MaxPool2d(3, 2, padding=1)
    return Staged(
        {
            "features": nn.Sequential(
                convolution(channels, 64), pool, convolution(64, 64), pool, convolution(64, 128), nn.Flatten()
            ),
            "code": dense(flat, widths[0]),
            "hidden": dense(*widths),
            "logits": FullPrecision(nn.Linear(widths[1], classes)),
        }
    )


def drcn(shape: tuple[int, ...], classes: int, width: int = CODE, dropout: float = 0.5) -> Staged:
    """DRCN's network: three convolutions and two dense layers. Dropout is before the last layer alone."""
    images_only(shape, "drcn", 8)
    channels, height, wide = shape
    flat = 200 * (height // 4) * (wide // 4)
    return Staged(
        {
            "features": nn.Sequential(
                convolution(channels, 100, 3),
                nn.MaxPool2d(2),
                convolution(100, 150, 3),
                nn.MaxPool2d(2),
                convolution(150, 200, 3),
                nn.Flatten(),
            ),
            "hidden": nn.Sequential(dense(flat, width), dense(width, width)),
            "logits": FullPrecision(Dropout(dropout), nn.Linear(width, classes)),
        }
    )


def self_ensembling(
    shape: tuple[int, ...], classes: int, widths: tuple[int, int, int] = (128, 256, 512), dropout: float = 0.5
) -> Staged:
    """The network of self-ensembling, on which the Π-model runs: nine convolutions with batch norm."""
    images_only(shape, "self_ensembling", 16)
    first, second, third = widths

    def block(inputs: int, outputs: int, size: int = 3, padding: int = 1) -> nn.Sequential:
        layer = nn.Conv2d(inputs, outputs, size, padding=padding)
        return nn.Sequential(layer, BatchNorm(outputs), nn.LeakyReLU(SLOPE))

    return Staged(
        {
            "features": nn.Sequential(
                *(block(shape[0] if i == 0 else first, first) for i in range(3)),
                nn.MaxPool2d(2),
                Dropout(dropout),
                *(block(first if i == 0 else second, second) for i in range(3)),
                nn.MaxPool2d(2),
                Dropout(dropout),
            ),
            "hidden": nn.Sequential(
                block(second, third, padding=0),
                block(third, third // 2, 1, 0),
                block(third // 2, third // 4, 1, 0),
                GlobalAveragePool(),
            ),
            "logits": FullPrecision(nn.Linear(third // 4, classes)),
        }
    )


# --- Networks of their own ---
# They are functions of the shape of the classifier's code and of that of a sample.


def dsn_private(code: tuple[int, ...], sample: tuple[int, ...]) -> Staged:
    """DSN's private encoder: two convolutions and a dense layer with batch norm, or a dense one for vectors."""
    size = prod(code)
    if len(sample) == 1:
        return Staged({"code": nn.Sequential(nn.Linear(sample[0], size), BatchNorm(size), nn.ReLU())})
    flat = 64 * (sample[1] // 4) * (sample[2] // 4)
    layers = (convolution(sample[0], 32), nn.MaxPool2d(2), convolution(32, 64), nn.MaxPool2d(2), nn.Flatten())
    return Staged({"code": nn.Sequential(*layers, nn.Linear(flat, size), BatchNorm(size), nn.ReLU())})


def dsn_decoder(code: tuple[int, ...], sample: tuple[int, ...]) -> Staged:
    """DSN's decoder: a dense layer to a 10×10 picture, four convolutions, and an enlargement in the middle."""
    size = prod(code)
    if len(sample) == 1:
        return vector_decoder(size, sample[0])
    start = nn.Sequential(nn.Linear(size, 300), BatchNorm(300), nn.ReLU(), nn.Unflatten(1, (3, 10, 10)))
    middle = (convolution(3, 16, 3), convolution(16, 16, 3), nn.Upsample(sample[1:]), convolution(16, 16, 3))
    return Staged({"reconstruction": nn.Sequential(start, *middle, nn.Conv2d(16, sample[0], 3, padding=1))})


def drcn_decoder(code: tuple[int, ...], sample: tuple[int, ...]) -> Staged:
    """DRCN's decoder, the encoder backwards.

    Its values are not limited to those of a picture: beyond the limits there would be no gradient, and a decoder that
    has become black everywhere would stay so.
    """
    size = prod(code)
    if len(sample) == 1:
        return vector_decoder(size, sample[0])
    channels, height, width = sample
    small = (200, height // 4, width // 4)
    layers = (
        dense(size, size),
        dense(size, prod(small)),
        nn.Unflatten(1, small),
        convolution(200, 200, 3),
        convolution(200, 150, 3),
        nn.Upsample(scale_factor=2),
        convolution(150, 100, 3),
        nn.Upsample((height, width)),
        nn.Conv2d(100, channels, 3, padding=1),
    )
    return Staged({"reconstruction": nn.Sequential(*layers)})


def vector_decoder(code: int, features: int) -> Staged:
    """A decoder for vectors, which the papers do not have."""
    return Staged({"reconstruction": nn.Sequential(dense(code, 64), nn.Linear(64, features))})


@dataclass(frozen=True)
class DomainHead:
    """Builds a discriminator with dense layers of these widths, which reads features of any shape."""

    widths: tuple[int, ...]

    def __call__(self, features: tuple[int, ...], sample: tuple[int, ...]) -> Staged:
        sizes = (prod(features), *self.widths)
        layers = [dense(before, after) for before, after in pairwise(sizes)]
        return Staged({"domain": nn.Sequential(nn.Flatten(), *layers, FullPrecision(nn.Linear(sizes[-1], 1)))})
