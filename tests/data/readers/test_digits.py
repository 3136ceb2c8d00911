"""MNIST, SVHN, Synthetic Digits and USPS in their publishers' formats, intact and damaged."""

import bz2
import gzip
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from tests import benchmark_files as files
from tests.benchmark_files import error_names, idx
from vmt.data import read_mnist, read_svhn, read_syn, read_usps
from vmt.errors import InputError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 28, 28), dtype=np.uint8)
LABELS = (np.arange(20) % 10).astype(np.uint8)
STREET = RNG.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)


def write_mnist(folder: Path, images: bytes = b"", labels: bytes = b"") -> Path:
    (folder / "train-images-idx3-ubyte.gz").write_bytes(images or gzip.compress(idx(IMAGES)))
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(labels or gzip.compress(idx(LABELS)))
    return folder


def write_svhn(folder: Path, **changes: object) -> Path:
    labels = np.where(LABELS == 0, 10, LABELS)[:, None].astype(np.uint8)
    variables = {"X": STREET.transpose(1, 2, 3, 0), "y": labels} | changes
    path = folder / "train_32x32.mat"
    savemat(path, {key: value for key, value in variables.items() if value is not None})
    return path


def test_mnist_gzipped_plain_and_unpacked_under_the_gz_name(tmp_path):
    write_mnist(tmp_path, labels=idx(LABELS))
    x, y = read_mnist(tmp_path, "train")
    np.testing.assert_array_equal(x, IMAGES)
    np.testing.assert_array_equal(y, LABELS)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(IMAGES[:3]))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(LABELS[:3]))
    np.testing.assert_array_equal(read_mnist(tmp_path, "test")[0], IMAGES[:3])


PACKED = gzip.compress(idx(IMAGES))
# Functions, because gzip stores the time, and one of the contents is large.
DAMAGED = {
    "cut short": (lambda: PACKED[: len(PACKED) // 2], "truncated"),
    "overwritten": (lambda: PACKED[:200] + b"\0" * 50 + PACKED[250:], "damaged"),
    "a byte short": (lambda: gzip.compress(idx(IMAGES)[:-1]), "announces"),
    "without a header": (lambda: gzip.compress(idx(IMAGES)[:7]), "truncated"),
    "two dimensions": (lambda: gzip.compress(idx(IMAGES[:, 0])), "2050"),
    "a page": (lambda: b"<html>not found</html>", "magic"),
    "a bomb": (lambda: gzip.compress(bytes(2**28 + 1), 1), "more than 256 MiB"),
    "27 rows": (lambda: gzip.compress(idx(IMAGES[:, :27])), "(20, 27, 28)"),
}


@pytest.mark.parametrize(("images", "says"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_mnist_images(tmp_path, images, says):
    write_mnist(tmp_path, images=images())
    with pytest.raises(InputError) as caught:
        read_mnist(tmp_path, "train")
    error_names(caught, tmp_path / "train-images-idx3-ubyte.gz", says)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (LABELS[:-1], "19 labels for the 20 images"),
        (LABELS + 1, "label 10"),
        (IMAGES, "2051"),
    ],
)
def test_wrong_mnist_labels(tmp_path, labels, says):
    write_mnist(tmp_path, labels=gzip.compress(idx(labels)))
    with pytest.raises(InputError) as caught:
        read_mnist(tmp_path, "train")
    error_names(caught, tmp_path / "train-labels-idx1-ubyte.gz", says)


@pytest.mark.parametrize("compressed", [False, True])
def test_svhn_label_ten_is_the_digit_zero(tmp_path, compressed):
    path = write_svhn(tmp_path)
    if compressed:
        from scipy.io import loadmat

        savemat(path, {k: v for k, v in loadmat(path).items() if k in "Xy"}, do_compression=True)
    x, y = read_svhn(tmp_path, "train")
    np.testing.assert_array_equal(x, STREET)
    np.testing.assert_array_equal(y, LABELS)


@pytest.mark.parametrize("kept", [0, 100, 200, 30_000, 61_500])
def test_truncated_svhn(tmp_path, kept):
    path = write_svhn(tmp_path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError) as caught:
        read_svhn(tmp_path, "train")
    error_names(caught, path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"X": None}, "no variable X"),
        ({"y": None}, "no variable y"),
        ({"y": LABELS[:, None]}, "outside 1–10"),
        ({"y": LABELS[:, None] + 5}, "outside 1–10"),
        ({"y": np.full((20, 1), 2.5)}, "outside 1–10"),
        ({"y": LABELS[:5, None] + 1}, "5 labels for 20 images"),
        ({"X": STREET}, "(20, 32, 32, 3)"),
        ({"X": STREET.transpose(1, 2, 3, 0) / 255}, "float64"),
    ],
)
def test_wrong_svhn(tmp_path, changes, says):
    path = write_svhn(tmp_path, **changes)
    with pytest.raises(InputError) as caught:
        read_svhn(tmp_path, "train")
    error_names(caught, path, says)


@pytest.mark.parametrize(("read", "name"), [(read_mnist, "train-images-idx3-ubyte"), (read_svhn, "train_32x32.mat")])
def test_a_missing_file_is_named_with_the_command_that_gets_it(tmp_path, read, name):
    with pytest.raises(InputError, match="vmt data download") as caught:
        read(tmp_path / "absent", "train")
    error_names(caught, tmp_path / "absent" / name)


def test_usps_values_become_bytes_and_labels_start_from_zero(tmp_path):
    files.write_usps(tmp_path)
    x, y = read_usps(tmp_path / "usps", "test")
    np.testing.assert_array_equal(x.reshape(20, -1), files.images(20, 256))
    np.testing.assert_array_equal(y, files.labels(20))


USPS = files.usps_text(files.images(3, 256), files.labels(3))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (bz2.compress(USPS)[:-20], "truncated"),
        (USPS, "not a bzip2"),
        (bz2.compress(b""), "is empty"),
        (bz2.compress(USPS[:-30]), "256 values per digit"),
        (bz2.compress(b"<html></html>"), "256 values per digit"),
        (bz2.compress(USPS.replace(b" 7:", b" 8:")), "1 to 256"),
        (bz2.compress(USPS.replace(b":-0", b":-3")), "−1 to 1"),
        (bz2.compress(files.usps_text(files.images(3, 256), np.array([1, 2, 10]))), "labels outside 1–10"),
    ],
)
def test_damaged_usps(tmp_path, content, says):
    files.write_usps(tmp_path)
    path = tmp_path / "usps" / "usps.bz2"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_usps(tmp_path / "usps", "train")
    error_names(caught, path, says)


def test_syn_numbers_its_digits_from_zero(tmp_path):
    files.write_syn(tmp_path)
    x, y = read_syn(tmp_path / "syn", "train")
    np.testing.assert_array_equal(x, files.images(32, 32, 3, 40).transpose(3, 0, 1, 2))
    np.testing.assert_array_equal(y, files.labels(40))
    files.write_cropped(tmp_path / "syn" / "synth_test_32x32.mat", 20, first=1)
    with pytest.raises(InputError, match="labels outside 0–9"):
        read_syn(tmp_path / "syn", "test")
