"""The queue of the paper's runs, filled in portions by real runs of a few iterations, and the tables of its results."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from tests.paper_cells import OVERRIDES, SHORT, cell, refined
from vmt.cli.main import main
from vmt.errors import InputError
from vmt.many.queue import QueueOutcome, run_queue
from vmt.paper.experiment import Cell, Experiment, Job, Table, jobs_for
from vmt.paper.pages import markdown, rows_of
from vmt.paper.queue import PaperQueue, Workspace, summary_of_finished_run
from vmt.paper.results import result_path
from vmt.paper.tables import TABLES
from vmt.progress import Progress
from vmt.runs.folder import SUMMARY, read_run
from vmt.runs.run import Run, carry_out
from vmt.runs.spec import load_data

REFINED = jobs_for([refined("dirt_t")])
SOURCE_ONLY = jobs_for([cell("Source-Only", "source_only", 2)])
posix = pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")


@dataclass(frozen=True)
class Filled(Workspace):
    """A workspace in which every job has been done."""

    after_first: tuple[str, ...] = ()
    """The checkpoints of VMT with DIRT-T after the first portion."""
    lines: tuple[str, ...] = ()
    """What the first portion printed."""


def fill(
    queue: list[Job],
    workspace: Workspace,
    budget: float | None = None,
    lines: list[str] | None = None,
    new_progress: Callable[[str], Progress] = Progress,
    **overrides: Any,
) -> QueueOutcome:
    notify = (lines if lines is not None else []).append
    return run_queue(PaperQueue(queue, workspace, {**OVERRIDES, **overrides}), budget, notify, new_progress)


@pytest.fixture(scope="module")
def filled(official_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """A run with DIRT-T in two portions, and one of a single phase with two seeds."""
    folder = tmp_path_factory.mktemp("paper")
    workspace = Workspace(str(official_data), folder / "results", folder / "runs")
    queue, lines = [*REFINED, *SOURCE_ONLY], list[str]()
    assert fill(queue, workspace, budget=0.0).missing == 4, "no time, nothing done"
    assert not workspace.results.exists()
    assert fill(queue[:1], replace(workspace, at_once=2), None, lines).missing == 0
    left = tuple(path.name for path in (workspace.runs / queue[0].run / "checkpoints").iterdir())
    # A resumed run keeps the settings that it was started with, whatever is asked for now.
    assert fill(queue, workspace, batch_size=5) == QueueOutcome(3, 0, {})
    again: list[str] = []
    assert fill(queue, workspace, None, again) == QueueOutcome(0, 0, {})
    assert again == [], "a job that is done is never done again"
    return Filled(workspace.data, workspace.results, workspace.runs, 1, left, tuple(lines))


@pytest.fixture
def workspace(official_data: Path, tmp_path: Path) -> Workspace:
    """An empty workspace."""
    return Workspace(str(official_data), tmp_path / "results", tmp_path / "runs")


def result_of(workspace: Workspace, job: Job) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(result_path(workspace.results, job.run).read_text())
    return result


def test_a_result_holds_what_a_number_needs(filled: Filled) -> None:
    job = REFINED[-1]
    result = result_of(filled, job)
    assert result["finished"] is True
    assert result["iterations"] == 5
    assert set(result["accuracy"]) == {"vmt", "dirt_t"} == set(result["phase_seconds"])
    assert sum(result["phase_seconds"].values()) == pytest.approx(result["seconds"], abs=0.2)
    assert {"torch", "commit", "gpu"} <= set(result["environment"])
    assert result["recipe"]["config"]["batch_size"] == 4
    assert [row[0] for row in result["curve"]] == [3, 5]
    assert result["curve"][0][1] == result["accuracy"]["vmt"]
    assert result["curve"][0][3] < result["curve"][1][3], "seconds grow"
    assert f"--seeds {job.seed}" in result["command"]
    assert len(result["validators"]["entropy"]) == 2
    assert result["at_once"] == 2, "the largest number of all portions"


def test_stopping_between_phases_changes_nothing(filled: Filled, workspace: Workspace) -> None:
    job = REFINED[-1]
    assert fill([job], workspace).missing == 0
    for name in ("model_vmt.safetensors", "model.safetensors"):
        one, other = (load_file(each.runs / job.run / name) for each in (filled, workspace))
        assert all(one[key].equal(other[key]) for key in one)
    before, after = (load_file(filled.runs / job.run / name) for name in ("model_vmt.safetensors", "model.safetensors"))
    assert not all(before[key].equal(after[key]) for key in before)


def test_a_run_keeps_only_the_checkpoint_that_it_needs(filled: Filled) -> None:
    assert filled.after_first == ("step-000000003",)
    assert "MB" in filled.lines[-1]
    assert not list((filled.runs / REFINED[0].run / "checkpoints").iterdir())


def test_a_run_that_ran_out_of_time_is_resumed(workspace: Workspace) -> None:
    """Also if it was stopped before it had logged anything."""
    long = Experiment("mnist-svhn", "source_only", changes={"iterations": 10_000})
    job = Job(long, 0, "source_only")
    steps = []
    for _ in range(2):
        assert fill([job], workspace, 0.3, log_every=1000) == QueueOutcome(0, 1, {})
        steps.append(result_of(workspace, job)["iterations"])
        assert result_of(workspace, job)["accuracy"] == {}
    assert 0 < steps[0] < steps[1] < 10_000


class StoppedAtItsEnd(Progress):
    """Sends SIGTERM while the model is evaluated. These short runs have one evaluation, at their end."""

    def show_accuracy(self, target: float | None, source: float | None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@posix
def test_a_queue_that_is_stopped_at_the_end_of_a_run_finishes_the_run(workspace: Workspace) -> None:
    lines, handler = list[str](), signal.getsignal(signal.SIGTERM)
    assert fill(SOURCE_ONLY, workspace, None, lines, StoppedAtItsEnd) == QueueOutcome(1, 1, {})
    assert "1 job is missing" in lines[-1]
    (result,) = workspace.results.iterdir()
    assert json.loads(result.read_text())["finished"]
    assert (workspace.runs / result.stem / "model.safetensors").exists()
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_lost_result_comes_back_from_the_run(filled: Filled, tmp_path: Path) -> None:
    job = REFINED[-1]
    workspace = Workspace(filled.data, tmp_path / "results", filled.runs)
    assert fill([job], workspace).missing == 0
    assert result_of(workspace, job)["accuracy"] == result_of(filled, job)["accuracy"]


def test_missing_data_and_unusable_folders_hold_up_no_other_job(workspace: Workspace) -> None:
    without_data = Cell(
        "x", "mnist-mnistm", Experiment("mnist-mnistm", "source_only", changes=SHORT), "source_only", None
    )
    workspace.runs.mkdir()
    (workspace.runs / SOURCE_ONLY[0].run).write_text("not a folder")
    outcome = fill([*jobs_for([without_data]), *SOURCE_ONLY], workspace)
    assert (outcome.done, outcome.missing) == (1, 2)
    no_data, no_folder = outcome.problems.values()
    assert "vmt data build mnistm" in no_data
    assert SOURCE_ONLY[0].run in no_folder
    assert {path.name for path in workspace.runs.iterdir()} == {job.run for job in SOURCE_ONLY}, "no empty folder"
    assert rows_of(Table("t", "t", (cell("Source-Only", "source_only"),)), workspace.results)[0]["runs"] == 1


@posix
def test_a_folder_that_the_system_refuses_is_named(workspace: Workspace) -> None:
    runs = workspace.runs / (300 * "a")
    (problem,) = fill(SOURCE_ONLY[:1], replace(workspace, runs=runs)).problems.values()
    assert str(runs) in problem
    assert "File name too long" in problem


def test_a_damaged_summary_holds_up_no_other_job(filled: Filled, tmp_path: Path) -> None:
    workspace = Workspace(filled.data, tmp_path / "results", tmp_path / "runs")
    for job in SOURCE_ONLY:
        shutil.copytree(filled.runs / job.run, workspace.runs / job.run)
    damaged, other = (workspace.runs / job.run for job in SOURCE_ONLY)
    (damaged / SUMMARY).write_bytes(b'{"finished": tr')
    outcome = fill(SOURCE_ONLY, workspace)
    assert (outcome.done, outcome.missing, len(outcome.problems)) == (1, 1, 1)
    assert str(damaged / SUMMARY) in next(iter(outcome.problems.values()))
    assert [path.stem for path in workspace.results.iterdir()] == [other.name]
    before = filled.runs / damaged.name / "model.safetensors"
    assert (damaged / "model.safetensors").read_bytes() == before.read_bytes()


@pytest.mark.parametrize("damage", [b"", b'{"finished": tr', b"[]", b'{"finished": true}', b"\xff\x00"])
def test_a_damaged_summary_is_an_input_error(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / SUMMARY).write_bytes(damage)
    with pytest.raises(InputError, match=SUMMARY):
        summary_of_finished_run(tmp_path)


def test_a_finished_run_without_the_phase_is_named(filled: Filled, tmp_path: Path) -> None:
    job = REFINED[-1]
    workspace = Workspace(filled.data, tmp_path / "results", tmp_path / "runs")
    shutil.copytree(filled.runs / job.run, workspace.runs / job.run)
    path = workspace.runs / job.run / SUMMARY
    summary = json.loads(path.read_text())
    del summary["phases"]["dirt_t"]
    path.write_text(json.dumps(summary))
    outcome = fill([job], workspace)
    assert (outcome.done, outcome.missing) == (0, 1)
    assert job.run in next(iter(outcome.problems.values()))
    assert "dirt_t" in next(iter(outcome.problems.values()))


def test_a_finished_run_without_checkpoints_is_not_started_again(filled: Filled, tmp_path: Path) -> None:
    """The queue removes the checkpoints of finished runs."""
    run = tmp_path / "run"
    shutil.copytree(filled.runs / SOURCE_ONLY[0].run, run)
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file() and path.name != ".lock"}
    spec = read_run(run)
    with pytest.raises(InputError, match="checkpoint"):
        carry_out(Run.of(spec, load_data(spec.data)), run, resume=True)
    assert {path: path.read_bytes() for path in before} == before


def test_samples_held_apart_for_choices_are_recorded(official_data: Path, tmp_path: Path) -> None:
    """They are not trained on, and the result has the accuracy on them beside that on the test set."""
    workspace = Workspace(str(official_data), tmp_path / "results", tmp_path / "runs")
    table = Table("small", "A small table", (cell("Source-Only", "source_only"),)).choosing_on(5)
    (job,) = queue = jobs_for(table.cells)
    assert fill(queue, workspace).done == 1
    result = result_of(workspace, job)
    assert job.run == "mnist-svhn_source_only_in_iterations=3_choose_on=5_0"
    assert "--choose-on 5" in result["command"]
    assert result["choose_on"] == 5
    assert set(result["choice_accuracy"]) == {"source_only"}
    assert len(result["curve"][-1]) == len(result["curve_columns"])
    spec = read_run(workspace.runs / job.run)
    task, whole = load_data(spec.data), load_data(replace(spec.data, choose_on=None))
    assert task.target_choice is not None
    assert (len(task.target), len(task.target_choice)) == (len(whole.target) - 5, 5)
    assert "| held apart |" in markdown(table, workspace.results)


def test_a_table_shows_means_spread_and_what_is_missing(filled: Filled) -> None:
    table = Table(
        "small", "A small table", (cell("Source-Only", "source_only", 3), refined("vmt"), cell("DANN", "dann"))
    )
    source_only, before, never = rows_of(table, filled.results)
    both = [result_of(filled, job)["accuracy"]["source_only"] for job in SOURCE_ONLY]
    assert source_only["ours"] == pytest.approx(100 * np.mean(both), abs=0.01)
    assert source_only["std"] == pytest.approx(100 * np.std(both, ddof=1), abs=0.01)
    assert source_only["seeds"] == [0, 1]
    assert (before["runs"], before["std"]) == (1, None)
    assert never["ours"] is None
    shown = markdown(table, filled.results)
    assert "| Source-Only | mnist-svhn | 40.9 |" in shown
    assert "| 2 of 3 |" in shown
    assert "| DANN | mnist-svhn | 40.9 | not run yet | 0 of 1 |  |" in shown


def test_the_commands_show_and_list(filled: Filled, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "list"]) == 0
    assert main(["paper", "list", "upper-bound", "--results", str(tmp_path), "--runs", str(tmp_path)]) == 0
    assert "missing      mnist-svhn_target_only_no-in_0" in capsys.readouterr().out
    assert main(["paper", "show", "all", "--json", "--results", str(filled.results)]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(TABLES)
    assert main(["paper", "show", "mixup", "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "vmt paper run mixup" in shown.err
    assert "| hidden |" in shown.out


def test_the_command_fills_a_table(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    """In no time at all, the command builds the queue and says what is left."""
    folders = ["--data", workspace.data, "--results", str(workspace.results), "--runs", str(workspace.runs)]
    assert main(["paper", "run", "priority", "--phases", "1", "--budget", "0", "--device", "cpu", *folders]) == 0
    assert "jobs are missing" in capsys.readouterr().err


def test_pages_show_every_run_and_what_was_not_run(filled: Filled, tmp_path: Path) -> None:
    out = tmp_path / "docs"
    arguments = ["paper", "pages", "--results", str(tmp_path / "results"), "--out", str(out)]
    name = "mnist-svhn_vmt_dirt_t_in_3"
    result = result_of(filled, REFINED[-1]) | {"seed": 3, "collapsed_phases": ["dirt_t"]}
    (tmp_path / "results").mkdir()
    result_path(tmp_path / "results", name).write_text(json.dumps(result))
    assert main(arguments) == 0
    text = (out / "ten-runs.md").read_text()
    assert f"[{name}](../results/{name}.json)" in text
    assert f"{100 * result['accuracy']['dirt_t']:.1f} (collapsed)" in text
    half = {**result, "finished": False, "accuracy": {"vmt": 0.8}, "curve": [[3, 0.8, 0.9, 1.0], [5, 0.7, 0.9, 2.0]]}
    result_path(tmp_path / "results", name).write_text(json.dumps(half))
    assert main(arguments) == 0
    assert "vmt 80.0, partial: 70.0 after 5 iterations" in (out / "ten-runs.md").read_text()
    row = "| VMT@40K, no IN | mnist-svhn | 51.9 ± 5.7 | not run yet | 0 of 10 |  |"
    assert row in text.replace("\N{NO-BREAK SPACE}", " ")
    assert main([*arguments, "--check"]) == 0
    result_path(tmp_path / "results", name).unlink()
    assert main([*arguments, "--check"]) == 2
