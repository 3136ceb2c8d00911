"""Progress on stderr: a bar on a terminal, whole lines elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.own_data import write_blobs
from tests.processes import vmt
from vmt import progress
from vmt.progress import Bar, Progress, ProgressLines


def test_a_log_file_gets_whole_lines_and_no_bars(tmp_path: Path) -> None:
    source, target = write_blobs(tmp_path)
    own = ["train", "--source", source, "--target", target, "--iterations", 4, "--batch-size", 8, "--device", "cpu"]
    done = vmt(*own, "--dirt-t", "--dirt-t-iterations", 2, "--interval", 1, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stderr
    assert "█" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if " iterations, " in line]
    assert lines[0].startswith("vmt: 4 of 4 iterations, ")
    assert lines[1].startswith("dirt_t: 2 of 2 iterations, ")
    assert all(word in line for line in lines for word in (" elapsed", " per second"))
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


def on_terminal(script: str, columns: int = 80, **environment: str) -> str:
    """What a script writes to a terminal of this width as its stderr."""
    import pty
    import termios

    terminal, stream = pty.openpty()
    termios.tcsetwinsize(stream, (25, columns))
    known = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment = {**known, "TERM": "xterm", **environment}
    subprocess.run([sys.executable, "-c", script], stderr=stream, check=True, timeout=60, env=environment)
    os.close(stream)
    written = b""
    try:
        while part := os.read(terminal, 100_000):
            written += part
    except OSError:  # the other end is closed
        pass
    os.close(terminal)
    return written.decode()


needs_a_terminal = pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")


@needs_a_terminal
def test_a_terminal_shows_a_bar_with_the_accuracy_and_sentences_above_it() -> None:
    script = """
from vmt.progress import Bar, Progress
progress = Progress()
progress.start("vmt", 10, done=2)
progress.advance(8)
progress.say("a sentence")
progress.show_accuracy(0.5, None)
progress.close()
"""
    written = on_terminal(script)
    assert "vmt 100%" in written
    assert "10/10" in written
    assert "target 50.0%" in written
    assert "a sentence\r\n" in written


@needs_a_terminal
@pytest.mark.parametrize(("columns", "shown"), [(80, "left"), (50, "left"), (24, "")])
def test_a_bar_fits_a_narrow_terminal(columns: int, shown: str) -> None:
    """There is room for the bar, and the time left is shown before anything else."""
    script = """
from vmt.progress import Progress

class Slow:
    rate = staticmethod(lambda: 12.345)
    left = staticmethod(lambda: 5025.0)

progress = Progress("VMT with a name, then DIRT-T {all of it}")
progress.start("vmt", 40_000, 0, Slow())
for _ in range(3):
    progress.advance(1_000)
    progress.show_accuracy(0.5, 0.25)
progress.close()
"""
    lines = on_terminal(script, columns).replace("\n", "\r").split("\r")
    assert max(map(len, lines)) <= columns
    full = [line for line in lines if "8%|" in line]
    assert full
    assert all(shown in line for line in full)
    assert all(line.split("|")[1].strip(" ") for line in full), "a part of the bar is filled"


@needs_a_terminal
def test_colours_are_for_terminals_and_can_be_turned_off() -> None:
    script = "from vmt.progress import STDERR; STDERR.write(STDERR.styled('vmt:', 'red'))"
    assert "\033[" in on_terminal(script)
    assert on_terminal(script, NO_COLOR="1") == "vmt:"
    assert on_terminal(script, TERM="dumb") == "vmt:"
    piped = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, check=True, env=os.environ)
    assert piped.stderr == b"vmt:"


def test_lines_of_parallel_runs_have_the_time_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ProgressLines("run 1")
    lines.start("vmt", 100)
    lines.advance(25)
    assert capsys.readouterr().err == ""
    lines.show_accuracy(0.5, None)
    lines.advance(25)
    line = capsys.readouterr().err
    assert line.startswith("run 1: 50 of 100 iterations, ")
    assert all(word in line for word in ("elapsed", "left", "per second", "target 50.0%"))


def test_a_job_in_short_steps_names_them_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Progress(unit="", leave=False, name_phases=True)
    steps.start("reading data", 1)
    steps.start("drawing maps", 2)
    steps.close()
    assert capsys.readouterr().err.splitlines() == ["reading data …", "drawing maps …"]
