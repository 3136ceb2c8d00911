"""CIFAR-10 as published: pickled batches, which are read without running what a pickle may carry."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.archives import unpack
from vmt.data.benchmarks import Samples, Split, known_split
from vmt.data.pickles import read_plain_pickle
from vmt.errors import InputError

CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
FOLDER = "cifar-10-batches-py"
ARCHIVE = "cifar-10-python.tar.gz"
REMEDY = f"put CIFAR-10's python batches or {ARCHIVE} into the folder cifar10 of the data (vmt data download cifar10)"


def read_cifar10(folder: Path | str, split: Split) -> Samples:
    """Images (N, 3, 32, 32) uint8 and labels of the python batches; the archive alone is unpacked first."""
    batches = BATCHES[known_split(split)]
    parts = [_read_batch(_batches_folder(Path(folder)) / name) for name in batches]
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def _batches_folder(folder: Path) -> Path:
    batches = folder / FOLDER
    if not batches.exists():
        if (folder / BATCHES["test"][0]).exists():
            return folder
        if (folder / ARCHIVE).exists():
            unpack(folder / ARCHIVE, folder, [f"{FOLDER}/{name}" for names in BATCHES.values() for name in names])
    return batches


def _read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    contents = read_plain_pickle(path, REMEDY)
    if not isinstance(contents, dict):
        raise InputError(f"{path} is not a batch of CIFAR-10: {REMEDY}.")
    images, labels = (_entry(contents, name) for name in ("data", "labels"))
    if not isinstance(images, np.ndarray) or images.ndim != 2 or images.shape[1] != 3072 or images.dtype != np.uint8:
        raise InputError(f"{path} does not hold rows of 3072 bytes, as a batch of CIFAR-10 does: {REMEDY}.")
    whole = isinstance(labels, list) and all(type(label) is int and 0 <= label <= 9 for label in labels)
    if not whole or not labels:
        raise InputError(f"{path} holds labels that are not whole numbers from 0 to 9: fetch it again.")
    if len(labels) != len(images):
        raise InputError(f"{path} holds {len(labels)} labels for {len(images)} images: fetch it again.")
    return images.reshape(-1, 3, 32, 32), np.array(labels, np.int64)


def _entry(contents: dict[Any, Any], name: str) -> Any:
    """The keys are bytes when Python 2 wrote the file, as it did the official ones."""
    return contents.get(name.encode(), contents.get(name))
