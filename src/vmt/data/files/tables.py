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
from itertools import chain, islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from vmt.data.domains import check_unique_columns, class_name, column_indices
from vmt.data.files.folders import PictureList
from vmt.data.files.paths import MAX_RATIO, PICTURE_SUFFIXES, is_utf8, most_unpacked, open_text
from vmt.errors import InputError, few, parsing, perhaps, shown

LABEL = "label"  # the column of the class names, unless the user names another
# Other usual names of that column, which an error suggests.
LIKELY_LABELS = re.compile("labels|class(es)?|class.?name|category|target|y|species|kind|type|diagnosis", re.IGNORECASE)
# Usual names of a column of pictures, such as file, image_name or "Img path".
PATH_COLUMNS = re.compile(r"path|(file|image|img|picture)[\s_-]?(name|path|file|file[\s_-]?name)?", re.IGNORECASE)
# What programs write for a value that is missing, in lower case.
MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>", "?"})
PANDAS_INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # how pandas names an index without a name
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")  # as spreadsheets write numbers in many countries
TRUTH = {"true": 1.0, "false": 0.0}
ROWS_AT_ONCE = 4096  # rows of a Parquet file in one portion
FIRST_ROWS = 20  # rows of a CSV file that show whether a column holds pictures
PARQUET = ("a readable Parquet file", "save it again")

Row = list[str]


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Rows of numbers with the names of their columns."""

    name: str
    x: NDArray[np.float64]  # NaN where a value is missing
    features: tuple[str, ...]
    labels: tuple[str, ...] | None  # "" where a label is not known


@dataclass(frozen=True)
class Layout:
    """What the first rows of a table say about all rows."""

    header: tuple[str, ...]
    named: bool  # whether the first row holds the names of the columns
    path: int | None  # the column with the paths of pictures, if there is one


class TableRows:
    """The rows of a table as text, read one by one."""

    def __init__(self, name: str, layout: Layout, rows: Iterator[Row]) -> None:
        self.name, self.layout, self.rows = name, layout, rows

    def numbers(
        self, width: int, features: Sequence[str], label: str | None, missing: bool = False
    ) -> Iterator[tuple[int, NDArray[np.float32] | str]]:
        """The index of each row with its features, or with a description of what is wrong with it.

        `width` is the number of features of a model, and `features` are their names, if they have names. With
        `missing`, a value may be missing and becomes NaN.
        """
        header = self.layout.header
        if features and self.layout.named:
            places = column_indices(self.name, header, features, "the model")
        else:
            # Without names, the columns must be in the order of the training data.
            label_place = _label_place(header, label)
            places = [i for i in range(len(header)) if i != label_place]
        if len(places) != width:
            raise InputError(
                f"{self.name} has {len(places)} columns of features, but the model expects {width}: give it exactly "
                "those."
            )
        for index, row in enumerate(self.rows):
            cells = [row[i] for i in places if i < len(row)]
            values = [_number(cell, missing) for cell in cells]
            if len(row) != len(header):
                yield index, f"{len(row)} cells instead of {len(header)}"
            elif None in values:
                bad = values.index(None)
                yield index, f"{cells[bad]!r} instead of a number in the column {header[places[bad]]!r}"
            else:
                with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite
                    sample = np.array(values, np.float32)
                finite = np.isfinite(sample) | (np.isnan(sample) & missing)
                yield index, sample if finite.all() else "a value that is not finite"


@dataclass(frozen=True)
class TableOptions:
    """How to read a whole table."""

    label: str | None = None  # the column of the class names, None for "label"
    needs_labels: bool = False  # refuse a table without that column, instead of reading it without labels
    missing: bool = False  # read missing values as NaN, instead of refusing them
    wanted: Sequence[str] = ()  # if a table has all of these columns, only those are read


def read_csv(path: Path, options: TableOptions) -> PictureList | FeatureTable:
    """The pictures that a CSV file lists, with paths relative to it; otherwise its numeric columns."""
    table = open_csv(read_lines(path), shown(path), options.label, options.wanted)
    if options.needs_labels:
        _require_labels(path, table.layout.header, options.label)
    rows = _checked_rows(path, table)
    if table.layout.path is not None:
        return _picture_list(path, table.layout.header, rows, table.layout.path, options.label)
    return _feature_table(path, table.layout.header, rows, options)


def read_parquet(path: Path, options: TableOptions) -> FeatureTable:
    """The columns of a Parquet file."""
    pyarrow, parquet = _import_pyarrow(path)
    with parsing(path, *PARQUET), parquet.ParquetFile(path) as file:
        check_unique_columns(file.schema_arrow.names, shown(path))
        _check_unpacked(path, file.metadata)
        table = file.read()
        if not table.num_rows:
            raise InputError(f"{path} holds no rows: give it one row per sample.")
        header: list[str] = table.column_names
        if options.needs_labels:
            _require_labels(path, header, options.label)
        label_place, places = _columns(path, header, options)
        x = np.empty((table.num_rows, len(places)))
        for k, place in enumerate(places):
            column = table.column(place)
            plain = pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)
            # NumPy converts None, which stands for text without a number, to NaN.
            x[:, k] = column.to_numpy() if plain else [_number(_text(cell)) for cell in column.to_pylist()]
            for row in np.flatnonzero(~np.isfinite(x[:, k])).tolist():
                cell = _text(column[row].as_py())
                if not options.missing or not _is_missing(cell):
                    _refuse_cell(path, row + 1, cell, header[place], header, options.label)
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
        with parsing(name, "a valid CSV file", "save it again as CSV"):
            for row in csv.reader(chain([first], lines), delimiter=delimiter):
                if any(cells := [cell.strip() for cell in row]):
                    yield cells

    rest = rows()
    first_rows = list(islice(rest, 1 + FIRST_ROWS))
    if not first_rows:
        raise InputError(f"{name} is empty: give it one row per sample.")
    layout = _layout(first_rows, label, name, features)
    return TableRows(name, layout, chain(first_rows[1:] if layout.named else first_rows, rest))


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file in UTF-8, read as they are needed."""
    with parsing(path, "a CSV file in UTF-8", "save it again in UTF-8"), open_text(path) as file:
        yield from file


def open_parquet(path: Path) -> TableRows:
    """The rows of a Parquet file, as the text that a CSV file would hold."""
    _, parquet = _import_pyarrow(path)

    def rows() -> Iterator[Row]:
        with parsing(path, *PARQUET), file:
            for portion in file.iter_batches(ROWS_AT_ONCE):
                columns = [column.to_pylist() for column in portion.columns]
                for row in zip(*columns, strict=True):
                    yield [_text(cell) for cell in row]

    with parsing(path, *PARQUET):
        file = parquet.ParquetFile(path)
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


def _check_unpacked(path: Path, metadata: Any) -> None:
    """Refuse a table whose numbers take far more memory than the size of its file suggests."""
    if metadata.num_rows * metadata.num_columns * np.float64().itemsize > most_unpacked(path):
        raise InputError(
            f"{shown(path)} unpacks to more than {MAX_RATIO} times its size: if that is intended, save it as CSV."
        )


def _text(cell: Any) -> str:
    """A cell of a Parquet file as the text that a CSV file would hold."""
    return "" if cell is None else str(cell)


def _number(cell: str, missing: bool = False) -> float | None:
    """The number in a cell, 1 for true, 0 for false, or None. Python reads 1_2 as 12, but here it is not a number.

    With `missing`, a cell without a value is NaN.
    """
    if missing and _is_missing(cell):
        return math.nan
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return TRUTH.get(cell.lower())


def _is_missing(cell: str) -> bool:
    return cell.lower() in MISSING


def _layout(rows: Sequence[Row], label: str | None, name: str, wanted: Sequence[str]) -> Layout:
    """Decide from the first rows whether there is a header, and which column lists pictures, if one does.

    A row with the name of a picture is not a header. A row of numbers is a header only if it holds the requested
    columns, because pandas writes numbers as the names of columns without names.
    """
    row = rows[0]
    if pictures := [i for i, cell in enumerate(row) if _names_picture(cell)]:
        return _layout_without_header(len(row), pictures[0])
    counted = label in row and list(row) == [str(i) for i in range(len(row))]
    # A data frame without names has them with an empty cell for the index.
    counted = counted or list(row) == ["", *(str(i) for i in range(len(row) - 1))]
    has_wanted = bool(wanted) and set(wanted) <= {class_name(cell) for cell in row}
    values = all(_number(cell, missing=True) is not None for cell in row) and not all(map(_is_missing, row))
    if values and not counted and not has_wanted:
        return Layout(tuple(f"column {i}" for i in range(1, len(row) + 1)), False, None)
    header = tuple(class_name(cell) for cell in row)
    check_unique_columns(header, name)
    return Layout(header, True, None if has_wanted else _path_column(header, rows[1:], label, name))


def _layout_without_header(width: int, path: int) -> Layout:
    """The columns of a list of pictures: the paths, then or before them the labels, and others."""
    others = [i for i in range(width) if i != path]
    header = [f"column {i}" for i in range(1, width + 1)]
    header[path] = "path"
    if others:
        header[others[0]] = LABEL
    return Layout(tuple(header), False, path)


def _path_column(header: Sequence[str], rows: Sequence[Row], label: str | None, name: str) -> int | None:
    """The column that lists pictures: by what its cells hold and, among several or without such cells, by its name."""
    label_place = _label_place(header, label)
    named = [i for i, column in enumerate(header) if PATH_COLUMNS.fullmatch(column) and i != label_place]
    columns = {i: [row[i] for row in rows if i < len(row) and row[i]] for i in range(len(header)) if i != label_place}
    holding = [i for i, cells in columns.items() if cells and all(map(_names_picture, cells))]
    both = [i for i in named if i in holding]
    if len(holding) > 1 and not both:
        raise InputError(
            f"{name} has several columns of pictures, {few([repr(header[i]) for i in holding])}: remove all but one."
        )
    return next(iter((*both, *holding, *named)), None)


def _names_picture(cell: str) -> bool:
    return Path(cell).suffix.lower() in PICTURE_SUFFIXES


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
    names_pictures = any(_names_picture(row[place]) for _, row in listed)
    # os.path.exists, unlike Path.exists, returns False for a text that is too long for a file name.
    if len(header) > 2 and not names_pictures and not os.path.exists(path.parent / first):
        raise InputError(
            f"the column {header[place]!r} of {shown(path)} should name pictures, but has {first!r}: correct it, or "
            "remove it if the other columns are features."
        )
    labels = None if label_place is None else tuple(class_name(row[label_place]) for _, row in listed)
    return PictureList(shown(path), tuple(path.parent / row[place] for _, row in listed), labels)


def _feature_table(
    path: Path, header: Sequence[str], rows: Iterator[tuple[int, Row]], options: TableOptions
) -> FeatureTable:
    label_place, places = _columns(path, header, options)
    values = array("d")  # numbers take a fraction of the memory of the text
    labels: list[str] = []
    for nth, row in rows:
        for place in places:
            value = _number(row[place], options.missing)
            if value is None or math.isinf(value) or (math.isnan(value) and not options.missing):
                _refuse_cell(path, nth, row[place], header[place], header, options.label)
            values.append(value)
        if label_place is not None:
            labels.append(class_name(row[label_place]))
    x = np.frombuffer(values).reshape(-1, len(places))
    features = tuple(header[i] for i in places)
    return FeatureTable(shown(path), x, features, None if label_place is None else tuple(labels))


def _refuse_cell(path: Path, row: int, cell: str, column: str, header: Sequence[str], label: str | None) -> NoReturn:
    what = f"{cell!r} instead of a number" if cell else "nothing"
    remedy = "remove the column, fill in a number, or name the column of the classes with --label"
    if DECIMAL_COMMA.fullmatch(cell):
        remedy = "write numbers with a decimal point"
    elif _is_missing(cell):
        remedy = "fill it in, remove the column, or let vmt fill in missing values with --impute mean or median"
    elif label is not None and label not in header:
        remedy = f"remove the column, fill in a number, or correct --label, because there is no column {label!r}"
    raise InputError(f"row {row} of {path} has {what} in the column {column!r}: {remedy}.")


def _columns(path: Path, header: Sequence[str], options: TableOptions) -> tuple[int | None, list[int]]:
    """The places of the labels, None if there are none, and of the features."""
    label_place = _label_place(header, options.label)
    only = set(options.wanted) if set(options.wanted) <= set(header) else set()
    places = [i for i, name in enumerate(header) if i != label_place and (not only or name in only)]
    if not places:
        raise InputError(f"{path} has no columns of numbers beside {options.label or LABEL!r}: add the features.")
    if unnamed := [i + 1 for i in places if PANDAS_INDEX.fullmatch(header[i])]:
        raise InputError(
            f"column {unnamed[0]} of {path} has no name; pandas writes its index like that: remove the column "
            "(index=False), or name it if it is a feature."
        )
    return label_place, places


def _require_labels(path: Path, header: Sequence[str], label: str | None) -> None:
    """Refuse a table without the column of the labels, and say which columns there are."""
    if _label_place(header, label) is not None:
        return
    hint = perhaps(label or LABEL, header)
    if not hint and (likely := [column for column in header if LIKELY_LABELS.fullmatch(column)]):
        hint = f" (perhaps {likely[0]}?)"
    raise InputError(
        f"{shown(path)} has no column {label or LABEL!r}{hint}: name the column of the classes with --label; the "
        f"columns are {few([repr(column) for column in header], 10)}."
    )


def _label_place(header: Sequence[str], label: str | None) -> int | None:
    """The place of the column of the labels; without a name, "label" in capital or small letters."""
    if (label or LABEL) in header:
        return list(header).index(label or LABEL)
    same = [i for i, column in enumerate(header) if label is None and column.lower() == LABEL]
    return same[0] if len(same) == 1 else None
