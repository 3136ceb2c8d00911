"""Samples to predict on, from files, folders, lists and standard input: a batch at a time, whatever their number."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.files.folders import walk
from vmt.data.files.numpy_files import DAMAGED_NPZ, iterate_rows
from vmt.data.files.paths import ARRAY_SUFFIXES, PICTURE_SUFFIXES, TABLE_SUFFIXES, file_suffix
from vmt.data.files.pictures import decode, in_threads
from vmt.data.files.tables import Table, lines_of, open_csv, open_parquet
from vmt.data.preprocess import BYTES, UNIT, Preprocess
from vmt.errors import InputError, shown

BATCH = 256
STDIN = "-"


@dataclass(frozen=True, eq=False)
class SampleBatch:
    """Samples, and where each comes from: its file and its number in there."""

    files: list[str]
    indices: list[int]
    x: NDArray[Any]


@dataclass(frozen=True)
class Unreadable:
    """Something that cannot be read, and why."""

    file: str
    reason: str


Item = SampleBatch | Unreadable


@dataclass(frozen=True)
class InputSpec:
    """What a model reads."""

    preprocess: Preprocess
    features: tuple[str, ...] = ()  # the names of its columns, where they are known
    label: str | None = None  # a column that is none of them

    @property
    def images(self) -> bool:
        return self.preprocess.size is not None


def expand_inputs(inputs: Sequence[str], reads: InputSpec) -> list[Path | str]:
    """The files that arguments stand for: folders become what they hold; "-" stays."""
    found: list[Path | str] = []
    for given in inputs:
        path = Path(given)
        if given == STDIN:
            found.append(given)
        elif path.is_dir():
            files = walk(
                path, PICTURE_SUFFIXES | ARRAY_SUFFIXES if reads.images else ARRAY_SUFFIXES | TABLE_SUFFIXES
            ).files
            if not files:
                kinds = (
                    "pictures, .npy or .npz files" if reads.images else ".csv, .csv.gz, .parquet, .npy or .npz files"
                )
                raise InputError(f"{shown(path)} holds no {kinds}: give a folder with some, or the files themselves.")
            found += sorted(files)
        elif path.exists():
            found.append(path)
        else:
            raise InputError(f"{shown(path)} does not exist: give files, folders, or - for a list on standard input.")
    return found


def stream_samples(inputs: Sequence[Path | str], reads: InputSpec, stdin: IO[bytes]) -> Iterator[Item]:
    """Everything that there is to predict on, in order."""
    # Neighbouring pictures are decoded together.
    for are_pictures, group in groupby(_opened(inputs, reads, stdin), lambda one: isinstance(one, Path)):
        if are_pictures:
            yield from _pictures((path for path in group if isinstance(path, Path)), reads)
        else:
            for items in group:
                assert not isinstance(items, Path)
                yield from items


def _opened(inputs: Iterable[Path | str], reads: InputSpec, stdin: IO[bytes]) -> Iterator[Path | Iterator[Item]]:
    """Pictures as paths, and what comes of all else."""
    for one in inputs:
        suffix = file_suffix(Path(one))
        if one == STDIN:
            yield from _standard_input(stdin, reads)
        elif suffix in ARRAY_SUFFIXES:
            yield _arrays(Path(one))
        elif suffix in TABLE_SUFFIXES:
            yield from _table(Path(one), reads)
        else:
            yield _picture(Path(one), reads)


def _picture(path: Path, reads: InputSpec) -> Path:
    if not reads.images:
        raise InputError(f"{shown(path)} is a picture, but the model reads vectors: give a table or a NumPy file.")
    return path


def _standard_input(stdin: IO[bytes], reads: InputSpec) -> Iterator[Path | Iterator[Item]]:
    """Paths, one per line; or, for a model of vectors, the rows of a CSV."""
    lines = (line.rstrip(b"\r\n") for line in stdin)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise InputError("standard input is empty: write paths to it, one per line.")
    # os.path.exists, unlike Path's, takes a row of a wide table for what it is: no file, and too long for a name.
    if not reads.images and not os.path.exists(os.fsdecode(first)):
        text = (line.decode("utf-8", "replace") for line in chain([first], lines))
        yield _vectors(open_csv(text, "standard input", reads.label, reads.features), reads)
        return
    for line in chain([first], lines):
        name = os.fsdecode(line)
        if not name.strip():
            continue
        if os.path.exists(name):
            yield from _opened(expand_inputs([name], reads), reads, stdin)
        else:
            yield iter([Unreadable(shown(name), "missing")])


def _table(path: Path, reads: InputSpec) -> Iterator[Path | Iterator[Item]]:
    """The rows of a table, or the pictures that it lists."""
    if path.suffix.lower() == ".parquet":
        table = open_parquet(path)
    else:
        table = open_csv(lines_of(path), shown(path), reads.label, reads.features)
    place = table.layout.path
    if place is not None:
        for number, row in enumerate(table.rows):
            if len(row) > place and row[place]:
                yield _picture(path.parent / row[place], reads)
            else:
                yield iter([Unreadable(f"index {number} of {table.name}", "no path")])
    elif reads.images:
        raise InputError(f"{shown(path)} holds vectors, but the model reads images: give pictures, or a list of them.")
    else:
        yield _vectors(table, reads)


def _pictures(paths: Iterator[Path], reads: InputSpec) -> Iterator[Item]:
    size, channels = reads.preprocess.size, reads.preprocess.channels
    assert size is not None
    files: list[str] = []
    pixels: list[NDArray[np.uint8]] = []
    for path, result in in_threads(lambda path: decode(path, size, channels), paths):
        if isinstance(result, str):
            yield Unreadable(shown(path), result)
            continue
        files.append(shown(path))
        pixels.append(result)
        if len(files) == BATCH:
            yield SampleBatch(files, [0] * BATCH, to_value_range(np.stack(pixels), reads.preprocess))
            files, pixels = [], []
    if files:
        yield SampleBatch(files, [0] * len(files), to_value_range(np.stack(pixels), reads.preprocess))


def _arrays(path: Path) -> Iterator[Item]:
    start = 0
    try:
        for x in iterate_rows(path):
            yield SampleBatch([shown(path)] * len(x), list(range(start, start + len(x))), x)
            start += len(x)
    except DAMAGED_NPZ as error:
        yield Unreadable(shown(path), "no array x" if isinstance(error, KeyError) else "damaged")


def _vectors(table: Table, reads: InputSpec) -> Iterator[Item]:
    indices: list[int] = []
    rows: list[NDArray[np.float32]] = []
    for number, row in table.numbers(reads.preprocess.channels, reads.features, reads.label):
        if isinstance(row, str):
            yield Unreadable(f"index {number} of {table.name}", row)
            continue
        indices.append(number)
        rows.append(row)
        if len(rows) == BATCH:
            yield SampleBatch([table.name] * BATCH, indices, np.stack(rows))
            indices, rows = [], []
    if rows:
        yield SampleBatch([table.name] * len(rows), indices, np.stack(rows))


def to_value_range(pixels: NDArray[np.uint8], preprocess: Preprocess) -> NDArray[Any]:
    """Bytes in the value range that a model was trained on."""
    if preprocess.values is BYTES:
        return pixels
    return pixels / np.float32(255) if preprocess.values is UNIT else pixels / np.float32(127.5) - 1
