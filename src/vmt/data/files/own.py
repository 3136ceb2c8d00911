"""A user's own files as one domain or as a task, with the names of the classes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vmt.cache import cache_folder
from vmt.data.domains import MIN_SIDE, Domain, class_name, column_indices, domain, sorted_names
from vmt.data.files.features import Extractor, features_of_arrays, read_features
from vmt.data.files.folders import PictureList, list_pictures
from vmt.data.files.numpy_files import read_npy, read_npz
from vmt.data.files.paths import INPUT_FORMATS, TABLE_SUFFIXES, existing_file, file_suffix
from vmt.data.files.pictures import PictureHeaders, read_headers, read_pictures
from vmt.data.files.stream import InputSpec, to_value_range
from vmt.data.files.tables import LABEL, TableOptions, read_csv, read_parquet
from vmt.data.framing import INTERPOLATIONS, Framing, PictureFormat, Size
from vmt.data.preprocess import BYTES
from vmt.data.stored import StoredSamples
from vmt.data.task import Task, check_digits, make_task
from vmt.device import memory_for_samples
from vmt.errors import InputError, few, shown, size_of

LARGEST_SIDE, SMALLEST_SIDE = 64, 8  # limits of the size that is chosen for pictures; users may choose any other
UNLABELLED = ("unlabelled", "unlabeled")  # names of a subfolder of samples without labels
SPLITS = frozenset({"train", "training", "test", "testing", "val", "valid", "validation", "dev"})
EVALUATION_ONLY = "target labels are used for evaluation only"


@dataclass(frozen=True)
class ReadOptions:
    """How to read files; what is None is chosen from the data."""

    image_size: Size | None = None
    channels: int | None = None
    label: str | None = None
    cache: bool = True
    progress: bool = True
    strict: bool = False  # refuse an image size or channels that would have no effect
    missing: bool = False  # read missing values of vectors as NaN, instead of refusing them
    format: PictureFormat | None = None  # what the network expects of pictures, apart from their size
    extractor: Extractor | None = None  # reads pictures as their features, vectors
    memory: int | None = None  # pictures that take more bytes than this stay on the disk; None reads all into memory

    def __post_init__(self) -> None:
        if self.image_size is not None and (len(self.image_size) != 2 or min(self.image_size) < MIN_SIDE):
            raise InputError(
                f"image_size must be a height and a width of {MIN_SIDE} pixels or more, but got {self.image_size}."
            )
        if self.channels not in (None, 1, 3):
            raise InputError(f"channels must be 1 for grey or 3 for colour, but got {self.channels}.")


@dataclass(frozen=True, eq=False)
class Own:
    """A domain, the names of its classes in the order of their numbers, and notes on how it was read."""

    domain: Domain  # with labels only if every sample has one
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
    missing: bool = False,
    needs_labels: bool = False,
    format: PictureFormat | None = None,
    extractor: Extractor | None = None,
    cache: bool = True,
    progress: bool = False,
    memory: str | None = None,
) -> Own:
    """Read your own samples: a folder of pictures (with one subfolder per class, if labelled), or a .csv, .csv.gz,
    .parquet, .npz or .npy file.

    `like=source` reads a target so that it agrees with its source in the `classes`, in the `image_size` and `channels`
    of pictures, and in the `features` of tables. Each of these can also be given by itself. A `format` says how
    pictures are cropped and resized, and an `extractor` reads them as vectors, their features.

    `label` is the column of a table that holds the classes, by default "label"; without it, the table has no labels,
    unless `needs_labels` refuses that. `missing=True` reads missing values of vectors as NaN, for
    ``vmt.adapt(impute=…)``. Pictures that take more than `memory`, such as ``"2GiB"``, stay on the disk and are read
    when they are indexed; by default, all are read into memory.

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
    limit = None if memory is None else memory_for_samples(memory, torch.device("cpu"))
    options = ReadOptions(image_size, channels, label, cache, progress, False, missing, format, extractor, limit)
    (samples,), notes = _read_all([Path(path)], options, features or (), needs_labels=[needs_labels])
    samples = _with_features(samples, tuple(features or ()), "the source")
    if classes:
        samples, note = _ignore_other_folders(samples, set(classes))
        notes += note
    if samples.y is None or (unknown := _unknown(samples.y)).all():
        return Own(_domain(replace(samples, y=None), None), (), notes, None)
    names = tuple(classes) if classes else _class_names(_labelled_samples(samples))
    labels = np.full(len(samples.x), -1, np.int64)
    labels[~unknown] = _class_numbers(_labelled_samples(samples), names)
    notes += _numbered_labels_note(samples, names) + _from_1_note(samples, () if classes else names or ())
    own = _domain(replace(samples, y=None if unknown.any() else labels), None)
    return Own(own, names or tuple(str(k) for k in range(int(labels.max()) + 1)), notes, labels)


def read_labelled(
    path: Path | str,
    classes: Sequence[str],
    reads: InputSpec,
    extractor: Extractor | None,
    memory: str = "auto",
) -> tuple[Domain, tuple[str, ...]]:
    """Your own samples whose labels are known, as a model with these classes reads them, and notes about the files.

    Samples whose label is unknown are left out. With an `extractor`, pictures are read as their features.
    """
    own = read_as_trained(path, classes, reads, extractor, memory, needs_labels=True)
    if own.labels is None:
        raise InputError(
            f"{path} has no labels to measure accuracy with: {labelling_remedy(str(path), reads.label, classes)}."
        )
    labels = torch.from_numpy(own.labels)
    known = (labels >= 0).nonzero().flatten()
    return replace(own.domain.subset(known), y=labels[known]), own.notes


def read_as_trained(
    path: Path | str,
    classes: Sequence[str],
    reads: InputSpec,
    extractor: Extractor | None,
    memory: str,
    *,
    needs_labels: bool = False,
    cache: bool = True,
) -> Own:
    """Your own samples as a model with these classes reads them.

    Pictures that take more than `memory` stay on the disk.
    """
    preprocess = reads.preprocess
    pictures: dict[str, Any] = (
        {"image_size": preprocess.size, "channels": preprocess.channels, "format": preprocess.format}
        if preprocess.size and extractor is None
        else {}
    )
    own = read_own(
        path,
        classes=classes,
        features=reads.features,
        label=reads.label,
        missing=preprocess.fill is not None,
        needs_labels=needs_labels,
        cache=cache,
        progress=True,
        extractor=extractor,
        memory=memory,
        **pictures,
    )
    if own.domain.is_images != reads.images:
        kinds = ("vectors", "images") if reads.images else ("images", "vectors")
        raise InputError(
            f"{own.domain.name} holds {kinds[0]}, but the model reads {kinds[1]}: give samples like those."
        )
    x: Any = own.domain.x
    if preprocess.size is not None and x.dtype == torch.uint8 and file_suffix(Path(path)) not in (".npz", ".npy"):
        x = x.loaded() if isinstance(x, StoredSamples) and preprocess.values is not BYTES else x
        x = x if isinstance(x, StoredSamples) else torch.as_tensor(to_value_range(x.numpy(), preprocess))
    return replace(own, domain=replace(own.domain, x=x))


def own_task(
    source: Path | str,
    target: Path | str,
    target_test: Path | str | None = None,
    how: ReadOptions | None = None,
    use_target_labels: bool = False,
    impute: str | None = None,
    standardise_per_domain: bool = False,
) -> tuple[Task, tuple[str, ...]]:
    """A task from a user's own files, and notes on how they were read.

    Labels of the target are not trained on, except by a method that is made for that. Without a test set, they measure
    the accuracy. With `use_target_labels`, they may be trained on, and do not measure the accuracy. `impute` and
    `standardise_per_domain` are those of :func:`vmt.data.make_task`. Features of pictures are standardised in each
    domain by itself.
    """
    how = replace(how or ReadOptions(), missing=impute is not None)
    paths = [Path(path) for path in (source, target, target_test) if path is not None]
    every, notes = _read_all(paths, how, needs_labels=[True, False, True])
    first = every[0]
    names = _source_classes(first, how.label)
    notes += _from_1_note(first, names or ())
    second, *third = (_with_features(samples, first.features, first.name) for samples in every[1:])
    check_digits(first.x, second.x, first.features)
    assert first.y is not None
    second, note = _ignore_other_folders(second, set(names or map(str, first.y.ravel().tolist())))
    notes += note
    test_samples = third[0] if third else second
    labelled = _labelled_domain(second, names)
    if use_target_labels and labelled is None:
        raise InputError(
            f"{second.name} has no labels to train on: label some samples, or leave out --use-target-labels."
        )
    test = _labelled_domain(test_samples, names) if third else None if use_target_labels else labelled
    if third and test is None:
        raise InputError(
            f"{test_samples.name} has no labels to measure the accuracy with: "
            f"{labelling_remedy(test_samples.name, how.label, names or ())}."
        )
    if test is not None:
        notes += _numbered_labels_note(test_samples, names)
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
        size=None if how.extractor else how.image_size,
        format=how.format,
        impute=impute,
        standardise_per_domain=standardise_per_domain or how.extractor is not None,
    )
    return replace(task, backbone=how.extractor), notes


def labelling_remedy(name: str, label: str | None, classes: Sequence[str] = ()) -> str:
    """How to add labels to a file or folder that has none of these classes."""
    suffix = file_suffix(Path(name))
    if suffix == ".npz":
        return "save them as y beside x"
    if suffix == ".npy":
        return "save samples and labels as x and y of an .npz file"
    if suffix in TABLE_SUFFIXES:
        return f"fill in the column {label or LABEL!r}, or name another column of classes with --label"
    named = f" ({few(list(classes), 10)})" if classes else ""
    return f"put the pictures of each class into a subfolder with its name{named}"


@dataclass(frozen=True, eq=False)
class RawSamples:
    """The samples of one path, before classes are numbered."""

    name: str
    x: NDArray[Any] | StoredSamples
    y: NDArray[Any] | None  # numbers with −1, or names with "", for a label that is not known
    features: tuple[str, ...] = ()
    by_folder: bool = False  # the labels are the names of subfolders, which need not be classes
    files: tuple[Path, ...] = ()  # the pictures that x are features of


def _read_all(
    paths: Sequence[Path], options: ReadOptions, features: Sequence[str] = (), *, needs_labels: Sequence[bool]
) -> tuple[list[RawSamples], tuple[str, ...]]:
    """The samples of all paths, and notes. The first path decides the size of pictures and, without `features`, the
    columns of tables. `needs_labels` says for each path whether a table without labels is refused."""
    first = _open(paths[0], options, features, needs_labels[0])
    features = features or (first.features if isinstance(first, RawSamples) else ())
    rest = zip(paths[1:], needs_labels[1:], strict=False)
    opened = [first, *(_open(path, options, features, needed) for path, needed in rest)]
    if options.extractor is not None:
        return _extracted(opened, options.extractor, options)
    arrays = [samples for samples in opened if isinstance(samples, RawSamples)]
    if len(arrays) == len(opened):
        if options.strict:
            _refuse_picture_options(arrays[0], options)
        return arrays, ()
    format = options.format or PictureFormat()
    asked = options.image_size or format.size
    size = asked or _choose_size(first)
    channels = options.channels or max(_channels(samples) for samples in opened)
    notes = [note for headers in opened if isinstance(headers, PictureHeaders) for note in headers.pictures.notes]
    framing = Framing(size, channels, format.crop, format.interpolation or INTERPOLATIONS[0])
    if options.strict or asked is None or options.channels is None:
        why = "as requested" if asked else f"chosen from the sizes in {shown(paths[0])}"
        notes.append(f"{_framing_note(framing, why)} (--image-size, --channels)")
    every = []
    pixels = channels * size[0] * size[1]
    total = pixels * sum(len(headers.faults) for headers in opened if isinstance(headers, PictureHeaders))
    stream = options.memory is not None and total > options.memory
    if stream:
        place = cache_folder("pictures")
        notes.append(
            f"pictures: {size_of(total)} when decoded, which are kept in {place} and read from there (vmt cache)"
        )
    for samples in opened:
        if isinstance(samples, PictureHeaders):
            x, readable, faults = read_pictures(samples, framing, options.cache, options.progress, stream)
            pictures = samples.pictures
            y = None if pictures.labels is None else np.array(pictures.labels)[readable]
            samples = RawSamples(pictures.name, x, y, by_folder=pictures.by_folder)
            notes += faults
        every.append(samples)
    return every, tuple(notes)


def _extracted(
    opened: Sequence[RawSamples | PictureHeaders], extractor: Extractor, options: ReadOptions
) -> tuple[list[RawSamples], tuple[str, ...]]:
    """The features of pictures in files and arrays, and notes."""
    framing = extractor.preprocess.framing
    notes = [note for headers in opened if isinstance(headers, PictureHeaders) for note in headers.pictures.notes]
    notes.append(_framing_note(framing, f"for a network that gives {extractor.width} features of each"))
    every = []
    for samples in opened:
        if isinstance(samples, PictureHeaders):
            pictures = samples.pictures
            x, readable, faults = read_features(samples, extractor, options.cache, options.progress)
            y = None if pictures.labels is None else np.array(pictures.labels)[readable]
            files = tuple(path for path, known in zip(pictures.files, readable, strict=True) if known)
            every.append(RawSamples(pictures.name, x, y, by_folder=pictures.by_folder, files=files))
            notes += faults
        else:
            every.append(replace(samples, x=_extracted_arrays(samples, extractor, options)))
    return every, tuple(notes)


def _extracted_arrays(samples: RawSamples, extractor: Extractor, options: ReadOptions) -> NDArray[np.float32]:
    if samples.x.ndim != 4:
        raise InputError(f"{samples.name} holds vectors, of which no network computes features: leave out --features.")
    images = domain(samples.x, name=samples.name)
    return features_of_arrays(images, extractor, options.cache, options.progress)


def _framing_note(framing: Framing, why: str) -> str:
    height, width = framing.size
    how = "resized" if framing.crop is None else "resized and cropped with their aspect ratio kept"
    colour = "grey" if framing.channels == 1 else "colour"
    return f"pictures: {how} to {height}×{width} pixels, {why}; in {colour}"


def _open(path: Path, options: ReadOptions, features: Sequence[str], needs_labels: bool) -> RawSamples | PictureHeaders:
    """The samples of a path, or only the headers if it holds pictures."""
    if path.is_dir():
        return read_headers(list_pictures(path), options.cache, options.progress)
    existing_file(path, f"give {INPUT_FORMATS}")
    suffix = file_suffix(path)
    if suffix == ".npz":
        return _raw_arrays(path, *read_npz(path), options.missing)
    if suffix == ".npy":
        return _raw_arrays(path, read_npy(path), None, options.missing)
    if suffix in TABLE_SUFFIXES:
        how = TableOptions(options.label, needs_labels, options.missing, features)
        table = (read_parquet if suffix == ".parquet" else read_csv)(path, how)
        if isinstance(table, PictureList):
            return read_headers(table, options.cache, options.progress)
        y = None if table.labels is None else np.array(table.labels)
        return RawSamples(table.name, table.x, y, table.features)
    raise InputError(f"{shown(path)} is not of a supported format: give {INPUT_FORMATS}.")


def _raw_arrays(path: Path, x: NDArray[Any], y: NDArray[Any] | None, missing: bool) -> RawSamples:
    if y is not None and y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y is not None and y.dtype.kind == "S":
        y = np.char.decode(y, "utf-8", "replace")
    if y is not None and y.dtype.kind == "U" and y.shape != x.shape[:1]:
        raise InputError(f"{path} has x of shape {x.shape} and y of shape {y.shape}: give y one name per sample.")
    # Checked before the shape decides the size of pictures.
    numbers = y if y is None or y.dtype.kind not in "biufU" else np.zeros(y.shape, np.int64)
    checked = domain(x, numbers, name=shown(path), missing=missing).x.numpy()
    y = None if y is None else y.reshape(-1)
    return RawSamples(shown(path), x if x.ndim == 2 else checked, y)


def _refuse_picture_options(first: RawSamples, options: ReadOptions) -> None:
    if options.channels is not None:
        raise InputError(f"--channels is for files of pictures, but {first.name} holds arrays: leave it out.")
    if options.image_size is not None and first.x.ndim == 2:
        raise InputError(f"--image-size is for pictures, but {first.name} holds vectors: leave it out.")


def _choose_size(first: RawSamples | PictureHeaders) -> Size:
    """The size of arrays; for pictures, the median size, shrunk so that a small network trains in good time, and in
    multiples of 4, which two poolings divide."""
    if isinstance(first, RawSamples):
        if first.x.ndim != 4:
            raise InputError(
                f"{first.name} holds vectors, but another input holds pictures: give the same kind for both domains."
            )
        return first.x.shape[2], first.x.shape[3]
    height, width = np.median(first.sizes[first.readable], axis=0)
    shrink = min(1.0, LARGEST_SIDE / max(height, width))
    return _multiple_of_4(height * shrink), _multiple_of_4(width * shrink)


def _multiple_of_4(side: float) -> int:
    return max(SMALLEST_SIDE, 4 * int(side / 4 + 0.5))


def _channels(samples: RawSamples | PictureHeaders) -> int:
    if isinstance(samples, RawSamples):
        return 1 if samples.x.shape[1] == 1 else 3
    return 1 if samples.grey[samples.readable].all() else 3


def _with_features(samples: RawSamples, features: tuple[str, ...], of: str) -> RawSamples:
    """The samples of a table with its columns in the order of another table's."""
    if not samples.features or not features:
        return samples
    columns = column_indices(samples.name, samples.features, features, of)
    assert not isinstance(samples.x, StoredSamples)
    return replace(samples, x=samples.x[:, columns], features=features)


def _source_classes(source: RawSamples, label: str | None) -> tuple[str, ...] | None:
    """The names of the classes, None if they are numbers; a source without usable labels is refused."""
    if source.y is None:
        raise InputError(
            f"{source.name} has no labels, which the source needs: {labelling_remedy(source.name, label)}."
        )
    if _unknown(source.y).any():
        sample = int(np.flatnonzero(_unknown(source.y))[0]) + 1
        mark = "" if _is_text(source.y) else " (−1 stands for an unknown label)"
        raise InputError(
            f"sample {sample} of {source.name} has no label{mark}, which the source needs: add it, or remove the "
            "sample."
        )
    names = _class_names(source)
    if names is not None and len(names) < 2:
        raise InputError(f"{source.name} has only the class {names[0]!r}: give it two classes or more.")
    if source.by_folder and names is not None and {name.lower() for name in names} <= SPLITS:
        raise InputError(
            f"{source.name} has the subfolders {few(list(names))}, which are splits of a data set and not classes: "
            "give one of them."
        )
    return names


def _ignore_other_folders(samples: RawSamples, classes: set[str]) -> tuple[RawSamples, tuple[str, ...]]:
    """Samples without labels taken from subfolders that are not classes.

    A subfolder "unlabelled" holds samples without labels. If no subfolder at all is a class, the subfolders sort the
    samples by something else, and say nothing about labels.
    """
    if not samples.by_folder or samples.y is None:
        return samples, ()
    unlabelled = [name for name in set(samples.y.tolist()) - classes if name.lower() in UNLABELLED]
    samples = replace(samples, y=np.where(np.isin(samples.y, unlabelled), "", samples.y))
    assert samples.y is not None
    folders = set(samples.y.tolist()) - {""}
    if not classes.isdisjoint(folders) or not folders:
        return samples, ()
    listed = few(sorted(folders))
    note = f"none of the subfolders of {samples.name} ({listed}) is a class, so its samples are used without labels"
    return replace(samples, y=None), (note,)


def _domain(samples: RawSamples, names: tuple[str, ...] | None) -> Domain:
    """All samples, with labels only if each has one."""
    labelled = samples.y is not None and not _unknown(samples.y).any()
    y = _class_numbers(samples, names) if labelled else None
    # Missing values that are not wanted were refused when the file was read.
    made = domain(samples.x, y, name=samples.name, features=samples.features, missing=True)
    return replace(made, files=samples.files)


def _labelled_domain(samples: RawSamples, names: tuple[str, ...] | None) -> Domain | None:
    """The samples whose labels are known; None if there are none."""
    if samples.y is None or _unknown(samples.y).all():
        return None
    return _domain(_labelled_samples(samples), names)


def _labelled_samples(samples: RawSamples) -> RawSamples:
    assert samples.y is not None
    known = ~_unknown(samples.y)
    if known.all():
        return samples
    x = samples.x
    x = x.subset(torch.from_numpy(known)) if isinstance(x, StoredSamples) else x[known]
    files = tuple(path for path, kept in zip(samples.files, known, strict=False) if kept)
    return replace(samples, x=x, y=samples.y[known], files=files)


def _class_names(samples: RawSamples) -> tuple[str, ...] | None:
    """The sorted names of the classes; None if they are numbers from 0.

    Numbers from 1 without gaps are names, as they are in a table.
    """
    assert samples.y is not None
    if _is_text(samples.y):
        return sorted_names(samples.y.tolist())
    numbers = np.unique(samples.y)
    from_1 = len(numbers) > 1 and np.array_equal(numbers, np.arange(1, len(numbers) + 1))
    return tuple(str(number) for number in range(1, len(numbers) + 1)) if from_1 else None


def _class_numbers(samples: RawSamples, names: tuple[str, ...] | None) -> NDArray[Any]:
    """The labels as class numbers."""
    y = samples.y
    assert y is not None
    if not _is_text(y) and not any(name.isdecimal() for name in names or ()):
        return y  # they are class numbers already
    number = {name: k for k, name in enumerate(names or ())}
    given = [class_name(str(value)) for value in y.tolist()]
    # Most programs write integers in a column with gaps as 1.0.
    given = [name if name in number else re.sub(r"(?<=\d)\.0+$", "", name) for name in given]
    if names is None:
        # The classes of the source are numbers, so a name must be a number, too.
        number = {name: int(name) for name in given if name.isdecimal()}
    if other := sorted(set(given) - set(number)):
        known = few(list(names), 10) if names else "numbers"
        raise InputError(
            f"{samples.name} has a class that the source lacks, {few([repr(name) for name in other])} (the source has: "
            f"{known}): rename it, remove it, or add it to the source."
        )
    return np.array([number[name] for name in given], np.int64)


def _numbered_labels_note(samples: RawSamples, names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Warn that numbers follow the sorted names: a user may number digits 0, 1, 2 and have folders one, two, zero."""
    assert samples.y is not None
    if not names or _is_text(samples.y) or any(name.isdecimal() for name in names):
        return ()
    order = few([f"{k} for {name}" for k, name in enumerate(names)])
    return (f"the labels of {samples.name} are numbers and follow the order of the classes: {order}",)


def _from_1_note(samples: RawSamples, names: tuple[str, ...]) -> tuple[str, ...]:
    """Say that numbers from 1 are the names of the classes, whose numbers in Python are from 0."""
    if samples.y is None or _is_text(samples.y) or not names:
        return ()
    return (f"the labels of {samples.name} are numbers from 1: the classes are called {names[0]} to {names[-1]}",)


def _unknown(y: NDArray[Any]) -> NDArray[np.bool_]:
    unknown: NDArray[np.bool_] = y == ("" if _is_text(y) else -1)
    return unknown


def _is_text(y: NDArray[Any]) -> bool:
    return y.dtype.kind == "U"
