"""Augmentation: random crops, flips, colours, distortions and negatives of a batch of pictures, on its device.

Every number comes from the named draws of a run (``vmt.step.draws``), so that a resumed run augments as an unbroken one
does, and a captured graph augments anew at each replay. Pictures are (N, C, H, W) with values in 0–1. All changes of
place are one resampling, with the border mirrored.
"""

import math
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vmt.errors import InputError
from vmt.methods.nodes import Batch, Draws, View
from vmt.methods.nouns import Method, Term, Update

# Shares of the weights of red, green and blue in the brightness of a pixel.
LUMA = (0.299, 0.587, 0.114)
# What colour=1 or strength=1 does at most: the angle of the hue and of a rotation, the slope of a shear, and a shift.
HUE, ROTATION, SHEAR, SHIFT = 0.25 * math.pi, math.pi / 6, 0.3, 0.6
# How many of the distortions a picture gets on average, as in RandAugment.
AT_ONCE = 2


@dataclass(frozen=True)
class Augmentation:
    """What is changed at random in each picture of a batch.

    >>> Augmentation(crop=0.5, flip=True)
    Augmentation(crop=0.5, flip=True, colour=0.0, strength=0.0, invert=0.0)
    """

    crop: float = 1.0
    """The smallest share of the area that a crop keeps; crops have aspect ratios from 3:4 to 4:3. 1 does not crop."""
    flip: bool = False
    """Whether every second picture is mirrored, left to right."""
    colour: float = 0.0
    """How much brightness, contrast, saturation and hue change, from 0 to 1."""
    strength: float = 0.0
    """How strong the distortions of RandAugment's kind are, from 0 to 1; each picture gets two of them on average."""
    invert: float = 0.0
    """The share of the pictures that are inverted, dark for bright."""

    def __post_init__(self) -> None:
        if not 0 < self.crop <= 1:
            raise InputError(f"augment_crop must be a share above 0, and at most 1, but got {self.crop}.")
        for name in ("colour", "strength", "invert"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"augment_{name} must be from 0 to 1, but got {getattr(self, name)}.")

    def __bool__(self) -> bool:
        """Whether anything is changed."""
        return self != Augmentation()

    def __call__(self, x: Tensor, draws: Draws, name: str) -> Tensor:
        """Pictures (N, C, H, W) in 0–1, each changed by draws of its own."""
        n = len(x)

        def uniform(part: str, rows: int) -> Tensor:
            """Uniform numbers for each picture: (rows, N)."""
            return draws.beta(f"{name}/{part}", 1.0, rows * n).view(rows, n).to(x.dtype)

        place = identity(x)
        if self.flip:
            place = place @ flips(uniform("flip", 1)[0])
        if self.crop < 1:
            place = place @ crops(uniform("crop", 4), self.crop)
        if self.strength:
            gates, sizes = uniform("distortions", 2 * DISTORTIONS).view(2, DISTORTIONS, n)
            sizes = self.strength * (2 * sizes - 1) * (gates < AT_ONCE / DISTORTIONS)  # 0 leaves a picture as it is
            place = place @ distortion(sizes[:5])
        if self.flip or self.crop < 1 or self.strength:
            x = resampled(x, place)
        if self.colour:
            b, c, s, h = self.colour * (2 * uniform("colour", 4) - 1)
            x = recoloured(x, b, c, s, HUE * h)
        if self.strength:
            b, c, s, sharpness, threshold = sizes[5:]
            x = recoloured(x, b, c, s, torch.zeros_like(s))
            x = solarised(sharpened(x, sharpness), threshold)
        if self.invert:
            x = torch.where(each(uniform("invert", 1)[0] < self.invert), 1 - x, x)
        return x


DISTORTIONS = 10
"""Rotation, two shears, two shifts; brightness, contrast, saturation, sharpness, and solarising."""


def each(values: Tensor) -> Tensor:
    """One number for each picture, (N,), as (N, 1, 1, 1)."""
    return values.view(-1, 1, 1, 1)


# --- Changes of place ---
# Maps (N, 3, 3) from places in the new picture to places in the old one, both from −1 to 1.


def matrices(*rows: Tensor) -> Tensor:
    """Maps (N, 3, 3) from their first two rows, six vectors (N,)."""
    zero, one = torch.zeros_like(rows[0]), torch.ones_like(rows[0])
    return torch.stack([*rows, zero, zero, one], 1).view(-1, 3, 3)


def identity(x: Tensor) -> Tensor:
    one = x.new_ones(len(x))
    zero = torch.zeros_like(one)
    return matrices(one, zero, zero, zero, one, zero)


def flips(u: Tensor) -> Tensor:
    """Mirror every second picture: u (N,)."""
    zero, one = torch.zeros_like(u), torch.ones_like(u)
    return matrices(torch.where(u < 0.5, -one, one), zero, zero, zero, one, zero)


def crops(u: Tensor, smallest: float) -> Tensor:
    """Crops of at least a share of the area: u (4, N)."""
    area = smallest + (1 - smallest) * u[0]
    ratio = torch.exp(math.log(4 / 3) * (2 * u[1] - 1))
    width, height = (area * ratio).sqrt().clamp_max(1), (area / ratio).sqrt().clamp_max(1)
    across, down = (1 - width) * (2 * u[2] - 1), (1 - height) * (2 * u[3] - 1)
    zero = torch.zeros_like(width)
    return matrices(width, zero, across, zero, height, down)


def distortion(sizes: Tensor) -> Tensor:
    """A rotation, shears and shifts of sizes from −1 to 1: (5, N)."""
    turn, shear_x, shear_y, shift_x, shift_y = sizes
    sine, cosine = torch.sin(ROTATION * turn), torch.cos(ROTATION * turn)
    zero, one = torch.zeros_like(turn), torch.ones_like(turn)
    sheared = matrices(one, SHEAR * shear_x, SHIFT * shift_x, SHEAR * shear_y, one, SHIFT * shift_y)
    return matrices(cosine, -sine, zero, sine, cosine, zero) @ sheared


def resampled(x: Tensor, place: Tensor) -> Tensor:
    """Pictures at the places that a map (N, 3, 3) has for each pixel."""
    down, across = ((torch.arange(n, device=x.device, dtype=x.dtype) * 2 + 1) / n - 1 for n in x.shape[2:])
    columns, rows = across.expand(len(down), -1), down[:, None].expand(-1, len(across))
    pixels = torch.stack([columns, rows, torch.ones_like(columns)], -1)  # (H, W, 3)
    grid = torch.einsum("hwj,nij->nhwi", pixels, place[:, :2])
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


# --- Changes of colour ---
# Sizes are from −1 to 1, and 0 leaves a picture as it is.


def recoloured(x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor) -> Tensor:
    """Change brightness, contrast and, in colour, saturation and hue, an angle; each (N,)."""
    x = x * each(1 + brightness)
    mean = luma(x).mean((2, 3), keepdim=True)
    x = mean + (x - mean) * each(1 + contrast)
    if x.shape[1] == 3:
        grey = luma(x)
        x = turned(grey + (x - grey) * each(1 + saturation), hue)
    return x.clamp(0, 1)


def luma(x: Tensor) -> Tensor:
    """The brightness of each pixel: (N, C, H, W) → (N, 1, H, W)."""
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    red, green, blue = x.unbind(1)
    return (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue)[:, None]


def turned(x: Tensor, hue: Tensor) -> Tensor:
    """Turn the colours around the grey axis by an angle (N,); the brightness stays nearly as it is."""
    red, green, blue = x.unbind(1)
    y = LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue
    u, v = 0.492 * (blue - y), 0.877 * (red - y)
    sine, cosine = (function(hue).view(-1, 1, 1) for function in (torch.sin, torch.cos))
    u, v = u * cosine - v * sine, u * sine + v * cosine
    red, blue = y + v / 0.877, y + u / 0.492
    return torch.stack([red, (y - LUMA[0] * red - LUMA[2] * blue) / LUMA[1], blue], 1)


def sharpened(x: Tensor, sharpness: Tensor) -> Tensor:
    """Sharpen, or smooth where ``sharpness`` (N,) is negative."""
    smooth = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    return (x + (x - smooth) * each(2 * sharpness)).clamp(0, 1)


def solarised(x: Tensor, size: Tensor) -> Tensor:
    """Invert values above a threshold, which falls from 1 to 0 as ``size`` (N,) grows to 1."""
    return torch.where(x > 1 - each(size.clamp_min(0)), 1 - x, x)


# --- A method with augmented batches ---


def augmented(method: Method, augmentation: Augmentation) -> Method:
    """The same method on augmented pictures. Views in evaluation mode, such as DIRT-T's teacher, see them unchanged.

    All views of a batch see the same augmented pictures, so that mixed and adversarial ones belong to the clean ones.
    Each update draws its own.

    >>> from vmt import methods
    >>> method = augmented(methods.mcc(), Augmentation(flip=True))
    >>> method.phases[0].updates[0].keep[0].input.augment
    Augmentation(crop=1.0, flip=True, colour=0.0, strength=0.0, invert=0.0)
    """

    def in_term(term: Term) -> Term:
        return replace(term, reads=with_augmentation(term.reads, augmentation))

    def in_update(update: Update) -> Update:
        keep = with_augmentation(update.keep, augmentation)
        return replace(update, terms=tuple(map(in_term, update.terms)), keep=keep)

    phases = (replace(phase, updates=tuple(map(in_update, phase.updates))) for phase in method.phases)
    return replace(method, phases=tuple(phases)) if augmentation else method


def with_augmentation(value: Any, augmentation: Augmentation) -> Any:
    """A node, or anything that holds nodes, with all batches augmented but those of views in evaluation mode."""
    if isinstance(value, Batch):
        return replace(value, augment=augmentation)
    if isinstance(value, tuple):
        return tuple(with_augmentation(part, augmentation) for part in value)
    if not is_dataclass(value) or isinstance(value, type) or (isinstance(value, View) and not value.training):
        return value
    parts = {field.name: getattr(value, field.name) for field in fields(value)}
    changed = {name: with_augmentation(part, augmentation) for name, part in parts.items()}
    return replace(value, **changed) if changed != parts else value
