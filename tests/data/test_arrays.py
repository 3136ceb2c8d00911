"""What users may pass as a domain, arrays, datasets and loaders, and the errors for everything else."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tests.own_pictures import picture
from vmt.data import domain, from_dataset
from vmt.errors import InputError

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (6, 8, 9), dtype=np.uint8)
RGB = RNG.integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (GREY, GREY[:, None]),
        (GREY[..., None], GREY[:, None]),
        (GREY[:, None], GREY[:, None]),
        (RGB, RGB.transpose(0, 3, 1, 2)),
        (RGB.transpose(0, 3, 1, 2), RGB.transpose(0, 3, 1, 2)),
        (torch.from_numpy(RGB), RGB.transpose(0, 3, 1, 2)),
        (GREY[:, ::-1], GREY[:, None, ::-1]),
        (GREY.astype(np.int32), GREY[:, None]),
        (GREY.astype(">u2"), GREY[:, None]),
        (GREY > 127, np.where(GREY[:, None] > 127, 255, 0)),
    ],
)
def test_images_end_up_channels_first_in_bytes(given, expected):
    x = domain(given, name="photos").x
    assert x.dtype == torch.uint8
    assert x.is_contiguous()
    np.testing.assert_array_equal(x.numpy(), expected)


def test_floats_end_up_in_single_precision():
    assert domain(RGB / 255, name="photos").x.dtype == torch.float32
    assert domain(np.arange(12).reshape(4, 3), name="table").x.dtype == torch.float32
    assert domain([[1, 2], [3, 4]], name="table").x.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_labels_may_be_whole_floats_or_lists():
    y = domain(GREY, np.array(LABELS, dtype=np.float64), name="photos").y
    assert y is not None
    assert y.dtype == torch.int64
    assert y.tolist() == LABELS
    column = domain(GREY, np.array(LABELS)[:, None], name="photos").y
    assert column is not None
    assert column.tolist() == LABELS


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (RGB[0], None, "x[None]"),
        (RNG.random((2, 3, 9, 3)), None, "shape"),
        (RNG.random((2, 9, 9, 2)), None, "shape"),
        (np.arange(5.0), None, "x[None]"),
        (RNG.random((9, 3, 128)), None, "as vectors (N, F)"),
        (np.zeros((0, 8, 8)), None, "empty"),
        ((row for row in GREY), None, "vmt.data.from_dataset"),
        ({"x": GREY}, None, "a dict"),
        (np.ma.masked_array([[1.0, 2.0]], [[False, True]]), None, "masked"),
        (np.full((2, 3), np.nan), None, "NaN"),
        (np.array([[1.0, np.inf]]), None, "infinite"),
        (GREY.astype(np.int32) - 1, None, "-1 to"),
        ([[1, 2], [3]], None, "same shape"),
        (np.array([["a", "b"]]), None, "type"),
        (GREY, np.eye(6), "class number"),
        (GREY, np.zeros((6, 1, 1)), "flat"),
        (GREY, [0, 1, 2, 0, 1, 0.5], "whole"),
        (GREY, [0, 1, 2, 0, 1, float("nan")], "whole"),
        (GREY, [0, 1, 2, 0, 1, -1], "-1"),
        (GREY, ["cat"] * 6, "type"),
        (GREY, [0, 1], "6 samples and 2 labels"),
    ],
)
def test_refusals_name_the_domain_and_the_fault(x, y, says):
    with pytest.raises(InputError) as caught:
        domain(x, y, name="my photos")
    assert "my photos" in str(caught.value)
    assert says in str(caught.value)
    assert str(caught.value).endswith(".")


X, Y = torch.rand(10, 3, 8, 8), torch.arange(10) % 2


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(X)


class Pictures(Dataset[tuple[object, int]]):
    """Like torchvision's datasets without a transform: a Pillow image and a number."""

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
