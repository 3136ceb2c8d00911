"""Pictures of numbers drawn with fonts: 32×32 in colour, with the labelled digit in the middle.

They follow what is known of Synthetic Digits: numbers of one to three digits in many fonts, with varying position,
orientation, colours of ink and background and amount of blur, made to resemble SVHN but without its structured
clutter; a gradient of light, sometimes the edge of a second surface, and a little noise take its place. Random numbers
are a function of (seed, stream, index of the picture, place), so that every picture can be drawn by itself.
"""

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from vmt.data.synthetic.glyphs import CELL, INK_HEIGHT, Atlas
from vmt.kernels.random_bits import GOLDEN, mix64, multiples, shift_right, signed

SIDE = 32
SUPERSAMPLING = 2
DRAWS = 48  # random numbers for each picture, more than it uses
MAX_ANGLE = math.radians(25)
BLUR_REACH = 4  # pixels on either side
MIN_CONTRAST, MAX_CONTRAST = 25.0, 150.0  # in luminance, from 0 to 255; colours that differ more are not changed
LUMINANCE = torch.tensor([0.299, 0.587, 0.114])
NOISE_BANK = 2**18
NOISE_SEED, NOISE_STREAM = 0, 2**32


class PictureDraws:
    """The random numbers for a batch of pictures; every call takes the next one of each picture."""

    def __init__(self, seed: int, stream: int, indices: NDArray[np.int64]) -> None:
        self.columns: Iterator[NDArray[np.float64]] = iter(uniforms(seed, stream, indices, DRAWS).T)

    def below(self, count: int) -> Tensor:
        """Integers from 0 to count − 1."""
        return torch.from_numpy((next(self.columns) * count).astype(np.int64))

    def between(self, low: float, high: float) -> Tensor:
        return torch.from_numpy((low + (high - low) * next(self.columns)).astype(np.float32))

    def around_zero(self, reach: float) -> Tensor:
        """A triangular distribution: small values are more likely than large ones."""
        return self.between(-reach / 2, reach / 2) + self.between(-reach / 2, reach / 2)

    def colour(self) -> Tensor:
        """Red, green and blue, from grey to fully saturated; colours near grey are more likely."""
        pure = torch.stack([self.between(0, 255) for _ in range(3)], dim=1)
        grey = (pure @ LUMINANCE)[:, None]
        return torch.lerp(grey, pure, self.between(0, 1).square()[:, None])


def render(atlas: Atlas, seed: int, stream: int, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Pictures (N, 3, 32, 32) uint8 and labels; each depends on the seed, the stream and its own index alone."""
    draws = PictureDraws(seed, stream, indices)
    labels = draws.below(10)
    grid = _grid()
    ink = _draw_text(atlas, labels, grid, draws)
    surface = _second_surface(grid, draws)
    masks = _blur(torch.stack([ink, surface], dim=1), draws.between(0, 2))
    return _paint(masks, grid, draws), labels


def _grid() -> Tensor:
    """The coordinates of the samples, in pixels from the middle: (2, fine, fine), x before y."""
    fine = SIDE * SUPERSAMPLING
    axis = (torch.arange(fine) + 0.5) / SUPERSAMPLING - SIDE / 2
    return torch.stack(torch.meshgrid(axis, axis, indexing="xy"))


def _draw_text(atlas: Atlas, labels: Tensor, grid: Tensor, draws: PictureDraws) -> Tensor:
    """The ink of a number of one to three digits, at the final size."""
    count = len(labels)
    faces = draws.below(len(atlas.ink))
    digits, place = draws.below(3) + 1, draws.between(0, 1)
    place = (place * digits).to(torch.int64)
    neighbours = ((place > 0, draws.below(10), -1), (place < digits - 1, draws.below(10), 1))
    spacing = draws.between(0.95, 1.25)
    height = draws.between(17, 30)
    stretch = draws.between(0.6, 1.05)
    slant = draws.around_zero(0.3)
    angle = draws.around_zero(MAX_ANGLE)
    right, down = draws.around_zero(4), draws.around_zero(4)

    # From a pixel back to the line of text: shift, rotate, slant, scale.
    cos, sin = (_per_image(value) for value in (angle.cos(), angle.sin()))
    x, y = grid[0] - _per_image(right), grid[1] - _per_image(down)
    scale = _per_image(INK_HEIGHT / height)
    along, across = cos * x + sin * y, cos * y - sin * x
    along = (along + _per_image(slant) * across) * scale / _per_image(stretch)
    across = across * scale * (2 / CELL)

    pictures, advance = torch.from_numpy(atlas.ink), torch.from_numpy(atlas.advance)
    everyone = torch.arange(count)
    ink = _sample(pictures[faces, labels], along, across)
    for present, digit, side in neighbours:
        here = everyone[present]
        face, own, other = faces[here], labels[here], digit[here]
        distance = side * spacing[here] * (advance[face, own] + advance[face, other]) / 2
        drawn = _sample(pictures[face, other], along[here] - _per_image(distance), across[here])
        ink[here] = torch.maximum(ink[here], drawn)
    return ink


def _sample(pictures: Tensor, along: Tensor, across: Tensor) -> Tensor:
    """The ink (N, 32, 32) in [0, 1] of pictures at positions in pixels along the line and half cells across it."""
    grid = torch.stack([along * (2 / CELL), across], dim=-1)
    fine = F.grid_sample(pictures.unsqueeze(1).to(torch.float32) / 255, grid, align_corners=False)
    return F.avg_pool2d(fine, SUPERSAMPLING).squeeze(1)


def _second_surface(grid: Tensor, draws: PictureDraws) -> Tensor:
    """The mask of the picture beyond a straight edge; it is empty in most pictures."""
    pixels = F.avg_pool2d(grid, SUPERSAMPLING)
    angle, reach = draws.between(0, 2 * math.pi), draws.between(4, 32)
    beyond = _per_image(angle.cos()) * pixels[0] + _per_image(angle.sin()) * pixels[1] - _per_image(reach)
    return (beyond + 0.5).clamp(0, 1)


def _blur(masks: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur with a width for each picture; pixels at the edge are replicated."""
    steps = torch.arange(-BLUR_REACH, BLUR_REACH + 1)
    weights = torch.exp(-0.5 * (steps / (sigma[:, None] + 0.05)) ** 2)
    weights = weights / weights.sum(dim=1, keepdim=True)
    for axis in (2, 3):
        padding = (0, 0, BLUR_REACH, BLUR_REACH) if axis == 2 else (BLUR_REACH, BLUR_REACH, 0, 0)
        padded = F.pad(masks, padding, mode="replicate")
        masks = sum(
            (_per_image(weights[:, k], 4) * padded.narrow(axis, k, SIDE) for k in range(2 * BLUR_REACH + 1)),
            start=torch.zeros(()),
        )
    return masks


def _paint(masks: Tensor, grid: Tensor, draws: PictureDraws) -> Tensor:
    """Pictures from the masks of ink and second surface: colours, a gradient of light, and noise."""
    background, other, ink = draws.colour(), draws.colour(), draws.colour()
    ink = _with_contrast(ink, background, draws.between(MIN_CONTRAST, MAX_CONTRAST))
    share = draws.between(0, 1)[:, None]
    other = share * other + (1 - share) * background
    pixels = F.avg_pool2d(grid, SUPERSAMPLING) / (SIDE / 2)
    light = _per_image(draws.around_zero(25)) * pixels[0] + _per_image(draws.around_zero(25)) * pixels[1]
    noise = _noise(draws.below(NOISE_BANK)) * _per_image(draws.between(0, 6), 4)

    surface, text = masks[:, 1:], masks[:, :1]
    picture = torch.lerp(background[..., None, None], other[..., None, None], surface)
    picture = torch.lerp(picture, ink[..., None, None].expand_as(picture), text)
    return (picture + light[:, None] + noise).clamp(0, 255).round().to(torch.uint8)


def _with_contrast(ink: Tensor, background: Tensor, contrast: Tensor) -> Tensor:
    """The colour of the ink, lighter or darker so that its luminance differs from the background's by `contrast`."""
    below = background @ LUMINANCE
    difference = ink @ LUMINANCE - below
    # In the direction in which it differs already, unless that would leave the range of values.
    lighter = torch.where(difference >= 0, below + contrast <= 255, below - contrast < 0)
    wanted = torch.where(
        lighter, difference.clamp(min=0).maximum(contrast), -(-difference).clamp(min=0).maximum(contrast)
    )
    return (ink + (wanted - difference)[:, None]).clamp(0, 255)


def _noise(offsets: Tensor) -> Tensor:
    """For each picture, a section of a fixed bank of normal random numbers."""
    length = 3 * SIDE * SIDE
    return _noise_bank().unfold(0, length, 1)[offsets].view(-1, 3, SIDE, SIDE)


@cache
def _noise_bank() -> Tensor:
    u = uniforms(NOISE_SEED, NOISE_STREAM, np.arange(NOISE_BANK + 3 * SIDE * SIDE), 2)
    normal = np.sqrt(-2 * np.log1p(-u[:, 0])) * np.cos(2 * math.pi * u[:, 1])
    return torch.from_numpy(normal.astype(np.float32))


def _per_image(values: Tensor, ndim: int = 3) -> Tensor:
    return values.view(-1, *[1] * (ndim - 1))


def uniforms(seed: int, stream: int, indices: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """(len(indices), count) random numbers in [0, 1), a function of seed, stream, index and place alone."""
    uniform: NDArray[np.float64] = (shift_right(words(seed, stream, indices, count), 11).double() * 2.0**-53).numpy()
    return uniform


def words(seed: int, stream: int, indices: NDArray[np.int64], count: int) -> Tensor:
    """(len(indices), count) random words of 64 bits, by SplitMix64."""
    key = mix64(mix64(torch.tensor(signed(seed))) + signed(stream * GOLDEN))
    start = mix64(key + torch.from_numpy(indices) * signed(GOLDEN))
    return mix64(start[:, None] + multiples(count, "cpu"))
