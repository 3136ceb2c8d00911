"""Which of the usual value ranges the images of a domain are in."""

from dataclasses import dataclass

from torch import Tensor

from vmt.data.domain import Domain
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
