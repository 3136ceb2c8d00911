"""Data frames, of pandas or polars: columns with names, found by them. Neither package is imported."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.tables import columns_of, refuse_repeated
from vmt.errors import InputError


def column_names(x: Any) -> tuple[str, ...]:
    """The names of a data frame's columns; none for an array, or where columns are only counted."""
    columns = getattr(x, "columns", None)
    names = () if columns is None else tuple(columns)
    return names if all(isinstance(name, str) for name in names) else ()


def in_order_of(x: Any, features: Sequence[str], name: str, of: str) -> Any:
    """A data frame with the columns that another had, in their order; anything else as it is."""
    names = column_names(x)
    if not names or not features or names == tuple(features):
        return x
    columns_of(name, names, features, of)  # a sentence for one that is missing
    return x[list(features)] if len(set(names)) == len(names) else x  # which is refused


def frame_values(x: Any, name: str) -> NDArray[Any]:
    """The numbers of a data frame. Columns may be of several types, of which the frame itself would make objects."""
    names = column_names(x)
    refuse_repeated(names, name)
    return np.stack([_column(np.asarray(x[column]), column, name) for column in names], 1)


def _column(values: NDArray[Any], column: str, name: str) -> NDArray[Any]:
    if values.dtype.kind in "biuf":
        return values
    strange = next((value for value in values.tolist() if not isinstance(value, int | float)), None)
    if strange is not None or values.dtype.kind != "O":
        raise InputError(
            f"the column {column!r} of {name} has {strange!r} instead of a number: encode it as numbers, fill it in, "
            "or leave it out."
        )
    numbers: NDArray[Any] = values.astype(np.float64)  # None becomes NaN, which is refused where all is
    return numbers
