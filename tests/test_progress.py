"""Progress on stderr: a bar on a terminal, whole lines elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.own_data import vmt, write_blobs
from vmt import progress
from vmt.progress import Bar, Progress


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
    bar.show_accuracy(None, 0.5)
    bar.advance(100)
    assert capsys.readouterr().err.startswith("mine: 300 of 1,000 iterations, ")
    bar.close()
    assert capsys.readouterr().err == "", "nothing new"


def test_a_line_counts_megabytes_and_says_how_long_it_will_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    with Bar("images.gz", "B") as bar:
        bar.total = 4_000_000
        bar.update(1_000_000)
        line = capsys.readouterr().err
    assert line.startswith("images.gz: 1.0 of 4.0 MB, ")
    assert " left" in line


def test_short_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for options in ({"delay": 60.0}, {"leave": False}, {"show": False}):
        with Bar("reading", "pictures", 2, **options) as bar:
            bar.update(2)
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_a_terminal_shows_a_bar_with_the_accuracy_and_sentences_above_it() -> None:
    import pty
    import termios

    script = """
from vmt.progress import Bar, Progress
progress = Progress()
progress.start("vmt", 10, done=2)
progress.advance(8)
progress.say("a sentence")
progress.show_accuracy(0.5, None)
progress.close()
"""
    terminal, stream = pty.openpty()
    termios.tcsetwinsize(stream, (25, 80))
    subprocess.run([sys.executable, "-c", script], stderr=stream, check=True, timeout=60)
    os.close(stream)
    written = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert "vmt: 100%" in written
    assert "10/10" in written
    assert "target=50.0%" in written
    assert "a sentence\r\n" in written
