"""Tables: a CSV that lists pictures with their classes, and CSV or Parquet files of numeric features. A CSV may be
packed with gzip."""

import csv
import math
import os
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from vmt.data.arrays import check_unique_columns, class_name, column_indices
from vmt.data.files.folders import Listing
from vmt.data.files.paths import PICTURE_SUFFIXES, explain_read_errors, is_utf8, open_text
from vmt.errors import InputError, shown

PATH_COLUMNS = ("path", "file", "filename", "image", "picture")
LABEL = "label"
INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # how pandas names an index that has no name
TRUTH = {"true": 1.0, "false": 0.0}

Row = list[str]
ROWS_AT_ONCE = 4096  # of a Parquet file


@dataclass(frozen=True, eq=False)
class Vectors:
    """Rows of numbers with the names of their columns."""

    name: str
    x: NDArray[np.float64]
    features: tuple[str, ...]
    labels: tuple[str, ...] | None  # "" where a label is not known


def read_csv(path: Path, label: str | None, wanted: Sequence[str]) -> Listing | Vectors:
    """Pictures that a CSV lists as path and label, relative to it; or else its numeric columns as vectors.

    `label` is the column of the class names, None for "label"; a file without that column has no labels. Of a table
    that has all columns that are `wanted`, only those are read.
    """
    layout, rows = opened_csv(lines_of(path), shown(path), label, wanted)
    numbered = _numbered(path, layout, rows)
    if layout.path is not None:
        return _pictures(path, layout.header, numbered, layout.path, label)
    return _vectors(path, layout.header, numbered, label, wanted)


@dataclass(frozen=True)
class Layout:
    """What the first row of a CSV says of all rows."""

    header: tuple[str, ...]
    named: bool  # the first row holds the names of the columns
    path: int | None  # the column with the paths of pictures, if there is one


def opened_csv(
    lines: Iterator[str], name: str, label: str | None, wanted: Sequence[str] = ()
) -> tuple[Layout, Iterator[Row]]:
    """What a CSV says of its rows, and these: those with anything in them, the cells without blanks around them."""
    first = next((line for line in lines if line.strip()), "").removeprefix("\ufeff")

    def rows() -> Iterator[Row]:
        try:
            for row in csv.reader(chain([first], lines), delimiter=delimiter_of(first)):
                if any(cells := [cell.strip() for cell in row]):
                    yield cells
        except csv.Error as error:
            raise InputError(f"{name} is not a CSV file ({error}): save it again as that.") from error

    rest = rows()
    head = next(rest, None)
    if head is None:
        raise InputError(f"{name} is empty: give it one row per sample.")
    layout = layout_of(head, label, name, wanted)
    return layout, rest if layout.named else chain([head], rest)


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a text in UTF-8, as they are asked for."""
    try:
        with explain_read_errors(path), open_text(path) as file:
            yield from file
    except UnicodeDecodeError as error:
        raise InputError(f"{shown(path)} is not a CSV file in UTF-8: save it again as that.") from error


def layout_of(row: Sequence[str], label: str | None, name: str, wanted: Sequence[str] = ()) -> Layout:
    """Only a CSV of pictures names files, and only one of vectors starts with numbers; any other has a header. One of
    numbers, as pandas writes it for columns without names, is known by the columns that are asked for."""
    numbered = [f"column {i}" for i in range(1, len(row) + 1)]
    if Path(row[0]).suffix.lower() in PICTURE_SUFFIXES:
        return Layout(("path", LABEL, *numbered[2:])[: len(row)], False, 0)
    counted = label in row and list(row) == [str(i) for i in range(len(row))]
    asked_for = bool(wanted) and set(wanted) <= {class_name(cell) for cell in row}
    if all(number(cell) is not None for cell in row) and not counted and not asked_for:
        return Layout(tuple(numbered), False, None)
    header = tuple(class_name(cell) for cell in row)
    check_unique_columns(header, name)
    paths = [i for i, column in enumerate(header) if column.lower() in PATH_COLUMNS and column != label]
    return Layout(header, True, paths[0] if paths and not asked_for else None)


def read_parquet(path: Path, label: str | None, wanted: Sequence[str]) -> Vectors:
    """The columns of a Parquet file as vectors, likewise."""
    pyarrow, parquet = parquet_reader(path)
    try:
        with parquet.ParquetFile(path) as file:
            check_unique_columns(file.schema_arrow.names, shown(path))
            table = file.read()
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a readable Parquet file: save it again.") from error
    if not table.num_rows:
        raise InputError(f"{path} holds no rows: give it one row per sample.")
    header: list[str] = table.column_names
    of_labels, places = _columns(path, header, label, wanted)
    x = np.empty((table.num_rows, len(places)))
    for k, place in enumerate(places):
        column = table.column(place)
        plain = pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)
        x[:, k] = column.to_numpy() if plain else [number(text_of(cell)) for cell in column.to_pylist()]  # NaN for None
        strange = np.flatnonzero(~np.isfinite(x[:, k]))
        if len(strange):
            row = int(strange[0])
            _refuse_cell(path, row + 1, text_of(column[row].as_py()), header[place])
    labels = None if of_labels is None else tuple(class_name(text_of(c)) for c in table.column(of_labels).to_pylist())
    return Vectors(shown(path), x, tuple(header[i] for i in places), labels)


def parquet_reader(path: Path) -> tuple[Any, Any]:
    """The packages pyarrow and pyarrow.parquet."""
    if not is_utf8(path):
        raise InputError(f"{shown(path)} has a name that is not UTF-8, which pyarrow cannot open: rename it.")
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError(f"{path} needs the package pyarrow: pip install 'vmt[parquet]', or save it as CSV.") from error


def text_of(cell: Any) -> str:
    """A cell of a Parquet file as a CSV would have it."""
    return "" if cell is None else str(cell)


def _numbered(path: Path, layout: Layout, rows: Iterator[Row]) -> Iterator[tuple[int, Row]]:
    """The rows with their numbers in the file; one of another length than the first is refused."""
    nth = 0
    for nth, row in enumerate(rows, 2 if layout.named else 1):
        if len(row) != len(layout.header):
            raise InputError(
                f"row {nth} of {path} has {len(row)} cells and the first {len(layout.header)}: correct it."
            )
        yield nth, row
    if not nth:
        raise InputError(f"{path} holds a header and no rows: give it one row per sample.")


def _pictures(
    path: Path, header: Sequence[str], rows: Iterator[tuple[int, Row]], place: int, label: str | None
) -> Listing:
    of_labels, listed = _place_of_labels(header, label), list(rows)
    if missing := [nth for nth, row in listed if not row[place]]:
        raise InputError(f"row {missing[0]} of {path} names no picture: correct or remove it.")
    first = listed[0][1][place]
    looks_like_pictures = any(Path(row[place]).suffix.lower() in PICTURE_SUFFIXES for _, row in listed)
    # os.path.exists, unlike Path's, takes a text that is too long for a name for no file.
    if len(header) > 2 and not looks_like_pictures and not os.path.exists(path.parent / first):
        raise InputError(
            f"the column {header[place]!r} of {shown(path)} should name pictures, but has {first!r}: correct it, or "
            "remove it if the other columns are features."
        )
    labels = None if of_labels is None else tuple(class_name(row[of_labels]) for _, row in listed)
    return Listing(shown(path), tuple(path.parent / row[place] for _, row in listed), labels)


def _vectors(
    path: Path, header: Sequence[str], rows: Iterator[tuple[int, Row]], label: str | None, wanted: Sequence[str]
) -> Vectors:
    of_labels, places = _columns(path, header, label, wanted)
    values = array("d")  # as text, a table takes many times the memory of its numbers
    labels: list[str] = []
    for nth, row in rows:
        for place in places:
            value = number(row[place])
            if value is None or not math.isfinite(value):
                _refuse_cell(path, nth, row[place], header[place])
            values.append(value)
        if of_labels is not None:
            labels.append(class_name(row[of_labels]))
    x = np.frombuffer(values).reshape(-1, len(places))
    return Vectors(shown(path), x, tuple(header[i] for i in places), None if of_labels is None else tuple(labels))


def _refuse_cell(path: Path, row: int, cell: str, column: str) -> NoReturn:
    what = f"{cell!r} instead of a number" if cell else "nothing"
    raise InputError(
        f"row {row} of {path} has {what} in the column {column!r}: remove the column, fill in a number, or name the "
        "column of the classes with --label."
    )


def _place_of_labels(header: Sequence[str], label: str | None) -> int | None:
    return list(header).index(label or LABEL) if (label or LABEL) in header else None


def _columns(
    path: Path, header: Sequence[str], label: str | None, wanted: Sequence[str]
) -> tuple[int | None, list[int]]:
    """Where a table has its labels, if it has any, and its features."""
    of_labels = _place_of_labels(header, label)
    only = set(wanted) if set(wanted) <= set(header) else set()
    places = [i for i, name in enumerate(header) if i != of_labels and (not only or name in only)]
    if not places:
        raise InputError(f"{path} has no column of numbers beside {label or LABEL!r}: give it the features.")
    if unnamed := [i + 1 for i in places if INDEX.fullmatch(header[i])]:
        raise InputError(
            f"column {unnamed[0]} of {path} has no name, as when pandas writes its index: remove it (index=False), or "
            "name it if it is a feature."
        )
    return of_labels, places


def delimiter_of(line: str) -> str:
    return max(",;\t", key=line.count)


def number(cell: str) -> float | None:
    """The value of a cell: a number, or 1 and 0 for true and false. 1_2 is a name, though Python reads it as 12."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return TRUTH.get(cell.lower())


class Table:
    """The rows of a table, as text, with what its first row says of them."""

    def __init__(self, name: str, layout: Layout, rows: Iterator[Row]) -> None:
        self.name, self.layout, self.rows = name, layout, rows

    def numbers(
        self, width: int, features: Sequence[str], label: str | None
    ) -> Iterator[tuple[int, NDArray[np.float32] | str]]:
        """The number of each row, and its features or a word for its fault. `features` are their names, if known."""
        header = self.layout.header
        if features and self.layout.named:
            places = column_indices(self.name, header, features, "the model")
        else:
            # Without names, the order must be that of the training.
            places = [i for i, column in enumerate(header) if column != (label or LABEL)]
        if len(places) != width:
            raise InputError(
                f"{self.name} has {len(places)} columns of features, but the model reads {width}: give it just those."
            )
        for place, row in enumerate(self.rows):
            cells = [row[i] for i in places if i < len(row)]
            values = [number(cell) for cell in cells]
            if len(row) != len(header):
                yield place, f"{len(row)} cells instead of {len(header)}"
            elif None in values:
                bad = values.index(None)
                yield place, f"{cells[bad]!r} instead of a number in the column {header[places[bad]]!r}"
            else:
                with np.errstate(over="ignore"):  # what is too large becomes infinite, which is said
                    sample = np.array(values, np.float32)
                yield place, sample if np.isfinite(sample).all() else "a value that is not finite"


def open_csv(lines: Iterator[str], name: str, label: str | None, features: Sequence[str] = ()) -> Table:
    """A table from lines of text, of a model's `features` where their names are known."""
    return Table(name, *opened_csv(lines, name, label, features))


def open_parquet(path: Path) -> Table:
    """A table from a Parquet file."""
    pyarrow, parquet = parquet_reader(path)

    def told(error: Exception) -> InputError:
        return InputError(f"{shown(path)} is not a readable Parquet file ({error}): save it again.")

    def rows() -> Iterator[Row]:
        try:
            with file:
                for portion in file.iter_batches(ROWS_AT_ONCE):
                    columns = [column.to_pylist() for column in portion.columns]
                    for row in zip(*columns, strict=True):
                        yield [text_of(cell) for cell in row]
        except (pyarrow.ArrowException, OSError) as error:
            raise told(error) from error

    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise told(error) from error
    header = tuple(file.schema_arrow.names)
    check_unique_columns(header, shown(path))
    return Table(shown(path), Layout(header, True, None), rows())
