"""NumPy files: .npz archives with and without labels, damaged ones, and arrays read a portion at a time."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmark_files import error_names
from vmt.data import read_npz
from vmt.data.files.numpy_files import iterate_rows
from vmt.errors import InputError

STREET = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
LABELS = (np.arange(20) % 10).astype(np.uint8)


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
    error_names(caught, path, says)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["npy", "npz", "compressed"])
def test_arrays_row_by_row(tmp_path: Path, order: Any, kind: str) -> None:
    x = np.asarray(np.random.default_rng(0).normal(size=(9001, 3)), ">f4", order=order)
    path = tmp_path / ("x.npy" if kind == "npy" else "x.npz")
    if kind == "npy":
        np.save(path, x)
    else:
        (np.savez if kind == "npz" else np.savez_compressed)(path, y=np.arange(3), x=x)
    np.testing.assert_array_equal(np.concatenate(list(iterate_rows(path))), x)


@pytest.mark.filterwarnings("ignore")
def test_damage_anywhere_in_an_archive_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros((4, 3), np.float32), y=np.arange(4))
    whole = path.read_bytes()
    output = []
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            read_npz(path)
        except InputError as error:
            output.append(str(error))
    assert len(output) > len(whole) // 2
    assert all(str(path) in sentence for sentence in output)
