"""The published sets of digits, read from their original files: MNIST, SVHN, Synthetic Digits and USPS.

Every reader returns images and class numbers from 0 to 9; every error names the file.
"""

import bz2
import gzip
import io
import math
import re
import struct
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vmt.data.files.paths import existing_file, most_unpacked
from vmt.errors import InputError, parsing

Split = Literal["train", "test"]
Samples = tuple[NDArray[Any], NDArray[Any]]  # images and labels

MAX_BYTES = 256 * 2**20  # the largest file unpacks to 47 MB
MNIST_PREFIX = {"train": "train", "test": "t10k"}
IMAGES_MAGIC, LABELS_MAGIC = 0x00000803, 0x00000801
MAX_USPS_BYTES = 64 * 2**20  # the larger file unpacks to 25 MB
DOWNLOAD = "download it again"
MAT_HEADER = 128
MAT_ORDERS = {b"IM": "<", b"MI": ">"}
MAT_HDF_VERSION = 2  # version 7.3 is an HDF5 file behind a header of this kind
# The types of the elements of a MATLAB file: numbers by their NumPy type, a matrix, and a compressed element.
MAT_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MAT_MATRIX, MAT_COMPRESSED = 14, 15
# The classes of numeric matrices. Their values may be stored in a smaller type.
MAT_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
MAT_COMPLEX = 0x0800
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
    with parsing(path, "a whole idx file", DOWNLOAD), path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
        # Recognised by its content: some browsers unpack a download and keep the .gz in its name.
        if content.startswith(GZIP_START):
            with gzip.open(io.BytesIO(content)) as unpacked:
                content = unpacked.read(MAX_BYTES + 1)
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
    contents = read_matlab(path, ("X", "y"), DOWNLOAD)
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


def read_matlab(path: Path, names: Collection[str], remedy: str) -> dict[str, NDArray[Any]]:
    """The numeric arrays of these names in a MATLAB file of version 5; other variables are left out.

    A file is a list of elements, each with a tag that has its type and length. Every length is compared with the bytes
    that are there. scipy's reader of this format does not, and can end the process at a damaged file.
    """
    found = {}
    with parsing(path, "a whole MATLAB file", remedy), path.open("rb") as file:
        header = file.read(MAT_HEADER)
        order = MAT_ORDERS[header[-2:]]
        if struct.unpack(f"{order}H", header[-4:-2])[0] >> 8 == MAT_HDF_VERSION:
            raise InputError(
                f"{path} is a MATLAB 7.3 file, but the published file has version 5: download the official file."
            )
        left = most_unpacked(path)
        while tag := file.read(8):
            kind, length = struct.unpack(f"{order}II", tag)
            content = file.read(length)
            if len(content) < length:
                raise EOFError(f"an element announces {length} bytes, but {len(content)} follow")
            if kind == MAT_COMPRESSED:
                content = _decompressed(path, content, left, remedy)
                left -= len(content)
                kind, length = struct.unpack(f"{order}II", content[:8])
                content = content[8:]
            if kind == MAT_MATRIX:
                name, array = _matrix(memoryview(content)[:length], order)
                if array is not None and name in names:
                    found[name] = array
    return found


def _decompressed(path: Path, content: bytes, most: int, remedy: str) -> bytes:
    stream = zlib.decompressobj()
    unpacked = stream.decompress(content, most)
    if stream.unconsumed_tail:
        raise InputError(f"{path} unpacks to far more than its size suggests: {remedy}.")
    if not stream.eof:
        raise EOFError("a compressed variable ends too early")
    return unpacked


def _matrix(content: memoryview, order: str) -> tuple[str, NDArray[Any] | None]:
    """The name and the values of a matrix; None instead of values that are not real numbers."""
    parts = _elements(content, order)
    flags = int(np.frombuffer(next(parts)[1], f"{order}u4")[0])
    shape = tuple(np.frombuffer(next(parts)[1], f"{order}i4").tolist())
    name = bytes(next(parts)[1]).decode("latin1")
    if flags & 0xFF not in MAT_CLASSES or flags & MAT_COMPLEX:
        return name, None
    kind, values = next(parts)
    stored = np.frombuffer(values, order + MAT_NUMBERS[kind])
    if min(shape) < 0 or len(stored) != math.prod(shape):
        raise ValueError(f"{name} has {len(stored)} values for the shape {shape}")
    return name, stored.astype(order + MAT_CLASSES[flags & 0xFF], copy=False).reshape(shape, order="F")


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """The type and the content of each element of a matrix."""
    place = 0
    while place + 8 <= len(content):
        kind, length = struct.unpack(f"{order}II", content[place : place + 8])
        start, end = place + 8, place + 8 + length + -length % 8
        if kind >> 16:  # a short element has its length in the upper half, and its content in the tag
            kind, length, start, end = kind & 0xFFFF, kind >> 16, place + 4, place + 8
        if start + length > len(content):
            raise EOFError(f"an element announces {length} bytes, but {len(content) - start} follow")
        yield kind, content[start : start + length]
        place = end


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
    with parsing(path, "a bzip2 file", DOWNLOAD), bz2.open(path) as file:
        text = file.read(MAX_USPS_BYTES + 1)
    if len(text) > MAX_USPS_BYTES:
        raise InputError(
            f"{path} unpacks to more than {MAX_USPS_BYTES >> 20} MiB, so it is not from USPS: download it again."
        )
    return text


def _usps_table(path: Path, text: bytes) -> NDArray[np.float64]:
    """One row per digit: its label, then pairs of index and value."""
    with parsing(path, f"text in LIBSVM's format with {USPS_VALUES} values per digit", DOWNLOAD):
        # From an iterator: a list of all words would take many times the memory of the text.
        flat = np.fromiter((float(word.group()) for word in re.finditer(rb"[^\s:]+", text)), np.float64)
        table = flat.reshape(-1, 1 + 2 * USPS_VALUES)
    if not len(table):
        raise InputError(f"{path} is empty: download it again.")
    return table
