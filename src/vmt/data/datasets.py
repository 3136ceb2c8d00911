"""Datasets and loaders of torch as domains: read once, held in memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from vmt.data.convert import domain
from vmt.data.domain import Domain
from vmt.errors import InputError


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
        xs.append(_tensor(x, name))
        if labels and y is not None:
            ys.append(_tensor(y, f"{name}, as a label,"))
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


def _tensor(x: Any, name: str) -> Tensor:
    if isinstance(x, Tensor):
        return x.detach().cpu()
    try:
        return torch.from_numpy(np.array(x))  # pictures of Pillow too
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} yields a {type(x).__name__}: yield tensors, arrays, pictures or numbers.") from error
