"""USPS as LIBSVM's collection offers it: bzip2-packed text, one scanned digit of 16×16 values in −1–1 per line."""

import bz2
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vmt.data.benchmarks import Samples, Split, known_split
from vmt.data.files import existing_file
from vmt.errors import InputError

FILES = {"train": "usps.bz2", "test": "usps.t.bz2"}
# The training file unpacks to about 20 MB.
MAX_BYTES = 256 * 2**20
VALUES = 16 * 16


def read_usps(folder: Path | str, split: Split) -> Samples:
    """Images (N, 16, 16) uint8 and labels; LIBSVM numbers the digits from 1."""
    path = existing_file(
        Path(folder) / FILES[known_split(split)],
        "put usps.bz2 and usps.t.bz2 of LIBSVM's collection into the folder usps of the data (vmt data download usps)",
    )
    table = _numbers(path, _text(path))
    labels, places, values = table[:, 0], table[:, 1::2], table[:, 2::2]
    if (places != np.arange(1, VALUES + 1)).any() or not (np.abs(values) <= 1).all():
        raise InputError(f"{path} does not hold values in −1–1 numbered from 1 to {VALUES}: fetch it again.")
    if not np.isin(labels, np.arange(1, 11)).all():
        raise InputError(f"{path} holds labels outside 1–10, in which it numbers its digits: fetch it again.")
    images = np.rint((values + 1) * 127.5).astype(np.uint8)
    return images.reshape(-1, 16, 16), labels.astype(np.int64) - 1


def _text(path: Path) -> bytes:
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


def _numbers(path: Path, text: bytes) -> NDArray[np.float64]:
    """One row per digit: label, then place and value in turn."""
    try:
        flat = np.array(text.replace(b":", b" ").split()).astype(np.float64)
        table = flat.reshape(-1, 1 + 2 * VALUES)
    except ValueError as error:
        raise InputError(f"{path} is not LIBSVM's text of {VALUES} values per digit: fetch it again.") from error
    if not len(table):
        raise InputError(f"{path} is empty: fetch it again.")
    return table
