"""The paper's tables: every cell can be built, filled in portions and shown honestly."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.test_bad_input import official_files
from vmt.cli.main import main
from vmt.paper import numbers
from vmt.paper.runner import fill, result_path
from vmt.paper.show import markdown, rows_of
from vmt.paper.tables import TABLES, Cell, Experiment, Table
from vmt.recipes import PAPER, paper

SHORT = {"iterations": 3}


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_run_of_a_table_is_a_method(table: Table) -> None:
    for experiment, seed in table.runs():
        recipe = experiment.recipe(seed)
        method = recipe.build()
        phases = [phase.name for phase in method.phases]
        wanted = {cell.phase for cell in table.cells if cell.experiment == experiment}
        assert wanted <= set(phases)
        assert [phase.iterations for phase in method.phases] == [40_000, 160_000][: len(phases)]


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


def small_table() -> Table:
    """Two runs of a few iterations, before and after DIRT-T."""
    short = Experiment("mnist-svhn", "source_only", changes=SHORT)
    other = Experiment("mnist-svhn", "dann", changes=SHORT)
    return Table(
        "small",
        "A small table",
        (
            Cell("Source-Only", "mnist-svhn", short, "source_only", 40.9, seeds=2),
            Cell("DANN", "mnist-svhn", other, "dann", None),
        ),
    )


def test_a_table_is_filled_in_portions_and_shown(tmp_path: Path) -> None:
    from vmt.cli.train import load

    data, results, runs = official_files(tmp_path), tmp_path / "results", tmp_path / "runs"
    changes = {"batch_size": 4, "log_every": 1}
    said: list[str] = []
    table = small_table()
    assert fill(table, load, str(data), results, runs, 0.0, changes, said.append) == 3, "no time, nothing done"
    assert fill(table, load, str(data), results, runs, None, changes, said.append) == 0
    files = sorted(path.name for path in results.iterdir())
    assert len(files) == 3
    record = json.loads((results / files[0]).read_text())
    assert record["environment"]["torch"]
    assert record["curve"][-1][0] == 3
    said.clear()
    assert fill(table, load, str(data), results, runs, None, changes, said.append) == 0
    assert said == [], "what is finished is never run again"
    row = rows_of(table, results)[0]
    both = [json.loads(result_path(results, table.cells[0].experiment, s).read_text()) for s in (0, 1)]
    values = [100 * r["accuracy"]["source_only"] for r in both]
    assert row["ours"] == pytest.approx(np.mean(values), abs=0.01)
    assert row["std"] == pytest.approx(np.std(values, ddof=1), abs=0.01)
    assert "| Source-Only | mnist-svhn | 40.9 |" in markdown(table, results)


def test_collapsed_runs_are_counted_not_dropped(tmp_path: Path) -> None:
    table = small_table()
    for seed, (accuracy, collapsed) in enumerate([(0.9, None), (0.1, "at iteration 3 collapsed")]):
        record = {
            "accuracy": {"source_only": accuracy},
            "collapsed": collapsed,
            "finished": True,
            "seconds": 1.0,
        }
        result_path(tmp_path, table.cells[0].experiment, seed).write_text(json.dumps(record))
    row = rows_of(table, tmp_path)[0]
    assert (row["ours"], row["runs"], row["collapsed"]) == (50.0, 2, 1)


def test_the_command_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "run", "evaluation"]) == 2
    assert "--data" in capsys.readouterr().err
    assert main(["paper", "show", "evaluatoin"]) == 2
    assert "evaluation" in capsys.readouterr().err
    assert main(["paper", "list"]) == 0
