"""Checks that the values of a JSON object have the types of annotations, such as those of a dataclass.

They raise a TypeError or a KeyError, which :func:`vmt.errors.parsing` turns into a message that names the file.
"""

from collections.abc import Mapping
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def from_json(kind: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass from the values of a JSON object, each of which must have the type of its field.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Size:
    ...     height: int
    >>> from_json(Size, {"height": 3}), from_json(Size, {"height": None})
    Traceback (most recent call last):
      ...
    TypeError: height is None
    """
    check_types(values, get_type_hints(kind))
    return kind(**values)


def check_types(values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Raise a TypeError for a value of a JSON object that has another type than its annotation; others are ignored."""
    for name in of_another_type(values, hints):
        raise TypeError(f"{name} is {values[name]!r}")


def of_another_type(values: Mapping[str, Any], hints: Mapping[str, Any]) -> list[str]:
    """The names of the values of a JSON object that have another type than their annotation."""
    return [name for name, value in values.items() if name in hints and not _has_type(value, hints[name])]


def check_complete(values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Raise a KeyError for a value that a JSON object lacks, and a TypeError for one of another type."""
    for name in hints:
        if name not in values:
            raise KeyError(name)
    check_types(values, hints)


def _has_type(value: Any, hint: Any) -> bool:
    """Whether a value has the type of an annotation; in JSON, a list may stand for a tuple, and 1 for 1.0."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind is Any:
        return True
    if kind in (UnionType, Union):
        return any(_has_type(value, each) for each in inner)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    if kind in (list, tuple):
        if not isinstance(value, list | tuple):
            return False
        kinds = inner[:1] * len(value) if kind is list or inner[1:] == (...,) else inner
        return len(value) == len(kinds) and all(map(_has_type, value, kinds))
    if inner:  # of a mapping
        fits = isinstance(value, Mapping)
        return fits and all(_has_type(k, inner[0]) and _has_type(v, inner[1]) for k, v in value.items())
    return isinstance(value, kind)
