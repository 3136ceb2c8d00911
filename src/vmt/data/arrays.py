"""From a user's arrays to a domain: every layout and type that can mean only one thing, and no other."""

import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vmt.data.domains import Domain
from vmt.errors import InputError, few, shown

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
    return np.stack([_frame_column(np.asarray(x[column]), column, name) for column in names], 1)


def _frame_column(values: NDArray[Any], column: str, name: str) -> NDArray[Any]:
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


CHANNELS = (1, 3, 4)
# Sides longer than any channel count make the channel axis of a 4-d array unambiguous.
MIN_SIDE = max(CHANNELS) + 1
NAMED = "number the classes from 0, as np.unique(y, return_inverse=True) does, and give their names as classes="


def domain(x: Any, y: Any = None, *, name: str, features: tuple[str, ...] = ()) -> Domain:
    """A :class:`Domain` from arrays, tensors or nested lists.

    `x` is a batch of images (N, H, W), (N, H, W, C) or (N, C, H, W), or of vectors (N, F); `y` holds one
    class number per sample. A data frame keeps the names of its columns. Memory is shared with `x` where nothing has
    to be converted.

    >>> photographs = domain(np.zeros((8, 32, 32, 3), np.uint8), np.arange(8) % 2, name="photographs")
    >>> tuple(photographs.x.shape), photographs.is_images
    ((8, 3, 32, 32), True)
    """
    features = features or column_names(x)
    if column_names(x):
        x = frame_values(x, name)
    samples = _samples(_tensor(x, f"x of {name}"), name, features)
    if y is None:
        return Domain(samples, None, name, features)
    labels = _labels(_tensor(y, f"y of {name}", NAMED), name).to(samples.device)
    if len(labels) != len(samples):
        raise InputError(
            f"{name} has {len(samples)} samples and {len(labels)} labels: give y one label per sample of x."
        )
    return Domain(samples, labels, name, features)


def labelled_part(samples: Domain, labels: Any) -> Domain:
    """The samples whose labels are known; `labels` has a class number for each sample, −1 where it is not known."""
    numbers = _tensor(labels, f"the labels of {samples.name}").flatten()
    if len(numbers) != len(samples):
        raise InputError(
            f"{samples.name} has {len(samples)} samples and {len(numbers)} labels: give one each, −1 for unknown."
        )
    known = torch.nonzero(numbers != -1).squeeze(1)
    if not len(known):
        raise InputError(f"no label of {samples.name} is known: give some, or leave them out altogether.")
    return domain(
        samples.x[known], numbers[known], name=f"the labelled part of {samples.name}", features=samples.features
    )


def _tensor(values: Any, what: str, remedy: str = "pass whole or floating-point numbers") -> Tensor:
    if isinstance(values, Tensor):
        return (values if values.layout == torch.strided else values.to_dense()).detach()
    _refuse_other_kinds(values, what)
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{what} is not a regular array: give all its samples the same shape.") from error
    if array.dtype.kind not in "biuf":
        raise InputError(f"{what} has values of type {array.dtype}: {remedy}.")
    # torch knows neither foreign byte orders, negative strides, extended floats nor read-only memory.
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def _refuse_other_kinds(values: Any, what: str) -> None:
    """What holds samples but is no array would end in a sentence about arrays."""
    kind = type(values).__name__
    if hasattr(values, "toarray"):
        raise InputError(f"{what} is a sparse {kind}: pass what its toarray() gives.")
    if isinstance(values, DataLoader | Dataset | Iterator):
        raise InputError(f"{what} is a {kind}: pass vmt.data.from_dataset(…) of it, which reads it into memory.")
    if isinstance(values, Mapping):
        raise InputError(f"{what} is a {kind}: pass an array, or a data frame.")
    if np.ma.is_masked(values):
        raise InputError(f"{what} has masked values: fill them in, or leave out their samples.")


def _samples(x: Tensor, name: str, features: tuple[str, ...] = ()) -> Tensor:
    if x.is_complex():
        raise InputError(f"x of {name} is complex: pass real numbers.")
    if x.numel() == 0:
        raise InputError(f"x of {name} is empty (shape {tuple(x.shape)}): pass at least one sample.")
    stored = x.to(torch.float32) if x.ndim == 2 else _image_values(_channels_first(x, name), name)
    # One pass and no mask in memory: NaN and infinities both show in the extremes.
    if stored.is_floating_point() and not all(torch.isfinite(extreme) for extreme in stored.aminmax()):
        _refuse_values(x, stored, name, features)
    return stored.contiguous()


def _refuse_values(x: Tensor, stored: Tensor, name: str, features: tuple[str, ...]) -> NoReturn:
    """Says where the first value is that is no number, or too large for one of 32 bits."""
    place = torch.nonzero(~stored.isfinite())[0].tolist()
    where = f"sample {place[0]}"
    if stored.ndim == 2:
        where += f", column {features[place[1]]!r}" if features else f", feature {place[1]}"
    if stored.ndim == 2 and x[tuple(place)].isfinite():
        value = float(x[tuple(place)])
        raise InputError(
            f"x of {name} has {value:g} ({where}), too large for 32 bits: take another unit or logarithms."
        )
    raise InputError(f"x of {name} contains NaN or infinite values (first: {where}): remove or replace them.")


def _as_images(x: Tensor) -> Tensor | None:
    """Images as (N, C, H, W), if the shape can mean that."""
    candidates: list[Tensor] = []
    if x.ndim == 3:
        candidates = [x.unsqueeze(1)]
    elif x.ndim == 4:
        candidates = [x, x.permute(0, 3, 1, 2)]
    fitting = (c for c in candidates if c.shape[1] in CHANNELS and min(c.shape[2:]) >= MIN_SIDE)
    return next(fitting, None)


def _channels_first(x: Tensor, name: str) -> Tensor:
    shape = tuple(x.shape)
    if (images := _as_images(x)) is not None:
        return images
    if x.ndim == 1 or _as_images(x[None]) is not None:
        raise InputError(f"x of {name} has shape {shape}, which is that of one sample: pass several, or x[None].")
    raise InputError(
        f"x of {name} has shape {shape}, which is neither vectors (N, F) nor images: pass images as "
        f"(N, H, W), (N, H, W, C) or (N, C, H, W) with C 1, 3 or 4 and sides of {MIN_SIDE} pixels or more, and "
        "anything else, such as signals, as vectors (N, F), for a network of your own that shapes them back."
    )


def _image_values(x: Tensor, name: str) -> Tensor:
    if x.dtype == torch.bool:
        return x.to(torch.uint8) * 255
    # The layout at once with the type, for one copy instead of two.
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
        hint = "the class number instead of one column per class" if y.ndim == 2 else "them flat"
        raise InputError(f"y of {name} has shape {tuple(y.shape)}: labels have shape (N,), so pass {hint}.")
    if y.is_complex() or (y.is_floating_point() and not bool((y == y.round()).all() and y.isfinite().all())):
        raise InputError(f"y of {name} has labels that are not whole numbers: number the classes from 0.")
    y = y.to(torch.int64)
    if len(y) and y.min() < 0:
        raise InputError(
            f"y of {name} has the negative label {int(y.min())}: number the classes from 0, and leave y out "
            "when a domain is unlabelled."
        )
    return y.contiguous()


def from_dataset(dataset: Any, *, labels: bool = True, name: str = "the dataset") -> Domain:
    """A :class:`Domain` of all that a dataset or a loader yields: x or (x, y), samples or a loader's batches.

    `labels=False` leaves y out, for a target whose labels stand for nothing. Where samples are transformed at random,
    each is taken as it comes, once.

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
        raise InputError(f"{name} yields labels for {len(ys)} of {len(xs)} items: give all of them, or labels=False.")
    join = torch.cat if batched else torch.stack
    try:
        return domain(join(xs), join(ys) if ys else None, name=name)
    except RuntimeError as error:
        raise InputError(f"{name} yields samples of different shapes: resize them in its transform.") from error


def _items(dataset: Any, name: str) -> Iterator[Any]:
    if hasattr(dataset, "__iter__"):
        yield from dataset
    elif hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        # A dataset need not end by itself: what lies beyond its length is its own affair.
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
        return torch.from_numpy(np.array(x))  # pictures of Pillow too
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} yields a {type(x).__name__}: yield tensors, arrays, pictures or numbers.") from error


def columns_of(name: str, header: Sequence[str], features: Sequence[str], of: str) -> list[int]:
    """Where a table has the columns that another has."""
    places = {column: i for i, column in enumerate(header)}
    if missing := [column for column in features if column not in places]:
        raise InputError(f"{name} lacks the column {few(missing)} of {of}: give both the same features.")
    return [places[column] for column in features]


def refuse_repeated(columns: Sequence[str], name: str) -> None:
    """Refuses a table in which two columns have the same name."""
    if len(set(columns)) < len(columns):
        repeated = next(column for i, column in enumerate(columns) if column in columns[:i])
        raise InputError(f"{name} has two columns called {repeated!r}: give each its own name.")
