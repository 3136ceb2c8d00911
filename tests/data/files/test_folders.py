"""Folders of pictures: which folders are classes, and which files are ignored."""

import os
import sys
from pathlib import Path

import pytest

from tests.own_pictures import CLASSES, class_folders, picture, save, unlabelled_folder
from vmt.data import read_own
from vmt.data.files.own import ReadOptions, own_task
from vmt.errors import InputError

QUIET = ReadOptions(progress=False)


def test_class_folders_and_a_folder_without_labels(tmp_path: Path) -> None:
    save(class_folders(tmp_path / "a") / "кошка" / "deep" / "down.png", picture(1))
    task, notes = own_task(tmp_path / "a", unlabelled_folder(tmp_path / "b"), how=QUIET)
    assert task.classes == CLASSES
    assert task.source_test is not None
    assert len(task.source) + len(task.source_test) == 31
    assert tuple(task.target.x.shape) == (30, 3, 12, 12)
    assert task.target.y is None
    assert task.target_test is None
    assert any("12×12" in note and "colour" in note for note in notes)


def test_circular_links_and_ignored_files(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "a", 2)
    elsewhere = unlabelled_folder(tmp_path / "elsewhere", 3)
    (root / "fish").symlink_to(elsewhere)
    (root / "fish again").symlink_to(elsewhere)
    (root / "кошка" / "loop").symlink_to(root)
    (root / "кошка" / "self.png").symlink_to("self.png")
    (root / "кошка" / "gone.png").symlink_to("nowhere.png")
    (root / "a copy of a class").symlink_to(root / "鳥")
    (root / ".DS_Store").write_text("")
    (root / "鳥" / "notes.txt").write_text("")
    own = read_own(root)
    assert own.classes == ("fish", *CLASSES)
    assert len(own.domain) == 9
    output = "".join(own.notes)
    assert "2 hidden files" in output
    assert ".txt" in output
    assert "3 links to folders" in output
    assert "2 broken links" in output


def test_files_of_another_kind_are_named(tmp_path: Path) -> None:
    (tmp_path / "a" / "cat").mkdir(parents=True)
    (tmp_path / "a" / "cat" / "1.HEIC").write_bytes(b"")
    with pytest.raises(InputError, match=r"a holds no pictures.*\.heic"):
        read_own(tmp_path / "a")


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "a" / "cat").mkdir(parents=True)
    with pytest.raises(InputError, match="a holds no pictures"):
        read_own(tmp_path / "a")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_that_are_not_utf8_stay_different(tmp_path: Path) -> None:
    root = tmp_path / "a"
    for k, name in enumerate((b"caf\xe9", b"caf\xe8")):
        save(root / os.fsdecode(name) / "0.png", picture(k))
    own = read_own(root, cache=False)
    assert own.classes == (r"caf\udce8", r"caf\udce9")
    assert own.labels is not None
    assert sorted(own.labels.tolist()) == [0, 1]
