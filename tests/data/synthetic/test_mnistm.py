"""MNIST-M as it is built: by its definition, the same for everyone, and never half written."""

import hashlib
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import benchmark_files as files
from vmt.data import build_mnistm, load_task, read_mnist, read_mnistm
from vmt.data.synthetic.mnistm import crops, photographs_checksum, read_photographs
from vmt.errors import InputError


@pytest.fixture
def data(tmp_path: Path) -> Path:
    files.write_mnist(tmp_path)
    files.write_photographs(tmp_path)
    return tmp_path


def test_every_pixel_is_the_difference_of_crop_and_binary_digit(data):
    build_mnistm(data)
    digits, labels = read_mnist(data / "mnist", "train")
    x, y = read_mnistm(data / "mnistm", "train")
    photographs = read_photographs(data / "bsds500")
    np.testing.assert_array_equal(y, labels)
    for i, (k, top, left) in enumerate(crops(photographs, len(digits), 0, "train")):
        crop = photographs[k][top : top + 28, left : left + 28].astype(int)
        binary = 255 * (digits[i] > 0).astype(int)
        np.testing.assert_array_equal(x[i], np.abs(crop - binary[..., None]).transpose(2, 0, 1))


PINNED = [[127, 79, 18], [3, 239, 414], [121, 214, 246]]


def test_the_draws_are_pinned():
    """They are part of what everyone's MNIST-M has in common: a change here is another data set."""
    photographs = [np.zeros((321, 481, 3), np.uint8)] * 200
    drawn = crops(photographs, 60_000, 0, "train")
    assert drawn[:3].tolist() == PINNED
    assert drawn.min(axis=0).tolist() == [0, 0, 0]
    assert drawn.max(axis=0).tolist() == [199, 293, 453]
    assert crops(photographs, 3, 0, "test").tolist() != PINNED
    assert crops(photographs, 3, 1, "train").tolist() != PINNED
    np.testing.assert_array_equal(crops(photographs, 10, 0, "train"), drawn[:10])


def test_builds_are_identical_and_not_repeated(data):
    first = build_mnistm(data)
    second = build_mnistm(data, data / "again")
    for split in ("train", "test"):
        assert first.files[split].read_bytes() == second.files[split].read_bytes()
        pixels = read_mnistm(data / "mnistm", split)[0].tobytes()
        assert first.made[split]["sha256"] == hashlib.sha256(pixels).hexdigest()
    before = first.files["train"].stat().st_mtime_ns
    assert build_mnistm(data).made == first.made
    assert first.files["train"].stat().st_mtime_ns == before
    with pytest.raises(InputError, match=r"train.npz .*settings"):
        build_mnistm(data, seed=1)


def test_other_photographs_than_the_published_ones_bring_a_warning(data):
    assert str(data / "bsds500") in build_mnistm(data).warning


def test_the_task_at_32_pixels(data):
    build_mnistm(data)
    task = load_task("mnist-mnistm", data)
    assert task.source.x.shape == (40, 1, 32, 32)
    assert task.target.x.shape == (40, 3, 32, 32)
    assert task.target_test.name == "MNIST-M test"


def test_photographs_are_found_in_the_official_archive(data):
    before = read_photographs(data / "bsds500")
    inside = "BSR/BSDS500/data/images"
    with tarfile.open(data / "bsds500" / "BSR_bsds500.tgz", "w:gz") as archive:
        for i in range(3):
            archive.add(data / "bsds500" / f"{i}.jpg", f"{inside}/train/{i}.jpg")
            archive.add(data / "bsds500" / f"{i}.jpg", f"{inside}/test/9{i}.jpg")
        archive.add(data / "mnist" / "train-labels-idx1-ubyte.gz", f"{inside}/train/._0.jpg")
    for i in range(3):
        (data / "bsds500" / f"{i}.jpg").unlink()
    after = read_photographs(data / "bsds500")
    assert photographs_checksum(after) == photographs_checksum(before)


def test_no_photographs_or_unusable_ones(data):
    (data / "bsds500" / "small.jpg").touch()
    with pytest.raises(InputError, match=r"small.jpg"):
        build_mnistm(data)
    Image.new("RGB", (27, 90)).save(data / "bsds500" / "small.jpg")
    with pytest.raises(InputError, match=r"small.jpg .*28×28"):
        build_mnistm(data)
    for path in (data / "bsds500").iterdir():
        path.unlink()
    with pytest.raises(InputError, match=r"bsds500 .*vmt data download bsds500"):
        build_mnistm(data)


def test_a_build_that_fails_leaves_nothing(data):
    (data / "mnistm").touch()
    with pytest.raises(InputError, match="cannot be written"):
        build_mnistm(data)

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_mnistm(data, data / "out", tick=stop)
    assert not list((data / "out").iterdir())


@pytest.mark.parametrize("fault", ["truncated", "foreign", "labels"])
def test_damaged_set(data, fault):
    build_mnistm(data)
    path = data / "mnistm" / "train.npz"
    if fault == "truncated":
        path.write_bytes(path.read_bytes()[:1000])
    elif fault == "foreign":
        np.savez(path, x=files.images(3, 3, 28, 28), y=files.labels(3))
    else:
        with np.load(path) as archive:
            arrays = dict(archive)
        np.savez(path, **arrays | {"y": arrays["y"] + 1})
    with pytest.raises(InputError, match=r"train.npz .*vmt data build mnistm"):
        read_mnistm(data / "mnistm", "train")


@pytest.mark.skipif("VMT_DATA" not in os.environ, reason="VMT_DATA does not name a folder with the real files")
def test_the_real_set_has_the_published_checksums(tmp_path):
    built = build_mnistm(Path(os.environ["VMT_DATA"]), tmp_path)
    assert built.warning == ""
    assert built.made["train"]["sha256"] == "1084f9fee582c1c40b48f94936e5cfab8597290f69aac710243a9ac0f2d323d0"
    assert built.made["test"]["sha256"] == "ad9127b3ebc796a0f09d69a98797ce4c9ce315cbab5409a4056f69bb8972d87e"
