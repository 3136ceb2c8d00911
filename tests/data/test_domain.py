"""What users may pass as a domain or a pair of domains, and the errors for everything else."""

import numpy as np
import pytest
import torch

from vmt.data import Domain, check_pair, domain
from vmt.errors import InputError

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (6, 8, 9), dtype=np.uint8)
RGB = RNG.integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 0, 1, 2]


def pictures(values: np.ndarray, name: str, y: object = None) -> Domain:
    return domain(values, y, name=name)


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


def test_split_is_disjoint_stratified_and_repeatable():
    y = np.repeat([0, 1, 2], [100, 50, 10])
    whole = domain(np.arange(160.0)[:, None], y, name="table")
    kept, held = whole.split(0.1, seed=3)
    assert held.y is not None
    assert held.y.bincount().tolist() == [10, 5, 1]
    assert sorted([*kept.x.flatten().tolist(), *held.x.flatten().tolist()]) == list(range(160))
    assert torch.equal(whole.split(0.1, seed=3)[1].x, held.x)
    assert not torch.equal(whole.split(0.1, seed=4)[1].x, held.x)


def test_split_keeps_samples_and_labels_together():
    whole = domain(np.arange(40.0)[:, None], np.arange(40) % 4, name="table")
    for part in whole.split(0.25, seed=0):
        assert part.y is not None
        assert torch.equal(part.x.flatten().long() % 4, part.y)


def test_split_without_labels_and_of_a_single_sample():
    kept, held = domain(np.zeros((20, 2)), name="table").split(0.25, seed=0)
    assert (len(kept), len(held)) == (15, 5)
    with pytest.raises(InputError, match="lonely has too few"):
        domain([[1.0]], name="lonely").split(0.1, seed=0)


BYTE, UNIT, SIGNED = RGB, (RGB / 255), (RGB / 127.5 - 1)


@pytest.mark.parametrize(
    ("source", "target", "remedy"),
    [
        (BYTE, UNIT, "divide drawings by 255"),
        (UNIT, BYTE, "divide photos by 255"),
        (BYTE.astype(np.float32), UNIT, "multiply photos by 255"),
        (BYTE, SIGNED, "divide drawings by 127.5"),
        (SIGNED, BYTE, "divide photos by 127.5"),
        (UNIT, SIGNED, "multiply drawings by 2"),
        (SIGNED, UNIT, "multiply photos by 2"),
    ],
)
def test_domains_in_different_ranges_are_refused(source, target, remedy):
    with pytest.raises(InputError, match=r"drawings is in .* and photos in") as caught:
        check_pair(pictures(source, "drawings", LABELS), pictures(target, "photos"))
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (np.zeros_like(RGB), "every value of photos is 0"),
        (RGB // 128, "255/1"),
        (GREY // 16 * 1.0, "255/15"),
        ((RGB / 255 - 0.45) / 0.225, "undo any normalisation"),
        (np.concatenate([RGB, RGB[..., :1]], axis=3), "3 channels and photos has 4"),
        (RNG.random((6, 5)), "photos vectors"),
    ],
)
def test_targets_that_do_not_fit_a_byte_source(target, says):
    with pytest.raises(InputError) as caught:
        check_pair(pictures(RGB, "drawings", LABELS), pictures(target, "photos"))
    assert says in str(caught.value)


def test_grey_and_colour_and_bytes_and_byte_floats_go_together():
    source = pictures(GREY, "drawings", LABELS)
    assert check_pair(source, pictures(RGB.astype(np.float32), "photos")) == 3


@pytest.mark.parametrize(
    ("source_y", "target_y", "classes", "says"),
    [
        (None, None, None, "drawings has no labels"),
        ([1] * 6, None, 2, "only samples of class 1"),
        ([1, 2, 3, 1, 2, 3], None, None, "none is 0"),
        (LABELS, None, 2, "drawings has the label 2"),
        (LABELS, [0, 1, 2, 3, 0, 0], None, "photos has the label 3"),
    ],
)
def test_labels_that_do_not_fit(source_y, target_y, classes, says):
    with pytest.raises(InputError, match=says):
        check_pair(pictures(RGB, "drawings", source_y), pictures(RGB, "photos", target_y), classes)


def test_vectors_must_share_features_and_unit():
    x = RNG.random((6, 5))
    source = domain(x * 255, LABELS, name="drawings")
    with pytest.raises(InputError, match="drawings has 5 features and photos has 4"):
        check_pair(source, domain(x[:, :4], name="photos"))
    with pytest.raises(InputError, match="drawings spread 255 times as wide as those of photos"):
        check_pair(source, domain(x, name="photos"))
    with pytest.raises(InputError, match="every value of photos is 0"):
        check_pair(source, domain(x * 0, name="photos"))
    assert check_pair(source, domain(x * 100 + 30, name="photos")) == 3
