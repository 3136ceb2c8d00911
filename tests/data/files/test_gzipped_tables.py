"""Gzipped tables are read wherever tables are, and damaged ones and decompression bombs are refused."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.own_pictures import CLASSES, picture, save
from vmt.cli.main import main
from vmt.data import read_own
from vmt.errors import InputError

LIMIT = 2**18


def table(rows: int, delimiter: str = ",") -> str:
    random = np.random.default_rng(0)
    lines = [["height", "width", "label"]]
    lines += [[f"{random.normal() + 4 * (i % 2):.3f}", f"{random.normal():.3f}", "ab"[i % 2]] for i in range(rows)]
    return "".join(delimiter.join(line) + "\n" for line in lines)


def gzipped(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode("utf-8-sig")))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained on gzipped tables."""
    folder = tmp_path_factory.mktemp("packed")
    source, target = gzipped(folder / "a.csv.gz", table(60)), gzipped(folder / "B.TSV.GZ", table(50, "\t"))
    out = folder / "run"
    flags = ["--iterations", "3", "--batch-size", "8", "--validate-samples", "0", "--device", "cpu"]
    assert main(["train", "--source", str(source), "--target", str(target), "--out", str(out), *flags]) == 0
    return out


def test_a_gzipped_table_is_read_like_the_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table(20))
    plain, same = read_own(tmp_path / "a.csv"), read_own(gzipped(tmp_path / "a.csv.gz", table(20)))
    assert (plain.domain.x == same.domain.x).all()
    assert plain.classes == same.classes == ("a", "b")


def test_a_gzipped_list_of_pictures(tmp_path: Path) -> None:
    for i in range(6):
        save(tmp_path / f"{i}.png", picture(i % 3, i))
    lines = "".join(f"{i}.png,{CLASSES[i % 3]}\n" for i in range(6))
    assert read_own(gzipped(tmp_path / "list.csv.gz", "path,label\n" + lines), cache=False).classes == CLASSES


def test_predict_evaluate_and_check_read_them(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    (tmp_path / "t.csv").write_text(table(30))
    given = gzipped(folder / "t.csv.gz", table(30))
    written = []
    for one in (tmp_path / "t.csv", given, folder):
        assert main(["predict", str(run), str(one), "--out", str(tmp_path / "out.csv")]) == 0
        written.append([line.partition(",")[2] for line in (tmp_path / "out.csv").read_text().splitlines()])
    assert len(written[0]) == 31
    assert written[0] == written[1] == written[2]
    capsys.readouterr()
    assert main(["evaluate", str(run), "--test", str(given)]) == 0
    assert f"of 30 samples of {given}" in capsys.readouterr().out
    assert main(["export", str(run), "--format", "pt2", "--out", str(tmp_path / "m.pt2"), "--check", str(given)]) == 0
    assert "30" in capsys.readouterr().out


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def not_gzipped(path: Path) -> None:
    path.write_text(table(5))


def not_text(path: Path) -> None:
    path.write_bytes(gzip.compress(b"\xff\xfe\x00" * 50))


def of_rows(path: Path) -> None:
    path.write_bytes(gzip.compress((table(3) + "0,1,a\n" * (LIMIT // 3)).encode()))


def of_one_line(path: Path) -> None:
    path.write_bytes(gzip.compress(b"0" * 2 * LIMIT))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (truncated, "gzip"),
        (flipped, "gzip"),
        (not_gzipped, "gzip"),
        (not_text, "UTF-8"),
        (of_rows, "100 times its size"),
        (of_one_line, "100 times its size"),
    ],
)
def test_what_cannot_be_read_is_named(
    run: Path,
    tmp_path: Path,
    spoil: Callable[[Path], None],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vmt.data.files.paths.MAX_UNPACKED", LIMIT)  # for the test not to read so much
    path = gzipped(tmp_path / "t.csv.gz", table(400))
    spoil(path)
    with pytest.raises(InputError, match=f"^{path} .*{says}"):
        read_own(path)
    assert main(["predict", str(run), str(path), "--out", str(tmp_path / "out.csv")]) == 2
    output = capsys.readouterr().err
    assert str(path) in output
    assert says in output
