"""Data frames, of pandas or polars: columns with names, found by them. Neither package is imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vmt.data.moments import moments
from vmt.data.tables import columns_of, refuse_repeated
from vmt.errors import InputError

# A column whose values differ less than this, relative to their mean, has a handful of 32-bit numbers to do it with.
FEWEST_DIGITS = 2.0**-22
CONSTANT = 1e-12  # what rounding leaves of a constant, relative to it


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


def check_digits(source: Any, target: Any, features: Sequence[str] = ()) -> None:
    """Refuses a column whose differences 32-bit numbers cannot hold: 1,000,000,001 and 1,000,000,002 are one of them.

    >>> check_digits(np.array([[1e9 + 1, 3]]), np.array([[1e9 + 2, 5]]), ("time", "size"))
    Traceback (most recent call last):
    vmt.errors.InputError: the column 'time' has values near 1e+09 that differ by about 0.5, which 32-bit ...
    """
    parts = [_vectors(in_order_of(x, features, "x", "the source")) for x in (source, target)]
    if parts[0] is None or parts[1] is None or parts[0].shape[1] != parts[1].shape[1]:
        return
    mean, spread = moments(parts[0], parts[1])
    small = spread / mean.abs().clamp(min=1e-300)
    lost = torch.nonzero((small > CONSTANT) & (small < FEWEST_DIGITS)).flatten().tolist()
    if lost:
        place = lost[0]
        which = f"the column {features[place]!r}" if features else f"feature {place}"
        raise InputError(
            f"{which} has values near {float(mean[place]):g} that differ by about {float(spread[place]):.2g}, which "
            "32-bit numbers cannot tell apart: subtract the same number from it in both domains, or leave it out."
        )


def _vectors(x: Any) -> Tensor | NDArray[Any] | None:
    """The rows of an array, a tensor or a data frame; None for anything else, images above all."""
    if column_names(x):
        x = frame_values(x, "x")
    if isinstance(x, Tensor):
        return x.detach() if x.ndim == 2 and x.layout == torch.strided and not x.is_complex() else None
    return x if isinstance(x, np.ndarray) and x.ndim == 2 and x.dtype.kind in "iuf" else None
