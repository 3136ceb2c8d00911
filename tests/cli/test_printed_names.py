"""Names come from files of others: they must not command a terminal, nor run as a formula in a spreadsheet."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import vmt
from vmt.cli.main import main
from vmt.cli.predict import cell

ESCAPE, BELL, CSI, RIGHT_TO_LEFT = "\x1b", "\a", "\x9b", "\u202e"
NASTY = f"a{ESCAPE}[2J{ESCAPE}]0;title{BELL}{CSI}31m{RIGHT_TO_LEFT}b"
FORMULAS = ("=1+1", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "＝1", "a;=1+1", "a\n=1")


@pytest.mark.parametrize("text", FORMULAS)
def test_a_cell_that_a_spreadsheet_would_run_gets_an_apostrophe(text: str) -> None:
    neutral = cell(text)
    assert neutral.startswith("'") or neutral[1:].lstrip(";\n").startswith("'")
    assert neutral.replace("'", "", 1) == text
    assert cell(neutral).replace("'", "", 1) == neutral, "so that it can be undone"


@pytest.mark.parametrize("text", ["cat", "-1", "+2.5", "-1e-3", "a-b", "a=b", "x@y", "'quoted'", "p(=1)", "1;2", ""])
def test_other_cells_stay(text: str) -> None:
    assert cell(text) == text


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model whose classes have such names, and samples in a file with such a name."""
    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).standard_normal((40, 3)), np.arange(40) % 2
    x[:, 0] += 9 * y
    model = vmt.adapt(
        (x, y), x, "source_only", classes=["=1+1", NASTY], iterations=40, batch_size=8, progress=False, lr=0.01
    )
    model.save("model.safetensors")
    np.save("=samples.npy", x[:2])
    np.savez("test.npz", x=x, y=y)
    return tmp_path


def check_harmless(text: str) -> None:
    assert not set(text) & {ESCAPE, BELL, CSI, RIGHT_TO_LEFT, "\r"}


def test_predictions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "model.safetensors", "=samples.npy"]) == 0
    printed = capsys.readouterr().out
    assert main(["predict", "model.safetensors", "=samples.npy", "--out", "out.csv"]) == 0
    assert (here / "out.csv").read_text(encoding="utf-8") == printed
    check_harmless(printed)
    header, first, second = csv.reader(printed.splitlines())
    assert header[3] == "p(=1+1)"
    assert [row[0] for row in (first, second)] == 2 * ["'=samples.npy"]
    assert {row[2] for row in (first, second)} == {"'=1+1", cell(NASTY)}
    # JSON keeps every name as it is.
    assert main(["predict", "model.safetensors", "=samples.npy", "--format", "jsonl"]) == 0
    printed = capsys.readouterr().out
    check_harmless(printed)
    records = [json.loads(line) for line in printed.splitlines()]
    assert [record["file"] for record in records] == 2 * ["=samples.npy"]
    assert {record["class"] for record in records} == {"=1+1", NASTY} == set(records[0]["probabilities"])
