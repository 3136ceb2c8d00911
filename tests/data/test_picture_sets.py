"""Tasks of published sets of pictures, from folders in the layouts in which they are distributed."""

import json
from pathlib import Path

import pytest

import vmt
from tests.own_pictures import picture, save
from vmt.cli.main import main
from vmt.data import TASKS, load_task
from vmt.data.picture_sets import PICTURE_SETS, PICTURE_TASKS
from vmt.errors import InputError

LAYOUTS = {
    "pacs": "PACS/kfold",
    "office31": "domain_adaptation_images",
    "officehome": "OfficeHomeDataset_10072016",
    "visda": "visda",
}


def write(data: Path, name: str, each: int = 2) -> None:
    """A few small pictures of every class of every domain."""
    published = PICTURE_SETS[name]
    for domain in published.domains.values():
        for number, label in enumerate(published.classes):
            for i in range(each):
                save(data / LAYOUTS[name] / domain.folder / label / f"frame_{i}.jpg", picture(number % 3, i))


@pytest.mark.parametrize("name", ["pacs-photo-art", "office31-dslr-amazon", "officehome-real-clipart", "visda"])
def test_a_task_is_read_in_its_published_layout(tmp_path: Path, name: str) -> None:
    published = PICTURE_TASKS[name].set
    write(tmp_path, name.split("-")[0])
    task = load_task(name, tmp_path)
    assert task.name == name
    assert task.classes == tuple(sorted(published.classes))
    assert task.target_test is not None
    assert len(task.target_test) == len(task.target) == 2 * len(published.classes)
    assert "this copy has" in task.target.name  # of the thousands that were published


def test_the_pairs_and_sizes_are_those_of_the_literature() -> None:
    sizes = {name: sum(d.pictures for d in each.domains.values()) for name, each in PICTURE_SETS.items()}
    assert sizes == {"pacs": 9_991, "office31": 4_110, "officehome": 15_588, "visda": 207_785}
    assert [len(each.classes) for each in PICTURE_SETS.values()] == [7, 31, 65, 12]
    assert len(PICTURE_TASKS) == 12 + 6 + 12 + 1
    assert PICTURE_TASKS.keys() < TASKS.keys()


def test_missing_folders_and_classes_are_named_with_the_place_to_get_them(tmp_path: Path) -> None:
    home = PICTURE_SETS["pacs"].home
    with pytest.raises(InputError, match=home):
        load_task("pacs-photo-art", None)
    with pytest.raises(InputError, match=f"art_painting.*{home}|photo.*{home}"):
        load_task("pacs-photo-art", tmp_path)
    write(tmp_path, "pacs")
    for path in (tmp_path / "PACS/kfold/photo/guitar").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="guitar"):
        load_task("pacs-photo-art", tmp_path)


def test_the_list_of_tasks_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "pacs", each=1)
    assert main(["tasks", "--data", str(tmp_path), "--json"]) == 0
    tasks = json.loads(capsys.readouterr().out)
    assert tasks["pacs-photo-art"]["missing"] == tasks["digits"]["missing"] == ""
    assert PICTURE_SETS["visda"].home in tasks["visda"]["missing"]
    assert "svhn" in tasks["mnist-svhn"]["missing"]


def test_a_task_of_pictures_trains_on_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMT_CACHE", str(tmp_path / "cache"))
    write(tmp_path, "pacs", each=3)
    out, features = tmp_path / "run", ["--features", "tests.user_modules:frozen"]
    short = ["--iterations", "2", "--batch-size", "4", "--device", "cpu", "--method", "source_only"]
    assert main(["train", "pacs-photo-sketch", "--data", str(tmp_path), *features, *short, "--out", str(out)]) == 0
    assert vmt.load(out, features=features[1]).reads.size == (12, 12)
    assert main(["evaluate", str(out), *features]) == 0
    assert main(["train", "mnist-svhn", "--data", str(tmp_path), *features]) == 2
