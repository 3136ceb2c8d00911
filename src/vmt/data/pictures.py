"""One picture, whatever its size and mode, as bytes of one size."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

Size = tuple[int, int]  # height, width

MAX_PIXELS = 2**26  # decoded, 8192×8192: a few hundred megabytes
# Pictures beyond this are decoded one at a time, so that threads together do not take more than a few such pictures.
LARGE = 2**22
JPEG_START = b"\xff\xd8\xff"
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
GREY = {"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"}

_one_large_at_a_time = threading.Lock()


class TooLarge(ValueError):
    """A picture that would need more memory than a picture should."""


@dataclass(frozen=True)
class Look:
    """What the first bytes of a picture tell."""

    size: Size  # the right way up
    grey: bool


def look(path: Path) -> Look:
    """Size and colour of a picture, without decoding it."""
    with _open(path) as image:
        width, height = image.size
        turned = _orientation(image) in (5, 6, 7, 8)
        return Look((width, height) if turned else (height, width), _is_grey(image))


def decode(path: Path, size: Size, channels: int) -> NDArray[np.uint8]:
    """A picture as (channels, height, width): upright, on white where it is transparent, in 8 bits."""
    with _open(path) as image:
        orientation = _orientation(image)
        height, width = size[::-1] if orientation in (5, 6, 7, 8) else size
        # A JPEG can be decoded at a fraction of its size; twice what is needed keeps the resizing smooth.
        image.draft("L" if channels == 1 else "RGB", (2 * width, 2 * height))
        pixels = image.size[0] * image.size[1]
        if pixels > MAX_PIXELS:
            raise TooLarge(f"{image.size[0]}×{image.size[1]} pixels")
        if pixels > LARGE:
            with _one_large_at_a_time:
                small = _resized(image, channels, (width, height))
        else:
            small = _resized(image, channels, (width, height))
    if orientation in TURNS:
        small = small.transpose(TURNS[orientation])
    array = np.asarray(small)
    return array[None] if channels == 1 else array.transpose(2, 0, 1)


def _open(path: Path) -> Image.Image:
    with path.open("rb") as file:
        is_jpeg = file.read(3) == JPEG_START
    try:
        # Image.open refuses by the full size, though a JPEG need never be decoded to it.
        return JpegImageFile(path) if is_jpeg else Image.open(path)
    except Image.DecompressionBombError as error:
        raise TooLarge("too many pixels") from error


def _resized(image: Image.Image, channels: int, size: tuple[int, int]) -> Image.Image:
    image = _eight_bits(image)
    if image.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("L" if channels == 1 else "RGB")
    # Bilinear as in Preprocess.fit, which prepares a picture that is read later.
    return image if image.size == size else image.resize(size, Image.Resampling.BILINEAR)


def _eight_bits(image: Image.Image) -> Image.Image:
    if image.mode == "I" or image.mode.startswith("I;"):
        # Pillow's own conversion clips at 255. Integers of more than 8 bits are 16 bits in every common format.
        values: NDArray[Any] = np.asarray(image).clip(0, 65535)
        return Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))
    if image.mode == "F":
        values = np.asarray(image)
        low, high = float(values.min()), float(values.max())
        if not (low >= 0 and high <= 255):
            raise ValueError(f"values from {low:g} to {high:g}")
        return Image.fromarray((values * (255 if high <= 1 else 1)).round().astype(np.uint8))
    return image


def _orientation(image: Image.Image) -> int:
    """How a picture still has to be turned. Pillow itself turns a TIFF as it decodes it, and gives its upright size."""
    if image.format == "TIFF":
        return 1
    try:
        # Not image.getexif(), which for a PNG decodes all its pixels to look behind them.
        return int(Image.Image.getexif(image).get(ORIENTATION, 1))
    except Exception:  # damaged notes of a camera are no reason to lose its picture
        return 1


def _is_grey(image: Image.Image) -> bool:
    if image.mode in ("P", "PA"):
        colours = np.array(image.getpalette("RGB") or [0, 0, 1]).reshape(-1, 3)
        return bool((colours == colours[:, :1]).all())
    return image.mode in GREY
