"""Files of the sets that this package builds: .npz archives with images, labels and a record of how they were made."""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.files.numpy_files import open_npz, read_npz
from vmt.data.files.paths import existing_file
from vmt.data.readers.digits import Samples, Split
from vmt.disk import atomic_path, explain_write_errors
from vmt.errors import InputError

LabelledImages = tuple[NDArray[np.uint8], NDArray[np.int64]]
Tick = Callable[[int], None]  # called with the number of images that were just written


@dataclass(frozen=True)
class Built:
    """The result of a build: its files, the record of each, and a warning if there is one."""

    files: dict[Split, Path]
    made: dict[Split, dict[str, Any]]
    warning: str = ""


def no_tick(count: int) -> None:
    """Ignore the progress of a build."""


def write_set(
    path: Path, shape: tuple[int, ...], chunks: Iterable[LabelledImages], made: Mapping[str, Any], tick: Tick = no_tick
) -> dict[str, Any]:
    """Write images ``x`` of `shape`, labels ``y`` and the record `made` as an .npz archive.

    The images are streamed, so that a set larger than memory can be written. The same content gives the same bytes. An
    existing set with the same record is kept, and one with another record is never replaced. Returns the record with
    the SHA-256 of the images.
    """
    if path.exists():
        existing = read_made(path, "remove it and build it again")
        if any(existing.get(key) != value for key, value in made.items()):
            raise InputError(f"{path} was built with other settings: remove it, or choose another folder with --out.")
        tick(shape[0])
        return existing
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    labels = []
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        with archive.open(_entry("x"), "w", force_zip64=True) as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for x, y in chunks:
                content = np.ascontiguousarray(x).data
                file.write(content)
                digest.update(content)
                labels.append(y)
                tick(len(x))
        record = {**made, "sha256": digest.hexdigest()}
        for name, array in (("y", np.concatenate(labels)), ("made", np.array(json.dumps(record)))):
            buffer = io.BytesIO()
            np.save(buffer, array)
            archive.writestr(_entry(name), buffer.getvalue())
    return record


def _entry(name: str) -> zipfile.ZipInfo:
    # A fixed date: the time of writing would make every file different.
    return zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))


def read_digits(path: Path, side: int, remedy: str) -> Samples:
    """Images (N, 3, side, side) uint8 and labels of a set that :func:`write_set` wrote."""
    existing_file(path, remedy)
    read_made(path, remedy)  # refuses files without a record
    images, labels = read_npz(path)
    if labels is None or labels.ndim != 1 or labels.shape != images.shape[:1]:
        raise InputError(f"{path} does not hold one label per image: {remedy}.")
    digits = labels.dtype.kind in "iu" and bool(np.isin(labels, np.arange(10)).all())
    if images.dtype != np.uint8 or images.shape[1:] != (3, side, side) or not digits:
        raise InputError(f"{path} does not hold images of 3×{side}×{side} bytes with labels from 0 to 9: {remedy}.")
    return images, labels


def read_made(path: Path, remedy: str) -> dict[str, Any]:
    """The record of how a set was made."""
    with open_npz(path, remedy) as archive:
        return dict(json.loads(str(archive["made"])))
