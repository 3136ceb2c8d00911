"""Pictures that are decoded once into a store: a folder with one file of rows and one file about them.

A store is packed a chunk at a time. After each chunk, a line in a journal says what the rows are, so that packing that
was interrupted continues where it stopped, after the rows that are there have been compared with their checksums. The
store is complete when its index is there, which appears in one moment and replaces the journal.
"""

import json
import math
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.cache import mark_used
from vmt.data.files.numpy_files import open_npz
from vmt.data.stored import RowFile
from vmt.disk import atomic_path, explain_write_errors, flush_to_disk, waiting_lock
from vmt.errors import InputError, size_of
from vmt.json_types import check_types

ROWS, JOURNAL, INDEX, LOCK = "rows.u8", "journal.jsonl", "index.npz", "lock"
CHUNK = 256  # pictures between two lines of the journal
LINE = {"crc": list[int], "low": list[int], "high": list[int], "faults": list[str]}

Picture = NDArray[np.uint8]
Read = Callable[[Sequence[int], int], Iterator[Picture | str]]
"""The pictures with these numbers, in order, or the fault of each; the second argument says how many came before."""


@dataclass(frozen=True, eq=False)
class Store:
    """A complete store: its rows, and the fault of each picture that could not be read, whose row is empty."""

    rows: RowFile
    faults: NDArray[np.str_]  # "" for a picture that can be read


class Journal:
    """What is known of the rows that are packed so far."""

    def __init__(self) -> None:
        self.crc: list[int] = []
        self.low: list[int] = []
        self.high: list[int] = []
        self.faults: list[str] = []

    def __len__(self) -> int:
        return len(self.crc)

    def add(self, line: dict[str, list[Any]]) -> None:
        for name in LINE:
            getattr(self, name).extend(line[name])

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "crc": np.array(self.crc, np.uint32),
            "low": np.array(self.low, np.uint8),
            "high": np.array(self.high, np.uint8),
            "faults": np.array(self.faults, dtype=str),
        }


def open_store(folder: Path, shape: tuple[int, ...]) -> Store | None:
    """A complete store of rows of this shape; None if there is none, or if its files do not fit each other."""
    try:
        with open_npz(folder / INDEX) as archive:
            arrays = {name: archive[name] for name in ("crc", "low", "high", "faults")}
        kinds = [array.dtype.kind for array in arrays.values() if array.ndim == 1]
        size = (folder / ROWS).stat().st_size
        fits = kinds == ["u", "u", "u", "U"] and {len(array) * math.prod(shape) for array in arrays.values()} == {size}
        rows = RowFile(folder / ROWS, shape, arrays["crc"], arrays["low"], arrays["high"]) if fits else None
    except (InputError, OSError):
        return None
    if rows is None:
        return None
    mark_used(folder)
    return Store(rows, arrays["faults"])


def pack(folder: Path, count: int, shape: tuple[int, ...], read: Read) -> Store:
    """The store in a folder, which is packed now if it is not there, or not completely.

    If another process packs the same store, this one waits for it. A complete store is only read, so that it may be in
    a cache that cannot be written to.
    """
    if (complete := open_store(folder, shape)) is not None:
        return complete
    with explain_write_errors(folder / ROWS):
        folder.mkdir(parents=True, exist_ok=True)
        with waiting_lock(folder / LOCK):
            store = open_store(folder, shape)
            if store is None:
                (folder / INDEX).unlink(missing_ok=True)  # a damaged one
                _pack(folder, count, shape, read)
                store = open_store(folder, shape)
    if store is None:
        raise InputError(f"{folder} has changed while it was written: run the command again.")
    return store


def _pack(folder: Path, count: int, shape: tuple[int, ...], read: Read) -> None:
    row_bytes = math.prod(shape)
    known, place = read_journal(folder, shape)
    _check_space(folder, (count - len(known)) * row_bytes)
    with (
        (folder / ROWS).open("r+b" if (folder / ROWS).exists() else "w+b") as rows,
        (folder / JOURNAL).open("ab") as log,
    ):
        log.truncate(place)
        rows.truncate(len(known) * row_bytes)
        rows.seek(len(known) * row_bytes)
        pictures = read(range(len(known), count), len(known))
        while chunk := list(islice(pictures, CHUNK)):
            line = _write(rows, chunk, shape)
            rows.flush()  # before the journal says that they are there
            log.write(json.dumps(line).encode() + b"\n")
            log.flush()
            known.add(line)
        os.fsync(rows.fileno())
    with atomic_path(folder / INDEX) as temporary, temporary.open("wb") as file:
        np.savez(file, **known.arrays())  # type: ignore[arg-type]
    flush_to_disk(folder)
    (folder / JOURNAL).unlink()


def _write(rows: Any, chunk: Sequence[Picture | str], shape: tuple[int, ...]) -> dict[str, list[Any]]:
    """Write the rows of a chunk, and return its line of the journal."""
    line: dict[str, list[Any]] = {name: [] for name in LINE}
    for picture in chunk:
        values = np.zeros(shape, np.uint8) if isinstance(picture, str) else np.ascontiguousarray(picture)
        assert values.shape == shape, (values.shape, shape)
        rows.write(values.data)
        line["crc"].append(zlib.crc32(values.data))
        line["low"].append(int(values.min()))
        line["high"].append(int(values.max()))
        line["faults"].append(picture if isinstance(picture, str) else "")
    return line


def read_journal(folder: Path, shape: tuple[int, ...]) -> tuple[Journal, int]:
    """What an interrupted packing has left, as far as its rows fit their checksums, and the place in its journal."""
    known, place = Journal(), 0
    row_bytes = math.prod(shape)
    with suppress(OSError), (folder / JOURNAL).open("rb") as log, (folder / ROWS).open("rb") as rows:
        for text in log:
            try:
                line = dict(json.loads(text))
                check_types(line, LINE)
                fits = {len(line[name]) for name in LINE} == {len(line["crc"])}
                fits = fits and all(zlib.crc32(rows.read(row_bytes)) == crc for crc in line["crc"])
            except (ValueError, TypeError, KeyError, RecursionError):
                break
            if not fits:
                break
            known.add(line)
            place += len(text)
    return known, place


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{folder} needs {size_of(needed)} for decoded pictures, but its disk has {size_of(free)} left: free some, "
            "set VMT_CACHE to a folder on another disk, or choose a smaller --image-size."
        )
