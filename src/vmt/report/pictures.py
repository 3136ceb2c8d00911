"""Which samples to show, and their thumbnails on one sheet."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from vmt.data.preprocess import Preprocess
from vmt.report.predictions import Seen

Indices = NDArray[np.int64]
# Tile side in pixels and quality of the JPEG, from the best to what always fits.
TRIES = ((48, 85), (40, 80), (32, 75), (24, 70), (16, 60))
COLUMNS = 40
# Pictures at a time: in float32, large ones take many times the memory of their thumbnails.
BATCH = 100


def drawn(count: int, samples: int) -> Indices:
    """At most so many indices in order, the same every time. Drawn, not spaced: files are often sorted in a rhythm."""
    if count >= samples:
        return np.arange(samples, dtype=np.int64)
    return np.sort(np.random.default_rng(0).choice(samples, count, replace=False)).astype(np.int64)


def extremes(seen: Seen, labels: Indices | None, classes: int, each: int) -> Indices:
    """The samples that a person asks for: most and least confident, of each predicted class, and what is wrong."""
    order = np.argsort(seen.confidence, kind="stable")
    picked = [order[:each], order[::-1][:each]]
    per_class = max(2, 4 * each // max(classes, 1))
    for k in range(classes):
        of_class = order[seen.predicted[order] == k]
        picked += [of_class[:per_class], of_class[::-1][:per_class]]
    if labels is not None:
        wrong = order[seen.predicted[order] != labels[order]]
        picked += [wrong[:each], wrong[::-1][: 2 * each]]
    return np.unique(np.concatenate(picked)).astype(np.int64)


@dataclass(frozen=True)
class Sheet:
    """Thumbnails in rows on one image, as a data URI."""

    uri: str
    tile: int
    columns: int


def sheet_of(parts: Sequence[tuple[Tensor, Preprocess]], budget: int) -> Sheet:
    """All samples of the parts, one after the other, in at most so many bytes where that is possible at all."""
    pixels = torch.cat([colour(some, preprocess) for x, preprocess in parts for some in torch.split(x, BATCH)])
    side = max(pixels.shape[2:])
    best = None
    for tile, quality in TRIES:
        tile = min(tile, side)
        sheet = arranged(torch.cat([scaled(some, tile) for some in torch.split(pixels, BATCH)]))
        for kind, options in (("PNG", {"optimize": True}), ("JPEG", {"quality": quality})):
            buffer = io.BytesIO()
            sheet.save(buffer, kind, **options)
            content = buffer.getvalue()
            uri = f"data:image/{kind.lower()};base64,{base64.b64encode(content).decode()}"
            best = Sheet(uri, tile, COLUMNS)
            if len(uri) <= budget:
                return best
    assert best is not None
    return best


def colour(x: Tensor, preprocess: Preprocess) -> Tensor:
    """Stored images as the network sees them, back in 0–255 with one or three channels."""
    seen = preprocess(x.cpu())
    seen = seen[:, :3] if seen.shape[1] >= 3 else seen[:, :1]
    return ((seen + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


def scaled(pixels: Tensor, tile: int) -> Tensor:
    """Into squares of a tile, keeping the shape of the picture; the rest stays black."""
    height, width = pixels.shape[2:]
    factor = tile / max(height, width)
    size = (max(1, round(height * factor)), max(1, round(width * factor)))
    if size != (height, width):
        resized = F.interpolate(pixels.float(), size, mode="bilinear", align_corners=False, antialias=factor < 1)
        pixels = resized.round().clamp(0, 255).to(torch.uint8)
    top, left = (tile - size[0]) // 2, (tile - size[1]) // 2
    return F.pad(pixels, (left, tile - size[1] - left, top, tile - size[0] - top))


def arranged(tiles: Tensor) -> Image.Image:
    count, channels, side, _ = tiles.shape
    rows = -(-count // COLUMNS)
    padded = F.pad(tiles, (0, 0, 0, 0, 0, 0, 0, rows * COLUMNS - count))
    grid = padded.view(rows, COLUMNS, channels, side, side).permute(0, 3, 1, 4, 2)
    array = grid.reshape(rows * side, COLUMNS * side, channels).numpy()
    return Image.fromarray(array[:, :, 0] if channels == 1 else array)
