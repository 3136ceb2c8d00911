"""The published sets of photographs, CIFAR-10 and STL-10, read from their original files, and the nine classes that
they share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.fetch import CIFAR_ARCHIVE, STL_ARCHIVE
from vmt.data.files.numpy_files import open_npz
from vmt.data.files.paths import existing_file
from vmt.data.readers.archives import unpack
from vmt.data.readers.digits import Samples, Split, known_split
from vmt.data.readers.pickles import read_plain_pickle
from vmt.errors import InputError, parsing

CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
CIFAR_FOLDER = "cifar-10-batches-py"
CIFAR_REMEDY = (
    f"put CIFAR-10's python batches or {CIFAR_ARCHIVE} into the subfolder cifar10 of the data folder "
    "(vmt data download cifar10)"
)

STL_CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
STL_FOLDER = "stl10_binary"
STL_FILES = tuple(f"{split}_{part}.bin" for split in ("train", "test") for part in "Xy")
STL_SMALL = "stl10_32.npz"  # a copy at 32×32, usually without a test split
STL_BYTES_PER_IMAGE = 3 * 96 * 96
STL_REMEDY = (
    f"put STL-10's binary files or {STL_ARCHIVE} into the subfolder stl10 of the data folder (vmt data download stl10)"
)

NINE = ("airplane", "car", "bird", "cat", "deer", "dog", "horse", "ship", "truck")
ALIASES = {"automobile": "car"}


def shared_classes(
    images: NDArray[Any], labels: NDArray[np.int64], names: Sequence[str]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The samples of the nine shared classes, with class numbers in the order of ``NINE``.

    Classes are matched by name, because the two sets number them differently: car and bird change places.
    """
    known = [ALIASES.get(name, name) for name in names]
    new = np.array([NINE.index(name) if name in NINE else -1 for name in known], np.int64)[labels]
    return images[new >= 0], new[new >= 0]


def read_cifar10(folder: Path | str, split: Split) -> Samples:
    """Images (N, 3, 32, 32) uint8 and labels from the python batches, which are unpacked from the archive if needed."""
    batches = CIFAR_BATCHES[known_split(split)]
    parts = [_read_cifar_batch(_cifar_folder(Path(folder)) / name) for name in batches]
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def _cifar_folder(folder: Path) -> Path:
    batches = folder / CIFAR_FOLDER
    if not batches.exists():
        if (folder / CIFAR_BATCHES["test"][0]).exists():
            return folder
        if (folder / CIFAR_ARCHIVE).exists():
            wanted = [f"{CIFAR_FOLDER}/{name}" for names in CIFAR_BATCHES.values() for name in names]
            unpack(folder / CIFAR_ARCHIVE, folder, wanted)
    return batches


def _read_cifar_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    contents = read_plain_pickle(path, CIFAR_REMEDY)
    if not isinstance(contents, dict):
        raise InputError(f"{path} is not a batch of CIFAR-10: {CIFAR_REMEDY}.")
    # The keys are bytes in files that Python 2 wrote, such as the official ones.
    images, labels = (contents.get(name.encode(), contents.get(name)) for name in ("data", "labels"))
    if not isinstance(images, np.ndarray) or images.ndim != 2 or images.shape[1] != 3072 or images.dtype != np.uint8:
        raise InputError(f"{path} does not hold rows of 3072 bytes, as a batch of CIFAR-10 does: {CIFAR_REMEDY}.")
    whole = isinstance(labels, list) and all(type(label) is int and 0 <= label <= 9 for label in labels)
    if not whole or not labels:
        raise InputError(f"{path} holds labels that are not whole numbers from 0 to 9: download it again.")
    if len(labels) != len(images):
        raise InputError(f"{path} holds {len(labels)} labels for {len(images)} images: download it again.")
    return images.reshape(-1, 3, 32, 32), np.array(labels, np.int64)


@dataclass(frozen=True, eq=False)
class StlSamples:
    """Images (N, 3, 32, 32) uint8, labels in STL-10's order, and the split that they come from."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    split: Split


def read_stl10(folder: Path | str, split: Split) -> StlSamples:
    """A labelled split at 32×32. A small copy without a test split gives its training images: ``split`` is train."""
    folder = Path(folder)
    known_split(split)
    official = _stl_folder(folder)
    if official is not None:
        images = shrink(_read_stl_images(official / f"{split}_X.bin"))
        return StlSamples(images, _read_stl_labels(official / f"{split}_y.bin", len(images)), split)
    small = folder / STL_SMALL
    if not small.exists():
        raise InputError(f"{folder / STL_FOLDER / f'{split}_X.bin'} does not exist: {STL_REMEDY}.")
    return _read_small_stl(small, split)


def shrink(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The rounded mean of every 3×3 pixels, in integer arithmetic so that it is the same on every machine."""
    count, channels, height, width = images.shape
    out = np.empty((count, channels, height // 3, width // 3), np.uint8)
    for image, small in zip(images, out, strict=True):
        blocks = image.reshape(channels, height // 3, 3, width // 3, 3)
        small[:] = (2 * blocks.sum(axis=(2, 4), dtype=np.uint16) + 9) // 18
    return out


def _stl_folder(folder: Path) -> Path | None:
    for place in (folder / STL_FOLDER, folder):
        if any((place / name).exists() for name in STL_FILES):
            return place
    if (folder / STL_ARCHIVE).exists():
        # The larger half of the archive, 100,000 unlabelled images, is not unpacked: no task uses it.
        unpack(folder / STL_ARCHIVE, folder, [f"{STL_FOLDER}/{name}" for name in STL_FILES])
        return folder / STL_FOLDER
    return None


def _read_stl_images(path: Path) -> NDArray[np.uint8]:
    existing_file(path, STL_REMEDY)
    with parsing(path, "a file of STL-10", STL_REMEDY):
        # A memory map: the photographs at full size take nine times the memory of the result.
        content = np.memmap(path, np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
    if not content.size or content.size % STL_BYTES_PER_IMAGE:
        raise InputError(
            f"{path} is truncated: its {content.size} bytes are not a multiple of {STL_BYTES_PER_IMAGE}; download it "
            "again."
        )
    return content.reshape(-1, 3, 96, 96).transpose(0, 1, 3, 2)  # stored column by column


def _read_stl_labels(path: Path, count: int) -> NDArray[np.int64]:
    existing_file(path, STL_REMEDY)
    with parsing(path, "a file of STL-10", STL_REMEDY):
        labels = np.fromfile(path, np.uint8)
    if len(labels) != count:
        raise InputError(f"{path} holds {len(labels)} labels for {count} images: download both files together.")
    if labels.min() < 1 or labels.max() > 10:
        raise InputError(f"{path} holds labels outside 1–10: download it again.")
    return labels.astype(np.int64) - 1


def _read_small_stl(path: Path, split: Split) -> StlSamples:
    with open_npz(path, STL_REMEDY) as archive:
        held: Split = split if f"x_{split}" in archive.members else "train"
        images, labels = archive[f"x_{held}"], archive[f"y_{held}"]
    if images.ndim != 4 or images.shape[1:] != (32, 32, 3) or images.dtype != np.uint8 or not len(images):
        raise InputError(
            f"{path} holds images of shape {images.shape} and type {images.dtype}, not (N, 32, 32, 3) and uint8."
        )
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() > 9:
        raise InputError(f"{path} does not hold one label from 0 to 9 per image: {STL_REMEDY}.")
    return StlSamples(images.transpose(0, 3, 1, 2), labels.astype(np.int64), held)
