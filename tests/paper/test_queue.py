"""The queue of the paper's runs: filled in portions by real runs of a few iterations, and shown as they fell."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from tests.cli.test_bad_input import official_files
from tests.paper_cells import SHORT, cell, refined
from vmt.cli.main import main
from vmt.cli.train import load
from vmt.paper.experiment import Cell, Experiment, Job, Table, jobs_for
from vmt.paper.pages import markdown, rows_of
from vmt.paper.queue import QueueOutcome, Workspace, run_queue
from vmt.paper.results import result_path
from vmt.paper.tables import TABLES
from vmt.runs.folder import SUMMARY

CHANGES = {"batch_size": 4, "log_every": 1, "checkpoint_every": 1}


def fill_all(
    queue: list[Job], workspace: Workspace, budget: float | None = None, said: list[str] | None = None
) -> QueueOutcome:
    return run_queue(queue, load, workspace, budget, CHANGES, (said if said is not None else []).append)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A run with DIRT-T in two portions, and one of a single phase with two seeds."""
    folder = tmp_path_factory.mktemp("paper")
    workspace = Workspace(str(official_files(folder)), folder / "results", folder / "runs")
    queue = jobs_for([refined("dirt_t"), cell("Source-Only", "source_only", 2)])
    said: list[str] = []
    assert fill_all(queue, workspace, 0.0, said).missing == 4, "no time, nothing done"
    assert not workspace.results.exists()
    assert fill_all(queue[:1], replace(workspace, at_once=2)).missing == 0
    # What a run began with holds when it goes on, whatever is asked for then.
    assert run_queue(queue, load, workspace, None, {**CHANGES, "batch_size": 5}, said.append) == QueueOutcome(3, 0, [])
    said.clear()
    assert fill_all(queue, workspace, None, said) == QueueOutcome(0, 0, [])
    assert said == [], "what is done is never run again"
    return workspace


def record_of(workspace: Workspace, job: Job) -> dict[str, object]:
    record: dict[str, object] = json.loads(result_path(workspace.results, job.run).read_text())
    return record


def test_a_result_holds_what_a_number_needs(filled: Workspace) -> None:
    job = jobs_for([refined("dirt_t")])[-1]
    record = record_of(filled, job)
    assert record["finished"] is True
    assert record["iterations"] == 5
    assert set(record["accuracy"]) == {"vmt", "dirt_t"} == set(record["phase_seconds"])
    assert sum(record["phase_seconds"].values()) == pytest.approx(record["seconds"], abs=0.2)
    assert {"torch", "commit", "gpu"} <= set(record["environment"])
    assert record["recipe"]["config"]["batch_size"] == 4
    assert [row[0] for row in record["curve"]] == [3, 5]
    assert record["curve"][0][1] == record["accuracy"]["vmt"]
    assert record["curve"][0][3] < record["curve"][1][3], "seconds grow"
    assert f"--seeds {job.seed}" in record["command"]
    assert len(record["validators"]["entropy"]) == 2
    assert record["at_once"] == 2, "also of the portion before the last"


def test_stopping_between_phases_changes_nothing(filled: Workspace, tmp_path: Path) -> None:
    at_once = Workspace(filled.data, tmp_path / "results", tmp_path / "runs")
    job = jobs_for([refined("dirt_t")])[-1]
    assert fill_all([job], at_once).missing == 0
    for name in ("model_vmt.safetensors", "model.safetensors"):
        one, other = (load_file(workspace.runs / job.run / name) for workspace in (filled, at_once))
        assert all(one[key].equal(other[key]) for key in one)
    before, after = (load_file(filled.runs / job.run / name) for name in ("model_vmt.safetensors", "model.safetensors"))
    assert not all(before[key].equal(after[key]) for key in before)


def test_a_run_keeps_only_what_it_needs_to_go_on(filled: Workspace, tmp_path: Path) -> None:
    workspace = Workspace(filled.data, tmp_path / "results", tmp_path / "runs")
    said: list[str] = []
    fill_all(jobs_for([refined("dirt_t")])[:1], workspace, None, said)
    folder = workspace.runs / jobs_for([refined("dirt_t")])[0].run
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-000000003"]
    assert "MB" in said[-1]
    finished = filled.runs / folder.name
    assert not list((finished / "checkpoints").iterdir())


def test_a_run_that_time_runs_out_for_goes_on(filled: Workspace, tmp_path: Path) -> None:
    """Stopped before it had logged anything, then gone on with."""
    workspace = Workspace(filled.data, tmp_path / "results", tmp_path / "runs")
    rare = {**CHANGES, "log_every": 1000}
    long = Experiment("mnist-svhn", "source_only", changes={"iterations": 10_000})
    job = Job(long, 0, "source_only")
    steps = []
    for _ in range(2):
        assert run_queue([job], load, workspace, 0.3, rare, [].append) == QueueOutcome(0, 1, [])
        steps.append(record_of(workspace, job)["iterations"])
        assert record_of(workspace, job)["accuracy"] == {}
    assert 0 < steps[0] < steps[1] < 10_000


def test_a_lost_result_comes_back_from_the_run(filled: Workspace, tmp_path: Path) -> None:
    job = jobs_for([refined("dirt_t")])[-1]
    workspace = Workspace(filled.data, tmp_path / "results", filled.runs)
    assert fill_all([job], workspace).missing == 0
    assert record_of(workspace, job)["accuracy"] == record_of(filled, job)["accuracy"]


def test_missing_data_hold_up_no_other_task(filled: Workspace, tmp_path: Path) -> None:
    workspace = Workspace(filled.data, tmp_path / "results", tmp_path / "runs")
    elsewhere = Cell("x", "mnist-mnistm", Experiment("mnist-mnistm", "source_only", changes=SHORT), "source_only", None)
    here = cell("Source-Only", "source_only")
    done = fill_all(jobs_for([elsewhere, here]), workspace)
    assert (done.done, done.missing) == (1, 1)
    assert len(done.problems) == 1
    assert "vmt data build mnistm" in done.problems[0]
    assert [folder.name for folder in workspace.runs.iterdir()] == [f"{here.experiment.name}_0"], "no empty folder"
    assert rows_of(Table("t", "t", (here,)), workspace.results)[0]["runs"] == 1


def test_a_folder_that_cannot_be_used_holds_up_no_other_run(filled: Workspace, tmp_path: Path) -> None:
    workspace = Workspace(filled.data, tmp_path / "results", tmp_path / "runs")
    queue = jobs_for([cell("Source-Only", "source_only", 2)])
    workspace.runs.mkdir()
    (workspace.runs / queue[0].run).write_text("no folder")
    done = fill_all(queue, workspace)
    assert (done.done, done.missing) == (1, 1)
    assert "is a file" in done.problems[0]


def test_a_table_shows_means_spread_and_what_is_missing(filled: Workspace) -> None:
    table = Table(
        "small", "A small table", (cell("Source-Only", "source_only", 3), refined("vmt"), cell("DANN", "dann"))
    )
    source_only, before, never = rows_of(table, filled.results)
    both = [record_of(filled, job)["accuracy"]["source_only"] for job in jobs_for(table.cells[:1])[:2]]
    assert source_only["ours"] == pytest.approx(100 * np.mean(both), abs=0.01)
    assert source_only["std"] == pytest.approx(100 * np.std(both, ddof=1), abs=0.01)
    assert source_only["seeds"] == [0, 1]
    assert (before["runs"], before["std"]) == (1, None)
    assert never["ours"] is None
    shown = markdown(table, filled.results)
    assert "| Source-Only | mnist-svhn | 40.9 |" in shown
    assert "| 2 of 3 |" in shown
    assert "| DANN | mnist-svhn | 40.9 | – | 0 of 1 | 0 |" in shown


def test_the_commands_show_and_list(filled: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "list"]) == 0
    assert main(["paper", "list", "upper-bound", "--results", str(tmp_path), "--runs", str(tmp_path)]) == 0
    assert "missing      mnist-svhn_target_only_no-in_0" in capsys.readouterr().out
    assert main(["paper", "show", "all", "--json", "--results", str(filled.results)]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(TABLES)
    assert main(["paper", "show", "mixup", "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "vmt paper run mixup" in shown.err
    assert "| hidden |" in shown.out


def test_the_command_fills_a_table(filled: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As far as no time at all goes: the queue is made, and says what is left."""
    workspace = ["--data", filled.data, "--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    assert main(["paper", "run", "priority", "--phases", "1", "--budget", "0", *workspace]) == 0
    assert "jobs are missing" in capsys.readouterr().err


def test_pages_show_every_run_and_what_was_not_run(filled: Workspace, tmp_path: Path) -> None:
    out = tmp_path / "docs"
    arguments = ["paper", "pages", "--results", str(tmp_path / "results"), "--out", str(out)]
    name = "mnist-svhn_vmt_dirt_t_in_3"
    record = record_of(filled, jobs_for([refined("dirt_t")])[-1]) | {"seed": 3, "collapsed_phases": ["dirt_t"]}
    (tmp_path / "results").mkdir()
    result_path(tmp_path / "results", name).write_text(json.dumps(record))
    assert main(arguments) == 0
    text = (out / "ten-runs.md").read_text()
    assert f"[{name}](../results/{name}.json)" in text
    assert f"{100 * record['accuracy']['dirt_t']:.1f} (collapsed)" in text
    half = {**record, "finished": False, "accuracy": {"vmt": 0.8}, "curve": [[3, 0.8, 0.9, 1.0], [5, 0.7, 0.9, 2.0]]}
    result_path(tmp_path / "results", name).write_text(json.dumps(half))
    assert main(arguments) == 0
    assert "vmt 80.0, not finished: 70.0 after 5 iterations" in (out / "ten-runs.md").read_text()
    assert "| VMT@40K, no IN | mnist-svhn | 51.9 ± 5.7 | not run yet | 10 |  |" in text
    assert main([*arguments, "--check"]) == 0
    result_path(tmp_path / "results", name).unlink()
    assert main([*arguments, "--check"]) == 2


def test_a_finished_run_without_the_phase_is_named(filled: Workspace, tmp_path: Path) -> None:
    job = jobs_for([refined("dirt_t")])[-1]
    workspace = Workspace(filled.data, tmp_path / "results", tmp_path / "runs")
    shutil.copytree(filled.runs / job.run, workspace.runs / job.run)
    path = workspace.runs / job.run / SUMMARY
    summary = json.loads(path.read_text())
    del summary["phases"]["dirt_t"]
    path.write_text(json.dumps(summary))
    done = fill_all([job], workspace)
    assert (done.done, done.missing) == (0, 1)
    assert "was finished without dirt_t" in done.problems[0]
