"""``vmt data build`` as a user runs it."""

import json
from pathlib import Path

import pytest

from tests import benchmark_files as files
from tests.processes import vmt
from vmt.cli.main import main
from vmt.data import load_task, read_recreation


def test_mnistm_from_the_command_line_to_the_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.write_mnist(tmp_path)
    files.write_photographs(tmp_path)
    assert main(["data", "build", "mnistm", "--data", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    summary = json.loads(printed.out.splitlines()[-1])
    assert summary["files"]["train"] == str(tmp_path / "mnistm" / "train.npz")
    assert "3 photographs" in printed.err
    assert len(load_task("mnist-mnistm", tmp_path).target) == 40


def test_the_re_creation_from_the_command_line(tmp_path: Path) -> None:
    """In a process that starts workers."""
    flags = ["--count", 200, "--test-count", 10, "--seed", 1, "--workers", 2, "--json"]
    done = vmt("data", "build", "syn", "--data", tmp_path, *flags)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["made"]["train"]["set"] == "Synthetic Digits (re-creation)"
    assert "re-creation" in done.stdout.splitlines()[0]
    assert len(read_recreation(tmp_path / "syn", "train")[0]) == 200


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("build mnistm --data {}", "train-images-idx3-ubyte.gz"),
        ("build mnistm", "--data"),
        ("build syn", "--data"),
        ("build syn --out {}/a --seed -1", "seed"),
        ("build syn --out {}/a --fonts {}/none", "none"),
        ("download mnist", "--data"),
    ],
)
def test_one_line_about_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, says: str
) -> None:
    try:
        code = main(["data", *command.format(tmp_path, tmp_path).split()])
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 2
    error = capsys.readouterr().err
    assert error.startswith("vmt: ")
    assert error.count("\n") == 1
    assert says in error


@pytest.mark.parametrize("command", ["", "download", "build", "build mnistm", "build syn"])
def test_help_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["data", *command.split(), "--help"])
    assert ended.value.code == 0
    assert f"vmt data {command}".strip() in capsys.readouterr().out.split("examples:")[1]
