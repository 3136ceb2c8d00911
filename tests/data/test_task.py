"""Tasks as the training loop receives them: checked, of one size, and with held-out parts."""

import numpy as np
import pytest
import torch

from vmt.data import domain, make_task
from vmt.data.task import hold_apart
from vmt.errors import InputError

RNG = np.random.default_rng(0)
LABELS = np.arange(40) % 4


def photos(side: int, channels: int, name: str, labels: object = LABELS, divide: float = 0):
    x = RNG.integers(0, 256, (40, side, side, channels), dtype=np.uint8)
    x[0, 0, 0], x[0, 0, 1] = 0, 255
    return domain(x / divide if divide else x, labels, name=name)


def bilinear(image: np.ndarray, size: int) -> np.ndarray:
    """Half-pixel-centred bilinear resizing, restated: between clamped neighbours along each axis."""
    centres = (np.arange(size) + 0.5) * image.shape[-1] / size - 0.5
    low = np.floor(centres).astype(int)
    weight = centres - low
    last = image.shape[-1] - 1
    left, right = np.clip(low, 0, last), np.clip(low + 1, 0, last)
    rows = image[..., left, :] * (1 - weight)[:, None] + image[..., right, :] * weight[:, None]
    return rows[..., left] * (1 - weight) + rows[..., right] * weight


def test_the_smaller_domain_is_enlarged_bilinearly_in_float():
    source, target = photos(28, 1, "drawings"), photos(32, 3, "photos")
    task = make_task(source, target, source_test=source)
    assert task.source.x.dtype == torch.float32
    assert task.target.x.dtype == torch.uint8
    np.testing.assert_allclose(task.source.x.numpy(), bilinear(source.x.numpy().astype(float), 32), atol=1e-3)
    assert task.source_test is not None
    assert torch.equal(task.source_test.x, task.source.x)
    assert task.preprocess(task.source.x).shape == (40, 3, 32, 32)


def test_a_tenth_of_the_source_is_held_out():
    source = photos(8, 1, "drawings")
    task = make_task(source, photos(8, 1, "photos", None))
    assert (len(task.source), len(task.source_test), task.target_test) == (36, 4, None)
    held = {row.numpy().tobytes() for row in task.source_test.x}
    assert held.isdisjoint(row.numpy().tobytes() for row in task.source.x)
    assert task.source_test.y.sort().values.tolist() == [0, 1, 2, 3]
    assert task.classes == ("0", "1", "2", "3")


def test_class_names_or_their_number():
    source, target = photos(8, 1, "drawings"), photos(8, 1, "photos")
    assert make_task(source, target, classes=("a", "b", "c", "d")).classes == ("a", "b", "c", "d")
    assert len(make_task(source, target, classes=7).classes) == 7
    for bad in (["a", "a"], 1, ["a"]):
        with pytest.raises(InputError, match="classes="):
            make_task(source, target, classes=bad)
    with pytest.raises(InputError, match="drawings has the label 3"):
        make_task(source, target, classes=["a", "b", "c"])


@pytest.mark.parametrize(
    ("held_out", "says"),
    [
        (photos(8, 1, "exam", None), "exam has no labels"),
        (photos(8, 1, "exam", LABELS + 1), "exam has the label 4"),
        (photos(8, 1, "exam", divide=255), "exam is in 0–1 and photos in 0–255"),
        (photos(8, 3, "exam"), "exam is in colour"),
        (photos(8, 4, "exam"), "exam has 4 channels"),
    ],
)
def test_held_out_parts_are_checked_too(held_out, says):
    with pytest.raises(InputError, match=says):
        make_task(photos(8, 1, "drawings"), photos(8, 1, "photos"), target_test=held_out)


def test_samples_held_apart_for_choices_are_neither_trained_on_nor_reported():
    source, target = photos(8, 1, "drawings"), photos(8, 1, "photos")
    task = make_task(source, target, target_test=target)
    apart = hold_apart(task, 10)
    assert apart.target_choice is not None
    assert apart.target_test is not None
    parts = [{row.numpy().tobytes() for row in part.x} for part in (apart.target, apart.target_choice)]
    assert [len(part) for part in parts] == [30, 10]
    assert parts[0] | parts[1] == {row.numpy().tobytes() for row in task.target.x}
    assert torch.equal(apart.target_test.x, apart.target.x), "the accuracy was measured on the target itself"
    assert torch.equal(hold_apart(task, 10).target_choice.x, apart.target_choice.x), "the same ones in every run"


@pytest.mark.parametrize("count", [0, 39, 1000])
def test_too_many_or_no_samples_to_choose_on_are_refused(count):
    target = photos(8, 1, "photos")
    with pytest.raises(InputError, match="photos"):
        hold_apart(make_task(photos(8, 1, "drawings"), target), count)


def test_choosing_needs_target_labels():
    unlabelled = photos(8, 1, "photos", labels=None)
    with pytest.raises(InputError, match="photos"):
        hold_apart(make_task(photos(8, 1, "drawings"), unlabelled), 5)
