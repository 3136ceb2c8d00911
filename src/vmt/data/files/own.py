"""From a person's own files to a task, or to one domain, with the names of the classes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.arrays import MIN_SIDE, class_name, column_indices, domain, sorted_names
from vmt.data.checks import check_digits
from vmt.data.domains import Domain
from vmt.data.files.folders import Listing, list_folder
from vmt.data.files.numpy_files import read_npy, read_npz
from vmt.data.files.paths import INPUT_FORMATS, TABLE_SUFFIXES, existing_file, file_suffix
from vmt.data.files.pictures import Looked, Size, look_at, read_pictures
from vmt.data.files.tables import LABEL, read_csv, read_parquet
from vmt.data.task import Task, make_task
from vmt.errors import InputError, few, shown

LARGEST_SIDE, SMALLEST_SIDE = 64, 8  # of what is chosen; other sizes can be asked for


@dataclass(frozen=True)
class ReadOptions:
    """How to read: what is None is chosen from the data."""

    image_size: Size | None = None
    channels: int | None = None
    label: str | None = None
    cache: bool = True
    progress: bool = True
    strict: bool = False  # refuse a size or channels that have nothing to do

    def __post_init__(self) -> None:
        if self.image_size is not None and (len(self.image_size) != 2 or min(self.image_size) < MIN_SIDE):
            raise InputError(
                f"the image size {self.image_size} is no height and width of {MIN_SIDE} pixels or more: correct it."
            )
        if self.channels not in (None, 1, 3):
            raise InputError(f"pictures cannot have {self.channels} channels: choose 1 for grey or 3 for colour.")


@dataclass(frozen=True, eq=False)
class Part:
    """Samples as they were found: the source, the target or the test set."""

    name: str
    x: NDArray[Any]
    y: NDArray[Any] | None  # numbers, or names with "" for a label that is not known
    features: tuple[str, ...] = ()
    by_folder: bool = False  # the labels are names of subfolders, which need not be classes


def read_parts(
    paths: Sequence[Path], how: ReadOptions, features: Sequence[str] = ()
) -> tuple[list[Part], tuple[str, ...]]:
    """Every part, the first of which decides the size of pictures, and the columns of tables if `features` does not;
    and what a person should know."""
    first = _open_part(paths[0], how, features)
    features = features or (first.features if isinstance(first, Part) else ())
    opened = [first, *(_open_part(path, how, features) for path in paths[1:])]
    looked = [part for part in opened if isinstance(part, Looked)]
    notes = [note for part in looked for note in part.listing.notes]
    if not looked:
        arrays = [part for part in opened if isinstance(part, Part)]
        if how.strict:
            _refuse_flags_of_pictures(arrays[0], how)
        return arrays, ()
    size = how.image_size or _size_of(opened[0])
    channels = how.channels or max(_channels_of(part) for part in opened)
    height, width = size
    why = "as asked for" if how.image_size else f"by the sizes in {shown(paths[0])}"
    colour = "grey" if channels == 1 else "colour"
    if how.strict or how.image_size is None or how.channels is None:
        notes.append(f"pictures: brought to {height}×{width} pixels, {why}; in {colour} (--image-size, --channels)")
    parts = []
    for part in opened:
        if isinstance(part, Looked):
            x, whole, said = read_pictures(part, size, channels, how.cache, how.progress)
            labels = part.listing.labels
            y = None if labels is None else np.array(labels)[whole]
            part = Part(part.listing.name, x, y, by_folder=part.listing.by_folder)
            notes += said
        parts.append(part)
    return parts, tuple(notes)


def _refuse_flags_of_pictures(first: Part, how: ReadOptions) -> None:
    if how.channels is not None:
        raise InputError(f"--channels is for files of pictures, and {first.name} holds arrays: leave it out.")
    if how.image_size is not None and first.x.ndim == 2:
        raise InputError(f"--image-size is for pictures, and {first.name} holds vectors: leave it out.")


def _open_part(path: Path, how: ReadOptions, features: Sequence[str]) -> Part | Looked:
    if path.is_dir():
        return look_at(list_folder(path), how.cache, how.progress)
    existing_file(path, f"give {INPUT_FORMATS}")
    suffix = file_suffix(path)
    if suffix == ".npz":
        x, y = read_npz(path)
        return _arrays(path, x, y)
    if suffix == ".npy":
        return _arrays(path, read_npy(path), None)
    if suffix in TABLE_SUFFIXES:
        table = (read_parquet if suffix == ".parquet" else read_csv)(path, how.label, features)
        if isinstance(table, Listing):
            return look_at(table, how.cache, how.progress)
        return Part(table.name, table.x, None if table.labels is None else np.array(table.labels), table.features)
    raise InputError(f"{shown(path)} is of a kind that is not known here: give {INPUT_FORMATS}.")


def _arrays(path: Path, x: NDArray[Any], y: NDArray[Any] | None) -> Part:
    if y is not None and y.dtype.kind == "S":
        y = np.char.decode(y, "utf-8", "replace")
    if y is not None and y.dtype.kind == "U" and y.shape != x.shape[:1]:
        raise InputError(f"{path} has x of shape {x.shape} and y of shape {y.shape}: give y one name per sample.")
    # Checked at once: an odd shape must be complained of before it decides the size of pictures.
    checked = domain(x, name=shown(path)).x.numpy()
    return Part(shown(path), x if x.ndim == 2 else checked, y)


def _size_of(first: Part | Looked) -> Size:
    """The median size of pictures in multiples of 4, which two poolings divide, and no larger than a small network
    can look at in good time; the size itself of arrays."""
    if isinstance(first, Part):
        if first.x.ndim != 4:
            raise InputError(f"{first.name} holds vectors and another part pictures: give the same kind for both.")
        return first.x.shape[2], first.x.shape[3]
    height, width = np.median(first.sizes[first.whole], axis=0)
    shrink = min(1.0, LARGEST_SIDE / max(height, width))
    return _multiple_of_4(height * shrink), _multiple_of_4(width * shrink)


def _multiple_of_4(side: float) -> int:
    return max(SMALLEST_SIDE, 4 * int(side / 4 + 0.5))


def _channels_of(part: Part | Looked) -> int:
    if isinstance(part, Part):
        return 1 if part.x.shape[1] == 1 else 3
    return 1 if part.grey[part.whole].all() else 3


SPLITS = frozenset({"train", "training", "test", "testing", "val", "valid", "validation", "dev"})
UNLABELLED = ("unlabelled", "unlabeled")
EVALUATION_ONLY = "target labels are used for evaluation only"


@dataclass(frozen=True, eq=False)
class Own:
    """A domain, the names of its classes in the order of their numbers, and what was noticed while reading."""

    domain: Domain  # with labels only where every sample has one
    classes: tuple[str, ...]  # empty without labels
    notes: tuple[str, ...]
    labels: NDArray[np.int64] | None  # class numbers, −1 where a label is not known; None without labels


def read_own(
    path: Path | str,
    *,
    like: Own | None = None,
    classes: Sequence[str] | None = None,
    image_size: tuple[int, int] | None = None,
    channels: int | None = None,
    features: Sequence[str] | None = None,
    label: str | None = None,
    cache: bool = True,
    progress: bool = False,
) -> Own:
    """Your own samples: a folder of pictures (with one subfolder per class, if labelled), a .csv, .csv.gz,
    .parquet, .npz or .npy file.

    `like=source` reads a target so that it agrees with its source: in the `classes`, in the `image_size` and `channels`
    of pictures, and in the `features` of tables, which can also be given one by one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder) / "flowers.csv"
    ...     _ = table.write_text("length,width,label\\n5.1,3.5,rose\\n4.9,3.0,lily\\n")
    ...     own = read_own(table)
    >>> own.classes, own.domain.features, own.labels.tolist()
    (('lily', 'rose'), ('length', 'width'), [1, 0])
    """
    if like is not None:
        classes = like.classes if classes is None else classes
        features = like.domain.features if features is None else features
        if like.domain.is_images:
            _, its_channels, height, width = like.domain.x.shape
            image_size, channels = image_size or (height, width), channels or its_channels
    how = ReadOptions(image_size, channels, label, cache, progress)
    (part,), notes = read_parts([Path(path)], how, features or ())
    part = same_features(part, tuple(features or ()), "the source")
    if classes:
        part, said = _without_strange_folders(part, set(classes))
        notes += said
    if part.y is None or (unknown := _unknown(part.y)).all():
        return Own(domain(part.x, name=part.name, features=part.features), (), notes, None)
    names = tuple(classes) if classes else class_names(_known(part))
    labels = np.full(len(part.x), -1, np.int64)
    labels[~unknown] = class_numbers(_known(part), names)
    notes += _by_position(part, names)
    own = domain(part.x, None if unknown.any() else labels, name=part.name, features=part.features)
    return Own(own, names or tuple(str(k) for k in range(int(labels.max()) + 1)), notes, labels)


def own_task(
    source: Path | str,
    target: Path | str,
    target_test: Path | str | None = None,
    how: ReadOptions | None = None,
    use_target_labels: bool = False,
) -> tuple[Task, tuple[str, ...]]:
    """A task from files of one's own, and what a person should know about how they were read.

    Labels of the target are not trained on, except by a method that is made for that; without a test set, they are
    what the accuracy is measured with. With `use_target_labels`, they may be trained on, and measure nothing.
    """
    how = how or ReadOptions()
    parts, notes = read_parts([Path(path) for path in (source, target, target_test) if path is not None], how)
    first = parts[0]
    names = _classes_of_source(first, how.label)
    second, *third = (same_features(part, first.features, first.name) for part in parts[1:])
    check_digits(first.x, second.x, first.features)
    assert first.y is not None
    second, said = _without_strange_folders(second, set(names or map(str, first.y.ravel().tolist())))
    notes += said
    test_part = third[0] if third else second
    labelled = _labelled(second, names)
    if use_target_labels and labelled is None:
        raise InputError(
            f"{second.name} has no labels to train on: label some samples, or leave out --use-target-labels."
        )
    test = _labelled(test_part, names) if third else None if use_target_labels else labelled
    if third and test is None:
        raise InputError(
            f"{test_part.name} has no labels to measure accuracy with: {labelling_remedy(test_part.name, how.label)}."
        )
    if test is not None:
        notes += _by_position(test_part, names)
    if test is not None and not third:
        notes += (f"{EVALUATION_ONLY}: accuracy is measured on the {len(test)} labelled samples of {second.name}",)
    if use_target_labels:
        assert labelled is not None
        notes += (f"{len(labelled)} of the {len(second.x)} samples of {second.name} are trained on with their labels",)
    task = make_task(
        _domain(first, names),
        _domain(second, names),
        target_test=test,
        target_labelled=labelled if use_target_labels else None,
        classes=names,
        size=how.image_size,
    )
    return task, notes


def _classes_of_source(part: Part, label: str | None) -> tuple[str, ...] | None:
    """The names of the classes, None where they are only numbers; refuses a source that nothing can be learned from."""
    if part.y is None:
        raise InputError(f"{part.name} has no labels, and the source needs them: {labelling_remedy(part.name, label)}.")
    if _unknown(part.y).any():
        row = int(np.flatnonzero(_unknown(part.y))[0]) + 1
        mark = "" if _is_names(part.y) else " (−1 stands for that)"
        raise InputError(
            f"sample {row} of {part.name} has no label{mark}, and the source needs them: add it or remove it."
        )
    names = class_names(part)
    if names is not None and len(names) < 2:
        raise InputError(f"{part.name} has only the class {names[0]!r}: give it two classes or more.")
    if part.by_folder and names is not None and {name.lower() for name in names} <= SPLITS:
        raise InputError(
            f"{part.name} has the subfolders {few(list(names))}, which are parts of a data set and no classes: give "
            "one of them."
        )
    return names


def class_names(part: Part) -> tuple[str, ...] | None:
    """The sorted names of the classes; None where they are only numbers."""
    assert part.y is not None
    if not _is_names(part.y):
        return None
    return sorted_names(part.y.tolist())


def class_numbers(part: Part, names: tuple[str, ...] | None) -> NDArray[Any]:
    """Labels as numbers of the classes."""
    y = part.y
    assert y is not None
    if not _is_names(y) and not any(name.isdecimal() for name in names or ()):
        return y  # numbers can only be those of the classes
    number = {name: k for k, name in enumerate(names or ())}
    given = [class_name(str(value)) for value in y.tolist()]
    # Whole numbers in a column with gaps are written as 1.0 by most programs.
    given = [name if name in number else re.sub(r"(?<=\d)\.0+$", "", name) for name in given]
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


def _by_position(part: Part, names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Whoever numbers the digits 0, 1, 2 and has folders "one", "two", "zero" measures something else than is meant."""
    assert part.y is not None
    if not names or _is_names(part.y) or any(name.isdecimal() for name in names):
        return ()
    meant = few([f"{k} for {name}" for k, name in enumerate(names)])
    return (f"the labels of {part.name} are numbers, taken in the order of the classes: {meant}",)


def _without_strange_folders(part: Part, classes: set[str]) -> tuple[Part, tuple[str, ...]]:
    """A folder "unlabelled" holds samples without labels; and if no subfolder at all is a class, they sort by something
    else, and say nothing about labels."""
    if not part.by_folder or part.y is None:
        return part, ()
    unlabelled = [name for name in set(part.y.tolist()) - classes if name.lower() in UNLABELLED]
    part = replace(part, y=np.where(np.isin(part.y, unlabelled), "", part.y))
    assert part.y is not None
    found_names = set(part.y.tolist()) - {""}
    if not classes.isdisjoint(found_names) or not found_names:
        return part, ()
    found = few(sorted(found_names))
    said = f"the subfolders of {part.name} ({found}) are none of the classes: it is taken as unlabelled"
    return replace(part, y=None), (said,)


def _labelled(part: Part, names: tuple[str, ...] | None) -> Domain | None:
    """The samples of a part whose labels are known."""
    return None if part.y is None or _unknown(part.y).all() else _domain(_known(part), names)


def _domain(part: Part, names: tuple[str, ...] | None) -> Domain:
    """All samples of a part, with labels only where each has one."""
    whole = part.y is not None and not _unknown(part.y).any()
    return domain(part.x, class_numbers(part, names) if whole else None, name=part.name, features=part.features)


def _known(part: Part) -> Part:
    assert part.y is not None
    known = ~_unknown(part.y)
    return part if known.all() else replace(part, x=part.x[known], y=part.y[known])


def _unknown(y: NDArray[Any]) -> NDArray[np.bool_]:
    unknown: NDArray[np.bool_] = y == ("" if _is_names(y) else -1)
    return unknown


def _is_names(y: NDArray[Any]) -> bool:
    return y.dtype.kind == "U"


def same_features(part: Part, features: tuple[str, ...], of: str) -> Part:
    """The columns of a table in the order of another's."""
    if not part.features or not features:
        return part
    return replace(part, x=part.x[:, column_indices(part.name, part.features, features, of)], features=features)


def labelling_remedy(name: str, label: str | None) -> str:
    """The remedy for a file or folder that has no labels and needs them."""
    kind = file_suffix(Path(name))
    if kind == ".npz":
        return "save them as y beside x"
    if kind == ".npy":
        return "save samples and labels as x and y of an .npz"
    if kind in TABLE_SUFFIXES:
        return f"it has no column {label or LABEL!r}, so name the one with the classes by --label"
    return "put all pictures of a class into a subfolder with its name"
