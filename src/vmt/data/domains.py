"""Domains: samples, with or without labels, in the one layout that the rest of the library relies on.

:func:`domain` makes one from arrays, tensors or data frames, with labels that are numbers or names, and
:func:`from_dataset` from a dataset or a loader.
"""

import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vmt.data.stored import StoredSamples
from vmt.errors import InputError, few, shown


@dataclass(frozen=True, eq=False, repr=False)
class Domain:
    """Samples of one domain.

    Build it with :func:`vmt.data.domain`, which checks and converts; the constructor trusts its arguments.

    >>> measured = Domain(torch.randn(20, 3), torch.arange(20) % 2, "measured")
    >>> kept, held_out = measured.split(0.2, seed=0)
    >>> len(kept), len(held_out), held_out.y.bincount().tolist()
    (16, 4, [2, 2])
    """

    # (N, C, H, W) images, uint8 or float32; or (N, F) float32 vectors, NaN where a value is missing. Pictures that
    # exceed the memory are StoredSamples, which are read from the disk when they are indexed.
    x: Tensor
    y: Tensor | None  # (N,) int64 labels
    name: str
    features: tuple[str, ...] = ()  # names of the columns of vectors; empty if they have no names
    files: tuple[Path, ...] = ()  # the pictures that vectors are features of; empty for any other samples

    def __len__(self) -> int:
        return self.x.shape[0]

    def __repr__(self) -> str:
        labels = "without labels" if self.y is None else "labelled"
        return f"<domain {self.name}: {len(self)} samples of shape {tuple(self.x.shape[1:])}, {labels}>"

    @property
    def is_images(self) -> bool:
        return self.x.ndim == 4

    @property
    def bytes(self) -> int:
        """The size of the samples."""
        return self.x.numel() * self.x.element_size()

    def to(self, device: torch.device | str, labels_only: bool = False) -> "Domain":
        """The domain on a device; with `labels_only`, the samples stay where they are."""
        y = None if self.y is None else self.y.to(device)
        if labels_only:
            return replace(self, y=y)
        x = self.x
        return replace(self, x=x.loaded(device) if isinstance(x, StoredSamples) else x.to(device), y=y)

    def subset(self, indices: Tensor) -> "Domain":
        """The samples with these numbers, (n,) int64; stored samples are not read."""
        x = self.x
        x = x.subset(indices) if isinstance(x, StoredSamples) else x[indices.to(x.device)]
        files = tuple(self.files[i] for i in indices.tolist()) if self.files else ()
        return replace(self, x=x, y=None if self.y is None else self.y[indices.to(self.y.device)], files=files)

    def without_labels(self) -> "Domain":
        return replace(self, y=None)

    def split(self, fraction: float, seed: int) -> "tuple[Domain, Domain]":
        """Two disjoint domains ``(kept, held_out)`` in the original order; ``held_out`` has about `fraction`.

        With labels, the split is stratified; a class of two samples or more is in both parts.
        """
        if not 0 < fraction < 1:
            raise InputError(f"fraction must be between 0 and 1, but got {fraction}.")
        # The draw is on the CPU so that the parts do not depend on the device of the domain.
        generator = torch.Generator().manual_seed(seed)
        groups = torch.zeros(len(self), dtype=torch.int64) if self.y is None else self.y.cpu()
        held = torch.zeros(len(self), dtype=torch.bool)
        for group in sorted(set(groups.tolist())):
            members = torch.nonzero(groups == group).squeeze(1)
            count = len(members)
            take = min(max(round(count * fraction), 1), count - 1)
            held[members[torch.randperm(count, generator=generator)[:take]]] = True
        if not held.any():
            raise InputError(
                f"{self.name} has too few samples ({len(self)}) to split: give it two samples or more of a class."
            )
        return self.subset(torch.nonzero(~held).squeeze(1)), self.subset(torch.nonzero(held).squeeze(1))


CHANNELS = (1, 3, 4)
# Sides longer than any channel count make the channel axis of a 4-d array unambiguous.
MIN_SIDE = max(CHANNELS) + 1
# What users write for a label that is not known.
UNKNOWN_LABELS = ("-1", "-1.0", "nan", "None", "")


def domain(x: Any, y: Any = None, *, name: str, features: tuple[str, ...] = (), missing: bool = False) -> Domain:
    """Make a :class:`Domain` from arrays, tensors, nested lists or a data frame.

    `x` is a batch of images (N, H, W), (N, H, W, C) or (N, C, H, W), or of vectors (N, F); `y` holds one class number
    per sample. A data frame keeps the names of its columns. NaN is refused, unless `missing` says that it stands for
    a missing value of a vector, which ``make_task(impute=…)`` fills in. The domain shares memory with `x` if nothing
    has to be converted.

    >>> photographs = domain(np.zeros((8, 32, 32, 3), np.uint8), np.arange(8) % 2, name="photographs")
    >>> tuple(photographs.x.shape), photographs.is_images
    ((8, 3, 32, 32), True)
    """
    features = features or column_names(x)
    if column_names(x):
        x = frame_values(x, name)
    stored = isinstance(x, StoredSamples)  # which were checked when they were packed
    samples = x if stored else _samples(_tensor(x, f"x of {name}"), name, features, missing)
    if y is None:
        return Domain(samples, None, name, features)
    remedy = "number the classes from 0, as np.unique(y, return_inverse=True) does, and pass their names as classes="
    labels = _labels(_tensor(y, f"y of {name}", remedy), name).to(samples.device)
    if len(labels) != len(samples):
        raise InputError(
            f"{name} has {len(samples)} samples and {len(labels)} labels: give y one label per sample of x."
        )
    return Domain(samples, labels, name, features)


def labelled_part(samples: Domain, labels: Any) -> Domain:
    """The samples whose labels are known; `labels` has one class number per sample, −1 for an unknown label."""
    numbers = _tensor(labels, f"the labels of {samples.name}").flatten()
    if len(numbers) != len(samples):
        raise InputError(
            f"{samples.name} has {len(samples)} samples and {len(numbers)} labels: give one label per sample, −1 where "
            "it is unknown."
        )
    known = torch.nonzero(numbers != -1).squeeze(1)
    if not len(known):
        raise InputError(f"no label of {samples.name} is known: give some labels, or leave out the argument.")
    return domain(
        samples.subset(known).x,
        numbers[known],
        name=f"the labelled part of {samples.name}",
        features=samples.features,
        missing=True,
    )


def from_dataset(dataset: Any, *, labels: bool = True, name: str = "the dataset") -> Domain:
    """Make a :class:`Domain` from a torch dataset or loader that yields x or (x, y).

    `labels=False` ignores y, for a target whose labels have no meaning. If the dataset transforms samples at random,
    each sample is read once, with one random transform.

    >>> dataset = torch.utils.data.TensorDataset(torch.zeros(6, 1, 8, 8), torch.arange(6) % 3)
    >>> from_dataset(dataset).y.tolist()
    [0, 1, 2, 0, 1, 2]
    """
    batched = isinstance(dataset, DataLoader) and dataset.batch_sampler is not None
    xs: list[Tensor] = []
    ys: list[Tensor] = []
    for item in _items(dataset, name):
        x, y = _pair(item)
        xs.append(_item_tensor(x, name))
        if labels and y is not None:
            ys.append(_item_tensor(y, f"{name}, as a label,"))
    if not xs:
        raise InputError(f"{name} yields nothing: give it at least one sample.")
    if ys and len(ys) != len(xs):
        raise InputError(f"{name} yields labels for {len(ys)} of {len(xs)} items: label all of them, or labels=False.")
    join = torch.cat if batched else torch.stack
    try:
        return domain(join(xs), join(ys) if ys else None, name=name)
    except RuntimeError as error:
        raise InputError(f"{name} yields samples of different shapes: resize them in its transform.") from error


def _items(dataset: Any, name: str) -> Iterator[Any]:
    if hasattr(dataset, "__iter__"):
        yield from dataset
    elif hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        # By index: a dataset with __getitem__ need not raise an IndexError at its end.
        for i in range(len(dataset)):
            yield dataset[i]
    else:
        raise InputError(f"{name} is a {type(dataset).__name__}: pass a dataset, a loader or another iterable.")


def _pair(item: Any) -> tuple[Any, Any]:
    if isinstance(item, tuple | list):
        if len(item) == 1:
            return item[0], None
        if len(item) == 2:
            return item[0], item[1]
        raise InputError(f"an item of the dataset is a {type(item).__name__} of {len(item)}: yield x or (x, y).")
    if isinstance(item, dict):
        raise InputError("an item of the dataset is a dict: yield x or (x, y).")
    return item, None


def _item_tensor(x: Any, name: str) -> Tensor:
    if isinstance(x, Tensor):
        return x.detach().cpu()
    try:
        return torch.from_numpy(np.array(x))  # this also converts Pillow's images
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} yields a {type(x).__name__}: yield tensors, arrays, pictures or numbers.") from error


def _tensor(values: Any, what: str, remedy: str = "pass integers or floating-point numbers") -> Tensor:
    if isinstance(values, Tensor):
        return (values if values.layout == torch.strided else values.to_dense()).detach()
    if values is None:
        raise InputError(f"{what} is None: pass an array, a tensor or a data frame.")
    _refuse_containers(values, what)
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{what} is not a regular array: give all its samples the same shape.") from error
    if array.dtype.kind not in "biuf":
        raise InputError(f"{what} has values of type {array.dtype}: {remedy}.")
    # torch supports neither foreign byte orders, negative strides, extended floats nor read-only memory.
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def _refuse_containers(values: Any, what: str) -> None:
    """Refuse objects that hold samples but that NumPy would turn into something meaningless."""
    kind = type(values).__name__
    if hasattr(values, "toarray"):
        raise InputError(f"{what} is a sparse {kind}: pass the result of its toarray().")
    if isinstance(values, DataLoader | Dataset | Iterator):
        raise InputError(f"{what} is a {kind}: pass vmt.data.from_dataset(…) of it, which reads it into memory.")
    if isinstance(values, Mapping):
        raise InputError(f"{what} is a {kind}: pass an array, or a data frame.")
    if np.ma.is_masked(values):
        raise InputError(f"{what} has masked values: fill them in, or leave out their samples.")


def _samples(x: Tensor, name: str, features: tuple[str, ...], missing: bool) -> Tensor:
    if x.is_complex():
        raise InputError(f"x of {name} is complex: pass real numbers.")
    if x.numel() == 0:
        raise InputError(f"x of {name} is empty (shape {tuple(x.shape)}): pass at least one sample.")
    stored = x.to(torch.float32) if x.ndim == 2 else _image_values(_channels_first(x, name), name)
    # The extremes take one pass and no mask in memory, and show NaN and infinities alike.
    if stored.is_floating_point() and not all(torch.isfinite(extreme) for extreme in stored.aminmax()):
        bad = stored.isinf() if missing and stored.ndim == 2 else ~stored.isfinite()
        if bad.any():
            _refuse_values(x, stored, bad, name, features)
    return stored.contiguous()


def _refuse_values(x: Tensor, stored: Tensor, bad: Tensor, name: str, features: tuple[str, ...]) -> NoReturn:
    """Name the first value that is not finite, or too large for float32."""
    place = torch.nonzero(bad)[0].tolist()
    where = f"sample {place[0]}"
    if stored.ndim == 2:
        where += f", column {features[place[1]]!r}" if features else f", feature {place[1]}"
    if stored.ndim == 2 and x[tuple(place)].isfinite():
        value = float(x[tuple(place)])
        raise InputError(
            f"x of {name} has {value:g} ({where}), which is too large for 32 bits: use another unit or logarithms."
        )
    what = "a missing value (NaN)" if stored[tuple(place)].isnan() else "an infinite value"
    remedy = "remove or replace it"
    if stored.ndim == 2 and stored[tuple(place)].isnan():
        remedy = "fill it in, leave it out, or let vmt fill in missing values with impute='mean' or 'median'"
    raise InputError(f"x of {name} contains {what} (first: {where}): {remedy}.")


def _channels_first(x: Tensor, name: str) -> Tensor:
    shape = tuple(x.shape)
    if (images := _as_images(x)) is not None:
        return images
    if x.ndim == 1 or _as_images(x[None]) is not None:
        raise InputError(f"x of {name} has the shape {shape} of one sample: pass several samples, or x[None].")
    raise InputError(
        f"x of {name} has shape {shape}, which is neither vectors (N, F) nor images: pass images as "
        f"(N, H, W), (N, H, W, C) or (N, C, H, W) with C 1, 3 or 4 and sides of {MIN_SIDE} pixels or more; pass "
        "anything else, such as signals, as vectors (N, F), and use a network of your own that reshapes them."
    )


def _as_images(x: Tensor) -> Tensor | None:
    """The images as (N, C, H, W), or None if the shape cannot be that of images."""
    candidates: list[Tensor] = []
    if x.ndim == 3:
        candidates = [x.unsqueeze(1)]
    elif x.ndim == 4:
        candidates = [x, x.permute(0, 3, 1, 2)]
    fitting = (c for c in candidates if c.shape[1] in CHANNELS and min(c.shape[2:]) >= MIN_SIDE)
    return next(fitting, None)


def _image_values(x: Tensor, name: str) -> Tensor:
    if x.dtype == torch.bool:
        return x.to(torch.uint8) * 255
    # Layout and type are converted together: one copy instead of two.
    if x.is_floating_point():
        return x.to(torch.float32, memory_format=torch.contiguous_format)
    if x.dtype != torch.uint8:
        low, high = x.to(torch.int64).aminmax()
        if low < 0 or high > 255:
            raise InputError(
                f"the integer images of {name} have values from {int(low)} to {int(high)}: pass integers in "
                "0–255, or floating-point values in 0–1."
            )
    return x.to(torch.uint8, memory_format=torch.contiguous_format)


def _labels(y: Tensor, name: str) -> Tensor:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.squeeze(1)  # a column of a table
    if y.ndim != 1:
        hint = "the class number instead of one column per class" if y.ndim == 2 else "a flat array"
        raise InputError(f"y of {name} has shape {tuple(y.shape)}, but labels have shape (N,): pass {hint}.")
    if y.is_complex() or (y.is_floating_point() and not bool((y == y.round()).all() and y.isfinite().all())):
        raise InputError(f"y of {name} has labels that are not whole numbers: number the classes from 0.")
    y = y.to(torch.int64)
    if len(y) and y.min() < 0:
        raise InputError(
            f"y of {name} has the negative label {int(y.min())}: number the classes from 0, and leave y out "
            "if the domain is unlabelled."
        )
    return y.contiguous()


def class_name(text: str) -> str:
    """A class name in one Unicode form, because systems write the same letters in different ways."""
    return unicodedata.normalize("NFC", shown(text)).strip()


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once, sorted; names that are all numbers are sorted as numbers.

    >>> sorted_names(["bee", "ant", "bee"]), sorted_names(["10", "9"])
    (('ant', 'bee'), ('9', '10'))
    """
    unique = {class_name(name) for name in names}
    by_number = all(name.isdecimal() for name in unique)
    return tuple(sorted(unique, key=lambda name: (int(name) if by_number else 0, name)))


def classes_in(y: Any) -> tuple[str, ...] | None:
    """The sorted class names among labels; None if the labels are numbers."""
    names = _text_labels(y)
    return None if names is None else sorted_names(name for name in names if name)


def encode_labels(y: Any, classes: Sequence[str] | None, name: str, partly: bool = False) -> Any:
    """Class names as class numbers; labels that are not text are returned unchanged.

    With `partly`, labels may be unknown, and −1 stands for them; otherwise a missing label is an error.
    """
    names = _text_labels(y)
    if names is None:
        return _missing_as_minus_1(y) if partly else y
    number: dict[str, int] = {label: k for k, label in enumerate(map(class_name, classes or ()))}
    if "" in names and not partly:
        raise InputError(f"sample {names.index('')} of {name} has no label: add it, or remove the sample.")
    unknown = {label for label in names if label not in number} - set(UNKNOWN_LABELS if partly else ())
    if unknown:
        known = few(list(number), 10) if number else "those of the source are numbers"
        raise InputError(
            f"{name} has the label {sorted_names(unknown)[0]!r}, which is not one of the classes ({known}): correct it."
        )
    return np.array([number.get(label, -1) for label in names], np.int64)


def is_missing(value: Any) -> bool:
    """Whether a label is None, NaN or pandas' NA."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or type(value).__name__ == "NAType"


def _text_labels(y: Any) -> list[str] | None:
    """Labels that are text, with "" for a missing one; None if they are numbers or not a one-dimensional array."""
    if y is None or isinstance(y, Tensor):
        return None
    try:
        # As objects: NumPy would turn a NaN in a list of names into the text "nan".
        array = np.asarray(y, object) if isinstance(y, list | tuple) else np.asarray(y)
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


def _missing_as_minus_1(y: Any) -> Any:
    """Numbers with −1 in place of missing values, which a column of a data frame may have."""
    values = y.tolist() if hasattr(y, "tolist") else y
    if not isinstance(values, list | tuple) or not any(is_missing(value) for value in values):
        return y
    return [-1 if is_missing(value) else value for value in values]


def column_names(x: Any) -> tuple[str, ...]:
    """The column names of a data frame; empty for an array or a data frame whose columns have no names."""
    columns = getattr(x, "columns", None)
    names = () if columns is None else tuple(columns)
    return names if all(isinstance(name, str) for name in names) else ()


def frame_values(x: Any, name: str) -> NDArray[Any]:
    """The numbers of a data frame, converted column by column because the columns may have different types."""
    names = column_names(x)
    check_unique_columns(names, name)
    return np.stack([_frame_column(np.asarray(x[column]), column, name) for column in names], 1)


def _frame_column(values: NDArray[Any], column: str, name: str) -> NDArray[Any]:
    if values.dtype.kind in "biuf":
        return values
    other = next((value for value in values.tolist() if not isinstance(value, int | float)), None)
    if other is not None or values.dtype.kind != "O":
        raise InputError(
            f"the column {column!r} of {name} has {other!r} instead of a number: encode it as numbers, fill it in, "
            "or leave it out."
        )
    numbers: NDArray[Any] = values.astype(np.float64)  # None becomes NaN, which domain() refuses
    return numbers


def reorder_columns(x: Any, features: Sequence[str], name: str, of: str) -> Any:
    """A data frame with the columns `features`, in this order; any other `x` is returned unchanged."""
    names = column_names(x)
    if not names or not features or names == tuple(features):
        return x
    check_unique_columns(names, name)
    column_indices(name, names, features, of)
    return x[list(features)]


def column_indices(name: str, header: Sequence[str], features: Sequence[str], of: str) -> list[int]:
    """Where the table `name` has the columns `features` of the table `of`."""
    places = {column: i for i, column in enumerate(header)}
    if missing := [column for column in features if column not in places]:
        raise InputError(f"{name} lacks the column {few(missing)} of {of}: give both the same features.")
    return [places[column] for column in features]


def check_unique_columns(columns: Sequence[str], name: str) -> None:
    """Refuse a table in which two columns have the same name."""
    if len(set(columns)) < len(columns):
        repeated = next(column for i, column in enumerate(columns) if column in columns[:i])
        raise InputError(f"{name} has two columns called {repeated!r}: rename one of them.")
