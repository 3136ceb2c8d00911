"""Tables in Parquet files."""

import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from vmt.data import read_own
from vmt.data.files.own import ReadOptions, own_task
from vmt.data.files.tables import open_parquet
from vmt.errors import InputError

QUIET = ReadOptions(cache=False, progress=False)
SPECIES = ("Iris setosa", "айва")


def test_parquet(tmp_path: Path) -> None:
    names = pyarrow.array([SPECIES[0], SPECIES[1], None]).dictionary_encode()
    table = pyarrow.table({"x": [1.0, 2.5, 3.0], "label": names, "n": pyarrow.array([7, 8, 9], pyarrow.int8())})
    parquet.write_table(table.slice(0, 2), tmp_path / "a.parquet")
    own = read_own(tmp_path / "a.parquet")
    assert own.classes == SPECIES
    assert own.domain.x.tolist() == [[1.0, 7.0], [2.5, 8.0]]
    parquet.write_table(table, tmp_path / "b.parquet")
    task, _ = own_task(features_parquet(tmp_path), tmp_path / "b.parquet", how=QUIET)
    assert len(task.target) == 3
    assert task.target_test is not None
    assert len(task.target_test) == 2, "a missing value is an unknown label"


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (pyarrow.array([1, None, 3]), "row 2 .* nothing .*'n'"),
        (pyarrow.array([1.0, 2.0, float("nan")]), "row 3 .* 'nan'"),
        (pyarrow.array(["1", "2.5", "x"]), "row 3 .* 'x'"),
        (pyarrow.array([True, None, False]), "row 2 .* nothing"),
    ],
)
def test_a_cell_of_parquet_without_a_number_is_named(tmp_path: Path, column: pyarrow.Array, says: str) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"height": [1.0, 2.0, 3.0], "n": column}), path)
    with pytest.raises(InputError, match=says):
        read_own(path)


@pytest.mark.parametrize("read", [read_own, open_parquet])
def test_two_columns_of_one_name_in_parquet(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array([1.0, 2.0])] * 2, names=["height"] * 2), path)
    with pytest.raises(InputError, match=r"a.parquet has two columns called 'height'"):
        read(path)


def features_parquet(folder: Path) -> Path:
    columns = {"n": list(range(20)), "x": [0.5 * k for k in range(20)], "label": [SPECIES[k % 2] for k in range(20)]}
    parquet.write_table(pyarrow.table(columns), folder / "source.parquet")
    return folder / "source.parquet"


def test_parquet_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = features_parquet(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"source\.parquet .* not a readable Parquet file"):
        read_own(path)
    parquet.write_table(pyarrow.table({"x": pyarrow.array([], pyarrow.float32())}), path)
    with pytest.raises(InputError, match="no rows"):
        read_own(path)
    parquet.write_table(pyarrow.table({"x": ["red"]}), path)
    with pytest.raises(InputError, match="'red' instead of a number in the column 'x'"):
        read_own(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'vmt\[parquet\]'"):
        read_own(path)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_parquet_with_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9.parquet"
    path.touch()
    with pytest.raises(InputError, match="not UTF-8"):
        read_own(path)
    with pytest.raises(InputError, match="not UTF-8"):
        open_parquet(path)
