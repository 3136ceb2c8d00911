"""Samples to predict on, from files, folders, lists and standard input: read in batches, however many there are."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.files.folders import scan_folder
from vmt.data.files.numpy_files import iterate_rows
from vmt.data.files.paths import ARRAY_SUFFIXES, PICTURE_SUFFIXES, TABLE_SUFFIXES, file_suffix
from vmt.data.files.pictures import decode, read_in_threads
from vmt.data.files.tables import TableRows, open_csv, open_parquet, read_lines
from vmt.data.preprocess import BYTES, UNIT, Preprocess
from vmt.errors import InputError, shown

BATCH = 256
STDIN = "-"


@dataclass(frozen=True)
class InputSpec:
    """What a model reads."""

    preprocess: Preprocess
    features: tuple[str, ...] = ()  # the names of its columns, if they are known
    label: str | None = None  # a column of tables that is not a feature

    @property
    def images(self) -> bool:
        return self.preprocess.size is not None


@dataclass(frozen=True, eq=False)
class SampleBatch:
    """Samples, with the file that each comes from and its index in that file."""

    files: list[str]
    indices: list[int]
    x: NDArray[Any]


@dataclass(frozen=True)
class Unreadable:
    """A sample or file that cannot be read, and why."""

    file: str
    reason: str


Item = SampleBatch | Unreadable


def expand_inputs(inputs: Sequence[str], spec: InputSpec) -> list[Path | str]:
    """The files that the arguments stand for: folders are replaced by their files; "-" is kept."""
    expanded: list[Path | str] = []
    for given in inputs:
        path = Path(given)
        if given == STDIN:
            expanded.append(given)
        elif path.is_dir():
            files = scan_folder(path, ARRAY_SUFFIXES | (PICTURE_SUFFIXES if spec.images else TABLE_SUFFIXES)).files
            if not files:
                kinds = "pictures" if spec.images else ".csv, .tsv, .csv.gz, .tsv.gz, .parquet"
                raise InputError(
                    f"{shown(path)} holds no {kinds}, .npy or .npz files: give another folder, or the files themselves."
                )
            expanded += sorted(files)
        elif path.exists():
            expanded.append(path)
        else:
            raise InputError(f"{shown(path)} does not exist: give files, folders, or - for a list on standard input.")
    return expanded


def stream_samples(inputs: Sequence[Path | str], spec: InputSpec, stdin: IO[bytes]) -> Iterator[Item]:
    """All samples in order, in batches."""
    # Neighbouring pictures are decoded together.
    for are_pictures, group in groupby(_open_all(inputs, spec, stdin), lambda opened: isinstance(opened, Path)):
        if are_pictures:
            yield from _picture_batches((path for path in group if isinstance(path, Path)), spec)
        else:
            for items in group:
                assert not isinstance(items, Path)
                yield from items


def _open_all(inputs: Iterable[Path | str], spec: InputSpec, stdin: IO[bytes]) -> Iterator[Path | Iterator[Item]]:
    """The paths of pictures, and the items of everything else."""
    for given in inputs:
        suffix = file_suffix(Path(given))
        if given == STDIN:
            yield from _open_stdin(stdin, spec)
        elif suffix in ARRAY_SUFFIXES:
            yield _array_batches(Path(given))
        elif suffix in TABLE_SUFFIXES:
            yield from _open_table(Path(given), spec)
        else:
            yield _picture(Path(given), spec)


def _open_stdin(stdin: IO[bytes], spec: InputSpec) -> Iterator[Path | Iterator[Item]]:
    """The paths on standard input, one per line, or the rows of a CSV file if the model reads vectors."""
    lines = (line.rstrip(b"\r\n") for line in stdin)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise InputError("standard input is empty: write paths to it, one per line.")
    # os.path.exists, unlike Path.exists, returns False for a row that is too long for a file name.
    if not spec.images and not os.path.exists(os.fsdecode(first)):
        text = (line.decode("utf-8", "replace") for line in chain([first], lines))
        yield _vector_batches(open_csv(text, "standard input", spec.label, spec.features), spec)
        return
    for line in chain([first], lines):
        name = os.fsdecode(line)
        if not name.strip():
            continue
        if os.path.exists(name):
            yield from _open_all(expand_inputs([name], spec), spec, stdin)
        else:
            yield iter([Unreadable(shown(name), "missing")])


def _open_table(path: Path, spec: InputSpec) -> Iterator[Path | Iterator[Item]]:
    """The rows of a table, or the pictures that it lists."""
    if path.suffix.lower() == ".parquet":
        table = open_parquet(path)
    else:
        table = open_csv(read_lines(path), shown(path), spec.label, spec.features)
    place = table.layout.path
    if place is not None:
        for index, row in enumerate(table.rows):
            if len(row) > place and row[place]:
                yield _picture(path.parent / row[place], spec)
            else:
                yield iter([Unreadable(f"index {index} of {table.name}", "no path")])
    elif spec.images:
        raise InputError(f"{shown(path)} holds vectors, but the model reads images: give pictures, or a list of them.")
    else:
        yield _vector_batches(table, spec)


def _picture(path: Path, spec: InputSpec) -> Path:
    if not spec.images:
        raise InputError(f"{shown(path)} is a picture, but the model reads vectors: give a table or a NumPy file.")
    return path


def _picture_batches(paths: Iterator[Path], spec: InputSpec) -> Iterator[Item]:
    framing = spec.preprocess.framing
    files: list[str] = []
    pixels: list[NDArray[np.uint8]] = []

    def batch() -> SampleBatch:
        return SampleBatch(files, [0] * len(files), to_value_range(np.stack(pixels), spec.preprocess))

    for path, result in read_in_threads(lambda path: decode(path, framing), paths):
        if isinstance(result, str):
            yield Unreadable(shown(path), result)
            continue
        files.append(shown(path))
        pixels.append(result)
        if len(files) == BATCH:
            yield batch()
            files, pixels = [], []
    if files:
        yield batch()


def _array_batches(path: Path) -> Iterator[Item]:
    start = 0
    try:
        for x in iterate_rows(path):
            yield SampleBatch([shown(path)] * len(x), list(range(start, start + len(x))), x)
            start += len(x)
    except InputError as error:
        yield Unreadable(shown(path), "no array x" if isinstance(error.__cause__, KeyError) else "damaged")


def _vector_batches(table: TableRows, spec: InputSpec) -> Iterator[Item]:
    indices: list[int] = []
    rows: list[NDArray[np.float32]] = []
    imputes = spec.preprocess.fill is not None
    for index, row in table.numbers(spec.preprocess.channels, spec.features, spec.label, imputes):
        if isinstance(row, str):
            yield Unreadable(f"index {index} of {table.name}", row)
            continue
        indices.append(index)
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
