"""The published sets of digits, read from their original files: MNIST, SVHN, Synthetic Digits and USPS.

Every reader returns images and class numbers from 0 to 9; every error names the file.
"""

import bz2
import gzip
import io
import math
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vmt.data.files.paths import existing_file, explain_read_errors
from vmt.errors import InputError

Split = Literal["train", "test"]
Samples = tuple[NDArray[Any], NDArray[Any]]  # images and labels

MAX_BYTES = 256 * 2**20  # the largest file unpacks to 47 MB
MNIST_PREFIX = {"train": "train", "test": "t10k"}
IMAGES_MAGIC, LABELS_MAGIC = 0x00000803, 0x00000801
GZIP_START = b"\x1f\x8b"
USPS_FILES = {"train": "usps.bz2", "test": "usps.t.bz2"}
USPS_VALUES = 16 * 16


def known_split(split: str) -> str:
    """The split itself; an error for any other name."""
    if split not in ("train", "test"):
        raise InputError(f"there is no split {split!r}: choose train or test.")
    return split


def read_mnist(folder: Path | str, split: Split) -> Samples:
    """Images (N, 28, 28) uint8 and labels from the official idx files, gzipped or plain."""
    prefix = MNIST_PREFIX[known_split(split)]
    images_path = _mnist_file(Path(folder), f"{prefix}-images-idx3-ubyte")
    labels_path = _mnist_file(Path(folder), f"{prefix}-labels-idx1-ubyte")
    images = _read_idx(images_path, IMAGES_MAGIC)
    labels = _read_idx(labels_path, LABELS_MAGIC)
    if images.shape[1:] != (28, 28) or not len(images):
        raise InputError(f"{images_path} holds an array of shape {images.shape}, not MNIST's (N, 28, 28).")
    if len(labels) != len(images):
        raise InputError(
            f"{labels_path} holds {len(labels)} labels for the {len(images)} images of {images_path.name}: "
            "download both files from the same place."
        )
    if labels.max() > 9:
        raise InputError(f"{labels_path} holds the label {labels.max()}, but digits are 0 to 9: download it again.")
    return images, labels


def _mnist_file(folder: Path, name: str) -> Path:
    plain = folder / name
    if plain.is_file():
        return plain
    return existing_file(
        folder / f"{name}.gz",
        "put the four official MNIST files into the subfolder mnist of the data folder (vmt data download mnist)",
    )


def _read_idx(path: Path, magic: int) -> NDArray[np.uint8]:
    with explain_read_errors(path):
        content = path.read_bytes()
    try:
        # Recognised by its content: some browsers unpack a download and keep the .gz in its name.
        if content.startswith(GZIP_START):
            with gzip.open(io.BytesIO(content)) as file:
                content = file.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is truncated or damaged: download it again.") from error
    if len(content) > MAX_BYTES:
        raise InputError(
            f"{path} unpacks to more than {MAX_BYTES >> 20} MiB, so it is not from MNIST: download it again."
        )
    axes = magic & 0xFF
    start = 4 + 4 * axes
    if len(content) < start:
        raise InputError(f"{path} is truncated inside its header: download it again.")
    number, *shape = (int(word) for word in np.frombuffer(content, ">u4", 1 + axes))
    if number != magic:
        raise InputError(f"{path} has the magic number {number}, not {magic} as an idx file has: download it again.")
    if len(content) - start != math.prod(shape):
        raise InputError(
            f"{path} is damaged: its header announces {math.prod(shape)} bytes, but "
            f"{len(content) - start} follow; download it again."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_svhn(folder: Path | str, split: Split) -> Samples:
    """Images (N, 32, 32, 3) uint8 and labels from the cropped-digits files; their label 10 becomes the digit 0."""
    path = existing_file(
        Path(folder) / f"{known_split(split)}_32x32.mat",
        "put SVHN's cropped-digits files into the subfolder svhn of the data folder (vmt data download svhn)",
    )
    images, labels = _read_cropped_digits(path, range(1, 11))
    return images, labels % 10


def read_syn(folder: Path | str, split: Split) -> Samples:
    """Images (N, 32, 32, 3) uint8 and labels from the published files of Synthetic Digits."""
    path = existing_file(
        Path(folder) / f"synth_{known_split(split)}_32x32.mat",
        "put the files of Synthetic Digits into the subfolder syn of the data folder, or re-create the set "
        "(vmt data build syn)",
    )
    return _read_cropped_digits(path, range(10))


def _read_cropped_digits(path: Path, known_labels: range) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, 32, 32, 3) and labels of a MATLAB file in the format of SVHN's cropped digits."""
    contents = _read_mat(path)
    missing = [key for key in ("X", "y") if key not in contents]
    if missing:
        raise InputError(
            f"{path} has no variable {missing[0]}, as SVHN's cropped-digits format requires: download it again."
        )
    images, labels = contents["X"], contents["y"].reshape(-1)
    if images.ndim != 4 or images.shape[:3] != (32, 32, 3) or images.dtype != np.uint8 or not images.size:
        raise InputError(
            f"{path} holds X of shape {images.shape} and type {images.dtype}, not (32, 32, 3, N) and uint8."
        )
    if len(labels) != images.shape[3]:
        raise InputError(f"{path} holds {len(labels)} labels for {images.shape[3]} images: download it again.")
    if labels.dtype.kind not in "iuf" or not np.isin(labels, known_labels).all():
        raise InputError(f"{path} holds labels outside {known_labels[0]}–{known_labels[-1]}: download it again.")
    return images.transpose(3, 0, 1, 2), labels.astype(np.int64)


def _read_mat(path: Path) -> dict[str, NDArray[Any]]:
    from scipy.io import loadmat

    try:
        contents: dict[str, NDArray[Any]] = loadmat(path, variable_names=("X", "y"))
    except PermissionError as error:
        raise InputError(f"{path} cannot be read: check its permissions.") from error
    except NotImplementedError as error:
        raise InputError(
            f"{path} is a MATLAB 7.3 file, but the published file has version 5: download the official file."
        ) from error
    except Exception as error:
        # Depending on where the damage is, scipy's parser raises almost any exception type.
        raise InputError(f"{path} is truncated or not a MATLAB file: download it again.") from error
    return contents


def read_usps(folder: Path | str, split: Split) -> Samples:
    """Images (N, 16, 16) uint8 and labels from LIBSVM's files, which number the digits from 1."""
    path = existing_file(
        Path(folder) / USPS_FILES[known_split(split)],
        "put usps.bz2 and usps.t.bz2 of LIBSVM's collection into the subfolder usps of the data folder "
        "(vmt data download usps)",
    )
    table = _usps_table(path, _usps_text(path))
    labels, places, values = table[:, 0], table[:, 1::2], table[:, 2::2]
    if (places != np.arange(1, USPS_VALUES + 1)).any() or not (np.abs(values) <= 1).all():
        raise InputError(
            f"{path} does not hold values from −1 to 1 with indices from 1 to {USPS_VALUES}: download it again."
        )
    if not np.isin(labels, range(1, 11)).all():
        raise InputError(f"{path} holds labels outside 1–10: download it again.")
    images = np.rint((values + 1) * 127.5).astype(np.uint8)
    return images.reshape(-1, 16, 16), labels.astype(np.int64) - 1


def _usps_text(path: Path) -> bytes:
    try:
        with bz2.open(path) as file:
            text = file.read(MAX_BYTES + 1)
    except EOFError as error:
        raise InputError(f"{path} is truncated: download it again.") from error
    except OSError as error:
        reason = error.strerror or "not bzip2 data"
        raise InputError(f"{path} cannot be read ({reason}): download it again or check its permissions.") from error
    if len(text) > MAX_BYTES:
        raise InputError(
            f"{path} unpacks to more than {MAX_BYTES >> 20} MiB, so it is not from USPS: download it again."
        )
    return text


def _usps_table(path: Path, text: bytes) -> NDArray[np.float64]:
    """One row per digit: its label, then pairs of index and value."""
    try:
        flat = np.array(text.replace(b":", b" ").split()).astype(np.float64)
        table = flat.reshape(-1, 1 + 2 * USPS_VALUES)
    except ValueError as error:
        raise InputError(
            f"{path} is not text in LIBSVM's format with {USPS_VALUES} values per digit: download it again."
        ) from error
    if not len(table):
        raise InputError(f"{path} is empty: download it again.")
    return table
