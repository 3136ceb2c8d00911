"""The map from stored values to what the network sees: images to [-1, 1], vectors to zero mean and unit variance.

A network with pretrained weights brings the mean and std that its images are normalised with instead.

Missing values of vectors are filled in first, with the mean or the median of their feature in their domain.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from operator import index
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from vmt.data.domains import Domain
from vmt.data.framing import INTERPOLATIONS, Framing, PictureFormat
from vmt.data.stored import StoredSamples
from vmt.errors import InputError, parsing, perhaps


@dataclass(frozen=True)
class ValueRange:
    """A convention for pixel values, and the ``x * scale + shift`` that maps it to [-1, 1]."""

    label: str
    low: int
    high: int
    scale: float
    shift: float


BYTES = ValueRange("0–255", 0, 255, 1 / 127.5, -1.0)
UNIT = ValueRange("0–1", 0, 1, 2.0, -1.0)
SIGNED = ValueRange("−1–1", -1, 1, 1.0, 0.0)
BY_SCALE = {values.scale: values for values in (BYTES, UNIT, SIGNED)}

# Floats that were resized or converted may exceed the limits of their range by rounding.
TOLERANCE = 1e-3
# No set of photographs or scans in 0–255 is this dark throughout; masks (0/1), class maps and 0–16 scans are.
DARKEST_MAXIMUM = 32

RESIZED_AT_ONCE = 4096  # images; a domain is resized in slices so that only the result is held in float32
VALUES_AT_ONCE = 2**19  # values of a slice in moments(), few enough for a processor's cache
SMALLEST_STD = 1e-37  # the inverse of a smaller standard deviation overflows float32
CONSTANT = 1e-12  # a standard deviation below this fraction of the mean is rounding error on a constant
IMPUTERS = ("mean", "median")  # what may replace the missing values of a feature


@dataclass(frozen=True)
class Preprocess:
    """The map from stored values to what the network sees; evaluation and deployment repeat it exactly."""

    channels: int  # channels (or features) that the network sees
    size: tuple[int, int] | None  # (H, W) that the network sees, None for vectors
    scale: tuple[float, ...]  # one value, or one per feature
    shift: tuple[float, ...]
    fill: tuple[float, ...] | None = None  # what replaces NaN in each feature; None if there were no missing values
    # What the network's weights expect of images beyond [-1, 1]: mean and std of values in 0–1, and how to resize.
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop: float | None = None
    interpolation: str = INTERPOLATIONS[0]

    @property
    def framing(self) -> Framing:
        """How a picture file becomes a stored image."""
        assert self.size is not None
        return Framing(self.size, self.channels, self.crop, self.interpolation)

    @property
    def format(self) -> PictureFormat:
        """What the network expects of pictures."""
        return PictureFormat(self.size, self.mean, self.std, self.interpolation, self.crop)

    @property
    def affine(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The scale and the shift of what the network sees: one value, or one per channel or feature."""
        if self.mean is None or self.std is None:
            return self.scale, self.shift
        (scale,), (shift,) = self.scale, self.shift
        each = tuple(zip(self.mean, self.std, strict=True))
        return tuple(scale / (2 * std) for _, std in each), tuple(((shift + 1) / 2 - mean) / std for mean, std in each)

    @property
    def stretches(self) -> bool:
        """Whether images of any size are brought to the network's size by bilinear interpolation alone."""
        return self.crop is None and self.interpolation == INTERPOLATIONS[0]

    @property
    def is_plain(self) -> bool:
        """Whether earlier versions, which knew neither normalisation nor crops, read it correctly."""
        return self.mean is None and self.stretches

    @property
    def values(self) -> ValueRange:
        """The value range of the stored images."""
        return BY_SCALE[self.scale[0]]

    def __call__(self, x: Tensor) -> Tensor:
        """A batch of stored samples as float32 ``x * scale + shift``, with grey repeated to three channels if needed.

        Repeated channels share memory, so the result must not be modified in place.
        """
        self._check_shape(x)
        x = x.to(torch.float32)
        scale, shift = self.affine
        if len(scale) == 1:
            x = x * scale[0] + shift[0]
        else:
            per_value = (-1,) if self.size is None else (-1, 1, 1)
            x = x * _constant(scale, x.device).view(per_value) + _constant(shift, x.device).view(per_value)
        if self.size is not None and x.shape[1] != self.channels:
            x = x.expand(-1, self.channels, -1, -1)
        return x

    def fit(self, x: Tensor) -> Tensor:
        """Resize images to the network's size, in float32 and without scaling, and fill in missing values of vectors.

        Samples that need neither are returned unchanged; images of the network's size are taken to be cropped already.
        """
        if self.fill is not None:
            self._check_shape(x)
            return fill_missing(x, self.fill)
        if self.size is None or tuple(x.shape[2:]) == self.size:
            return x
        if isinstance(x, StoredSamples):
            height, width = self.size
            raise InputError(
                f"{x.file.path} holds pictures of {x.shape[2]}×{x.shape[3]} pixels, but the network reads "
                f"{height}×{width}: give --image-size {height} {width}."
            )
        if self.crop is not None and (box := self.framing.box(*x.shape[2:])) is not None:
            left, top, right, bottom = map(round, box)
            x = x[:, :, top : max(bottom, top + 1), left : max(right, left + 1)]
        shrinks = self.size[0] < x.shape[2] or self.size[1] < x.shape[3]
        out = x.new_empty((*x.shape[:2], *self.size), dtype=torch.float32)
        for start in range(0, len(x), RESIZED_AT_ONCE):
            part = x[start : start + RESIZED_AT_ONCE].to(torch.float32)
            out[start : start + RESIZED_AT_ONCE] = F.interpolate(
                part, self.size, mode=self.interpolation, align_corners=False, antialias=shrinks
            )
        if not self.stretches:  # as in a picture file: bicubic interpolation exceeds the range of the values at edges
            out = out.clamp_(self.values.low, self.values.high)
            out = out.round_() if self.values is BYTES else out
        return out

    def sentence(self) -> str:
        """What the network sees, in words.

        >>> Preprocess(3, (224, 224), (1 / 127.5,), (-1.0,), crop=0.875, interpolation="bicubic").sentence()
        '224×224 pixels in colour, the central 87.5% of the shorter side, resized by bicubic interpolation, in [−1, 1]'
        """
        if self.size is None:
            return f"{self.channels} values, standardised"
        colour = {1: "in grey", 3: "in colour"}.get(self.channels, f"with {self.channels} channels")
        parts = [f"{self.size[0]}×{self.size[1]} pixels {colour}"]
        if self.crop is not None:
            parts.append(f"the central {100 * self.crop:.4g}% of the shorter side")
        parts.append(f"resized by {self.interpolation} interpolation")
        if self.mean is None or self.std is None:
            return ", ".join([*parts, "in [−1, 1]"])
        mean, std = (" ".join(f"{value:.3g}" for value in values) for values in (self.mean, self.std))
        return ", ".join([*parts, f"with the mean {mean} subtracted and divided by the std {std}"])

    def to_dict(self) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Preprocess":
        with parsing("the preprocessing", "what Preprocess.to_dict writes", "give channels, size, scale and shift"):
            size, fill = values["size"], values.get("fill")  # models of earlier versions have none of what get() reads
            mean, std, crop = (values.get(name) for name in ("mean", "std", "crop"))
            made = cls(
                channels=index(values["channels"]),
                size=None if size is None else (index(size[0]), index(size[1])),
                scale=tuple(float(v) for v in values["scale"]),
                shift=tuple(float(v) for v in values["shift"]),
                fill=None if fill is None else tuple(float(v) for v in fill),
                mean=None if mean is None else tuple(float(v) for v in mean),
                std=None if std is None else tuple(float(v) for v in std),
                crop=None if crop is None else float(crop),
                interpolation=values.get("interpolation", INTERPOLATIONS[0]),
            )
            made._check_format()
            lengths = (1,) if made.size is not None else (1, made.channels)
            if len(made.scale) != len(made.shift) or len(made.scale) not in lengths or made.channels < 1:
                raise ValueError("channels, scale and shift do not belong together")
            if made.fill is not None and (made.size is not None or len(made.fill) != made.channels):
                raise ValueError("fill does not have one value per feature")
            if not all(map(math.isfinite, made.scale + made.shift + (made.fill or ()))):
                raise ValueError("scale, shift and fill are not finite")
            if made.size is not None and (min(made.size) < 1 or made.scale[0] not in BY_SCALE):
                raise ValueError("no images have this size and scale")
            return made

    def _check_format(self) -> None:
        _ = self.format  # checks each by itself, but None may stand there for what is not known
        if self.interpolation is None:
            raise ValueError("the interpolation is missing")
        if self.size is None and not self.is_plain:
            raise ValueError("vectors are neither resized nor normalised like images")
        if len(self.mean or ()) != len(self.std or ()) or len(self.mean or (1,)) not in (1, self.channels):
            raise ValueError("mean and std do not have one value per channel")

    def _check_shape(self, x: Tensor) -> None:
        if self.size is None:
            fits = x.ndim == 2 and x.shape[1] == self.channels
            expected = f"(N, {self.channels})"
        else:
            grey = x.ndim == 4 and x.shape[1] == 1 and self.channels == 3
            fits = x.ndim == 4 and (x.shape[1] == self.channels or grey) and tuple(x.shape[2:]) == self.size
            expected = f"(N, {self.channels}, {self.size[0]}, {self.size[1]})"
        if not fits:
            raise InputError(
                f"the network expects samples of shape {expected}, but got {tuple(x.shape)}: reshape them."
            )


@cache
def _constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    # Made once per device, because a copy from the host is not allowed while a CUDA graph is captured, and kept
    # forever, because the graph continues to read it. Made outside inference mode, because autograd could not use it
    # otherwise.
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=torch.float32, device=device)


def check_imputer(impute: str) -> None:
    """Refuse a name that is not one of :data:`IMPUTERS`."""
    if impute not in IMPUTERS:
        raise InputError(f"impute is {impute!r}{perhaps(str(impute), IMPUTERS)}: choose {' or '.join(IMPUTERS)}.")


def fill_values(samples: Domain, impute: str) -> Tensor:
    """(F): the mean or the median of the known values of each feature, NaN for a feature without any."""
    check_imputer(impute)
    if samples.is_images:
        raise InputError(f"impute is for vectors, but {samples.name} holds images: leave it out.")
    if impute == "mean":
        return samples.x.nanmean(0, dtype=torch.float64).cpu()
    known = (column[~np.isnan(column)] for column in samples.x.cpu().numpy().T)
    return torch.tensor([np.median(column) if len(column) else np.nan for column in known], dtype=torch.float64)


def fill_missing(x: Tensor, values: tuple[float, ...]) -> Tensor:
    """Vectors (N, F) with a value for each feature in place of NaN; vectors without NaN are returned unchanged."""
    missing = x.isnan()
    return torch.where(missing, _constant(values, x.device), x) if bool(missing.any()) else x


def in_units_of(source: Domain, preprocess: Preprocess, target: Preprocess) -> Domain:
    """Samples for which ``target`` gives what ``preprocess`` gives for the samples as they are.

    So one map serves both domains in training and at prediction, even if each domain is standardised by itself.
    """

    def column(values: tuple[float, ...]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=source.x.device)

    standard = source.x.double() * column(preprocess.scale) + column(preprocess.shift)
    return replace(source, x=((standard - column(target.shift)) / column(target.scale)).to(torch.float32))


def preprocess_for(
    source: Domain, target: Domain, size: tuple[int, int] | None = None, format: PictureFormat | None = None
) -> Preprocess:
    """The one map for both domains: images to [-1, 1], vectors to zero mean and unit variance.

    Expects a pair that :func:`vmt.data.check_pair` accepts. Images are resized to `size`, or to the larger of the two
    domains' sizes. A `format` has the mean and std that images are normalised with instead, and how they are resized.
    """
    if not source.is_images:
        return standardise(source, target)
    size = size or (None if format is None else format.size)
    values = value_range(target)
    # The larger area, so that one of the two domains is never resampled.
    sizes = (d.x.shape[2:] for d in (target, source))
    height, width = size or max(sizes, key=lambda side: side[0] * side[1])
    return image_preprocess((height, width), max(source.x.shape[1], target.x.shape[1]), format, values)


def image_preprocess(
    size: tuple[int, int], channels: int, format: PictureFormat | None, values: ValueRange = BYTES
) -> Preprocess:
    """The map for images of a value range: to [-1, 1], or with the normalisation of a format."""
    if format is None:
        return Preprocess(channels, size, (values.scale,), (values.shift,))
    if format.mean is not None and len(format.mean) not in (1, channels):
        raise InputError(
            f"the mean and std have {len(format.mean)} values, but the images {channels} channels: read them in "
            "colour (--channels 3), or give one value."
        )
    return Preprocess(
        channels=channels,
        size=size,
        scale=(values.scale,),
        shift=(values.shift,),
        mean=format.mean,
        std=format.std,
        crop=format.crop,
        interpolation=format.interpolation or INTERPOLATIONS[0],
    )


def standardise(*parts: Domain) -> Preprocess:
    """The map to zero mean and unit variance over all vectors of some domains together."""
    mean, std = moments(*(part.x for part in parts))
    # Dividing by the rounding error of a constant feature would amplify noise.
    constant = (std <= CONSTANT * mean.abs()) | (std < SMALLEST_STD)
    scale = torch.where(constant, 1.0, 1 / std)
    shift = -mean * scale
    return Preprocess(len(mean), None, tuple(scale.tolist()), tuple(shift.tolist()))


def moments(*parts: Tensor | NDArray[Any]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column over the rows (N, F) of all parts together, in float64.

    >>> mean, std = moments(np.array([[1.0, 5.0], [2.0, 5.0]]), torch.tensor([[3, 5]]))
    >>> mean.tolist(), std.square().tolist()
    ([2.0, 5.0], [0.6666666666666666, 0.0])
    """
    count = 0
    mean = squares = torch.zeros((), dtype=torch.float64)
    for part in parts:
        portion = max(1, VALUES_AT_ONCE // part.shape[1])
        for start in range(0, len(part), portion):
            rows = _as_float64(part[start : start + portion])
            n, portion_mean = len(rows), rows.mean(0)
            difference = portion_mean - mean
            # Chan's update: the sums of squares around two means give the one around the common mean.
            squares = squares + (rows - portion_mean).square_().sum(0) + difference.square() * (count * n / (count + n))
            mean = mean + difference * (n / (count + n))
            count += n
    return mean, (squares / count).sqrt()


def _as_float64(rows: Tensor | NDArray[Any]) -> Tensor:
    return rows.to("cpu", torch.float64) if isinstance(rows, Tensor) else torch.from_numpy(rows.astype(np.float64))


def value_range(images: Domain) -> ValueRange:
    """The value range of images, recognised by their smallest and largest value; others are refused."""
    low, high = extremes(images)
    if images.x.is_floating_point():
        if low < -TOLERANCE:
            if low >= -1 - TOLERANCE and high <= 1 + TOLERANCE:
                return SIGNED
        elif high <= 1 + TOLERANCE:
            return UNIT
    if low >= -TOLERANCE and DARKEST_MAXIMUM < high <= 255 + TOLERANCE:
        return BYTES
    kind = "uint8" if not images.x.is_floating_point() else "floating-point"
    if low >= -TOLERANCE and high <= DARKEST_MAXIMUM:
        remedy = f"multiply them by 255/{high:g} if {high:g} stands for white"
    else:
        remedy = "undo any normalisation and rescale both domains to 0–255, 0–1 or −1–1"
    raise InputError(
        f"the {kind} images of {images.name} have values from {low:g} to {high:g}, which is none of the ranges "
        f"0–255, 0–1 and −1–1: {remedy}."
    )


def extremes(samples: Domain) -> tuple[float, float]:
    """The smallest and the largest value; a domain whose values are all equal is refused."""
    low, high = (float(value) for value in samples.x.aminmax())
    if low == high:
        raise InputError(f"every value of {samples.name} is {low:g}: check how it was loaded.")
    return low, high


def check_range(x: Tensor, trained: ValueRange) -> None:
    """Refuse images that cannot be in the value range that a model was trained on; a black image fits every range."""
    low, high = (float(value) for value in x.aminmax())
    if trained is BYTES and x.is_floating_point() and low >= 0 and 0 < high <= 1:
        raise InputError("the input is in 0–1, but this model was trained on 0–255: multiply it by 255.")
    if trained is not BYTES and not x.is_floating_point():
        raise InputError(f"the input is in 0–255, but this model was trained on {trained.label}: rescale it.")
    if low < trained.low - TOLERANCE or high > trained.high + TOLERANCE:
        raise InputError(
            f"the input has values from {low:g} to {high:g}, but this model was trained on {trained.label}: rescale it."
        )
