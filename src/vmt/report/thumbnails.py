"""Thumbnails of samples on one sheet."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from vmt.data.files.pictures import decode, read_in_threads
from vmt.data.preprocess import Preprocess

# Side of a tile in pixels and quality of the JPEG, from the best to the smallest.
SIZES = ((48, 85), (40, 80), (32, 75), (24, 70), (16, 60))
LARGEST_TILE = 2 * SIZES[0][0]  # pictures are read at this size for their thumbnails
COLUMNS = 40
# Images at a time: in float32, large ones take many times the memory of their thumbnails.
BATCH = 100


@dataclass(frozen=True)
class Sheet:
    """Thumbnails in rows on one image, as a data URI."""

    uri: str
    tile: int
    columns: int


def make_sheet(images: Sequence[Tensor], preprocess: Preprocess, budget: int) -> Sheet:
    """All stored images on one sheet, in at most ``budget`` bytes unless even the smallest thumbnails take more."""
    parts = (x[start : start + BATCH] for x in images for start in range(0, len(x), BATCH))
    pixels = torch.cat([as_pixels(part, preprocess) for part in parts])
    side = max(pixels.shape[2:])
    smallest = None
    for tile, quality in SIZES:
        tile = min(tile, side)
        image = tiles_on_one_image(torch.cat([scaled(part, tile) for part in torch.split(pixels, BATCH)]))
        for kind, options in (("PNG", {"optimize": True}), ("JPEG", {"quality": quality})):
            buffer = io.BytesIO()
            image.save(buffer, kind, **options)
            uri = f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
            smallest = Sheet(uri, tile, COLUMNS)
            if len(uri) <= budget:
                return smallest
    assert smallest is not None
    return smallest


def at_most(preprocess: Preprocess, side: int) -> Preprocess:
    """The same preprocessing for smaller pictures: the crop stays, and the sides have at most this length."""
    assert preprocess.size is not None
    factor = min(1.0, side / max(preprocess.size))
    height, width = (max(1, round(length * factor)) for length in preprocess.size)
    return replace(preprocess, size=(height, width))


def decoded(files: Sequence[Path], preprocess: Preprocess) -> Tensor:
    """Pictures as a network sees them; one that can no longer be read is black."""
    assert preprocess.size is not None
    black = np.zeros((preprocess.channels, *preprocess.size), np.uint8)
    read = read_in_threads(lambda path: decode(path, preprocess.framing), files)
    return torch.from_numpy(np.stack([black if isinstance(found, str) else found for _, found in read]))


def as_pixels(x: Tensor, preprocess: Preprocess) -> Tensor:
    """Stored images as the network receives them, in 0–255 with one or three channels."""
    inputs = replace(preprocess, mean=None, std=None)(x.cpu())  # without the normalisation, which only a network reads
    inputs = inputs[:, :3] if inputs.shape[1] >= 3 else inputs[:, :1]
    return ((inputs + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


def scaled(pixels: Tensor, tile: int) -> Tensor:
    """Images scaled into square tiles with their proportions kept; the rest of a tile is black."""
    height, width = pixels.shape[2:]
    factor = tile / max(height, width)
    size = (max(1, round(height * factor)), max(1, round(width * factor)))
    if size != (height, width):
        resized = F.interpolate(pixels.float(), size, mode="bilinear", align_corners=False, antialias=factor < 1)
        pixels = resized.round().clamp(0, 255).to(torch.uint8)
    top, left = (tile - size[0]) // 2, (tile - size[1]) // 2
    return F.pad(pixels, (left, tile - size[1] - left, top, tile - size[0] - top))


def tiles_on_one_image(tiles: Tensor) -> Image.Image:
    """Tiles in rows of :data:`COLUMNS` on one image."""
    count, channels, side, _ = tiles.shape
    rows = -(-count // COLUMNS)
    padded = F.pad(tiles, (0, 0, 0, 0, 0, 0, 0, rows * COLUMNS - count))
    grid = padded.view(rows, COLUMNS, channels, side, side).permute(0, 3, 1, 4, 2)
    array = grid.reshape(rows * side, COLUMNS * side, channels).numpy()
    return Image.fromarray(array[:, :, 0] if channels == 1 else array)
