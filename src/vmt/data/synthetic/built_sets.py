"""Sets that this package builds: written aside, renamed when complete, and read back with how they were made."""

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

from vmt.data.files.numpy_files import DAMAGED_NPZ, read_npz
from vmt.data.files.paths import existing_file
from vmt.data.readers.digits import Samples, Split
from vmt.disk import atomic_path, explain_write_errors
from vmt.errors import InputError

Chunk = tuple[NDArray[np.uint8], NDArray[np.int64]]
Tick = Callable[[int], None]


@dataclass(frozen=True)
class Built:
    """What a build left: its files, how each was made, and what a person should know."""

    files: dict[Split, Path]
    made: dict[Split, dict[str, Any]]
    warning: str = ""


def no_tick(count: int) -> None:
    """For who does not watch."""


def write_set(
    path: Path, shape: tuple[int, ...], chunks: Iterable[Chunk], made: Mapping[str, Any], tick: Tick = no_tick
) -> dict[str, Any]:
    """Images ``x`` of `shape`, labels ``y`` and `made`, how they were made, as an .npz archive.

    The images are streamed, so that a set larger than memory can be written. The same content gives the same bytes.
    A set that is there and was made so stays as it is; another one is never replaced. Returns `made` with the SHA-256
    of the images.
    """
    if path.exists():
        found = read_made(path, "remove it and build it again")
        if any(found.get(key) != value for key, value in made.items()):
            raise InputError(f"{path} was made with other settings: remove it, or choose another folder with --out.")
        tick(shape[0])
        return found
    digest = hashlib.sha256()
    labels = []
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
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


def read_digits(path: Path, side: int, remedy: str) -> Samples:
    """Images (N, 3, side, side) uint8 and labels of a set that :func:`write_set` wrote."""
    existing_file(path, remedy)
    read_made(path, remedy)  # refuses what was not built here
    images, labels = read_npz(path)
    if labels is None or len(labels) != len(images):
        raise InputError(f"{path} does not hold one label per image: {remedy}.")
    if images.dtype != np.uint8 or images.shape[1:] != (3, side, side) or not np.isin(labels, np.arange(10)).all():
        raise InputError(f"{path} does not hold images of 3×{side}×{side} bytes with labels from 0 to 9: {remedy}.")
    return images, labels


def read_made(path: Path, remedy: str) -> dict[str, Any]:
    """How a stored set was made."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            made: dict[str, Any] = json.loads(str(archive["made"]))
    except DAMAGED_NPZ as error:
        raise InputError(f"{path} is damaged or was not built by vmt: {remedy}.") from error
    return made


def _entry(name: str) -> zipfile.ZipInfo:
    # The time of writing would make every file different.
    return zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
