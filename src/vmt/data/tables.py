"""Tables: a CSV that lists pictures with their classes, and CSV or Parquet files of numeric features. A CSV may be
packed with gzip."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.files import existing_file, open_text
from vmt.data.folders import SUFFIXES, Listing, class_name, few, shown
from vmt.errors import InputError

TABLES = frozenset({".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet"})
PATH_COLUMNS = ("path", "file", "filename", "image", "picture")
LABEL = "label"
INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # how pandas names an index that has no name
TRUTH = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, eq=False)
class Table:
    """Vectors with the names of their features."""

    name: str
    x: NDArray[np.float64]
    features: tuple[str, ...]
    labels: tuple[str, ...] | None  # "" where a label is not known


def read_csv(path: Path, label: str | None = None, wanted: Sequence[str] = ()) -> Listing | Table:
    """Pictures that a CSV lists as path and label, relative to it; or else its numeric columns as vectors.

    `label` is the column of the class names, by default "label"; a file without that column has no labels. Of a table
    that has all columns that are `wanted`, only those are read.
    """
    rows = _rows(path)
    layout = layout_of(rows[0], label, shown(path))
    first = 2 if layout.named else 1
    rows = rows[1:] if layout.named else rows
    if not rows:
        raise InputError(f"{path} holds a header and no rows: give it one row per sample.")
    if layout.path is not None:
        return _pictures(path, layout.header, rows, layout.path, label, first)
    return _vectors(path, layout.header, rows, label, first, wanted)


@dataclass(frozen=True)
class Layout:
    """What the first row of a CSV says of all rows."""

    header: tuple[str, ...]
    named: bool  # the first row holds the names of the columns
    path: int | None  # the column with the paths of pictures, if there is one


def layout_of(row: Sequence[str], label: str | None, name: str) -> Layout:
    """Only a CSV of pictures names files, and only one of vectors starts with numbers; any other has a header."""
    numbered = [f"column {i}" for i in range(1, len(row) + 1)]
    if Path(row[0]).suffix.lower() in SUFFIXES:
        return Layout(("path", LABEL, *numbered[2:])[: len(row)], False, 0)
    if all(is_number(cell) for cell in row):
        return Layout(tuple(numbered), False, None)
    header = tuple(class_name(cell) for cell in row)
    if repeated := [column for i, column in enumerate(header) if column in header[:i]]:
        raise InputError(f"{name} has two columns called {repeated[0]!r}: give each its own name.")
    paths = [i for i, column in enumerate(header) if column.lower() in PATH_COLUMNS and column != label]
    return Layout(header, True, paths[0] if paths else None)


def read_parquet(path: Path, label: str | None = None, wanted: Sequence[str] = ()) -> Table:
    """The columns of a Parquet file as vectors, likewise."""
    existing_file(path, "give the path of a Parquet file")
    pyarrow, parquet = parquet_reader(path)
    try:
        columns: dict[str, list[Any]] = parquet.read_table(path).to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a readable Parquet file: save it again.") from error
    cells = [["" if cell is None else str(cell) for cell in column] for column in columns.values()]
    rows = [list(row) for row in zip(*cells, strict=True)]
    if not rows:
        raise InputError(f"{path} holds no rows: give it one row per sample.")
    return _vectors(path, list(columns), rows, label, 1, wanted)


def parquet_reader(path: Path) -> tuple[Any, Any]:
    """The packages pyarrow and pyarrow.parquet."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError(f"{path} needs the package pyarrow: pip install 'vmt[parquet]', or save it as CSV.") from error


def _rows(path: Path) -> list[list[str]]:
    existing_file(path, "give the path of a CSV file")
    try:
        with open_text(path) as file:
            first = file.readline()
            cells = csv.reader(chain([first], file), delimiter=delimiter_of(first))
            rows = [[cell.strip() for cell in row] for row in cells if any(row)]
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
    path: Path, header: Sequence[str], rows: list[list[str]], place: int, label: str | None, first: int
) -> Listing:
    missing = [i for i, row in enumerate(rows, first) if not row[place]]
    if missing:
        raise InputError(f"row {missing[0]} of {path} names no picture: correct or remove it.")
    files = tuple(path.parent / row[place] for row in rows)
    return Listing(shown(path), files, _labels(header, rows, label))


def _vectors(
    path: Path, header: Sequence[str], rows: list[list[str]], label: str | None, first: int, wanted: Sequence[str]
) -> Table:
    labels = _labels(header, rows, label)
    left_out = (label or LABEL) if labels is not None else None
    only = set(wanted) if set(wanted) <= set(header) else set()
    places = [i for i, name in enumerate(header) if name != left_out and (not only or name in only)]
    if not places:
        raise InputError(f"{path} has no column of numbers beside {left_out!r}: give it the features.")
    if unnamed := [i + 1 for i in places if INDEX.fullmatch(header[i])]:
        raise InputError(
            f"column {unnamed[0]} of {path} has no name, as when pandas writes its index: remove it (index=False), or "
            "name it if it is a feature."
        )
    x = _numbers(path, header, rows, places, first)
    return Table(shown(path), x, tuple(header[i] for i in places), labels)


def _numbers(
    path: Path, header: Sequence[str], rows: list[list[str]], places: list[int], first: int
) -> NDArray[np.float64]:
    """The values of some columns; the first cell that has none is named."""
    try:
        x = np.array([[float(row[i]) for i in places] for row in rows])
    except ValueError:  # true and false, or something to complain of
        x = np.array([[number(row[i]) for i in places] for row in rows], np.float64)  # NaN for None
    strange = np.argwhere(~np.isfinite(x))
    if len(strange):
        row, place = int(strange[0][0]), places[strange[0][1]]
        what = f"{rows[row][place]!r} instead of a number" if rows[row][place] else "nothing"
        raise InputError(
            f"row {row + first} of {path} has {what} in the column {header[place]!r}: remove the column, fill in a "
            "number, or name the column of the classes with --label."
        )
    return x


def columns_of(name: str, header: Sequence[str], features: Sequence[str], of: str) -> list[int]:
    """Where a table has the columns that another has."""
    places = {column: i for i, column in enumerate(header)}
    if missing := [column for column in features if column not in places]:
        raise InputError(f"{name} lacks the column {few(missing)} of {of}: give both the same features.")
    return [places[column] for column in features]


def delimiter_of(line: str) -> str:
    return max(",;\t", key=line.count)


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def number(cell: str) -> float | None:
    """The value of a cell: a number, or 1 and 0 for true and false."""
    try:
        return float(cell)
    except ValueError:
        return TRUTH.get(cell.lower())
