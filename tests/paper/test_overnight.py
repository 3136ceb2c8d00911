"""A queue at night: asked to stop at any moment, with files that are damaged, with a worker that is killed."""

import json
import os
import shutil
import signal
from dataclasses import astuple
from pathlib import Path

import pytest
import torch

from tests.cli.test_bad_input import official_files
from tests.paper.test_at_once import CHANGES
from tests.paper_cells import cell
from vmt.cli.paper import to_stderr
from vmt.cli.train import load
from vmt.data import Task
from vmt.errors import InputError
from vmt.paper.experiment import jobs_for
from vmt.paper.queue import MOST_FAILURES, QueueOutcome, Workspace, run_queue, run_queue_in_workers
from vmt.runs.folder import read_run
from vmt.runs.run import Run, carry_out
from vmt.runs.spec import DataSpec
from vmt.train.progress import Progress

QUEUE = jobs_for([cell("Source-Only", "source_only", 2)])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    assert run_queue(QUEUE, load, workspace_in(folder, folder), None, CHANGES, lambda said: None) == QueueOutcome(
        2, 0, []
    )
    return folder


def workspace_in(folder: Path, data: Path, at_once: int = 1) -> Workspace:
    files = data / "data"
    if not files.exists():
        files.mkdir()
        official_files(files)
    return Workspace(str(files), folder / "results", folder / "runs", at_once)


class StoppedAtItsEnd(Progress):
    """A polite kill while the model is looked at, which these short runs do once: at their end."""

    def show(self, target: float | None, source: float | None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_queue_asked_to_stop_in_the_last_moment_of_a_run_finishes_the_run_and_stops(
    filled: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    workspace = workspace_in(tmp_path, filled)
    assert run_queue(QUEUE, load, workspace, None, CHANGES, said.append, StoppedAtItsEnd) == QueueOutcome(1, 1, [])
    assert said[-1] == "Stopped; 1 job is missing. The same command goes on."
    (result,) = workspace.results.iterdir()
    assert json.loads(result.read_text())["finished"]
    assert (workspace.runs / result.stem / "model.safetensors").exists()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def load_or_be_killed(data: DataSpec) -> Task:
    """The first worker that comes here is ended as the system does when memory is short."""
    try:
        (Path(str(data.data)) / "killed").touch(exist_ok=False)
    except FileExistsError:
        return load(data)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def always_fail(data: DataSpec) -> Task:
    with (Path(str(data.data)) / "failures").open("a") as failures:
        failures.write("x")
    raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nSearch for it")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("at_once", [1, 2])
def test_a_worker_that_is_killed_is_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str], at_once: int) -> None:
    workspace = workspace_in(tmp_path, tmp_path, at_once)
    assert run_queue_in_workers(QUEUE, load_or_be_killed, workspace, None, CHANGES, to_stderr) == QueueOutcome(2, 0, [])
    assert "A worker was ended by signal 9: another takes its place." in capfd.readouterr().err


def test_a_device_that_is_not_there_is_not_replaced_by_another(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    workspace = workspace_in(tmp_path, tmp_path)
    outcome = run_queue_in_workers(QUEUE, load, workspace, None, {**CHANGES, "device": "cuda"}, to_stderr)
    assert (outcome.done, outcome.missing, len(outcome.problems)) == (0, 2, 1)
    assert "vmt: device 'cuda' is not there: torch sees 0 CUDA devices" in capfd.readouterr().err
    assert not workspace.runs.exists()


def test_workers_that_always_fail_are_replaced_a_few_times(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    workspace = workspace_in(tmp_path, tmp_path)
    outcome = run_queue_in_workers(QUEUE, always_fail, workspace, None, CHANGES, to_stderr)
    assert (outcome.done, outcome.missing, len(outcome.problems)) == (0, 2, 1)
    assert "a worker ended with code 1 (out of memory?): the same command goes on" in outcome.problems[0]
    assert len((Path(workspace.data) / "failures").read_text()) == 1 + MOST_FAILURES
    said = capfd.readouterr().err
    assert "vmt: the GPU has failed (CUDA error: an illegal memory access was encountered): the same command" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("damage", [b"", b'{"finished": tr', b"[]", b'{"finished": true}', b"\xff\x00"])
def test_a_damaged_summary_holds_up_no_other_run(filled: Path, tmp_path: Path, damage: bytes) -> None:
    for part in ("runs", "results"):
        shutil.copytree(filled / part, tmp_path / part)
    workspace = workspace_in(tmp_path, filled)
    run, other = (workspace.runs / job.run for job in QUEUE)
    (run / "summary.json").write_bytes(damage)
    for job in QUEUE:
        (workspace.results / f"{job.run}.json").unlink()
    done, missing, problems = astuple(run_queue(QUEUE, load, workspace, None, CHANGES, lambda said: None))
    assert (done, missing) == (1, 1)
    assert problems == [f"{run / 'summary.json'} cannot be read: remove {run}, and run its table again."]
    assert [path.stem for path in workspace.results.iterdir()] == [other.name]
    assert (run / "model.safetensors").read_bytes() == (filled / "runs" / run.name / "model.safetensors").read_bytes()


def test_a_finished_run_without_checkpoints_does_not_begin_again(filled: Path, tmp_path: Path) -> None:
    """The queue removes the checkpoints of what is finished."""
    run = tmp_path / "run"
    shutil.copytree(filled / "runs" / QUEUE[0].run, run)
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file() and path.name != ".lock"}
    spec = read_run(run)
    with pytest.raises(InputError, match="has come to its end and has no checkpoint to go on from"):
        carry_out(Run.of(spec, load(spec.data)), run, resume=True)
    assert {path: path.read_bytes() for path in before} == before
