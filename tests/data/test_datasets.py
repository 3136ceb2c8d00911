"""Torch datasets and loaders as a source of samples."""

from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tests.own_pictures import picture
from vmt.data import from_dataset
from vmt.errors import InputError

X, Y = torch.rand(10, 3, 8, 8), torch.arange(10) % 2


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(X)


class Pictures(Dataset[tuple[object, int]]):
    """As torchvision's datasets without a transform: pictures of Pillow, and a bare number."""

    def __init__(self, size: int = 8) -> None:
        self.size = size

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> tuple[object, int]:
        from PIL import Image

        side = 8 if i else self.size
        return Image.fromarray(picture(i % 2, i, (side, side))), i % 2


def test_torch_datasets_and_loaders() -> None:
    labelled: Dataset[tuple[torch.Tensor, ...]] = TensorDataset(X, Y)
    for dataset in (labelled, DataLoader(labelled, 4), DataLoader(labelled, batch_size=None), zip(X, Y, strict=True)):
        read = from_dataset(dataset)
        assert torch.equal(read.x, X)
        assert read.y is not None
        assert torch.equal(read.y, Y)
    assert from_dataset(labelled, labels=False).y is None
    for dataset in (TensorDataset(X), Stream(), DataLoader(Stream(), 3), X):
        read = from_dataset(dataset)
        assert torch.equal(read.x, X)
        assert read.y is None
    assert tuple(from_dataset(Pictures()).x.shape) == (4, 3, 8, 8)


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        ([], "yields nothing"),
        (7, "is a int"),
        (Pictures(9), "different shapes"),
        ([{"x": 1}], "dict"),
        ([(1, 2, 3)], "tuple of 3"),
        ([(X[0], 1), X[1]], "labels for 1 of 2"),
        (["a", "b"], "yields a str"),
        ([(X[0], "cat")], "as a label, yields a str"),
    ],
)
def test_datasets_that_cannot_be_used(dataset: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        from_dataset(dataset)
