"""From stored values to what the network sees."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from vmt.data.domains import Domain
from vmt.errors import InputError


@dataclass(frozen=True)
class ValueRange:
    """A convention for pixel values, and the ``x * scale + shift`` that takes it to [-1, 1]."""

    label: str
    low: int
    high: int
    scale: float
    shift: float


BYTES = ValueRange("0–255", 0, 255, 1 / 127.5, -1.0)
UNIT = ValueRange("0–1", 0, 1, 2.0, -1.0)
SIGNED = ValueRange("−1–1", -1, 1, 1.0, 0.0)
BY_SCALE = {values.scale: values for values in (BYTES, UNIT, SIGNED)}

# Floats that were resized or converted may miss the end of their range by rounding.
TOLERANCE = 1e-3
# No set of photographs or scans in 0–255 is this dark throughout; masks (0/1), class maps and 0–16 scans are.
DARKEST_MAXIMUM = 32


def value_range(images: Domain) -> ValueRange:
    """The range of the images, told from their extremes; refuses what fits none."""
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
        remedy = "undo any normalisation and rescale them to 0–255, 0–1 or −1–1, the same in both domains"
    raise InputError(
        f"the {kind} images of {images.name} have values from {low:g} to {high:g}, which fit none of "
        f"0–255, 0–1 and −1–1: {remedy}."
    )


def check_range(x: Tensor, trained: ValueRange) -> None:
    """Refuses images that cannot be in the range that a model was trained on. A black one may be in any."""
    low, high = (float(value) for value in x.aminmax())
    if trained is BYTES and x.is_floating_point() and low >= 0 and 0 < high <= 1:
        raise InputError("the input is in 0–1, but this model was trained on 0–255: multiply it by 255.")
    if trained is not BYTES and not x.is_floating_point():
        raise InputError(f"the input is in 0–255, but this model was trained on {trained.label}: rescale it.")
    if low < trained.low - TOLERANCE or high > trained.high + TOLERANCE:
        raise InputError(
            f"the input has values from {low:g} to {high:g}, but this model was trained on {trained.label}: rescale it."
        )


def extremes(samples: Domain) -> tuple[float, float]:
    """Smallest and largest value; a domain without any variation is refused."""
    low, high = (float(value) for value in samples.x.aminmax())
    if low == high:
        raise InputError(f"every value of {samples.name} is {low:g}: check how it was loaded.")
    return low, high


VALUES_AT_ONCE = 2**19  # of a slice: few enough for a processor's cache


def moments(*parts: Tensor | NDArray[Any]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column, over the rows (N, F) of all parts together, in 64 bits.

    >>> mean, std = moments(np.array([[1.0, 5.0], [2.0, 5.0]]), torch.tensor([[3, 5]]))
    >>> mean.tolist(), std.square().tolist()
    ([2.0, 5.0], [0.6666666666666666, 0.0])
    """
    count = 0
    mean = squares = torch.zeros((), dtype=torch.float64)
    for part in parts:
        portion = max(1, VALUES_AT_ONCE // part.shape[1])
        for start in range(0, len(part), portion):
            rows = _in_64_bits(part[start : start + portion])
            n, own_mean = len(rows), rows.mean(0)
            apart = own_mean - mean
            # Sums of squares around two means make one around the mean of both.
            squares = squares + (rows - own_mean).square_().sum(0) + apart.square() * (count * n / (count + n))
            mean = mean + apart * (n / (count + n))
            count += n
    return mean, (squares / count).sqrt()


def _in_64_bits(rows: Tensor | NDArray[Any]) -> Tensor:
    return rows.to("cpu", torch.float64) if isinstance(rows, Tensor) else torch.from_numpy(rows.astype(np.float64))


# Resizing works through a domain in slices, so that only the result is ever held in float32.
SLICE = 4096
SMALLEST = 1e-37  # a spread whose inverse a 32-bit number still holds


@dataclass(frozen=True)
class Preprocess:
    """The map from stored values to what the network sees; evaluation and deployment repeat it exactly."""

    channels: int  # channels (or features) the network sees
    size: tuple[int, int] | None  # (H, W) the network sees, None for vectors
    scale: tuple[float, ...]  # one value, or one per feature
    shift: tuple[float, ...]

    @property
    def values(self) -> ValueRange:
        """The range that stored images are in."""
        return BY_SCALE[self.scale[0]]

    def __call__(self, x: Tensor) -> Tensor:
        """A batch of stored samples as float32 ``x * scale + shift``, grey tiled to three channels.

        Tiled channels share memory, so the result must not be written to in place.
        """
        self._check_shape(x)
        x = x.to(torch.float32)
        if len(self.scale) == 1:
            x = x * self.scale[0] + self.shift[0]
        else:
            x = x * _constant(self.scale, x.device) + _constant(self.shift, x.device)
        if self.size is not None and x.shape[1] != self.channels:
            x = x.expand(-1, self.channels, -1, -1)
        return x

    def fit(self, x: Tensor) -> Tensor:
        """Images of another size, resized in float32 but not scaled; the same tensor otherwise."""
        if self.size is None or tuple(x.shape[2:]) == self.size:
            return x
        shrinks = self.size[0] < x.shape[2] or self.size[1] < x.shape[3]
        out = x.new_empty((*x.shape[:2], *self.size), dtype=torch.float32)
        for start in range(0, len(x), SLICE):
            part = x[start : start + SLICE].to(torch.float32)
            out[start : start + SLICE] = F.interpolate(
                part, self.size, mode="bilinear", align_corners=False, antialias=shrinks
            )
        return out

    def to_dict(self) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Preprocess":
        try:
            size = values["size"]
            return cls(
                channels=int(values["channels"]),
                size=None if size is None else (int(size[0]), int(size[1])),
                scale=tuple(float(v) for v in values["scale"]),
                shift=tuple(float(v) for v in values["shift"]),
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(
                "the preprocessing record needs channels, size, scale and shift as Preprocess.to_dict writes "
                f"them, not {dict(values)}."
            ) from error

    def _check_shape(self, x: Tensor) -> None:
        if self.size is None:
            fits = x.ndim == 2 and x.shape[1] == self.channels
            wanted = f"(N, {self.channels})"
        else:
            tiled = x.ndim == 4 and x.shape[1] == 1 and self.channels == 3
            fits = x.ndim == 4 and (x.shape[1] == self.channels or tiled) and tuple(x.shape[2:]) == self.size
            wanted = f"(N, {self.channels}, {self.size[0]}, {self.size[1]})"
        if not fits:
            raise InputError(f"the network expects samples of shape {wanted}, not {tuple(x.shape)}.")


def preprocess_for(source: Domain, target: Domain, size: tuple[int, int] | None = None) -> Preprocess:
    """The one map for both domains: images to [-1, 1], vectors to zero mean and unit variance.

    Expects a pair that :func:`vmt.data.check_pair` accepts. Images come to `size`, or to the larger one of the two.
    """
    if not source.is_images:
        return _standardise(source, target)
    values = value_range(target)
    # By area, so that one of the two domains is never resampled.
    height, width = size or max((d.x.shape[2:] for d in (target, source)), key=lambda side: side[0] * side[1])
    return Preprocess(
        channels=max(source.x.shape[1], target.x.shape[1]),
        size=(height, width),
        scale=(values.scale,),
        shift=(values.shift,),
    )


def _standardise(source: Domain, target: Domain) -> Preprocess:
    mean, std = moments(source.x, target.x)
    # Rounding leaves a trace of variance on a constant feature; dividing by it would amplify noise.
    constant = (std <= 1e-12 * mean.abs()) | (std < SMALLEST)
    scale = torch.where(constant, 1.0, 1 / std)
    shift = -mean * scale
    return Preprocess(len(mean), None, tuple(scale.tolist()), tuple(shift.tolist()))


@cache
def _constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    # Made once per device, for a copy from the host is not allowed while a CUDA graph is captured, and never forgotten,
    # for the graph goes on reading it. Made outside inference mode even if first asked for there, or autograd could not
    # use it afterwards.
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=torch.float32, device=device)
