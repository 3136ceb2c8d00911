"""The map from stored values to what the network sees."""

import json

import numpy as np
import pytest
import torch

from vmt.data import Domain, Preprocess, domain, preprocess_for
from vmt.data.preprocess import VALUES_AT_ONCE as VALUES
from vmt.data.preprocess import moments
from vmt.errors import InputError

RNG = np.random.default_rng(0)


def photos(side: int, channels: int, name: str) -> Domain:
    x = RNG.integers(0, 256, (40, side, side, channels), dtype=np.uint8)
    x[0, 0, 0], x[0, 0, 1] = 0, 255
    return domain(x, name=name)


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
    assert int(images.x.max()) == high  # the stored values are not changed


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
def test_vectors_in_a_small_unit_are_not_constants(unit: float):
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


def test_constants_made_in_inference_mode_can_be_used_in_training():
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
    with pytest.raises(InputError, match="channels"):
        Preprocess.from_dict({"channels": 3})


@pytest.mark.parametrize("shape", [(2, 3, 9, 8), (2, 4, 8, 8), (2, 3), (3, 8, 8)])
def test_samples_of_another_shape_are_refused(shape):
    images = photos(8, 3, "photos")
    with pytest.raises(InputError, match=r"\(N, 3, 8, 8\)"):
        preprocess_for(images, images)(torch.zeros(shape))


def test_fit_shrinks_with_antialiasing():
    stripes = torch.zeros(1, 1, 32, 32)
    stripes[..., ::2] = 255
    shrunk = Preprocess(1, (8, 8), (1.0,), (0.0,)).fit(stripes)
    torch.testing.assert_close(shrunk[..., 1:-1], torch.full((1, 1, 8, 6), 127.5), atol=2, rtol=0)
