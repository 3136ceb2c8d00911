"""Files in their publishers' formats, whole and damaged; the tests write both."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from vmt.data import read_mnist, read_npz, read_svhn
from vmt.errors import InputError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 28, 28), dtype=np.uint8)
LABELS = (np.arange(20) % 10).astype(np.uint8)
STREET = RNG.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


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


def sentence(caught: pytest.ExceptionInfo[InputError], *parts: object) -> None:
    for part in parts:
        assert str(part) in str(caught.value)
    assert str(caught.value).endswith(".")


def test_mnist_gzipped_plain_and_unpacked_under_the_gz_name(tmp_path):
    write_mnist(tmp_path, labels=idx(LABELS))
    x, y = read_mnist(tmp_path, "train")
    np.testing.assert_array_equal(x, IMAGES)
    np.testing.assert_array_equal(y, LABELS)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(IMAGES[:3]))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(LABELS[:3]))
    np.testing.assert_array_equal(read_mnist(tmp_path, "test")[0], IMAGES[:3])


PACKED = gzip.compress(idx(IMAGES))
# Made when they are needed, and named: what is packed differs by the second, and one of them is large.
DAMAGED = {
    "cut short": (lambda: PACKED[: len(PACKED) // 2], "truncated"),
    "overwritten": (lambda: PACKED[:200] + b"\0" * 50 + PACKED[250:], "damaged"),
    "a byte short": (lambda: gzip.compress(idx(IMAGES)[:-1]), "announces"),
    "without a header": (lambda: gzip.compress(idx(IMAGES)[:7]), "truncated"),
    "two dimensions": (lambda: gzip.compress(idx(IMAGES[:, 0])), "magic 2050, not 2051"),
    "a page": (lambda: b"<html>not found</html>", "magic"),
    "a bomb": (lambda: gzip.compress(bytes(2**28 + 1), 1), "more than 256 MiB"),
    "27 rows": (lambda: gzip.compress(idx(IMAGES[:, :27])), "(20, 27, 28)"),
}


@pytest.mark.parametrize(("images", "says"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_mnist_images(tmp_path, images, says):
    write_mnist(tmp_path, images=images())
    with pytest.raises(InputError) as caught:
        read_mnist(tmp_path, "train")
    sentence(caught, tmp_path / "train-images-idx3-ubyte.gz", says)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (LABELS[:-1], "19 labels for the 20 images"),
        (LABELS + 1, "label 10"),
        (IMAGES, "magic 2051, not 2049"),
    ],
)
def test_wrong_mnist_labels(tmp_path, labels, says):
    write_mnist(tmp_path, labels=gzip.compress(idx(labels)))
    with pytest.raises(InputError) as caught:
        read_mnist(tmp_path, "train")
    sentence(caught, tmp_path / "train-labels-idx1-ubyte.gz", says)


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
    sentence(caught, path, "fetch it again")


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
    sentence(caught, path, says)


@pytest.mark.parametrize(("read", "name"), [(read_mnist, "train-images-idx3-ubyte"), (read_svhn, "train_32x32.mat")])
def test_missing_benchmark_file_says_where_it_belongs(tmp_path, read, name):
    with pytest.raises(InputError, match="into the folder") as caught:
        read(tmp_path / "absent", "train")
    sentence(caught, tmp_path / "absent" / name)


def test_npz_with_and_without_labels(tmp_path):
    np.savez_compressed(tmp_path / "both.npz", x=STREET, y=LABELS)
    np.savez(tmp_path / "one.npz", x=STREET, other=1)
    x, y = read_npz(tmp_path / "both.npz")
    np.testing.assert_array_equal(x, STREET)
    assert y is not None
    np.testing.assert_array_equal(y, LABELS)
    assert read_npz(tmp_path / "one.npz")[1] is None


def write_bad_npz(path: Path, fault: str) -> None:
    if fault == "folder":
        path.mkdir()
    elif fault == "bare array":
        with path.open("wb") as file:
            np.save(file, STREET)
    elif fault == "text":
        path.write_text("x,y\n1,2\n")
    elif fault == "objects":
        np.savez(path, x=np.array([{"a": 1}, None], dtype=object))
    elif fault == "no x":
        np.savez(path, images=STREET, labels=LABELS)
    elif fault == "truncated":
        np.savez(path, x=STREET)
        path.write_bytes(path.read_bytes()[:5000])
    elif fault == "damaged":
        np.savez_compressed(path, x=STREET)
        content = bytearray(path.read_bytes())
        content[5000:5100] = b"\0" * 100
        path.write_bytes(content)
    elif fault == "empty":
        path.touch()


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("missing", "does not exist"),
        ("folder", "is a folder"),
        ("bare array", "not a readable .npz"),
        ("text", "not a readable .npz"),
        ("objects", "Python objects: save names as y=names.astype(str)"),
        ("no x", "it holds: images, labels"),
        ("truncated", "not a readable .npz"),
        ("damaged", "not a readable .npz"),
        ("empty", "not a readable .npz"),
    ],
)
def test_unusable_npz(tmp_path, fault, says):
    path = tmp_path / "mine.npz"
    write_bad_npz(path, fault)
    with pytest.raises(InputError) as caught:
        read_npz(path)
    sentence(caught, path, says)
