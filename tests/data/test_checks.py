"""Pairs of domains that belong together, and the errors for all others."""

import numpy as np
import pytest

from vmt.data import Domain, check_pair, domain
from vmt.data.task import make_task, near_constant_features
from vmt.errors import InputError
from vmt.runs.spec import warnings_about

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (6, 8, 9), dtype=np.uint8)
RGB = RNG.integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 0, 1, 2]
BYTE, UNIT, SIGNED = RGB, (RGB / 255), (RGB / 127.5 - 1)


def pictures(values: np.ndarray, name: str, y: object = None) -> Domain:
    return domain(values, y, name=name)


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
        ([1, 2, 3, 1, 2, 3], None, None, "numbers from 1"),
        ([0, 2, 3, 0, 2, 3], None, None, "none is 1"),
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


def test_features_that_hardly_vary_in_the_source() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 4))
    xs, xt = x[:200].copy(), x[200:].copy()
    xs[:, 1] *= 1e-3
    xs[:, 2], xt[:, 2] = np.arange(200) < 3, np.arange(200) < 80  # a mark that is almost never set
    xs[:, 3] = xt[:, 3] = 5  # constant in both, which does no harm
    names = ("height", "narrow", "mark", "constant")
    y = np.arange(200) % 2
    task = make_task(domain(xs, y, name="s", features=names), domain(xt, name="t", features=names))
    assert near_constant_features(task) == ["the column 'narrow'", "the column 'mark'"]
    (sentence,) = warnings_about(task)
    assert "'mark'" in sentence
