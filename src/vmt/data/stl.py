"""STL-10's labelled images at 32×32: from the official 96×96 files, or from a copy that is already small."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.archives import unpack
from vmt.data.benchmarks import Split, known_split
from vmt.data.files import DAMAGED_NPZ, existing_file, readable
from vmt.errors import InputError

STL_CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
FOLDER = "stl10_binary"
ARCHIVE = "stl10_binary.tar.gz"
SMALL = "stl10_32.npz"
FILES = tuple(f"{split}_{part}.bin" for split in ("train", "test") for part in "Xy")
BYTES_PER_IMAGE = 3 * 96 * 96
REMEDY = f"put STL-10's binary files or {ARCHIVE} into the folder stl10 of the data (vmt data download stl10)"


@dataclass(frozen=True, eq=False)
class StlSamples:
    """Images (N, 3, 32, 32) uint8 with labels in STL's own order, and which split they really are."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    split: Split


def read_stl10(folder: Path | str, split: Split) -> StlSamples:
    """A labelled split. A small copy that has no test split answers with its training images, and says so."""
    folder = Path(folder)
    known_split(split)
    official = _official_folder(folder)
    if official is not None:
        images = shrink(_read_images(official / f"{split}_X.bin"))
        return StlSamples(images, _read_labels(official / f"{split}_y.bin", len(images)), split)
    small = folder / SMALL
    if not small.exists():
        raise InputError(f"{folder / FOLDER / f'{split}_X.bin'} does not exist: {REMEDY}.")
    return _read_small(small, split)


def shrink(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The mean of every 3×3 pixels, rounded; whole numbers throughout, so the same everywhere."""
    count, channels, height, width = images.shape
    out = np.empty((count, channels, height // 3, width // 3), np.uint8)
    for image, small in zip(images, out, strict=True):
        blocks = image.reshape(channels, height // 3, 3, width // 3, 3)
        small[:] = (2 * blocks.sum(axis=(2, 4), dtype=np.uint16) + 9) // 18
    return out


def _official_folder(folder: Path) -> Path | None:
    for place in (folder / FOLDER, folder):
        if any((place / name).exists() for name in FILES):
            return place
    if (folder / ARCHIVE).exists():
        # The archive's larger half, 100,000 unlabelled images, stays in it: no task uses them.
        unpack(folder / ARCHIVE, folder, [f"{FOLDER}/{name}" for name in FILES])
        return folder / FOLDER
    return None


def _read_images(path: Path) -> NDArray[np.uint8]:
    existing_file(path, REMEDY)
    with readable(path):
        # A map, not a read: the photographs at full size are nine times what is kept.
        content = np.memmap(path, np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
    if not content.size or content.size % BYTES_PER_IMAGE:
        raise InputError(
            f"{path} is truncated: its {content.size} bytes are not a multiple of {BYTES_PER_IMAGE}, fetch it again."
        )
    return content.reshape(-1, 3, 96, 96).transpose(0, 1, 3, 2)  # stored column by column


def _read_labels(path: Path, count: int) -> NDArray[np.int64]:
    existing_file(path, REMEDY)
    with readable(path):
        labels = np.fromfile(path, np.uint8)
    if len(labels) != count:
        raise InputError(f"{path} holds {len(labels)} labels for {count} images: fetch the files again together.")
    if labels.min() < 1 or labels.max() > 10:
        raise InputError(f"{path} holds labels outside 1–10, in which STL-10 numbers its classes: fetch it again.")
    return labels.astype(np.int64) - 1


def _read_small(path: Path, split: Split) -> StlSamples:
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            held = split if f"x_{split}" in archive.files else "train"
            arrays = {part: archive[f"{part}_{held}"] for part in "xy"}
    except DAMAGED_NPZ as error:
        raise InputError(f"{path} is damaged or does not hold the arrays x_train and y_train: {REMEDY}.") from error
    images, labels = arrays["x"], arrays["y"]
    if images.ndim != 4 or images.shape[1:] != (32, 32, 3) or images.dtype != np.uint8 or not len(images):
        raise InputError(
            f"{path} holds images of shape {images.shape} and type {images.dtype}, not (N, 32, 32, 3) bytes."
        )
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() > 9:
        raise InputError(f"{path} does not hold one label from 0 to 9 for each image: {REMEDY}.")
    return StlSamples(images.transpose(0, 3, 1, 2), labels.astype(np.int64), "train" if held == "train" else "test")
