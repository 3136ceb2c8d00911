"""How a picture becomes what a network sees: size, crop, interpolation, and the mean and std of its weights.

Weights that were trained on photographs expect pictures that are resized and normalised as those were. A network brings
these numbers as a :class:`PictureFormat`, and :class:`vmt.data.Preprocess` holds what is applied.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from vmt.errors import InputError, perhaps

INTERPOLATIONS = ("bilinear", "bicubic")
Size = tuple[int, int]  # height, width


@dataclass(frozen=True)
class PictureFormat:
    """What the weights of a network expect of pictures; None where that is not known or does not matter.

    >>> own, known = PictureFormat(crop=0.9), PictureFormat((224, 224), (0.5,), (0.5,), crop=1.0)
    >>> own.or_else(known)
    PictureFormat(size=(224, 224), mean=(0.5,), std=(0.5,), interpolation=None, crop=0.9)
    """

    size: Size | None = None
    mean: tuple[float, ...] | None = None
    """Mean of each channel, or of all together, of values in 0–1; it is subtracted."""
    std: tuple[float, ...] | None = None
    """Standard deviation, of values in 0–1; it divides."""
    interpolation: str | None = None
    """How pictures are resized: bilinear or bicubic."""
    crop: float | None = None
    """The share of the shorter side that the central crop keeps. None changes the aspect ratio instead of cropping."""

    def __post_init__(self) -> None:
        if self.interpolation is not None and self.interpolation not in INTERPOLATIONS:
            hint = perhaps(str(self.interpolation), INTERPOLATIONS)
            raise InputError(
                f"interpolation is {self.interpolation!r}{hint}: choose one of {', '.join(INTERPOLATIONS)}."
            )
        if self.crop is not None and not 0 < self.crop <= 1:
            raise InputError(f"crop must be a share from above 0 to 1, but got {self.crop}.")
        if (self.mean is None) != (self.std is None):
            given, lacking = ("mean", "std") if self.std is None else ("std", "mean")
            raise InputError(f"{given} is given without {lacking}: give both or none.")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and (len(values) not in (1, 3) or not all(map(math.isfinite, values))):
                raise InputError(f"{name} is {values}: give one number, or one for each of three channels.")
        if self.std is not None and min(self.std) <= 0:
            raise InputError(f"std is {self.std}: give positive numbers.")

    def or_else(self, other: "PictureFormat") -> "PictureFormat":
        """The same with the values of another format where this one has none."""
        lacking = {f.name: getattr(other, f.name) for f in fields(self) if getattr(self, f.name) is None}
        return replace(self, **lacking)


def format_from(
    size: int | Sequence[int] | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    interpolation: str | None = None,
    crop: float | None = None,
) -> PictureFormat:
    """A format from numbers and sequences, as users and other packages write them.

    >>> format_from(224, mean=0.5, std=[0.2, 0.2, 0.3])
    PictureFormat(size=(224, 224), mean=(0.5,), std=(0.2, 0.2, 0.3), interpolation=None, crop=None)
    """

    def numbers(values: float | Sequence[float] | None) -> tuple[float, ...] | None:
        if values is None:
            return None
        return tuple(map(float, values)) if isinstance(values, Sequence) else (float(values),)

    try:
        sides = None if size is None else tuple(map(int, size)) if isinstance(size, Sequence) else (int(size),)
        if sides is not None and (len(sides) not in (1, 2) or min(sides) < 1):
            raise ValueError(f"a size of {size}")
        return PictureFormat(
            None if sides is None else (sides[0], sides[-1]),
            numbers(mean),
            numbers(std),
            interpolation,
            None if crop is None else float(crop),
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"pictures cannot have the size {size!r}, mean {mean!r}, std {std!r} and crop {crop!r}: give numbers."
        ) from error


@dataclass(frozen=True)
class Framing:
    """How a picture of any size becomes an array of one size."""

    size: Size
    channels: int
    crop: float | None = None
    """The share of the shorter side that is kept; None changes the aspect ratio instead."""
    interpolation: str = "bilinear"

    def box(self, height: float, width: float) -> tuple[float, float, float, float] | None:
        """The centred part of a picture that is resized: left, top, right and bottom; None stands for all of it.

        >>> Framing((224, 224), 3, crop=1.0).box(300, 400)
        (50.0, 0.0, 350.0, 300.0)
        """
        if self.crop is None:
            return None
        scale = self.crop * min(height / self.size[0], width / self.size[1])
        across, down = scale * self.size[1], scale * self.size[0]
        # Rounding must not leave the picture by the last digit.
        left, top = max(0.0, (width - across) / 2), max(0.0, (height - down) / 2)
        return left, top, min(float(width), left + across), min(float(height), top + down)

    def described(self) -> list[object]:
        """What decides the pixels, for the key of a cache; files that were cached without a crop keep their keys."""
        plain = self.crop is None and self.interpolation == INTERPOLATIONS[0]
        return [self.size, self.channels, *(() if plain else (self.crop, self.interpolation))]

    @property
    def least_side(self) -> int:
        """The shorter side at which a picture may be decoded, twice what the resizing needs, so that it is smooth."""
        return math.ceil(2 * max(self.size) / (self.crop or 1.0))
