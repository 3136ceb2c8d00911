"""A queue in real worker processes: each job is done once, workers that die are replaced, and all of them stop."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.failing_workers import FOLDER, break_the_gpu_of_every_worker, kill_the_first_worker
from tests.paper_cells import OVERRIDES, cell, refined
from tests.processes import start
from vmt.cli.paper import to_stderr
from vmt.many.executors import run_in_workers
from vmt.many.queue import QueueOutcome
from vmt.paper.experiment import Cell, Experiment, jobs_for
from vmt.paper.queue import PaperQueue, Workspace
from vmt.runs import workers
from vmt.runs.folder import RUN, InUse, folder_lock

posix = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


@pytest.fixture
def workspace(official_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace for one worker; functions of :mod:`tests.failing_workers` leave their marks beside it."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return Workspace(str(official_data), tmp_path / "results", tmp_path / "runs")


@posix
def test_workers_share_a_queue_and_one_that_is_killed_is_replaced(
    workspace: Workspace, capfd: pytest.CaptureFixture[str]
) -> None:
    shared = Workspace(workspace.data, workspace.results, workspace.runs, at_once=2)
    without_data = Cell("x", "mnist-mnistm", Experiment("mnist-mnistm", "source_only"), "source_only", None)
    queue = jobs_for([refined("dirt_t"), cell("Source-Only", "source_only", 2), without_data])
    outcome = run_in_workers(PaperQueue(queue, shared, OVERRIDES), None, kill_the_first_worker)
    assert (outcome.done, outcome.missing, len(outcome.problems)) == (4, 1, 1)
    assert "mnistm" in next(iter(outcome.problems.values()))
    printed = capfd.readouterr().err
    assert "signal 9" in printed
    started = [line.split("] ")[1] for line in printed.splitlines() if line.startswith("[")]
    assert sorted(started) == sorted(map(str, queue[:4])), "each job is done once"
    records = [json.loads(path.read_text()) for path in workspace.results.iterdir()]
    assert [record["at_once"] for record in records] == [2, 2, 2]
    assert all(record["finished"] for record in records)
    assert run_in_workers(PaperQueue(queue[:4], shared, OVERRIDES), None, to_stderr) == QueueOutcome(0, 0, {})


def test_a_worker_without_its_gpu_does_not_use_another_device(
    workspace: Workspace, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(workers, "MOST_FAILURES", 0)
    queue = jobs_for([cell("Source-Only", "source_only", 2)])
    outcome = run_in_workers(PaperQueue(queue, workspace, {**OVERRIDES, "device": "cuda"}), None, to_stderr)
    assert (outcome.done, outcome.missing, len(outcome.problems)) == (0, 2, 1)
    assert "'cuda'" in capfd.readouterr().err
    assert not workspace.runs.exists()


def test_workers_that_always_fail_are_replaced_a_few_times(
    workspace: Workspace, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MOST_FAILURES", 1)
    queue = jobs_for([cell("Source-Only", "source_only", 2)])
    outcome = run_in_workers(PaperQueue(queue, workspace, OVERRIDES), None, break_the_gpu_of_every_worker)
    assert (outcome.done, outcome.missing, len(outcome.problems)) == (0, 2, 1)
    assert "--at-once 1" in next(iter(outcome.problems.values()))
    assert len((tmp_path / "failures").read_text()) == 1 + workers.MOST_FAILURES
    printed = capfd.readouterr().err
    assert "illegal memory access" in printed
    assert "Traceback" not in printed


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_save_and_stop_when_their_parent_does(
    workspace: Workspace, tmp_path: Path, number: signal.Signals
) -> None:
    command = ["paper", "run", "priority", "--only", "*source_only_in*"]
    folders = ["--data", workspace.data, "--results", str(workspace.results), "--runs", str(workspace.runs)]
    flags = ["--at-once", "2", "--evaluate-every", "1", "--checkpoint-every", "1000", "--device", "cpu"]
    parent = start(*command, *folders, *flags)
    runs = [workspace.runs / f"mnist-svhn_source_only_in{more}_0" for more in ("", "_statistics=target")]
    wait_until(lambda: all(f"{run.name} source_only: 2 of" in parent.output for run in runs))
    parent.send_signal(number)
    returned = parent.ended().returncode
    wait_until(lambda: not any(in_use(run) for run in runs))
    assert all(list((run / "checkpoints").glob("step-*")) for run in runs)
    assert all((run / RUN).exists() for run in runs)
    if number == signal.SIGTERM:
        assert returned == 0
        assert "a worker" not in parent.output


def wait_until(condition: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def in_use(folder: Path) -> bool:
    try:
        with folder_lock(folder):
            return False
    except InUse:
        return True
