"""What a person sees while a run goes on, where there is no terminal."""

from pathlib import Path

import pytest

from tests.own_data import vmt, write_blobs
from vmt.train import progress
from vmt.train.progress import Progress


def test_a_log_file_gets_whole_lines_and_no_bars(tmp_path: Path) -> None:
    source, target = write_blobs(tmp_path)
    own = ["train", "--source", source, "--target", target, "--iterations", 4, "--batch-size", 8, "--device", "cpu"]
    done = vmt(*own, "--dirt-t", "--dirt-t-iterations", 2, "--interval", 1, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stderr
    assert "█" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if "iterations" in line]
    assert lines[0].startswith("vmt: 4 of 4 iterations, ")
    assert lines[1].startswith("dirt_t: 2 of 2 iterations, ")
    again = vmt("train", "--resume", tmp_path / "run")
    assert "of 2 iterations" not in again.stderr, "there was nothing to do"


def test_lines_come_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bar = Progress("mine")
    bar.start("vmt", 1000, done=100)
    bar.advance(100)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    bar.show(None, 0.5)
    bar.advance(100)
    assert capsys.readouterr().err.startswith("mine: 300 of 1,000 iterations, ")
    bar.close()
    assert capsys.readouterr().err == "", "nothing new"
