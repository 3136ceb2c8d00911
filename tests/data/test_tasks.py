"""The named tasks, loaded from files in their publishers' formats."""

import os
from pathlib import Path

import pytest

from tests import benchmark_files as files
from tests.benchmark_files import error_names
from vmt.data import load_task
from vmt.errors import InputError


@pytest.mark.parametrize(("name", "source", "target"), [("mnist-svhn", 1, 3), ("svhn-mnist", 3, 1)])
def test_named_tasks_from_files(tmp_path, name, source, target):
    files.write_mnist(tmp_path)
    files.write_svhn(tmp_path)
    task = load_task(name, tmp_path)
    parts = (task.source, task.source_test, task.target, task.target_test)
    assert [part.x.shape for part in parts] == [
        (40, source, 32, 32),
        (20, source, 32, 32),
        (40, target, 32, 32),
        (20, target, 32, 32),
    ]
    assert all(task.preprocess(part.x).shape[1] == 3 for part in parts)
    assert task.classes == tuple("0123456789")


def test_unknown_task_names_and_missing_folders(tmp_path):
    with pytest.raises(InputError, match=r"'mnist-svnh' .*mnist-svhn.*digits"):
        load_task("mnist-svnh", tmp_path)
    with pytest.raises(InputError, match=r"mnist-svhn .*MNIST and SVHN.*--data"):
        load_task("mnist-svhn", None)
    with pytest.raises(InputError, match="absent"):
        load_task("mnist-svhn", tmp_path / "absent")
    with pytest.raises(InputError, match="train-images-idx3-ubyte"):
        load_task("mnist-svhn", tmp_path)


@pytest.mark.skipif("VMT_DATA" not in os.environ, reason="VMT_DATA does not name a folder with the real files")
def test_the_real_files():
    task = load_task("mnist-svhn", Path(os.environ["VMT_DATA"]))
    parts = (task.source, task.source_test, task.target, task.target_test)
    assert [len(part) for part in parts] == [60_000, 10_000, 73_257, 26_032]


ALL = ("mnist", "svhn", "syn", "usps", "cifar10", "stl10")


@pytest.mark.parametrize(
    ("name", "source", "target", "counts"),
    [
        ("syn-svhn", "SYN train", "SVHN train", (40, 20, 40, 20)),
        ("mnist-usps", "MNIST train", "USPS train", (40, 20, 40, 20)),
        ("usps-mnist", "USPS train", "MNIST train", (40, 20, 40, 20)),
        ("cifar-stl", "CIFAR-10 train", "STL-10 train", (90, 18, 36, 18)),
        ("stl-cifar", "STL-10 train", "CIFAR-10 train", (36, 18, 90, 18)),
    ],
)
def test_tasks_of_the_paper_at_32_pixels(tmp_path, name, source, target, counts):
    for kind in ALL:
        getattr(files, f"write_{kind}")(tmp_path)
    task = load_task(name, tmp_path)
    parts = (task.source, task.source_test, task.target, task.target_test)
    assert (task.source.name, task.target.name) == (source, target)
    assert tuple(len(part) for part in parts) == counts
    assert all(tuple(part.x.shape[2:]) == (32, 32) for part in parts)
    assert len(task.classes) == (9 if "cifar" in name else 10)


@pytest.mark.parametrize(
    ("name", "file", "remedy"),
    [
        ("mnist-mnistm", "mnistm/train.npz", "vmt data build mnistm"),
        ("syn-svhn", "syn/synth_train_32x32.mat", "vmt data build syn"),
        ("cifar-stl", "cifar10/cifar-10-batches-py/data_batch_1", "vmt data download cifar10"),
        ("stl-cifar", "stl10/stl10_binary/train_X.bin", "vmt data download stl10"),
        ("usps-mnist", "usps/usps.bz2", "vmt data download usps"),
        ("svhn-mnist", "svhn/train_32x32.mat", "vmt data download svhn"),
    ],
)
def test_missing_files_are_named_with_the_command_that_gets_them(tmp_path, name, file, remedy):
    files.write_mnist(tmp_path)
    with pytest.raises(InputError) as caught:
        load_task(name, tmp_path)
    error_names(caught, tmp_path / file, remedy)
