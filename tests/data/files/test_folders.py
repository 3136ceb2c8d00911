"""Folders and lists of pictures: what is a class, what is left aside, what is kept for the next time."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.own_pictures import CLASSES, class_folders, giant_png, heap, picture, save
from vmt.data import read_own
from vmt.data.files import pictures as cache_module
from vmt.data.files import pictures as module
from vmt.data.files.own import EVALUATION_ONLY, ReadOptions, own_task
from vmt.data.files.pictures import decode
from vmt.errors import InputError

QUIET = ReadOptions(progress=False)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_class_folders_and_a_heap(tmp_path: Path) -> None:
    save(class_folders(tmp_path / "a") / "кошка" / "deep" / "down.png", picture(1))
    task, notes = own_task(tmp_path / "a", heap(tmp_path / "b"), how=QUIET)
    assert task.classes == CLASSES
    assert task.source_test is not None
    assert len(task.source) + len(task.source_test) == 31
    assert tuple(task.target.x.shape) == (30, 3, 12, 12)
    assert task.target.y is None
    assert task.target_test is None
    assert any("12×12" in note and "colour" in note for note in notes)


def test_a_labelled_target_is_for_evaluation_only(tmp_path: Path) -> None:
    source, target = class_folders(tmp_path / "a"), class_folders(tmp_path / "b", 4, CLASSES[1:], shade=50)
    task, notes = own_task(source, target, how=QUIET)
    assert task.target_test is not None
    assert task.target_test.y is not None
    assert task.target_test.y.tolist() == [1] * 4 + [2] * 4
    assert any(EVALUATION_ONLY in note for note in notes)


def test_subfolders_of_the_target_that_are_no_classes(tmp_path: Path) -> None:
    source, target = class_folders(tmp_path / "a"), class_folders(tmp_path / "b", 4, ["2024", "2025"])
    task, notes = own_task(source, target, how=QUIET)
    assert task.target.y is None
    assert any("2024, 2025" in note and "unlabelled" in note for note in notes)
    assert read_own(target, classes=CLASSES).domain.y is None
    assert read_own(source, classes=CLASSES).domain.y is not None
    assert read_own(class_folders(tmp_path / "c", 2, ["all of them"])).classes == ("all of them",)


@pytest.mark.parametrize("labelled", ["target", "target_test"])
def test_a_class_that_the_source_lacks(tmp_path: Path, labelled: str) -> None:
    source = class_folders(tmp_path / "a")
    other = class_folders(tmp_path / "b", 2, [*CLASSES, "fish"])
    paths = {"target": heap(tmp_path / "c"), "target_test": None, labelled: other}
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


def test_mixed_sizes_and_modes(tmp_path: Path) -> None:
    for number, name in enumerate(CLASSES):
        grey = picture(number, 1, (16, 20), 1)
        save(tmp_path / "a" / name / "grey.png", grey)
        save(tmp_path / "a" / name / "16 bit.png", grey[..., 0].astype(np.uint16) * 257)
    grey_only = read_own(tmp_path / "a")
    assert grey_only.domain.x.shape[1] == 1
    for number, name in enumerate(CLASSES):
        save(tmp_path / "a" / name / "rgba.png", picture(number, 2, (12, 12), 4))
        save(tmp_path / "a" / name / "photo.jpg", picture(number, 3, (40, 30)))
        palette = Image.fromarray(picture(number, 4, (16, 20))).convert("P", palette=Image.Palette.ADAPTIVE)
        palette.save(tmp_path / "a" / name / "with a palette.gif")
    mixed = read_own(tmp_path / "a")
    assert tuple(mixed.domain.x.shape) == (15, 3, 16, 20)
    assert mixed.classes == CLASSES
    np.testing.assert_allclose(mixed.domain.x[0].float(), mixed.domain.x[1].float(), atol=1)


def test_one_unreadable_picture_and_a_giant_among_many(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "a", 66)
    save(root / "鳥" / "cut.png", picture(2)).write_bytes((root / "鳥" / "0.png").read_bytes()[:200])
    giant_png(root / "鳥" / "giant.png")
    own = read_own(root)
    assert len(own.domain) == 198
    assert own.domain.y is not None
    assert np.bincount(own.domain.y).tolist() == [66, 66, 66]
    said = "".join(own.notes)
    assert "2 of the 200" in said
    assert "cut.png (damaged)" in said
    assert "giant.png (too large)" in said


def test_too_many_unreadable_pictures(tmp_path: Path) -> None:
    root = heap(tmp_path / "a", 30)
    for i in range(11):
        (root / f"{i:03}.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"11 of the 30 pictures .* 000.png \(damaged\).* 8 more; repair"):
        read_own(root)


def test_links_in_a_circle_and_files_left_aside(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "a", 2)
    elsewhere = heap(tmp_path / "elsewhere", 3)
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
    said = "".join(own.notes)
    assert "2 hidden or other files that are no pictures (.txt)" in said
    assert "3 links to folders that were already read" in said
    assert "2 links that lead nowhere" in said


def test_files_of_another_kind_are_named(tmp_path: Path) -> None:
    (tmp_path / "a" / "cat").mkdir(parents=True)
    (tmp_path / "a" / "cat" / "1.HEIC").write_bytes(b"")
    with pytest.raises(InputError, match=r"no pictures, but \.heic files, which are not read: give a folder"):
        read_own(tmp_path / "a")


def test_parts_of_a_data_set_are_no_classes(tmp_path: Path) -> None:
    for part in ("train", "Val"):
        class_folders(tmp_path / "all" / part, 2)
    with pytest.raises(InputError, match=r"the subfolders Val, train, which are parts of a data set"):
        own_task(tmp_path / "all", tmp_path / "all")
    task, _ = own_task(tmp_path / "all" / "train", tmp_path / "all")
    assert task.classes == CLASSES
    assert len(task.target) == 12


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "a" / "cat").mkdir(parents=True)
    with pytest.raises(InputError, match="no pictures: give a folder"):
        read_own(tmp_path / "a")


def test_source_in_one_heap(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no labels.*subfolder"):
        own_task(heap(tmp_path / "a"), heap(tmp_path / "b"), how=QUIET)
    with pytest.raises(InputError, match="only the class 'cat'"):
        own_task(class_folders(tmp_path / "c", 3, ["cat"]), tmp_path / "b", how=QUIET)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_that_are_no_text_stay_apart(tmp_path: Path) -> None:
    root = tmp_path / "a"
    for k, name in enumerate((b"caf\xe9", b"caf\xe8")):
        save(root / os.fsdecode(name) / "0.png", picture(k))
    own = read_own(root, cache=False)
    assert own.classes == (r"caf\udce8", r"caf\udce9")
    assert own.labels is not None
    assert sorted(own.labels.tolist()) == [0, 1]


def test_a_second_reading_is_from_the_cache(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = class_folders(tmp_path / "a", 4)
    save(root / "кошка" / "bad.png", picture(0)).write_bytes(b"no picture")
    calls: list[Path] = []
    monkeypatch.setattr(module, "decode", lambda path, *rest: calls.append(path) or decode(path, *rest))
    first = read_own(root)
    assert len(calls) == 12
    again = read_own(root)
    assert len(calls) == 12
    np.testing.assert_array_equal(again.domain.x, first.domain.x)
    assert (again.classes, again.notes) == (first.classes, first.notes)
    # Another picture under the same name, one more second on its clock.
    path = save(root / "кошка" / "0.png", picture(2, 9))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))
    changed = read_own(root)
    assert len(calls) == 24
    assert not np.array_equal(changed.domain.x, first.domain.x)
    for file in own_cache.rglob("*.npz"):
        file.write_bytes(b"damaged")
    np.testing.assert_array_equal(read_own(root).domain.x, changed.domain.x)
    before = {file: file.read_bytes() for file in own_cache.rglob("*.npz")}
    read_own(root, cache=False)
    read_own(root, image_size=(8, 8), cache=False)
    assert {file: file.read_bytes() for file in own_cache.rglob("*.npz")} == before


def test_a_user_without_a_home_has_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    assert len(read_own(heap(tmp_path / "a", 3)).domain) == 3


@pytest.mark.usefixtures("own_cache")
def test_a_repaired_picture_is_read_again(tmp_path: Path) -> None:
    """Though it comes with the size and the time of the damaged one, as from a backup."""
    root = heap(tmp_path / "a", 3)
    path = next(root.rglob("*.png"))
    whole, status = path.read_bytes(), path.stat()
    for content, count in ((whole[:20] + bytes(len(whole) - 20), 2), (whole, 3)):
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert len(read_own(root).domain) == count


def test_the_cache_forgets_what_was_used_longest_ago(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = heap(tmp_path / "a", 3)
    read_own(root, image_size=(8, 8))
    old = set(own_cache.rglob("*.npz"))
    for path in old:
        os.utime(path, (0, 0))
    read_own(root, image_size=(9, 9))
    pixels = {path for path in own_cache.rglob("*.npz") if path not in old}
    assert pixels
    assert len(old & set(own_cache.rglob("*.npz"))) == 1, "the sizes were used again, the pixels were not"
    monkeypatch.setattr(cache_module, "KEPT_BYTES", max(path.stat().st_size for path in pixels))
    read_own(root, image_size=(8, 9))
    assert len(list(own_cache.rglob("*.npz"))) == 1


def test_a_bar_only_when_reading_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vmt.progress.SECONDS_BETWEEN_LINES", 0.0)
    root = heap(tmp_path / "a", 40)
    read_own(root, cache=False, progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(module, "PATIENCE", 0)
    read_own(root, cache=False, progress=True)
    assert f"reading {root}" in capsys.readouterr().err


def test_what_a_killed_process_left_in_the_cache_goes(tmp_path: Path, own_cache: Path) -> None:
    folder = own_cache / "vmt" / "pictures"
    folder.mkdir(parents=True)
    abandoned, being_written = folder / ".abc.npz.4711", folder / ".abc.npz.4712"
    for path in (abandoned, being_written):
        path.write_bytes(b"half")
    os.utime(abandoned, (0, 0))
    read_own(heap(tmp_path / "a", 3))
    assert [path for path in (abandoned, being_written) if path.exists()] == [being_written]


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(read_own(heap(tmp_path / "a", 3)).domain) == 3
