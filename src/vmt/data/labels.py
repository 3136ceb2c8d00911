"""Labels that are names instead of numbers, in arrays, lists and columns of data frames."""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vmt.data.files import few, shown
from vmt.errors import InputError

# Of a label that is not known.
UNKNOWN = ("-1", "-1.0", "nan", "None", "")


def class_name(text: str) -> str:
    """A name as a person reads it: the same letters are the same name, whichever system wrote them."""
    return unicodedata.normalize("NFC", shown(text)).strip()


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once, sorted; 10 comes after 9 where all of them are numbers.

    >>> sorted_names(["bee", "ant", "bee"]), sorted_names(["10", "9"])
    (('ant', 'bee'), ('9', '10'))
    """
    found = {class_name(name) for name in names}
    by_number = all(name.isdecimal() for name in found)
    return tuple(sorted(found, key=lambda name: (int(name) if by_number else 0, name)))


def names_in(y: Any) -> list[str] | None:
    """Labels that are text, "" for one that is missing; None for numbers, and for whatever is no row of labels."""
    if y is None or isinstance(y, Tensor):
        return None
    try:
        array = np.asarray(y, object) if isinstance(y, list | tuple) else np.asarray(y)  # or NaN would become a text
    except (ValueError, TypeError, RuntimeError):
        return None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "USOT":
        return None
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    values = array.tolist()
    if not any(isinstance(value, str) for value in values):
        return None
    return ["" if is_missing(value) else class_name(str(value)) for value in values]


def is_missing(value: Any) -> bool:
    """None, NaN, and what pandas has in their place."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or type(value).__name__ == "NAType"


def classes_in(y: Any) -> tuple[str, ...] | None:
    """The classes that labels name; None where they are numbers."""
    names = names_in(y)
    return None if names is None else sorted_names(name for name in names if name)


def numbered(y: Any, classes: Sequence[str] | None, name: str, partly: bool = False) -> Any:
    """Labels that are names as numbers of the classes, anything else as it is. If they are only `partly` known, −1
    stands for the others; else all of them must be."""
    names = names_in(y)
    if names is None:
        return _known_or_minus_1(y) if partly else y
    number: dict[str, int] = {label: k for k, label in enumerate(map(class_name, classes or ()))}
    found: NDArray[np.int64] = np.array([number.get(label, -1) for label in names], np.int64)
    if "" in names and not partly:
        raise InputError(f"sample {names.index('')} of {name} has no label: add it, or remove the sample.")
    if strange := sorted_names({label for label in names if label not in number} - set(UNKNOWN if partly else ())):
        known = few(list(number), 10) if number else "the source numbers them"
        raise InputError(f"{name} has the label {strange[0]!r}, which is none of the classes ({known}): correct it.")
    return found


def _known_or_minus_1(y: Any) -> Any:
    """Numbers with −1 for what is missing, as it is in a column of a data frame; else as they are."""
    values = y.tolist() if hasattr(y, "tolist") else y
    if not isinstance(values, list | tuple) or not any(is_missing(value) for value in values):
        return y
    return [-1 if is_missing(value) else value for value in values]
