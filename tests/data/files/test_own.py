"""Classes, labels, sizes and numbers of a user's own files, from one path or from a source and a target."""

from pathlib import Path

import numpy as np
import pytest

from tests.own_data import write_csv
from tests.own_pictures import CLASSES, class_folders, picture, save, unlabelled_folder
from vmt.data import read_own
from vmt.data.files.own import EVALUATION_ONLY, ReadOptions, own_task, read_labelled
from vmt.data.files.stream import InputSpec
from vmt.data.preprocess import Preprocess
from vmt.errors import InputError

QUIET = ReadOptions(progress=False)


def test_a_labelled_target_is_for_evaluation_only(tmp_path: Path) -> None:
    source, target = class_folders(tmp_path / "a"), class_folders(tmp_path / "b", 4, CLASSES[1:], shade=50)
    task, notes = own_task(source, target, how=QUIET)
    assert task.target_test is not None
    assert task.target_test.y is not None
    assert task.target_test.y.tolist() == [1] * 4 + [2] * 4
    assert any(EVALUATION_ONLY in note for note in notes)


def test_subfolders_of_the_target_that_are_not_classes(tmp_path: Path) -> None:
    source, target = class_folders(tmp_path / "a"), class_folders(tmp_path / "b", 4, ["2024", "2025"])
    task, notes = own_task(source, target, how=QUIET)
    assert task.target.y is None
    assert any("2024, 2025" in note for note in notes)
    assert read_own(target, classes=CLASSES).domain.y is None
    assert read_own(source, classes=CLASSES).domain.y is not None
    assert read_own(class_folders(tmp_path / "c", 2, ["all of them"])).classes == ("all of them",)


def test_the_error_about_a_test_set_with_other_subfolders_names_the_classes(tmp_path: Path) -> None:
    reads = InputSpec(Preprocess(3, (12, 12), (1 / 127.5,), (-1.0,)))
    other = class_folders(tmp_path / "b", 4, ["2024", "2025"])
    with pytest.raises(InputError, match=r"subfolder .*golden retriever") as caught:
        read_labelled(other, CLASSES, reads, None)
    assert str(other) in str(caught.value)


@pytest.mark.parametrize("labelled", ["target", "target_test"])
def test_a_class_that_the_source_lacks(tmp_path: Path, labelled: str) -> None:
    source = class_folders(tmp_path / "a")
    other = class_folders(tmp_path / "b", 2, [*CLASSES, "fish"])
    paths = {"target": unlabelled_folder(tmp_path / "c"), "target_test": None, labelled: other}
    with pytest.raises(InputError, match=r"'fish'.*golden retriever") as caught:
        own_task(source, **paths, how=QUIET)  # type: ignore[arg-type]
    assert str(other) in str(caught.value)


@pytest.mark.parametrize(("sizes", "chosen"), [([(11, 9)], (12, 8)), ([(3, 3)], (8, 8)), ([(300, 400)], (48, 64))])
def test_the_size_that_is_chosen(tmp_path: Path, sizes: list[tuple[int, int]], chosen: tuple[int, int]) -> None:
    for i, size in enumerate(sizes * 3):
        save(tmp_path / "a" / f"{i}.png", picture(0, i, size))
    assert tuple(read_own(tmp_path / "a").domain.x.shape[2:]) == chosen
    asked = read_own(tmp_path / "a", image_size=(20, 24), channels=1)
    assert tuple(asked.domain.x.shape[1:]) == (1, 20, 24)


def test_splits_of_a_data_set_are_not_classes(tmp_path: Path) -> None:
    for part in ("train", "Val"):
        class_folders(tmp_path / "all" / part, 2)
    with pytest.raises(InputError, match=r"subfolders Val, train"):
        own_task(tmp_path / "all", tmp_path / "all")
    task, _ = own_task(tmp_path / "all" / "train", tmp_path / "all")
    assert task.classes == CLASSES
    assert len(task.target) == 12


def test_a_source_without_labels_or_with_one_class(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no labels.*subfolder"):
        own_task(unlabelled_folder(tmp_path / "a"), unlabelled_folder(tmp_path / "b"), how=QUIET)
    with pytest.raises(InputError, match="only the class 'cat'"):
        own_task(class_folders(tmp_path / "c", 3, ["cat"]), tmp_path / "b", how=QUIET)


def test_classes_in_the_order_of_numbers(tmp_path: Path) -> None:
    rows = [["x", "label"], *([i, n] for i, n in enumerate([10, 9, 2, 10, 9, 2]))]
    assert read_own(write_csv(tmp_path / "a.csv", rows)).classes == ("2", "9", "10")


def test_whole_numbers_with_a_point_are_the_same_classes(tmp_path: Path) -> None:
    """Programs write integers in a column with gaps like that."""
    x = np.arange(40.0).reshape(20, 2)
    source = write_csv(tmp_path / "a.csv", [["p", "q", "label"], *[[*row, i % 2] for i, row in enumerate(x)]])
    gaps = [[*row, f"{i % 2}.0" if i % 3 else ""] for i, row in enumerate(x)]
    listed = write_csv(tmp_path / "b.csv", [["p", "q", "label"], *gaps])
    np.savez(tmp_path / "c.npz", x=x, y=np.arange(20) % 2 / 1.0)
    for target, count in ((listed, 13), (tmp_path / "c.npz", 20)):
        task, _ = own_task(source, target, how=QUIET)
        assert task.classes == ("0", "1")
        assert task.target_test is not None
        assert task.target_test.y is not None
        assert len(task.target_test.y) == count


def test_numpy_files(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    np.save(tmp_path / "target.npy", x)
    np.savez(tmp_path / "source.npz", x=x, y=np.array(CLASSES[:2] * 10))
    task, _ = own_task(tmp_path / "source.npz", tmp_path / "target.npy", how=QUIET)
    assert task.classes == CLASSES[:2]
    np.savez(tmp_path / "short.npz", x=x, y=np.array(CLASSES))
    with pytest.raises(InputError, match="one name per sample"):
        read_own(tmp_path / "short.npz")
    with pytest.raises(InputError, match=r"a\.txt"):
        read_own(write_csv(tmp_path / "a.txt", [[1]]))


def test_a_source_of_arrays_and_a_target_of_pictures(tmp_path: Path) -> None:
    x = np.stack([picture(i % 3, i, (20, 16)) for i in range(30)])
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(30) % 3)
    target = class_folders(tmp_path / "b", 2, "012")
    task, _ = own_task(tmp_path / "a.npz", target, how=QUIET)
    assert tuple(task.target.x.shape) == (6, 3, 20, 16)
    assert task.target_test is not None
    with pytest.raises(InputError, match="vectors"):
        own_task(write_csv(tmp_path / "t.csv", [["height", "label"], [1, "a"], [2, "b"]]), target, how=QUIET)


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_differences_that_float32_cannot_represent(tmp_path: Path, kind: str) -> None:
    x = np.array([[k % 2, 1e9 + k % 2] for k in range(20)])
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        write_csv(path, [["height", "time", "label"], *([*map(repr, row.tolist()), k % 2] for k, row in enumerate(x))])
    else:
        np.savez(path, x=x, y=np.arange(20) % 2)
    with pytest.raises(InputError, match=r"'time'|feature 1"):
        own_task(path, path, how=QUIET)
