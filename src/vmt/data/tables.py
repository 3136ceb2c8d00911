"""Tables: a CSV that lists pictures with their classes, and CSV or Parquet files of numeric features."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.files import existing_file
from vmt.data.folders import SUFFIXES, Listing, class_name, few, shown
from vmt.errors import InputError

PATH_COLUMNS = ("path", "file", "filename", "image", "picture")
LABEL = "label"


@dataclass(frozen=True, eq=False)
class Table:
    """Vectors with the names of their features."""

    name: str
    x: NDArray[np.float32]
    features: tuple[str, ...]
    labels: tuple[str, ...] | None  # "" where a label is not known


def read_csv(path: Path, label: str | None = None) -> Listing | Table:
    """Pictures that a CSV lists as path and label, relative to it; or else its numeric columns as vectors.

    `label` is the column of the class names, by default "label"; a file without that column has no labels.
    """
    rows = _rows(path)
    # Only a CSV of pictures names files, and only one of vectors starts with numbers.
    if Path(rows[0][0]).suffix.lower() in SUFFIXES:
        columns = ["path", LABEL, *(f"column {i}" for i in range(3, len(rows[0]) + 1))]
        return _pictures(path, columns[: len(rows[0])], rows, "path", label, first=1)
    if all(_is_number(cell) for cell in rows[0]):
        return _vectors(path, [f"column {i}" for i in range(1, len(rows[0]) + 1)], rows, label, first=1)
    header, rows = [class_name(cell) for cell in rows[0]], rows[1:]
    if not rows:
        raise InputError(f"{path} holds a header and no rows: give it one row per sample.")
    if repeated := [name for i, name in enumerate(header) if name in header[:i]]:
        raise InputError(f"{path} has two columns called {repeated[0]!r}: give each its own name.")
    for name in header:
        if name.lower() in PATH_COLUMNS and name != label:
            return _pictures(path, header, rows, name, label, first=2)
    return _vectors(path, header, rows, label, first=2)


def read_parquet(path: Path, label: str | None = None) -> Table:
    """The numeric columns of a Parquet file as vectors."""
    existing_file(path, "give the path of a Parquet file")
    try:
        pyarrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError(f"{path} needs the package pyarrow: pip install 'vmt[parquet]', or save it as CSV.") from error
    try:
        columns: dict[str, list[Any]] = parquet.read_table(path).to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a readable Parquet file: save it again.") from error
    cells = [["" if cell is None else str(cell) for cell in column] for column in columns.values()]
    rows = [list(row) for row in zip(*cells, strict=True)]
    if not rows:
        raise InputError(f"{path} holds no rows: give it one row per sample.")
    return _vectors(path, list(columns), rows, label, first=1)


def _rows(path: Path) -> list[list[str]]:
    existing_file(path, "give the path of a CSV file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            delimiter = max(",;\t", key=file.readline().count)
            file.seek(0)
            rows = [[cell.strip() for cell in row] for row in csv.reader(file, delimiter=delimiter)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file in UTF-8: save it again as that.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the file and its permissions.") from error
    rows = [row for row in rows if any(row)]
    if not rows:
        raise InputError(f"{path} is empty: give it one row per sample.")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise InputError(f"row {number} of {path} has {len(row)} cells and the first {len(rows[0])}: correct it.")
    return rows


def _labels(header: Sequence[str], rows: list[list[str]], label: str | None) -> tuple[str, ...] | None:
    column = label or LABEL
    if column not in header:
        return None
    place = list(header).index(column)
    return tuple(class_name(row[place]) for row in rows)


def _pictures(
    path: Path, header: Sequence[str], rows: list[list[str]], column: str, label: str | None, first: int
) -> Listing:
    place = list(header).index(column)
    missing = [i for i, row in enumerate(rows, first) if not row[place]]
    if missing:
        raise InputError(f"row {missing[0]} of {path} names no picture: correct or remove it.")
    files = tuple(path.parent / row[place] for row in rows)
    return Listing(shown(path), files, _labels(header, rows, label))


def _vectors(path: Path, header: Sequence[str], rows: list[list[str]], label: str | None, first: int) -> Table:
    labels = _labels(header, rows, label)
    left_out = (label or LABEL) if labels is not None else None
    places = [i for i, name in enumerate(header) if name != left_out]
    if not places:
        raise InputError(f"{path} has no column of numbers beside {left_out!r}: give it the features.")
    try:
        x = np.array([[float(row[i]) for i in places] for row in rows], np.float32)
    except ValueError as error:
        number, name, cell = next(
            (n, header[i], row[i]) for n, row in enumerate(rows, first) for i in places if not _is_number(row[i])
        )
        what = f"{cell!r} instead of a number" if cell else "nothing"
        raise InputError(
            f"row {number} of {path} has {what} in the column {name!r}: remove the column, fill in a number, or name "
            "the column of the classes with --label."
        ) from error
    return Table(shown(path), x, tuple(header[i] for i in places), labels)


def columns_of(name: str, header: Sequence[str], features: Sequence[str], of: str) -> list[int]:
    """Where a table has the columns that another has."""
    places = {column: i for i, column in enumerate(header)}
    if missing := [column for column in features if column not in places]:
        raise InputError(f"{name} lacks the column {few(missing)} of {of}: give both the same features.")
    return [places[column] for column in features]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
