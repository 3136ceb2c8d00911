"""The paper's tables: every cell can be built, filled in portions and shown honestly."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from tests.test_bad_input import official_files
from vmt.cli.main import main
from vmt.cli.train import load
from vmt.errors import InputError
from vmt.paper import numbers
from vmt.paper.experiment import Cell, Experiment, Stage, Table, stages
from vmt.paper.pages import pages
from vmt.paper.results import result_path
from vmt.paper.runner import Filled, Places, fill
from vmt.paper.show import markdown, rows_of
from vmt.paper.tables import TABLES, find_table
from vmt.recipes import PAPER, paper

SHORT = {"iterations": 3}
CHANGES = {"batch_size": 4, "log_every": 1, "checkpoint_every": 1}


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_run_of_a_table_is_a_method(table: Table) -> None:
    for stage in stages(table.cells):
        method = stage.experiment.recipe(stage.seed).build()
        assert tuple(phase.name for phase in method.phases) == stage.experiment.phases
        assert [phase.iterations for phase in method.phases] == [40_000, 160_000][: len(method.phases)]


def test_the_recipes_are_the_papers() -> None:
    def weights(task: str, method: str = "vmt", instance_norm: bool = True) -> dict[str, object]:
        return {**paper(task, method, instance_norm, dirt_t=True).settings}

    assert weights("mnist-svhn") == {"lambda_d": 0.01, "lambda_s": 1.0, "lambda_t": 0.06}
    assert weights("mnist-svhn", instance_norm=False)["lambda_t"] == 0.01
    assert weights("mnist-svhn", "vada") == {"lambda_d": 0.01, "lambda_s": 1.0, "lambda_t": 0.01, "entropy": True}
    assert weights("mnist-svhn", "vada", instance_norm=False)["entropy"] is False
    assert weights("mnist-mnistm")["lambda_mix_t"] == 1e-3
    refined = paper("mnist-mnistm", dirt_t=True).dirt_t
    assert refined is not None
    assert refined["interval"] == 500
    assert paper("stl-cifar").net == "large"
    assert {task for task, _ in PAPER} == set(numbers.TASKS)


def test_the_variants_differ_by_their_terms() -> None:
    def terms(row: str) -> dict[str, object]:
        cell = next(cell for cell in TABLES["vat-versus-vmt"].cells if cell.row == row)
        update = cell.experiment.recipe(0).build().phases[0].updates[-1]
        return {term.name: term.weight for term in update.terms if term.weight != 0}

    assert terms("L_c") == {"L_y": 1.0, "L_d": 0.01, "L_c(target)": 0.01}
    assert terms("L_c, L_v") == {**terms("L_c"), "L_v(source)": 1.0, "L_v(target)": 0.01}
    both = {"L_v(source)": 1.0, "L_v(target)": 0.06}
    assert terms("L_c, L_v, L_m") == {**terms("L_c, L_m"), **both}
    assert terms("L_c, L_m")["L_m(target)"] == 0.06


def test_the_list_of_priorities_begins_with_what_matters_most() -> None:
    queue = stages(TABLES["priority"].cells)
    refined = Experiment("mnist-svhn", dirt_t=True)
    assert queue[:6] == [Stage(refined, seed, phase) for phase in ("vmt", "dirt_t") for seed in (0, 1, 2)]
    assert len({(stage.run, stage.phase) for stage in queue}) == len(queue)
    assert {(s.run, s.phase) for s in queue} <= {(s.run, s.phase) for s in stages(find_table("all").cells)}


def cell(row: str, method: str, seeds: int = 1) -> Cell:
    """Of a few iterations, before DIRT-T."""
    return Cell(row, "mnist-svhn", Experiment("mnist-svhn", method, changes=SHORT), method, 40.9, seeds=seeds)


def refined(phase: str, seeds: int = 1) -> Cell:
    changes = {**SHORT, "dirt_t_iterations": 2}
    return Cell(phase, "mnist-svhn", Experiment("mnist-svhn", dirt_t=True, changes=changes), phase, 95.1, 1.0, seeds)


def test_stages_come_once_in_the_order_of_the_cells() -> None:
    cells = (refined("vmt", 2), refined("dirt_t"), cell("Source-Only", "source_only"), refined("dirt_t"))
    short = [(stage.seed, stage.phase) for stage in stages(cells)]
    assert short == [(0, "vmt"), (1, "vmt"), (0, "dirt_t"), (0, "source_only")]
    assert [s.phase for s in stages(cells, phases=1)] == ["vmt", "vmt", "source_only"]
    assert [s.seed for s in stages(cells, seeds=[4, 7], only="Source*")] == [4, 7]
    assert [s.phase for s in stages(cells[1:2])] == ["vmt", "dirt_t"], "a phase comes with those before it"
    assert len(stages(cells, only="*dirt_t*")) == 3, "a pattern may name a run as well"
    with pytest.raises(InputError, match="nothing"):
        stages(cells, only="nothing")


def fill_all(queue: list[Stage], places: Places, budget: float | None = None, said: list[str] | None = None) -> Filled:
    return fill(queue, load, places, budget, CHANGES, (said if said is not None else []).append)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """A run with DIRT-T in two portions, and one of a single phase with two seeds."""
    folder = tmp_path_factory.mktemp("paper")
    places = Places(str(official_files(folder)), folder / "results", folder / "runs")
    queue = stages([refined("dirt_t"), cell("Source-Only", "source_only", 2)])
    said: list[str] = []
    assert fill_all(queue, places, 0.0, said).missing == 4, "no time, nothing done"
    assert not places.results.exists()
    assert fill_all(queue[:1], places).missing == 0
    assert fill_all(queue, places, None, said) == Filled(3, 0, [])
    said.clear()
    assert fill_all(queue, places, None, said) == Filled(0, 0, [])
    assert said == [], "what is done is never run again"
    return places


def record_of(places: Places, stage: Stage) -> dict[str, object]:
    record: dict[str, object] = json.loads(result_path(places.results, stage.run).read_text())
    return record


def test_a_result_holds_what_a_number_needs(filled: Places) -> None:
    stage = stages([refined("dirt_t")])[-1]
    record = record_of(filled, stage)
    assert record["finished"] is True
    assert record["iterations"] == 5
    assert set(record["accuracy"]) == {"vmt", "dirt_t"} == set(record["phase_seconds"])
    assert sum(record["phase_seconds"].values()) == pytest.approx(record["seconds"], abs=0.2)
    assert {"torch", "commit", "gpu"} <= set(record["environment"])
    assert record["recipe"]["config"]["batch_size"] == 4
    assert [row[0] for row in record["curve"]] == [3, 5]
    assert record["curve"][0][1] == record["accuracy"]["vmt"]
    assert record["curve"][0][3] < record["curve"][1][3], "seconds grow"
    assert f"--seeds {stage.seed}" in record["command"]
    assert len(record["validators"]["entropy"]) == 2


def test_stopping_between_phases_changes_nothing(filled: Places, tmp_path: Path) -> None:
    at_once = Places(filled.data, tmp_path / "results", tmp_path / "runs")
    stage = stages([refined("dirt_t")])[-1]
    assert fill_all([stage], at_once).missing == 0
    for name in ("model_vmt.safetensors", "model.safetensors"):
        one, other = (load_file(places.runs / stage.run / name) for places in (filled, at_once))
        assert all(one[key].equal(other[key]) for key in one)
    before, after = (
        load_file(filled.runs / stage.run / name) for name in ("model_vmt.safetensors", "model.safetensors")
    )
    assert not all(before[key].equal(after[key]) for key in before)


def test_a_run_keeps_only_what_it_needs_to_go_on(filled: Places, tmp_path: Path) -> None:
    places = Places(filled.data, tmp_path / "results", tmp_path / "runs")
    said: list[str] = []
    fill_all(stages([refined("dirt_t")])[:1], places, None, said)
    folder = places.runs / stages([refined("dirt_t")])[0].run
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-000000003"]
    assert "MB" in said[-1]
    finished = filled.runs / folder.name
    assert not list((finished / "checkpoints").iterdir())


def test_a_run_that_time_runs_out_for_goes_on(filled: Places, tmp_path: Path) -> None:
    """Stopped before it had logged anything, then gone on with."""
    places = Places(filled.data, tmp_path / "results", tmp_path / "runs")
    rare = {**CHANGES, "log_every": 1000}
    long = Experiment("mnist-svhn", "source_only", changes={"iterations": 10_000})
    stage = Stage(long, 0, "source_only")
    steps = []
    for _ in range(2):
        assert fill([stage], load, places, 0.3, rare, [].append) == Filled(0, 1, [])
        steps.append(record_of(places, stage)["iterations"])
        assert record_of(places, stage)["accuracy"] == {}
    assert 0 < steps[0] < steps[1] < 10_000


def test_a_lost_result_comes_back_from_the_run(filled: Places, tmp_path: Path) -> None:
    stage = stages([refined("dirt_t")])[-1]
    places = Places(filled.data, tmp_path / "results", filled.runs)
    assert fill_all([stage], places).missing == 0
    assert record_of(places, stage)["accuracy"] == record_of(filled, stage)["accuracy"]


def test_missing_data_hold_up_no_other_task(filled: Places, tmp_path: Path) -> None:
    places = Places(filled.data, tmp_path / "results", tmp_path / "runs")
    elsewhere = Cell("x", "mnist-mnistm", Experiment("mnist-mnistm", "source_only", changes=SHORT), "source_only", None)
    here = cell("Source-Only", "source_only")
    done = fill_all(stages([elsewhere, here]), places)
    assert (done.done, done.missing) == (1, 1)
    assert len(done.complaints) == 1
    assert "vmt data build mnistm" in done.complaints[0]
    assert rows_of(Table("t", "t", (here,)), places.results)[0]["runs"] == 1


def test_a_table_shows_means_spread_and_what_is_missing(filled: Places) -> None:
    table = Table(
        "small", "A small table", (cell("Source-Only", "source_only", 3), refined("vmt"), cell("DANN", "dann"))
    )
    source_only, before, never = rows_of(table, filled.results)
    both = [record_of(filled, stage)["accuracy"]["source_only"] for stage in stages(table.cells[:1])[:2]]
    assert source_only["ours"] == pytest.approx(100 * np.mean(both), abs=0.01)
    assert source_only["std"] == pytest.approx(100 * np.std(both, ddof=1), abs=0.01)
    assert source_only["seeds"] == [0, 1]
    assert (before["runs"], before["std"]) == (1, None)
    assert never["ours"] is None
    shown = markdown(table, filled.results)
    assert "| Source-Only | mnist-svhn | 40.9 |" in shown
    assert "| 2 of 3 |" in shown
    assert "| DANN | mnist-svhn | 40.9 | – | 0 of 1 | 0 |" in shown


def test_collapsed_runs_are_counted_not_dropped(tmp_path: Path) -> None:
    """In the phases that they had collapsed in: DIRT-T's collapse says nothing of the number before it."""
    name = refined("dirt_t").experiment.name
    for seed, (after, phases) in enumerate([(0.9, []), (0.1, ["dirt_t"])]):
        record = {
            "accuracy": {"vmt": 0.8, "dirt_t": after},
            "seed": seed,
            "collapsed": "at iteration 4 collapsed" if phases else None,
            "collapsed_phases": phases,
            "finished": True,
            "seconds": 1.0,
        }
        result_path(tmp_path, f"{name}_{seed}").write_text(json.dumps(record))
    before, last = rows_of(Table("t", "t", (refined("vmt"), refined("dirt_t"))), tmp_path)
    assert (before["ours"], before["runs"], before["collapsed"]) == (80.0, 2, 0)
    assert (last["ours"], last["runs"], last["collapsed"]) == (50.0, 2, 1)


def test_the_commands_show_and_list(filled: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "list"]) == 0
    assert main(["paper", "list", "upper-bound", "--results", str(tmp_path)]) == 0
    assert "missing      mnist-svhn_target_only_no-in_0" in capsys.readouterr().out
    assert main(["paper", "show", "all", "--json", "--results", str(filled.results)]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(TABLES)
    assert main(["paper", "show", "mixup", "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "vmt paper run mixup" in shown.err
    assert "| hidden |" in shown.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "evaluation"], ["--data", "vmt data download"]),
        (["run"], ["name a table", "evaluation"]),
        (["run", "evaluatoin", "--data", "."], ["evaluation"]),
        (["run", "priority", "--data", "no/such/folder"], ["no/such/folder", "does not exist"]),
        (["run", "upper-bound", "--data", "."], ["mnist", "vmt data download mnist"]),
        (["run", "priority", "--data", ".", "--only", "*nothing*"], ["*nothing*", "vmt paper list"]),
        (["run", "priority", "--data", ".", "--phases", "0"], ["--phases"]),
        (["run", "priority", "--data", ".", "--device", "cuda:99"], ["cuda:99"]),
        (["show", "evaluatoin"], ["evaluation"]),
        (["show"], ["name a table"]),
    ],
)
def test_one_sentence_says_what_is_missing(
    arguments: list[str],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["paper", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    complaint = said.err.strip()
    assert complaint.startswith("vmt: ")
    assert "\n" not in complaint
    assert all(word in complaint for word in words), complaint


def test_the_command_fills_a_table(filled: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As far as no time at all goes: the queue is made, and says what is left."""
    places = ["--data", filled.data, "--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    assert main(["paper", "run", "priority", "--phases", "1", "--budget", "0", *places]) == 0
    assert "stages are missing" in capsys.readouterr().err


def test_means_and_spreads_of_the_paper_are_those_it_prints() -> None:
    printed = {cell.row: (cell.paper, cell.paper_std) for name in ("ten-runs", "mixup") for cell in TABLES[name].cells}
    assert printed["VMT@40K"] == (85.2, 0.8)
    assert printed["VMT + DIRT-T@160K"] == (95.1, 1.0)
    assert printed["VMT@40K, no IN"] == (51.9, 5.7)
    assert printed["hidden"] == (65.7, 24.8)
    assert printed["probabilities"] == (None, None)


def test_a_set_that_is_not_the_papers_is_named_beside_the_number(tmp_path: Path) -> None:
    """Synthetic Digits are re-created, and a number on them says so wherever it is shown."""
    (shown,) = [cell for cell in TABLES["priority"].cells if (cell.row, cell.column) == ("VMT", "syn-svhn")]
    record = {
        "accuracy": {"vmt": 0.9},
        "seed": 0,
        "collapsed": None,
        "finished": False,
        "seconds": 1.0,
        "domains": ["SYN (re-creation) train", "SVHN train", "SVHN test"],
        "environment": {},
    }
    result_path(tmp_path, f"{shown.experiment.name}_0").write_text(json.dumps(record))
    assert "| VMT | syn-svhn, with SYN (re-creation) train | 96.4 | 90.0 |" in markdown(TABLES["priority"], tmp_path)
    for name in ("evaluation.md", "priority.md"):
        assert "SYN (re-creation) train" in pages(tmp_path, tmp_path)[name]


def test_the_committed_pages_are_those_of_the_committed_results(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parent.parent
    made = pages(root / "results", root / "docs" / "paper")
    for name, text in made.items():
        assert (root / "docs" / "paper" / name).read_text() == text, f"{name}: run vmt paper pages, and commit it"
    linked = {link for text in made.values() for link in re.findall(r"\]\(([^)]+)\)", text)}
    assert all((root / "docs" / "paper" / link).exists() for link in linked)


def test_pages_show_every_run_and_what_was_not_run(filled: Places, tmp_path: Path) -> None:
    out = tmp_path / "docs"
    arguments = ["paper", "pages", "--results", str(tmp_path / "results"), "--out", str(out)]
    name = "mnist-svhn_vmt_dirt_t_in_3"
    record = record_of(filled, stages([refined("dirt_t")])[-1]) | {"seed": 3, "collapsed_phases": ["dirt_t"]}
    (tmp_path / "results").mkdir()
    result_path(tmp_path / "results", name).write_text(json.dumps(record))
    assert main(arguments) == 0
    text = (out / "ten-runs.md").read_text()
    assert f"[{name}](../results/{name}.json)" in text
    assert f"{100 * record['accuracy']['dirt_t']:.1f} (collapsed)" in text
    assert "| VMT@40K, no IN | mnist-svhn | 51.9 ± 5.7 | not run yet | 10 |  |" in text
    assert main([*arguments, "--check"]) == 0
    result_path(tmp_path / "results", name).unlink()
    assert main([*arguments, "--check"]) == 2
