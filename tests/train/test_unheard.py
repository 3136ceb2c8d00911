"""A run continues when nobody can read its messages: a closed terminal, a broken pipe, closed streams."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.cli.test_bad_input import official_files
from tests.own_data import command, write_blobs
from tests.processes import vmt

SHORT = ["--iterations", 20, "--evaluate-every", 5, "--checkpoint-every", 5, "--log-every", 5, "--batch-size", 16]
# Unbuffered, as in most containers, so that every message is written, and fails, at once.
ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}


def broken_pipe() -> int:
    """A pipe that nobody reads from."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def print_to(stream: Callable[[], int]) -> None:
    """Let this process print to a stream without a buffer, as PYTHONUNBUFFERED does."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(stream(), number)
        setattr(sys, name, io.TextIOWrapper(io.FileIO(number, "w"), write_through=True))


@pytest.mark.parametrize(
    "stream",
    [
        broken_pipe,
        pytest.param(full_disk, marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")),
    ],
)
def test_a_run_continues_when_its_messages_cannot_be_written(tmp_path: Path, stream: Callable[[], int]) -> None:
    source, target = write_blobs(tmp_path)
    own = ["--source", source, "--target", target, "--out", tmp_path / "run"]
    assert vmt("train", *own, *SHORT, before=partial(print_to, stream)).returncode == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["finished"]


@pytest.mark.skipif(os.name == "nt", reason="a shell's way to close streams")
def test_a_run_continues_without_streams(tmp_path: Path) -> None:
    source, target = write_blobs(tmp_path)
    arguments = command("train", "--source", source, "--target", target, "--out", tmp_path / "run", *SHORT)
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *arguments]
    assert subprocess.run(closed, env=ENVIRONMENT, check=False, timeout=120).returncode == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["finished"]
    assert "process" in (tmp_path / "run" / ".lock").read_text()


def test_a_queue_continues_when_its_messages_cannot_be_written(tmp_path: Path) -> None:
    """Its workers inherit the stream."""
    script = """
import sys
from pathlib import Path
from tests.paper_cells import OVERRIDES, cell
from vmt.cli.paper import to_stderr
from vmt.paper.experiment import jobs_for
from vmt.paper.queue import PaperQueue, Workspace
from vmt.many.executors import run_in_workers

if __name__ == "__main__":
    queue = jobs_for([cell("Source-Only", "source_only", 2)])
    workspace = Workspace(sys.argv[1], Path("results"), Path("runs"), at_once=2)
    filled = run_in_workers(PaperQueue(queue, workspace, OVERRIDES), None, to_stderr)
    Path("filled").write_text(f"{filled.done} {filled.missing} {filled.problems}")
"""
    (tmp_path / "fill_it.py").write_text(script)
    stream = broken_pipe()
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    subprocess.run(
        [sys.executable, "fill_it.py", str(official_files(tmp_path))],
        cwd=tmp_path,
        stdout=stream,
        stderr=stream,
        env={**ENVIRONMENT, "PYTHONPATH": paths},
        check=False,
        timeout=120,
    )
    os.close(stream)
    assert (tmp_path / "filled").read_text() == "2 0 {}"
