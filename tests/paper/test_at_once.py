"""Several runs of the queue at once, by real processes: each run once, all stopped together, none left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.test_bad_input import official_files
from tests.paper_cells import cell, refined
from vmt.cli.paper import to_stderr
from vmt.cli.train import load
from vmt.paper.experiment import Cell, Experiment, jobs_for
from vmt.paper.queue import QueueOutcome, Workspace, run_queue_in_workers
from vmt.runs.folder import RUN, InUse, folder_lock

CHANGES = {"batch_size": 4, "log_every": 1, "checkpoint_every": 1, "device": "cpu"}


def test_workers_share_a_queue_and_do_every_stage_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    workspace = Workspace(str(official_files(tmp_path)), tmp_path / "results", tmp_path / "runs", at_once=2)
    elsewhere = Cell("x", "mnist-mnistm", Experiment("mnist-mnistm", "source_only"), "source_only", None)
    queue = jobs_for([refined("dirt_t"), cell("Source-Only", "source_only", 2), elsewhere])
    filled = run_queue_in_workers(queue, load, workspace, None, CHANGES, to_stderr)
    assert (filled.done, filled.missing, len(filled.problems)) == (4, 1, 1)
    assert "vmt data build mnistm" in filled.problems[0]
    begun = [line.split("] ")[1] for line in capfd.readouterr().err.splitlines() if line.startswith("[")]
    assert sorted(begun) == sorted(map(str, queue[:4]))
    records = [json.loads(path.read_text()) for path in workspace.results.iterdir()]
    assert [record["at_once"] for record in records] == [2, 2, 2]
    assert all(record["finished"] for record in records)
    assert run_queue_in_workers(queue[:4], load, workspace, None, CHANGES, to_stderr) == QueueOutcome(0, 0, [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_save_and_end_when_their_parent_does(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "vmt.cli.main", "paper", "run", "priority", "--only", "*source_only_in*"]
    places = ["--data", official_files(tmp_path), "--results", tmp_path / "results", "--runs", tmp_path / "runs"]
    often = ["--at-once", "2", "--evaluate-every", "1", "--checkpoint-every", "1000", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "said").open("w") as said:
        parent = subprocess.Popen([*command, *places, *often], stderr=said, stdout=said, env=environment)
    runs = [tmp_path / "runs" / f"mnist-svhn_source_only_in{more}_0" for more in ("", "_statistics=target")]
    wait_until(lambda: all(f"{run.name} source_only: 2 of" in (tmp_path / "said").read_text() for run in runs))
    os.kill(parent.pid, number)
    parent.wait()
    wait_until(lambda: not any(in_use(run) for run in runs))
    assert all(list((run / "checkpoints").glob("step-*")) for run in runs)
    assert all((run / RUN).exists() for run in runs)
    if number == signal.SIGTERM:
        assert parent.returncode == 0
        assert "a worker" not in (tmp_path / "said").read_text()


def wait_until(come_true, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not come_true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def in_use(folder: Path) -> bool:
    try:
        with folder_lock(folder):
            return False
    except InUse:
        return True
