"""CIFAR-10 and STL-10 in their publishers' formats, intact, damaged and malicious; and the classes that they share."""

import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tests import benchmark_files as files
from tests.benchmark_files import error_names
from vmt.data import load_task, read_cifar10, read_stl10
from vmt.data.readers.photographs import NINE, STL_CLASSES, shared_classes
from vmt.errors import InputError


def test_cifar10_batches_in_their_order(tmp_path):
    files.write_cifar10(tmp_path)
    x, y = read_cifar10(tmp_path / "cifar10", "train")
    assert x.shape == (100, 3, 32, 32)
    np.testing.assert_array_equal(x[20:40].reshape(20, -1), files.images(20, 3072, seed=2))
    np.testing.assert_array_equal(y[:20], files.labels(20))
    assert read_cifar10(tmp_path / "cifar10", "test")[0].shape == (20, 3, 32, 32)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_cifar10_of_any_pickle_protocol(tmp_path, protocol):
    folder = files.write_cifar10(tmp_path)
    turned = np.asfortranarray(files.images(20, 3072))
    (folder / "test_batch").write_bytes(pickle.dumps(files.cifar_batch(20, data=turned), protocol=protocol))
    x, _ = read_cifar10(tmp_path / "cifar10", "test")
    np.testing.assert_array_equal(x.reshape(20, -1), files.images(20, 3072))


def test_cifar10_as_python_2_wrote_it(tmp_path):
    """The official batches: names of an older NumPy, byte strings everywhere."""
    folder = files.write_cifar10(tmp_path)
    pixels = files.images(2, 3072).tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntU\x01btR(I1\n(I2\nI3072\nt"
        b"cnumpy\ndtype\n(U\x02u1I0\nI1\ntR(I3\nU\x01|NNNI-1\nI-1\nI0\ntbI00\nT"
        + len(pixels).to_bytes(4, "little")
        + pixels
        + b"tb"
    )
    batch = b"\x80\x02}(U\x04data" + array + b"U\x06labels](I7\nI3\neU\x09filenames](U\x05a.pngU\x05b.pngeu."
    (folder / "test_batch").write_bytes(batch)
    x, y = read_cifar10(tmp_path / "cifar10", "test")
    assert x.tobytes() == pixels
    assert y.tolist() == [7, 3]


def test_cifar10_is_unpacked_from_its_archive(tmp_path):
    folder = files.write_cifar10(tmp_path / "elsewhere")
    target = tmp_path / "cifar10"
    target.mkdir()
    with tarfile.open(target / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(folder, "cifar-10-batches-py")
    assert len(read_cifar10(target, "train")[0]) == 100
    assert sorted(path.name for path in target.iterdir()) == ["cifar-10-batches-py", "cifar-10-python.tar.gz"]


class Attack:
    """Pickles as a call of a function with arguments."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("attack", "named"),
    [
        (Attack(Path.touch, Path("executed")), "names "),
        (Attack(exec, "open('executed', 'w')"), ".exec,"),
        (Attack(eval, "open('executed', 'w')"), ".eval,"),
        (Attack(np.load, "executed"), "numpy"),
        (Attack(np.ndarray, (10**15,)), "in an unknown way"),
        (Attack(np.dtype, "O"), "'O'"),
        (np.array([{}], dtype=object), "'O8'"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_malicious_batch_is_refused_and_not_run(tmp_path, monkeypatch, attack, named, protocol):
    monkeypatch.chdir(tmp_path)
    folder = files.write_cifar10(tmp_path)
    (folder / "test_batch").write_bytes(pickle.dumps(files.cifar_batch(20, extra=attack), protocol=protocol))
    with pytest.raises(InputError) as caught:
        read_cifar10(tmp_path / "cifar10", "test")
    error_names(caught, folder / "test_batch", "pickle", named, "vmt data download cifar10")
    assert not Path("executed").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x80\x02c_codecs\nencode\nN}U\x0c__defaults__U\x03abc\x85s\x86b.", "modifies"),
        (b"\x80\x02cnumpy\ndtype\nN}U\x05orderU\x01xs\x86b.", "modifies"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "more memory"),
        (b"\x80\x02" + b"}U\x01a" * 5000 + b"N" + b"s" * 5000 + b".", "rows of 3072 bytes"),
        (b"\x80\x02B\xff\xff\xff\x7fshort.", "truncated"),
    ],
    ids=["patched function", "patched class", "memory", "depth", "length"],
)
def test_subtler_attacks_with_a_pickle(tmp_path, content, says):
    folder = files.write_cifar10(tmp_path)
    (folder / "test_batch").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_cifar10(tmp_path / "cifar10", "test")
    error_names(caught, folder / "test_batch", says)
    (folder / "test_batch").write_bytes(WHOLE)
    assert len(read_cifar10(tmp_path / "cifar10", "test")[0]) == 20, "the next file is read as usual"


WHOLE = pickle.dumps(files.cifar_batch(20), protocol=2)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "truncated"),
        (WHOLE[:30_000], "truncated"),
        (b"<html>not found</html>", "not a pickle"),
        (pickle.dumps([1, 2, 3]), "not a batch of CIFAR-10"),
        (pickle.dumps(files.cifar_batch(20, data=files.images(20, 3071))), "rows of 3072 bytes"),
        (pickle.dumps(files.cifar_batch(20, data=np.zeros((20, 3072)))), "rows of 3072 bytes"),
        (pickle.dumps(files.cifar_batch(20, labels=[10] * 20)), "from 0 to 9"),
        (pickle.dumps(files.cifar_batch(20, labels=["cat"] * 20)), "from 0 to 9"),
        (pickle.dumps(files.cifar_batch(20, labels=[1] * 19)), "19 labels for 20 images"),
    ],
)
def test_damaged_cifar10(tmp_path, content, says):
    folder = files.write_cifar10(tmp_path)
    (folder / "test_batch").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_cifar10(tmp_path / "cifar10", "test")
    error_names(caught, folder / "test_batch", says)


def test_stl10_is_turned_and_shrunk_by_the_mean_of_nine(tmp_path):
    folder = files.write_stl10(tmp_path)
    samples = read_stl10(tmp_path / "stl10", "train")
    stored = np.fromfile(folder / "train_X.bin", np.uint8).reshape(-1, 3, 96, 96)
    small = stored.reshape(-1, 3, 32, 3, 32, 3).mean((3, 5))  # stored as channel, column, row
    np.testing.assert_array_equal(samples.images, np.rint(small).transpose(0, 1, 3, 2))
    assert samples.split == "train"
    np.testing.assert_array_equal(samples.labels, files.labels(40))
    assert len(read_stl10(tmp_path / "stl10", "test").images) == 20


def test_a_small_copy_of_stl10_has_no_test_split_and_says_so(tmp_path):
    path = files.write_small_stl10(tmp_path)
    files.write_cifar10(tmp_path)
    samples = read_stl10(path.parent, "test")
    assert samples.split == "train"
    np.testing.assert_array_equal(samples.images, files.images(40, 32, 32, 3).transpose(0, 3, 1, 2))
    task = load_task("cifar-stl", tmp_path)
    assert task.target_test.name == "STL-10 train (this copy has no test split)"
    assert len(task.target_test) == 36


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("train_X.bin", b"", "truncated"),
        ("train_X.bin", b"\1" * (27648 * 40 - 1), "truncated"),
        ("train_y.bin", b"\1" * 39, "39 labels for 40 images"),
        ("train_y.bin", b"\0" * 40, "labels outside 1–10"),
        ("train_y.bin", b"\x0b" * 40, "labels outside 1–10"),
        ("train_y.bin", None, "does not exist"),
    ],
)
def test_damaged_stl10(tmp_path, name, content, says):
    path = files.write_stl10(tmp_path) / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_stl10(tmp_path / "stl10", "train")
    error_names(caught, path, says)


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": files.images(4, 32, 32, 3)},
        {"x_train": files.images(4, 32, 32), "y_train": files.labels(4)},
        {"x_train": files.images(4, 32, 32, 3), "y_train": files.labels(4) + 9},
        {"x_train": np.array([{}], dtype=object), "y_train": files.labels(1)},
    ],
)
def test_damaged_small_copy_of_stl10(tmp_path, arrays):
    path = files.write_small_stl10(tmp_path)
    np.savez(path, **arrays)
    with pytest.raises(InputError) as caught:
        read_stl10(path.parent, "train")
    error_names(caught, path)


def test_the_nine_classes_by_name():
    names = [STL_CLASSES[label] for label in range(10)]
    x, y = shared_classes(np.array(names), np.arange(10), STL_CLASSES)
    assert [NINE[label] for label in y] == x.tolist()
    assert "monkey" not in x
    _, y = shared_classes(np.zeros(10), np.arange(10), ("airplane", "automobile", "bird", *"abcdefg"))
    assert y.tolist() == [0, 1, 2]
