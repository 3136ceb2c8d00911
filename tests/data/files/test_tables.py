"""CSV files that list pictures, and tables of features."""

from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet

from tests.own_data import write_csv
from tests.own_pictures import CLASSES, picture, save
from vmt.data import read_own
from vmt.data.files.own import ReadOptions, own_task
from vmt.data.files.tables import open_csv
from vmt.errors import InputError

QUIET = ReadOptions(cache=False, progress=False)
SPECIES = ("Iris setosa", "айва")


def pictures_csv(folder: Path, header: bool = True, labels: bool = True, name: str = "list.csv") -> Path:
    rows: list[list[object]] = [["path", "label"][: 1 + labels]] if header else []
    for i in range(12):
        save(folder / "files" / f"{i}.png", picture(i % 3, i))
        rows.append([f"files/{i}.png", CLASSES[i % 3]][: 1 + labels])
    return write_csv(folder / name, rows)


def features(folder: Path, name: str = "a.csv", label: str = "label", known: int = 40) -> Path:
    random = np.random.default_rng(0)
    rows: list[list[object]] = [["height", label, "width"]]
    rows += [[random.normal(k % 2), SPECIES[k % 2] if k < known else "", random.normal()] for k in range(40)]
    return write_csv(folder / name, rows)


@pytest.mark.parametrize("header", [True, False])
def test_a_list_of_pictures(tmp_path: Path, header: bool) -> None:
    own = read_own(pictures_csv(tmp_path, header), cache=False)
    assert own.classes == CLASSES
    assert own.domain.y is not None
    assert own.domain.y.tolist() == [0, 1, 2] * 4
    unlabelled = read_own(pictures_csv(tmp_path, header, labels=False, name="b.csv"), cache=False)
    assert unlabelled.domain.y is None
    assert torch.equal(unlabelled.domain.x, own.domain.x)


def test_a_listed_picture_that_is_missing(tmp_path: Path) -> None:
    path = pictures_csv(tmp_path)
    (tmp_path / "files" / "3.png").unlink()
    own = read_own(path, cache=False)
    assert len(own.domain) == 11
    assert "3.png (missing)" in own.notes[-1]


def test_tables_with_columns_in_another_order(tmp_path: Path) -> None:
    source = features(tmp_path)
    target = write_csv(tmp_path / "b.csv", [["width", "height", "other"], *([9 + i, i, 0] for i in range(5))], ";")
    task, _ = own_task(source, target, how=QUIET)
    assert task.classes == SPECIES
    assert task.target.x.tolist() == [[i, 9 + i] for i in range(5)]


def test_labels_in_a_named_column_and_for_some_samples_only(tmp_path: Path) -> None:
    how = ReadOptions(label="species", cache=False, progress=False)
    source, target = features(tmp_path, label="species"), features(tmp_path, "b.csv", "species", known=6)
    task, notes = own_task(source, target, how=how)
    assert len(task.target) == 40
    assert task.target.y is None
    assert task.target_test is not None
    assert len(task.target_test) == 6
    assert "6 labelled samples" in "".join(notes)
    unlabelled = write_csv(tmp_path / "c.csv", [["height", "width"], [1, 2], [2, 5]])
    assert own_task(source, unlabelled, how=how)[0].target_test is None


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "is empty"),
        ([["", " "]], "is empty"),
        ([["x", "label"]], "no rows"),
        ([["x", "label"], [1, "a"], [2]], "row 3 .* 1 cells"),
        ([["x", "label"], [1, "a"], ["red", "b"]], "row 3 .* 'red' instead of a number in the column 'x'"),
        ([["x", "y", "label"], [1, "", "a"]], "row 2 .* nothing in the column 'y'"),
        ([["x", "x"], [1, 2]], "two columns called 'x'"),
        ([["x", "label"], [1, "a"], [2, ""]], "sample 2 .* no label"),
        ([["x", "label"], [1, "a"], [2, "a"]], "only the class 'a'"),
        ([["x", "kind"], [1, 1], [2, 2]], "no column 'label'.*--label"),
        ([["path", "label"], ["", "a"]], "row 2 .* picture"),
        ([["label"], ["a"]], "no columns? of numbers"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path: Path, rows: list[list[object]], says: str) -> None:
    target = write_csv(tmp_path / "b.csv", [["x"], [1], [2]])
    with pytest.raises(InputError, match=says) as caught:
        own_task(write_csv(tmp_path / "a.csv", rows), target, how=QUIET)
    assert str(tmp_path / "a.csv") in str(caught.value)


def test_numbers_with_a_decimal_comma_are_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x;label\n1,5;a\n2,5;b\n")
    with pytest.raises(InputError, match=r"'1,5' .* decimal point"):
        read_own(path)


def test_a_target_without_one_of_the_features(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lacks the column width"):
        own_task(features(tmp_path), write_csv(tmp_path / "b.csv", [["height"], [1], [2]]), how=QUIET)


def test_columns_that_the_source_lacks_may_hold_anything(tmp_path: Path) -> None:
    source = features(tmp_path)
    target = write_csv(
        tmp_path / "b.csv", [["", "width", "remark", "height"], *([k, 1 + k, "text", k] for k in range(9))]
    )
    task, _ = own_task(source, target, how=QUIET)
    assert task.target.features == ("height", "width")
    assert task.target.x[:2].tolist() == [[0, 1], [1, 2]]
    assert read_own(target, like=read_own(source)).domain.x[1].tolist() == [1, 2]


def test_names_that_python_would_read_as_numbers(tmp_path: Path) -> None:
    header = ["1_1", "1_2"]
    path = write_csv(tmp_path / "a.csv", [header, *([k, k * k] for k in range(10))])
    own = read_own(path)
    assert own.domain.features == ("1_1", "1_2")
    assert len(own.domain) == 10
    write_csv(path, [["height", "who"], [1, "01_02"], [2, "03_04"]])
    with pytest.raises(InputError, match=r"row 2 .* has '01_02' instead of a number in the column 'who'"):
        read_own(path)


@pytest.mark.filterwarnings("error")
def test_a_number_too_large_for_32_bits_is_not_predicted_on() -> None:
    rows = list(open_csv(iter(["height", "1", "1e300"]), "a.csv", None).numbers(1, (), None))
    assert rows[1] == (1, "a value that is not finite")


def test_a_column_of_files_beside_features(tmp_path: Path) -> None:
    """In a source, it may be a list of pictures; in a table that has all features of another, the column is ignored."""
    rows: list[list[object]] = [[f"{k}.wav", k % 2 + k / 30, k, "ab"[k % 2]] for k in range(20)]
    header = ["file", "height", "width", "label"]
    write_csv(tmp_path / "target.csv", [header, *rows])
    write_csv(tmp_path / "source.csv", [header[1:], *(row[1:] for row in rows)])
    task, _ = own_task(tmp_path / "source.csv", tmp_path / "target.csv", how=QUIET)
    assert task.target.features == ("height", "width")
    lines = (tmp_path / "target.csv").read_text().splitlines()
    assert open_csv(iter(lines), "target.csv", None, ("height", "width")).layout.path is None
    with pytest.raises(InputError, match=r"'file'.*'0.wav'"):
        read_own(tmp_path / "target.csv")
    long = write_csv(tmp_path / "long.csv", [header, ["x" * 300, 1, 2, "a"], ["y" * 300, 2, 3, "b"]])
    with pytest.raises(InputError, match=r"the column 'file' of .*long.csv"):
        read_own(long)


def test_listed_paths_that_do_not_exist(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [["path", "label"], ["elsewhere/1.png", "a"], ["elsewhere/2.png", "b"]])
    with pytest.raises(InputError, match=r"1.png \(missing\).*paths"):
        read_own(path, cache=False)


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_the_index_that_pandas_writes_is_not_a_feature(tmp_path: Path, name: str) -> None:
    path = write_csv(tmp_path / "a.csv", [[name, "height", "label"], [0, 1.5, "a"], [1, 2.5, "b"]])
    with pytest.raises(InputError, match=r"column 1 of .*a.csv has no name.*index=False"):
        read_own(path)


@pytest.mark.parametrize("label", [None, "2"])
def test_columns_that_pandas_numbered(tmp_path: Path, label: str | None) -> None:
    """The header is a row of numbers, and that of the target has nothing else."""
    rows: list[list[object]] = [[k % 3 + k / 10, k, "10"[k % 2]] for k in range(20)]
    write_csv(tmp_path / "source.csv", [["0", "1", label or "label"], *rows])
    write_csv(tmp_path / "target.csv", [["0", "1"], *(row[:2] for row in rows)])
    task, _ = own_task(tmp_path / "source.csv", tmp_path / "target.csv", how=ReadOptions(label=label))
    assert task.source.features == task.target.features == ("0", "1")
    assert task.classes == ("0", "1")
    assert task.target.x.tolist() == [pytest.approx(row[:2]) for row in rows]
    lines = (tmp_path / "target.csv").read_text().splitlines()
    predicted_on = dict(open_csv(iter(lines), "target.csv", label, ("0", "1")).numbers(2, ("0", "1"), label))
    assert len(predicted_on) == 20


def test_true_and_false_are_one_and_zero(tmp_path: Path) -> None:
    rows = [["height", "grown", "label"], [1.5, True, "a"], [2.5, "false", "b"]]
    assert read_own(write_csv(tmp_path / "a.csv", rows)).domain.x[:, 1].tolist() == [1, 0]
    table = pyarrow.table({"grown": [True, False], "height": [1.5, 2.5], "label": ["a", "b"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert read_own(tmp_path / "a.parquet").domain.x[:, 0].tolist() == [1, 0]
    assert read_own(write_csv(tmp_path / "b.csv", [[1.5, True], [2.5, False]])).domain.x[:, 1].tolist() == [1, 0]
    predicted_on = open_csv(iter(["height,grown", "1.5,True", "2,yes"]), "a.csv", None).numbers(
        2, ("grown", "height"), None
    )
    (_, sample), (_, fault) = predicted_on
    assert (list(sample), fault) == ([1, 1.5], "'yes' instead of a number in the column 'grown'")


@pytest.mark.parametrize("cell", ["nan", "inf", "NA", ""])
def test_a_missing_value_is_named_by_row_and_column(tmp_path: Path, cell: str) -> None:
    path = write_csv(tmp_path / "a.csv", [["height", "width", "label"], [1.5, 1, "a"], [2.5, cell, "b"]])
    with pytest.raises(InputError, match=f"row 3 of .*a.csv has {repr(cell) if cell else 'nothing'}.*'width'"):
        read_own(path)
