"""Which column of a table lists pictures, and which holds the classes."""

from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.own_data import write_csv
from tests.own_pictures import CLASSES, picture, save
from vmt.data import read_own
from vmt.data.files.own import ReadOptions, own_task
from vmt.errors import InputError

QUIET = ReadOptions(cache=False, progress=False)


def pictures(folder: Path, header: list[str], row: list[str]) -> Path:
    """A list of 9 pictures; in `row`, {i} is the number of a picture and {c} its class."""
    rows: list[list[object]] = [list(header)] if header else []
    for i in range(9):
        save(folder / f"{i}.png", picture(i % 3, i))
        rows.append([cell.format(i=i, c=CLASSES[i % 3]) for cell in row])
    return write_csv(folder / "list.csv", rows)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        (["image_name", "label"], ["{i}.png", "{c}"]),
        (["label", "File"], ["{c}", "{i}.png"]),
        (["ID", "Label"], ["{i}.png", "{c}"]),
        (["n", "photograph", "label", "width"], ["{i}", "{i}.png", "{c}", "16"]),
        (["Image Path", "mask", "label"], ["{i}.png", "mask_{i}.png", "{c}"]),
        ([], ["{c}", "{i}.png"]),
        ([], ["{i}.png", "{c}", "16"]),
    ],
)
def test_the_column_of_pictures_is_found(tmp_path: Path, header: list[str], row: list[str]) -> None:
    own = read_own(pictures(tmp_path, header, row), cache=False)
    assert own.classes == CLASSES
    assert own.domain.is_images
    assert own.domain.y is not None
    assert own.domain.y.tolist() == [0, 1, 2] * 3


def test_two_columns_of_pictures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'before', 'after'"):
        read_own(pictures(tmp_path, ["before", "after"], ["{i}.png", "{i}.png"]), cache=False)


def test_a_column_of_pictures_beside_the_features_of_the_source_is_ignored(tmp_path: Path) -> None:
    rows: list[list[object]] = [[k % 2 + k / 9, k, "ab"[k % 2]] for k in range(20)]
    source = write_csv(tmp_path / "a.csv", [["height", "width", "label"], *rows])
    target = write_csv(tmp_path / "b.csv", [["photo", "height", "width"], *([f"{k}.png", k, 1] for k in range(20))])
    task, _ = own_task(source, target, how=QUIET)
    assert task.target.features == ("height", "width")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(("label", "suggests"), [("specis", "species"), (None, "species")])
def test_a_label_that_is_not_there(tmp_path: Path, kind: str, label: str | None, suggests: str) -> None:
    columns = {"height": [1.0, 2.0, 3.0, 4.0], "species": ["a", "b", "a", "b"]}
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        write_csv(path, [list(columns), *map(list, zip(*columns.values(), strict=True))])
    else:
        parquet.write_table(pyarrow.table(columns), path)
    how = ReadOptions(label=label, cache=False, progress=False)
    with pytest.raises(
        InputError, match=rf"no column '{label or 'label'}' \(perhaps {suggests}\?\).*'height'"
    ) as error:
        own_task(path, path, how=how)
    assert str(path) in str(error.value)
    with pytest.raises(InputError, match=rf"no column '{label or 'label'}'"):
        read_own(path, label=label, needs_labels=True)


def test_numbers_from_1_are_the_names_of_the_classes(tmp_path: Path) -> None:
    """As in a table; without this, an .npz could not hold what a table can."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(30, 4)), np.arange(30) % 3 + 1
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.savez(tmp_path / "b.npz", x=x, y=np.where(np.arange(30) < 10, y, -1))
    task, notes = own_task(tmp_path / "a.npz", tmp_path / "b.npz", how=QUIET)
    assert task.classes == ("1", "2", "3")
    assert task.target_test is not None
    assert task.target_test.y is not None
    assert task.target_test.y.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert any("numbers from 1" in note for note in notes)
    own = read_own(tmp_path / "a.npz")
    assert own.classes == ("1", "2", "3")
    assert own.labels is not None
    assert own.labels.tolist() == [0, 1, 2] * 10
    np.savez(tmp_path / "c.npz", x=x, y=y - 1)
    with pytest.raises(InputError, match="'0'"):
        own_task(tmp_path / "a.npz", tmp_path / "c.npz", how=QUIET)
