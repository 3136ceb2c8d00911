"""Readers of the benchmark files as their publishers offer them. Every failure names the file."""

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
Samples = tuple[NDArray[Any], NDArray[Any]]

MNIST_PREFIX = {"train": "train", "test": "t10k"}
IMAGES_MAGIC = 0x00000803
LABELS_MAGIC = 0x00000801
GZIP_START = b"\x1f\x8b"
MAX_BYTES = 256 * 2**20  # the largest file has 47 MB


def read_mnist(folder: Path | str, split: Split) -> Samples:
    """Images (N, 28, 28) uint8 and labels of the official idx files, gzipped or plain."""
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
            "fetch both files from the same place."
        )
    if labels.max() > 9:
        raise InputError(f"{labels_path} holds the label {labels.max()}, but digits go from 0 to 9: fetch it again.")
    return images, labels


def read_svhn(folder: Path | str, split: Split) -> Samples:
    """Images (N, 32, 32, 3) uint8 and labels of the cropped-digits files; their label 10 becomes digit 0."""
    path = existing_file(
        Path(folder) / f"{known_split(split)}_32x32.mat",
        "put SVHN's cropped-digits files into the folder svhn of the data (vmt data download svhn)",
    )
    images, labels = _read_cropped(path)
    if labels.dtype.kind not in "iuf" or not np.isin(labels, np.arange(1, 11)).all():
        raise InputError(f"{path} holds labels outside 1–10, in which SVHN numbers its digits: fetch the file again.")
    return images, labels.astype(np.int64) % 10


def read_syn(folder: Path | str, split: Split) -> Samples:
    """Images (N, 32, 32, 3) uint8 and labels of Synthetic Digits' own files, which number the digits from 0."""
    path = existing_file(
        Path(folder) / f"synth_{known_split(split)}_32x32.mat",
        "put Synthetic Digits' own files into the folder syn of the data, or re-create them (vmt data build syn)",
    )
    images, labels = _read_cropped(path)
    if labels.dtype.kind not in "iuf" or not np.isin(labels, np.arange(10)).all():
        raise InputError(f"{path} holds labels outside 0–9, in which it numbers its digits: fetch the file again.")
    return images, labels.astype(np.int64)


def known_split(split: str) -> str:
    """The split itself, or a sentence."""
    if split not in MNIST_PREFIX:
        raise InputError(f"there is no split {split!r}: choose train or test.")
    return split


def _read_cropped(path: Path) -> Samples:
    """Images and raw labels in the format of SVHN's cropped digits."""
    contents = _read_mat(path)
    missing = [key for key in ("X", "y") if key not in contents]
    if missing:
        raise InputError(
            f"{path} has no variable {missing[0]}: it is not SVHN's cropped-digits format, fetch it again."
        )
    images, labels = contents["X"], contents["y"].reshape(-1)
    if images.ndim != 4 or images.shape[:3] != (32, 32, 3) or images.dtype != np.uint8 or not images.size:
        raise InputError(
            f"{path} holds X of shape {images.shape} and type {images.dtype}, not (32, 32, 3, N) and uint8."
        )
    if len(labels) != images.shape[3]:
        raise InputError(f"{path} holds {len(labels)} labels for {images.shape[3]} images: fetch the file again.")
    return images.transpose(3, 0, 1, 2), labels


def _mnist_file(folder: Path, name: str) -> Path:
    plain = folder / name
    if plain.is_file():
        return plain
    return existing_file(
        folder / f"{name}.gz",
        "put the four official MNIST files into the folder mnist of the data (vmt data download mnist)",
    )


def _read_idx(path: Path, magic: int) -> NDArray[np.uint8]:
    with explain_read_errors(path):
        content = path.read_bytes()
    try:
        # Told by content, not by name: some browsers unpack a download and leave the .gz in its name.
        if content.startswith(GZIP_START):
            with gzip.open(io.BytesIO(content)) as file:
                content = file.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is truncated or damaged: fetch it again.") from error
    if len(content) > MAX_BYTES:
        raise InputError(f"{path} unpacks to more than {MAX_BYTES >> 20} MiB, so it is not MNIST: fetch it again.")
    axes = magic & 0xFF
    start = 4 + 4 * axes
    if len(content) < start:
        raise InputError(f"{path} is truncated: it ends inside its header, fetch it again.")
    found, *shape = (int(word) for word in np.frombuffer(content, ">u4", 1 + axes))
    if found != magic:
        raise InputError(f"{path} is not the idx file its name says (magic {found}, not {magic}): fetch it again.")
    if len(content) - start != math.prod(shape):
        raise InputError(
            f"{path} is damaged: its header announces {math.prod(shape)} bytes and "
            f"{len(content) - start} follow, fetch it again."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _read_mat(path: Path) -> dict[str, NDArray[Any]]:
    from scipy.io import loadmat

    try:
        contents: dict[str, NDArray[Any]] = loadmat(path, variable_names=("X", "y"))
    except PermissionError as error:
        raise InputError(f"{path} cannot be read: check its permissions.") from error
    except NotImplementedError as error:
        raise InputError(
            f"{path} is a MATLAB 7.3 file, not of the version 5 that is published: fetch the official file."
        ) from error
    except Exception as error:
        # scipy's parser answers damaged bytes with almost any exception type, by where the damage lies.
        raise InputError(f"{path} is truncated or not a MATLAB file: fetch it again.") from error
    return contents


USPS_FILES = {"train": "usps.bz2", "test": "usps.t.bz2"}
# The training file unpacks to about 20 MB.
MAX_BYTES = 256 * 2**20
USPS_VALUES = 16 * 16


def read_usps(folder: Path | str, split: Split) -> Samples:
    """Images (N, 16, 16) uint8 and labels; LIBSVM numbers the digits from 1."""
    path = existing_file(
        Path(folder) / USPS_FILES[known_split(split)],
        "put usps.bz2 and usps.t.bz2 of LIBSVM's collection into the folder usps of the data (vmt data download usps)",
    )
    table = _usps_numbers(path, _usps_text(path))
    labels, places, values = table[:, 0], table[:, 1::2], table[:, 2::2]
    if (places != np.arange(1, USPS_VALUES + 1)).any() or not (np.abs(values) <= 1).all():
        raise InputError(f"{path} does not hold values in −1–1 numbered from 1 to {USPS_VALUES}: fetch it again.")
    if not np.isin(labels, np.arange(1, 11)).all():
        raise InputError(f"{path} holds labels outside 1–10, in which it numbers its digits: fetch it again.")
    images = np.rint((values + 1) * 127.5).astype(np.uint8)
    return images.reshape(-1, 16, 16), labels.astype(np.int64) - 1


def _usps_text(path: Path) -> bytes:
    try:
        with bz2.open(path) as file:
            text = file.read(MAX_BYTES + 1)
    except EOFError as error:
        raise InputError(f"{path} is truncated: fetch it again.") from error
    except OSError as error:
        reason = error.strerror or "not bzip2 data"
        raise InputError(f"{path} cannot be read ({reason}): fetch it again or check its permissions.") from error
    if len(text) > MAX_BYTES:
        raise InputError(f"{path} unpacks to more than {MAX_BYTES >> 20} MiB, so it is not USPS: fetch it again.")
    return text


def _usps_numbers(path: Path, text: bytes) -> NDArray[np.float64]:
    """One row per digit: label, then place and value in turn."""
    try:
        flat = np.array(text.replace(b":", b" ").split()).astype(np.float64)
        table = flat.reshape(-1, 1 + 2 * USPS_VALUES)
    except ValueError as error:
        raise InputError(f"{path} is not LIBSVM's text of {USPS_VALUES} values per digit: fetch it again.") from error
    if not len(table):
        raise InputError(f"{path} is empty: fetch it again.")
    return table
