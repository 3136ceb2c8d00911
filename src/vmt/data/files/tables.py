"""Tables: CSV files that list pictures with their classes, and CSV or Parquet files of numeric features.

:func:`read_csv` and :func:`read_parquet` read a whole table to train on, and refuse it if a cell is wrong.
:func:`open_csv` and :func:`open_parquet` give the rows one by one to predict on, and report wrong rows. A CSV file may
be gzipped.
"""

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

from vmt.data.domains import check_unique_columns, class_name, column_indices
from vmt.data.files.folders import PictureList
from vmt.data.files.paths import PICTURE_SUFFIXES, explain_read_errors, is_utf8, open_text
from vmt.errors import InputError, shown

LABEL = "label"  # the column of the class names, unless the user names another
PATH_COLUMNS = ("path", "file", "filename", "image", "picture")
PANDAS_INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # how pandas names an index without a name
TRUTH = {"true": 1.0, "false": 0.0}
ROWS_AT_ONCE = 4096  # rows of a Parquet file in one portion

Row = list[str]


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Rows of numbers with the names of their columns."""

    name: str
    x: NDArray[np.float64]
    features: tuple[str, ...]
    labels: tuple[str, ...] | None  # "" where a label is not known


@dataclass(frozen=True)
class Layout:
    """What the first row of a table says about all rows."""

    header: tuple[str, ...]
    named: bool  # whether the first row holds the names of the columns
    path: int | None  # the column with the paths of pictures, if there is one


class TableRows:
    """The rows of a table as text, read one by one."""

    def __init__(self, name: str, layout: Layout, rows: Iterator[Row]) -> None:
        self.name, self.layout, self.rows = name, layout, rows

    def numbers(
        self, width: int, features: Sequence[str], label: str | None
    ) -> Iterator[tuple[int, NDArray[np.float32] | str]]:
        """The index of each row with its features, or with a description of what is wrong with it.

        `width` is the number of features of a model, and `features` are their names, if they have names.
        """
        header = self.layout.header
        if features and self.layout.named:
            places = column_indices(self.name, header, features, "the model")
        else:
            # Without names, the columns must be in the order of the training data.
            places = [i for i, column in enumerate(header) if column != (label or LABEL)]
        if len(places) != width:
            raise InputError(
                f"{self.name} has {len(places)} columns of features, but the model expects {width}: give it exactly "
                "those."
            )
        for index, row in enumerate(self.rows):
            cells = [row[i] for i in places if i < len(row)]
            values = [_number(cell) for cell in cells]
            if len(row) != len(header):
                yield index, f"{len(row)} cells instead of {len(header)}"
            elif None in values:
                bad = values.index(None)
                yield index, f"{cells[bad]!r} instead of a number in the column {header[places[bad]]!r}"
            else:
                with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite
                    sample = np.array(values, np.float32)
                yield index, sample if np.isfinite(sample).all() else "a value that is not finite"


def read_csv(path: Path, label: str | None, wanted: Sequence[str]) -> PictureList | FeatureTable:
    """The pictures that a CSV file lists, with paths relative to it; otherwise its numeric columns.

    `label` is the column of the class names, None for "label"; a file without that column has no labels. If a table has
    all columns that are `wanted`, only those are read.
    """
    table = open_csv(read_lines(path), shown(path), label, wanted)
    rows = _checked_rows(path, table)
    if table.layout.path is not None:
        return _picture_list(path, table.layout.header, rows, table.layout.path, label)
    return _feature_table(path, table.layout.header, rows, label, wanted)


def read_parquet(path: Path, label: str | None, wanted: Sequence[str]) -> FeatureTable:
    """The columns of a Parquet file; the arguments are those of :func:`read_csv`."""
    pyarrow, parquet = _import_pyarrow(path)
    try:
        with parquet.ParquetFile(path) as file:
            check_unique_columns(file.schema_arrow.names, shown(path))
            table = file.read()
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable_parquet(path, error) from error
    if not table.num_rows:
        raise InputError(f"{path} holds no rows: give it one row per sample.")
    header: list[str] = table.column_names
    label_place, places = _columns(path, header, label, wanted)
    x = np.empty((table.num_rows, len(places)))
    for k, place in enumerate(places):
        column = table.column(place)
        plain = pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)
        # NumPy converts None, which stands for text without a number, to NaN.
        x[:, k] = column.to_numpy() if plain else [_number(_text(cell)) for cell in column.to_pylist()]
        bad = np.flatnonzero(~np.isfinite(x[:, k]))
        if len(bad):
            row = int(bad[0])
            _refuse_cell(path, row + 1, _text(column[row].as_py()), header[place], header, label)
    labels = None
    if label_place is not None:
        labels = tuple(class_name(_text(cell)) for cell in table.column(label_place).to_pylist())
    return FeatureTable(shown(path), x, tuple(header[i] for i in places), labels)


def open_csv(lines: Iterator[str], name: str, label: str | None, features: Sequence[str] = ()) -> TableRows:
    """The rows of a CSV file that are not empty, with the blanks around each cell removed.

    `features` are the columns that a model or another table has; they help to recognise the header.
    """
    first = next((line for line in lines if line.strip()), "").removeprefix("\ufeff")
    delimiter = max(",;\t", key=first.count)

    def rows() -> Iterator[Row]:
        try:
            for row in csv.reader(chain([first], lines), delimiter=delimiter):
                if any(cells := [cell.strip() for cell in row]):
                    yield cells
        except csv.Error as error:
            raise InputError(f"{name} is not a valid CSV file ({error}): save it again as CSV.") from error

    rest = rows()
    head = next(rest, None)
    if head is None:
        raise InputError(f"{name} is empty: give it one row per sample.")
    layout = _layout(head, label, name, features)
    return TableRows(name, layout, rest if layout.named else chain([head], rest))


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file in UTF-8, read as they are needed."""
    try:
        with explain_read_errors(path), open_text(path) as file:
            yield from file
    except UnicodeDecodeError as error:
        raise InputError(f"{shown(path)} is not a CSV file in UTF-8: save it again in UTF-8.") from error


def open_parquet(path: Path) -> TableRows:
    """The rows of a Parquet file, as the text that a CSV file would hold."""
    pyarrow, parquet = _import_pyarrow(path)

    def rows() -> Iterator[Row]:
        try:
            with file:
                for portion in file.iter_batches(ROWS_AT_ONCE):
                    columns = [column.to_pylist() for column in portion.columns]
                    for row in zip(*columns, strict=True):
                        yield [_text(cell) for cell in row]
        except (pyarrow.ArrowException, OSError) as error:
            raise _unreadable_parquet(path, error) from error

    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable_parquet(path, error) from error
    header = tuple(file.schema_arrow.names)
    check_unique_columns(header, shown(path))
    return TableRows(shown(path), Layout(header, True, None), rows())


def _import_pyarrow(path: Path) -> tuple[Any, Any]:
    """The packages pyarrow and pyarrow.parquet."""
    if not is_utf8(path):
        raise InputError(f"{shown(path)} has a name that is not UTF-8, which pyarrow cannot open: rename it.")
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError(f"{path} needs the package pyarrow: pip install 'vmt[parquet]', or save it as CSV.") from error


def _unreadable_parquet(path: Path, error: Exception) -> InputError:
    return InputError(f"{shown(path)} is not a readable Parquet file ({error}): save it again.")


def _text(cell: Any) -> str:
    """A cell of a Parquet file as the text that a CSV file would hold."""
    return "" if cell is None else str(cell)


def _number(cell: str) -> float | None:
    """The number in a cell, 1 for true, 0 for false, or None. Python reads 1_2 as 12, but here it is not a number."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return TRUTH.get(cell.lower())


def _layout(row: Sequence[str], label: str | None, name: str, wanted: Sequence[str]) -> Layout:
    """Decide from the first row whether it is a header, and whether the table lists pictures.

    A row that starts with the name of a picture is not a header. A row of numbers is a header only if it holds the
    requested columns, because pandas writes numbers as the names of columns without names.
    """
    unnamed = [f"column {i}" for i in range(1, len(row) + 1)]
    if Path(row[0]).suffix.lower() in PICTURE_SUFFIXES:
        return Layout(("path", LABEL, *unnamed[2:])[: len(row)], False, 0)
    counted = label in row and list(row) == [str(i) for i in range(len(row))]
    has_wanted = bool(wanted) and set(wanted) <= {class_name(cell) for cell in row}
    if all(_number(cell) is not None for cell in row) and not counted and not has_wanted:
        return Layout(tuple(unnamed), False, None)
    header = tuple(class_name(cell) for cell in row)
    check_unique_columns(header, name)
    paths = [i for i, column in enumerate(header) if column.lower() in PATH_COLUMNS and column != label]
    return Layout(header, True, paths[0] if paths and not has_wanted else None)


def _checked_rows(path: Path, table: TableRows) -> Iterator[tuple[int, Row]]:
    """The rows with their numbers in the file; a row whose length differs from the first is refused."""
    nth, length = 0, len(table.layout.header)
    for nth, row in enumerate(table.rows, 2 if table.layout.named else 1):
        if len(row) != length:
            raise InputError(f"row {nth} of {path} has {len(row)} cells, but the first row has {length}: correct it.")
        yield nth, row
    if not nth:
        raise InputError(f"{path} holds a header but no rows: give it one row per sample.")


def _picture_list(
    path: Path, header: Sequence[str], rows: Iterator[tuple[int, Row]], place: int, label: str | None
) -> PictureList:
    label_place, listed = _label_place(header, label), list(rows)
    if missing := [nth for nth, row in listed if not row[place]]:
        raise InputError(f"row {missing[0]} of {path} has no path of a picture: correct or remove it.")
    first = listed[0][1][place]
    names_pictures = any(Path(row[place]).suffix.lower() in PICTURE_SUFFIXES for _, row in listed)
    # os.path.exists, unlike Path.exists, returns False for a text that is too long for a file name.
    if len(header) > 2 and not names_pictures and not os.path.exists(path.parent / first):
        raise InputError(
            f"the column {header[place]!r} of {shown(path)} should name pictures, but has {first!r}: correct it, or "
            "remove it if the other columns are features."
        )
    labels = None if label_place is None else tuple(class_name(row[label_place]) for _, row in listed)
    return PictureList(shown(path), tuple(path.parent / row[place] for _, row in listed), labels)


def _feature_table(
    path: Path, header: Sequence[str], rows: Iterator[tuple[int, Row]], label: str | None, wanted: Sequence[str]
) -> FeatureTable:
    label_place, places = _columns(path, header, label, wanted)
    values = array("d")  # numbers take a fraction of the memory of the text
    labels: list[str] = []
    for nth, row in rows:
        for place in places:
            value = _number(row[place])
            if value is None or not math.isfinite(value):
                _refuse_cell(path, nth, row[place], header[place], header, label)
            values.append(value)
        if label_place is not None:
            labels.append(class_name(row[label_place]))
    x = np.frombuffer(values).reshape(-1, len(places))
    features = tuple(header[i] for i in places)
    return FeatureTable(shown(path), x, features, None if label_place is None else tuple(labels))


def _refuse_cell(path: Path, row: int, cell: str, column: str, header: Sequence[str], label: str | None) -> NoReturn:
    what = f"{cell!r} instead of a number" if cell else "nothing"
    remedy = "remove the column, fill in a number, or name the column of the classes with --label"
    if label is not None and label not in header:
        remedy = f"remove the column, fill in a number, or correct --label, because there is no column {label!r}"
    raise InputError(f"row {row} of {path} has {what} in the column {column!r}: {remedy}.")


def _columns(
    path: Path, header: Sequence[str], label: str | None, wanted: Sequence[str]
) -> tuple[int | None, list[int]]:
    """The places of the labels, None if there are none, and of the features."""
    label_place = _label_place(header, label)
    only = set(wanted) if set(wanted) <= set(header) else set()
    places = [i for i, name in enumerate(header) if i != label_place and (not only or name in only)]
    if not places:
        raise InputError(f"{path} has no columns of numbers beside {label or LABEL!r}: add the features.")
    if unnamed := [i + 1 for i in places if PANDAS_INDEX.fullmatch(header[i])]:
        raise InputError(
            f"column {unnamed[0]} of {path} has no name; pandas writes its index like that: remove the column "
            "(index=False), or name it if it is a feature."
        )
    return label_place, places


def _label_place(header: Sequence[str], label: str | None) -> int | None:
    return list(header).index(label or LABEL) if (label or LABEL) in header else None
