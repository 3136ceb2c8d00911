"""From a user's arrays to a domain: every layout and type that can mean only one thing, and no other."""

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vmt.data.domain import Domain
from vmt.data.frames import column_names, frame_values
from vmt.errors import InputError

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
