"""Files of pictures as users have them."""

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("golden retriever", "кошка", "鳥")


def picture(number: int, seed: int = 0, size: tuple[int, int] = (12, 12), channels: int = 3) -> np.ndarray:
    """A noisy picture with a bright bar, whose place tells the class."""
    pixels = np.random.default_rng((number, seed)).integers(0, 90, (*size, channels), dtype=np.uint8)
    bar = size[0] * number // len(CLASSES)
    pixels[bar : bar + 2] += 150
    return pixels


def save(path: Path, pixels: np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.squeeze()).save(path, **options)  # type: ignore[arg-type]
    return path


def class_folders(root: Path, each: int = 10, classes: Iterable[str] = CLASSES, shade: int = 0) -> Path:
    """One subfolder per class."""
    for number, name in enumerate(classes):
        for i in range(each):
            save(root / name / f"{i}.png", picture(number, i + shade))
    return root


def unlabelled_folder(root: Path, count: int = 30, shade: int = 100) -> Path:
    """A folder of pictures without labels."""
    for i in range(count):
        save(root / f"{i:03}.png", picture(i % len(CLASSES), i + shade))
    return root


def giant_png(path: Path, side: int = 20_000) -> Path:
    """A valid PNG of one bit per pixel, all black: a few kilobytes that unpack to 400 million pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = zlib.compress(bytes((1 + (side + 7) // 8) * side), 9)
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    return path
