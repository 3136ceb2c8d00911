"""Tasks as the training loop receives them: checked, of one size, and mapped to what the network sees."""

import json

import numpy as np
import pytest
import torch

from vmt.data import Preprocess, domain, make_task, preprocess_for
from vmt.data.preprocess import VALUES_AT_ONCE as VALUES
from vmt.data.preprocess import moments
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


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(0, 255, np.uint8), (0, 255, np.float32), (0, 1, np.float32), (-1, 1, np.float32)],
)
def test_every_image_range_is_mapped_to_minus_one_and_one(low, high, dtype):
    x = np.full((2, 8, 8), low, dtype)
    x[:, 4:] = high
    images = domain(x, name="photos")
    out = preprocess_for(images, images)(images.x)
    assert out.dtype == torch.float32
    assert out[:, :, :4].unique().tolist() == pytest.approx([-1])
    assert out[:, :, 4:].unique().tolist() == pytest.approx([1])
    assert int(images.x.max()) == high  # the stored values are left alone


def test_grey_is_tiled_beside_colour():
    source, target = photos(8, 1, "drawings"), photos(8, 3, "photos")
    preprocess = preprocess_for(source, target)
    out = preprocess(source.x)
    assert out.shape == (40, 3, 8, 8)
    assert torch.equal(out[:, 0], out[:, 2])
    assert preprocess_for(source, source)(source.x).shape == (40, 1, 8, 8)


def test_vectors_are_standardised_over_both_domains():
    a, b = RNG.normal(5, 3, (30, 4)), RNG.normal(9, 2, (50, 4))
    a[:, 2] = b[:, 2] = 0.1
    source, target = domain(a, name="a"), domain(b, name="b")
    preprocess = preprocess_for(source, target)
    out = torch.cat([preprocess(source.x), preprocess(target.x)]).double()
    torch.testing.assert_close(out.mean(0), torch.zeros(4).double(), atol=1e-5, rtol=0)
    spread = torch.tensor([1, 1, 0, 1]).double()
    torch.testing.assert_close(out.std(0, correction=0), spread, atol=1e-5, rtol=0)
    assert preprocess.scale[2] == 1


@pytest.mark.parametrize("unit", [1e-13, 1e-30])
def test_vectors_in_a_small_unit_are_no_constants(unit: float):
    a, b = domain(unit * RNG.normal(1, 1, (30, 2)), name="a"), domain(unit * RNG.normal(0, 1, (30, 2)), name="b")
    out = preprocess_for(a, b)(torch.cat([a.x, b.x])).double()
    torch.testing.assert_close(out.std(0, correction=0), torch.ones(2).double(), atol=1e-5, rtol=0)


def test_vectors_too_small_to_scale_stay_finite():
    tiny = domain(1e-41 * RNG.normal(0, 1, (30, 2)), name="tiny")
    assert preprocess_for(tiny, tiny)(tiny.x).isfinite().all()


def test_moments_in_slices_are_those_of_everything_at_once():
    width, far = 1000, 1e6
    arrays = RNG.normal(far, 1, (1300, width)), RNG.normal(far, 3, (900, width)).astype(np.float32)
    arrays[0][:, 0] = arrays[1][:, 0] = np.float32(0.1)  # a constant
    assert len(arrays[0]) > 2 * (VALUES // width)  # rows of a slice
    mean, std = moments(arrays[0], torch.from_numpy(arrays[1]))
    whole = torch.cat([torch.from_numpy(array).double() for array in arrays])
    torch.testing.assert_close(mean, whole.mean(0), atol=0, rtol=1e-14)
    torch.testing.assert_close(std, whole.std(0, correction=0), atol=1e-14, rtol=1e-10)


def test_vector_constants_first_used_in_inference_mode_serve_training_too():
    vectors = domain(RNG.normal(0, 7, (10, 3)), name="table")
    preprocess = preprocess_for(vectors, vectors)
    with torch.inference_mode():
        preprocess(vectors.x)
    x = vectors.x.clone().requires_grad_()
    preprocess(x).sum().backward()
    torch.testing.assert_close(x.grad[0], torch.tensor(preprocess.scale))


def test_preprocess_survives_json():
    vectors = domain(RNG.random((10, 3)), name="table")
    images = photos(8, 3, "photos")
    for preprocess in (preprocess_for(vectors, vectors), preprocess_for(images, images)):
        assert Preprocess.from_dict(json.loads(json.dumps(preprocess.to_dict()))) == preprocess
    with pytest.raises(InputError, match="channels, size, scale and shift"):
        Preprocess.from_dict({"channels": 3})


@pytest.mark.parametrize("shape", [(2, 3, 9, 8), (2, 4, 8, 8), (2, 3), (3, 8, 8)])
def test_samples_the_network_was_not_made_for_are_refused(shape):
    images = photos(8, 3, "photos")
    with pytest.raises(InputError, match=r"expects samples of shape \(N, 3, 8, 8\)"):
        preprocess_for(images, images)(torch.zeros(shape))


def test_the_smaller_domain_is_enlarged_bilinearly_in_float():
    source, target = photos(28, 1, "drawings"), photos(32, 3, "photos")
    task = make_task(source, target, source_test=source)
    assert task.source.x.dtype == torch.float32
    assert task.target.x.dtype == torch.uint8
    np.testing.assert_allclose(task.source.x.numpy(), bilinear(source.x.numpy().astype(float), 32), atol=1e-3)
    assert task.source_test is not None
    assert torch.equal(task.source_test.x, task.source.x)
    assert task.preprocess(task.source.x).shape == (40, 3, 32, 32)


def test_fit_shrinks_with_antialiasing():
    stripes = torch.zeros(1, 1, 32, 32)
    stripes[..., ::2] = 255
    shrunk = Preprocess(1, (8, 8), (1.0,), (0.0,)).fit(stripes)
    torch.testing.assert_close(shrunk[..., 1:-1], torch.full((1, 1, 8, 6), 127.5), atol=2, rtol=0)


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
