"""Names come from files of others: they must not command a terminal, nor run as a formula in a spreadsheet."""

import csv
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import vmt
from tests.own_data import command
from vmt.cli.main import main
from vmt.cli.predict import cell
from vmt.progress import Progress

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


def exit_code(arguments: list[str]) -> object:
    try:
        return main(arguments)
    except SystemExit as ended:  # of a wrong argument
        return ended.code


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


def test_what_the_commands_print(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Class names in a table, names of files in errors and notes, names of columns."""
    assert main(["evaluate", "model.safetensors", "--test", "test.npz", "--json"]) == 0
    printed = capsys.readouterr().out
    check_harmless(printed)
    assert "\\u001b[2J" in printed
    assert json.loads(printed.splitlines()[-1])["classes"] == ["=1+1", NASTY]
    source, target = here / NASTY / "a.csv", here / NASTY / "b.csv"
    source.parent.mkdir()
    source.write_text(f"x,{NASTY},label\n" + "1,2,a\n3,4,b\n" * 9)
    target.write_text("x,y\n" + "1,2\n3,4\n" * 9)
    train = ["train", "--source", str(source), "--target", str(source), "--iterations", "1", "--batch-size", "4"]
    for arguments, code in (
        ([*train, "--out", "run"], 0),
        ([*train, "--out", "other", "--target", str(target)], 2),
        (["predict", "model.safetensors", f"{NASTY}.npy"], 2),
        (["predict", NASTY, "test.npz"], 2),
        (["train", NASTY], 2),
        ([NASTY], 2),
    ):
        assert exit_code(arguments) == code
        output = capsys.readouterr()
        check_harmless(output.out + output.err)
        assert code == 0 or "\\u001b" in output.err or "\\x1b" in output.err


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_a_terminal_gets_the_styles_of_vmt_alone(here: Path) -> None:
    import pty

    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    arguments = command("evaluate", "model.safetensors", "--test", "test.npz")
    process = subprocess.Popen(arguments, stdout=terminal, stderr=terminal, stdin=terminal, env=environment)
    os.close(terminal)
    printed = b""
    try:
        while part := os.read(controller, 4096):
            printed += part
    except OSError:  # how Linux reports that the other side is closed
        pass
    os.close(controller)
    assert process.wait(timeout=120) == 0
    text = printed.decode()
    assert "\\u001b[2J" in text
    commands = {part[: part.index("m")] for part in text.split(ESCAPE)[1:]}
    assert commands == {"[1", "[0"}, "bold, and its end"
    assert not set(text) & {BELL, CSI, RIGHT_TO_LEFT}


def test_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the command line, a message goes to the terminal through a traceback or a progress bar."""
    with pytest.raises(vmt.InputError) as raised:
        vmt.load(f"/{NASTY}")
    check_harmless(str(raised.value))
    progress = Progress(NASTY)
    progress.start("phase", 2)
    progress.say(NASTY)
    progress.advance(1)
    progress.close()
    printed = capsys.readouterr().err
    check_harmless(printed)
    assert printed.count("\\u001b[2J") == 2
