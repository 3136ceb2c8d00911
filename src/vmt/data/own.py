"""From a person's own files to a task, or to one domain, with the names of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.convert import domain
from vmt.data.domain import Domain
from vmt.data.folders import class_name, few
from vmt.data.parts import Part, Reading, read_parts
from vmt.data.tables import LABEL
from vmt.data.task import Task, make_task
from vmt.errors import InputError

EVALUATION_ONLY = "target labels are used for evaluation only"


@dataclass(frozen=True, eq=False)
class Own:
    """A domain, the names of its classes in the order of their numbers, and what was noticed while reading."""

    domain: Domain
    classes: tuple[str, ...]  # empty without labels
    notes: tuple[str, ...]


def read_own(
    path: Path | str,
    *,
    classes: Sequence[str] | None = None,
    image_size: tuple[int, int] | None = None,
    channels: int | None = None,
    label: str | None = None,
    cache: bool = True,
    progress: bool = False,
) -> Own:
    """One's own samples: a folder of pictures (with one subfolder per class, if labelled), a .csv, .parquet, .npz or
    .npy file.

    For a target, give the source's `classes`, `image_size` and `channels`, so that both agree.
    """
    how = Reading(image_size, channels, label, cache, progress)
    (part,), notes = read_parts([Path(path)], how)
    if classes is not None:
        part, said = _heap_if_no_classes(part, set(classes))
        notes += said
    if part.y is None or _unknown(part.y).any():
        return Own(domain(part.x, name=part.name), (), notes)
    names = class_names(part) if classes is None else tuple(classes)
    own = domain(part.x, numbered(part, names), name=part.name)
    assert own.y is not None
    return Own(own, names or tuple(str(k) for k in range(int(own.y.max()) + 1)), notes)


def own_task(
    source: Path | str, target: Path | str, target_test: Path | str | None = None, how: Reading | None = None
) -> tuple[Task, tuple[str, ...]]:
    """A task from files of one's own, and what a person should know about how they were read.

    Labels of the target are never trained on, except by a method that is made for that; without a test set, they are
    what the accuracy is measured with.
    """
    how = how or Reading()
    parts, notes = read_parts([Path(path) for path in (source, target, target_test) if path is not None], how)
    first = parts[0]
    if first.y is None:
        raise InputError(f"{first.name} has no labels, and the source needs them: {_how_to_label(first, how.label)}.")
    if _unknown(first.y).any():
        row = int(np.flatnonzero(_unknown(first.y))[0]) + 1
        raise InputError(f"sample {row} of {first.name} has no label, and the source needs them: add it or remove it.")
    names = class_names(first)
    if names is not None and len(names) < 2:
        raise InputError(f"{first.name} has only the class {names[0]!r}: give it two classes or more.")
    second, *third = (_same_features(part, first) for part in parts[1:])
    second, said = _heap_if_no_classes(second, set(names or map(str, first.y.ravel().tolist())))
    notes += said
    test_part = third[0] if third else second
    test = _labelled(test_part, names)
    if third and test is None:
        raise InputError(
            f"{test_part.name} has no labels to measure accuracy with: {_how_to_label(test_part, how.label)}."
        )
    if test is not None and not third:
        notes += (f"{EVALUATION_ONLY}: accuracy is measured on the {len(test)} labelled samples of {second.name}",)
    task = make_task(
        domain(first.x, numbered(first, names), name=first.name),
        _target(second, names),
        target_test=test,
        classes=names,
        size=how.image_size,
    )
    return task, notes


def class_names(part: Part) -> tuple[str, ...] | None:
    """The sorted names of the classes; None where they are only numbers."""
    assert part.y is not None
    if not _is_names(part.y):
        return None
    names = {class_name(name) for name in part.y.tolist()}
    # 10 comes after 9.
    by_number = all(name.isdecimal() for name in names)
    return tuple(sorted(names, key=lambda name: (int(name) if by_number else 0, name)))


def numbered(part: Part, names: tuple[str, ...] | None) -> NDArray[Any]:
    """Labels as numbers of the classes."""
    y = part.y
    assert y is not None
    if names is None and not _is_names(y):
        return y
    number = {name: k for k, name in enumerate(names or ())}
    given = [class_name(str(value)) for value in y.tolist()]
    if names is None:
        # The source numbers its classes, so that a name can only be a number.
        number = {name: int(name) for name in given if name.isdecimal()}
    if strange := sorted(set(given) - set(number)):
        known = few(list(names), 10) if names else "numbers"
        raise InputError(
            f"{part.name} has a class that the source lacks, {few([repr(name) for name in strange])} (the source has: "
            f"{known}): rename it, remove it, or add it to the source."
        )
    return np.array([number[name] for name in given], np.int64)


def _heap_if_no_classes(part: Part, classes: set[str]) -> tuple[Part, tuple[str, ...]]:
    """Subfolders of which none is a class sort by something else, and say nothing about labels."""
    if not part.by_folder or part.y is None or not classes.isdisjoint(part.y.tolist()):
        return part, ()
    found = few(sorted(set(part.y.tolist())))
    said = f"the subfolders of {part.name} ({found}) are none of the classes: it is taken as unlabelled"
    return replace(part, y=None), (said,)


def _labelled(part: Part, names: tuple[str, ...] | None) -> Domain | None:
    """The samples of a part whose labels are known."""
    if part.y is None or _unknown(part.y).all():
        return None
    known = ~_unknown(part.y)
    if not known.all():
        part = replace(part, x=part.x[known], y=part.y[known])
    return domain(part.x, numbered(part, names), name=part.name)


def _target(part: Part, names: tuple[str, ...] | None) -> Domain:
    whole = part.y is not None and not _unknown(part.y).any()
    return domain(part.x, numbered(part, names) if whole else None, name=part.name)


def _unknown(y: NDArray[Any]) -> NDArray[np.bool_]:
    return np.equal(y, "") if _is_names(y) else np.zeros(y.shape, np.bool_)


def _is_names(y: NDArray[Any]) -> bool:
    return y.dtype.kind == "U"


def _same_features(part: Part, like: Part) -> Part:
    """The columns of a table in the order of the source's."""
    if not part.features or not like.features or part.features == like.features:
        return part
    missing = [name for name in like.features if name not in part.features]
    if missing:
        raise InputError(f"{part.name} lacks the column {few(missing)} of {like.name}: give both the same features.")
    return replace(part, x=part.x[:, [part.features.index(name) for name in like.features]], features=like.features)


def _how_to_label(part: Part, label: str | None) -> str:
    kind = Path(part.name).suffix.lower()
    if kind == ".npz":
        return "save them as y beside x"
    if kind == ".npy":
        return "save samples and labels as x and y of an .npz"
    if kind in (".csv", ".tsv", ".parquet"):
        return f"it has no column {label or LABEL!r}, so name the one with the classes by --label"
    return "put all pictures of a class into a subfolder with its name"
