"""Arrays and tables a few rows at a time, so that a file may be larger than memory."""

import math
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.files import shown
from vmt.data.tables import LABEL, Layout, Row, columns_of, number, opened_csv, parquet_reader, refuse_repeated, text_of
from vmt.errors import InputError

ROWS, BYTES = 4096, 2**26  # at once, whichever is less
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def array_rows(path: Path) -> Iterator[NDArray[Any]]:
    """The rows of an .npy file, or of ``x`` in an .npz archive; damage raises one of DAMAGED_NPZ."""
    if path.suffix.lower() == ".npy":
        with path.open("rb") as file:
            yield from _portions(file)
        return
    with zipfile.ZipFile(path) as archive:
        if "x.npy" not in archive.namelist():
            raise KeyError("x")
        with archive.open("x.npy") as member:
            yield from _portions(member)


def _portions(file: IO[bytes]) -> Iterator[NDArray[Any]]:
    version = np.lib.format.read_magic(file)
    shape, by_columns, dtype = HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("objects")
    if by_columns or not shape:
        # To be rearranged, it must be read whole.
        file.seek(0)
        yield np.load(file, allow_pickle=False)
        return
    row = dtype.itemsize * math.prod(shape[1:])
    portion = max(1, min(ROWS, BYTES // max(row, 1)))
    for start in range(0, shape[0], portion):
        count = min(portion, shape[0] - start)
        content = file.read(count * row)
        if len(content) < count * row:
            raise EOFError
        yield np.frombuffer(content, dtype).reshape(count, *shape[1:])


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
            places = columns_of(self.name, header, features, "the model")
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
                for portion in file.iter_batches(ROWS):
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
    refuse_repeated(header, shown(path))
    return Table(shown(path), Layout(header, True, None), rows())
