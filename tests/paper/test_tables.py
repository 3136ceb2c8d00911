"""The paper's tables: every cell can be built, and every number is shown with what belongs to it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.paper_cells import cell, refined
from vmt.cli.main import main
from vmt.errors import InputError
from vmt.paper import numbers
from vmt.paper.experiment import Experiment, Job, Table, jobs_for
from vmt.paper.pages import list_of_runs, markdown, pages, rows_of
from vmt.paper.results import result_path
from vmt.paper.tables import SOURCE_ROW, TABLES, cell_of, find_table
from vmt.runs.recipes import PAPER, paper


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_run_of_a_table_is_a_method(table: Table) -> None:
    for job in jobs_for(table.cells):
        method = job.experiment.recipe(job.seed).build()
        assert tuple(phase.name for phase in method.phases) == job.experiment.phases
        asked = job.experiment.changes
        lengths = [asked.get("iterations", method.phases[0].iterations), asked.get("dirt_t_iterations", 160_000)]
        assert [phase.iterations for phase in method.phases] == lengths[: len(method.phases)]


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


@pytest.mark.parametrize("instance_norm", [True, False])
@pytest.mark.parametrize(
    ("task", "lambda_d", "lambda_s", "lambda_t", "beta"),
    [
        ("mnist-svhn", 0.01, 1, {True: 0.06, False: 0.01}, {True: 0.01, False: 0.001}),
        ("svhn-mnist", 0.01, 0, 0.1, 0.01),
        ("mnist-mnistm", 0.01, 0, 0.01, 0.01),
        ("syn-svhn", 0.01, 1, 1, 1),
        ("cifar-stl", 0, 1, 0.1, 0.01),
        ("stl-cifar", 0, 0, 0.1, 0.01),
    ],
)
def test_the_terms_have_the_weights_of_the_appendix(
    task: str, lambda_d: float, lambda_s: float, lambda_t: Any, beta: Any, instance_norm: bool
) -> None:
    """As the paper prints its table of hyperparameters."""
    lambda_t, beta = (v[instance_norm] if isinstance(v, dict) else v for v in (lambda_t, beta))
    on_target = {"L_m(target)": lambda_t, "L_v(target)": lambda_t, "L_c(target)": lambda_t}
    if task == "mnist-mnistm":
        on_target["L_m(target)"] = 1e-3
    on_source = {"L_y": 1, "L_d": lambda_d, "L_m(source)": lambda_s, "L_v(source)": lambda_s}
    recipe = paper(task, "vmt", instance_norm, dirt_t=True)
    first, second = (
        {term.name: term.weight for term in phase.updates[-1].terms if term.weight} for phase in recipe.build().phases
    )
    assert first == {name: weight for name, weight in {**on_source, **on_target}.items() if weight}
    assert second == {"teacher": beta, **on_target}
    assert recipe.net == ("large" if "stl" in task else "small")
    assert recipe.net_options == {"instance_norm": instance_norm}


def test_vada_has_the_weights_of_its_own_grid() -> None:
    """λ_t is 0.01 or 0.1 and β 0.01, whatever VMT has."""
    for task, norm in PAPER:
        recipe = paper(task, "vada", norm, dirt_t=True)
        assert recipe.dirt_t is not None
        assert recipe.settings["lambda_t"] in (0.01, 0.1)
        assert recipe.dirt_t["beta"] == 0.01
        assert recipe.dirt_t["lambda_t"] == recipe.settings["lambda_t"]
    assert paper("syn-svhn", "co_da").settings["lambda_t"] == 0.1


def test_mixup_on_mnistm_may_have_another_weight_before_dirt_t() -> None:
    cell = cell_of("evaluation", "VMT + DIRT-T, L_m(target) 0.01 before DIRT-T", "mnist-mnistm")
    assert cell.experiment is not None
    first, second = cell.experiment.recipe(0).build().phases
    weights = [
        term.weight for phase in (first, second) for term in phase.updates[-1].terms if "L_m(target" in term.name
    ]
    assert weights == [0.01, 0.001]


def test_table_1_has_every_number_of_the_paper() -> None:
    tables = [TABLES[name].cells for name in ("evaluation", "evaluation-no-in", "other-systems")]
    assert [sum(not cell.is_own for cell in cells) for cells in tables] == [39, 39, 27]
    assert sum(not cell.is_own for cell in TABLES["vat-versus-vmt"].cells) == 24
    assert {
        cell.experiment.name for cell in TABLES["evaluation"].cells if cell.row == "Source-Only" and cell.experiment
    } == {f"{task}_source_only_in_statistics=target" for task in numbers.TASKS}


def test_the_variants_differ_by_their_terms() -> None:
    def terms(row: str) -> dict[str, object]:
        cell = next(cell for cell in TABLES["vat-versus-vmt"].cells if cell.row == row)
        assert cell.experiment is not None
        update = cell.experiment.recipe(0).build().phases[0].updates[-1]
        return {term.name: term.weight for term in update.terms if term.weight != 0}

    assert terms("L_c") == {"L_y": 1.0, "L_d": 0.01, "L_c(target)": 0.01}
    assert terms("L_c, L_v") == {**terms("L_c"), "L_v(source)": 1.0, "L_v(target)": 0.01}
    both = {"L_v(source)": 1.0, "L_v(target)": 0.06}
    assert terms("L_c, L_v, L_m") == {**terms("L_c, L_m"), **both}
    assert terms("L_c, L_m")["L_m(target)"] == 0.06


def test_the_table_of_priorities_starts_with_vmt_and_warm_up() -> None:
    queue = jobs_for(TABLES["priority"].cells)
    warm = Experiment("mnist-svhn", dirt_t=True, changes={"warm_up": 0.125})
    assert queue[:20] == [Job(warm, seed, phase) for phase in ("vmt", "dirt_t") for seed in range(10)]
    assert len({(job.run, job.phase) for job in queue}) == len(queue)
    assert {(s.run, s.phase) for s in queue} <= {(s.run, s.phase) for s in jobs_for(find_table("all").cells)}


def test_jobs_come_once_and_in_the_order_of_the_cells() -> None:
    cells = (refined("vmt", 2), refined("dirt_t"), cell("Source-Only", "source_only"), refined("dirt_t"))
    short = [(job.seed, job.phase) for job in jobs_for(cells)]
    assert short == [(0, "vmt"), (1, "vmt"), (0, "dirt_t"), (0, "source_only")]
    assert [s.phase for s in jobs_for(cells, phases=1)] == ["vmt", "vmt", "source_only"]
    assert [s.seed for s in jobs_for(cells, seeds=[4, 7], only=["Source*"])] == [4, 7]
    assert [s.phase for s in jobs_for(cells[1:2])] == ["vmt", "dirt_t"], "a phase comes after those before it"
    assert len(jobs_for(cells, only=["*dirt_t*"])) == 3, "a pattern may match the name of a run as well"
    in_order = [(job.seed, job.phase) for job in jobs_for(cells, only=["Source*", "*"])]
    assert in_order == [(0, "source_only"), (0, "vmt"), (1, "vmt"), (0, "dirt_t")]
    with pytest.raises(InputError, match="nothing"):
        jobs_for(cells, only=["*", "nothing"])


def write(folder: Path, experiment: Experiment, seed: int, accuracy: dict[str, float], **others: Any) -> None:
    """A result file with these accuracies at the ends of phases."""
    record = {"accuracy": accuracy, "seed": seed, "collapsed": None, "finished": True, "seconds": 1.0, **others}
    result_path(folder, f"{experiment.name}_{seed}").write_text(json.dumps(record))


def test_a_longer_run_answers_the_rows_that_it_passes(tmp_path: Path) -> None:
    row = cell_of("ten-runs", "VMT@40K, no IN")
    assert row.experiment is not None
    curve = [[40_000, 0.5, 0.99, 60.0], [160_000, 0.6, 0.99, 240.0]]
    write(tmp_path, row.passing[0][0], 3, {"vmt": 0.6}, curve=curve, phase_iterations={"vmt": 160_000})
    write(tmp_path, row.experiment, 1, {"vmt": 0.4})
    (shown,) = rows_of(Table("t", "t", (row,)), tmp_path)
    assert (shown["values"], shown["seeds"]) == ([40.0, 50.0], [1, 3])


def test_a_row_of_the_source_has_the_accuracy_on_the_source(tmp_path: Path) -> None:
    row = next(cell for cell in TABLES["lambda-t"].cells if cell.domain == "source")
    assert row.experiment is not None
    lengths = {"vmt": 40_000, "dirt_t": 160_000}
    curve = [[40_000, 0.5, 0.97, 60.0]]
    write(tmp_path, row.experiment, 0, {"vmt": 0.5}, curve=curve, phase_iterations=lengths)
    (shown,) = rows_of(Table("t", "t", (row,)), tmp_path)
    assert (shown["ours"], shown["paper"]) == (97.0, 88.9)


def test_a_run_that_has_not_ended_is_shown_as_partial_and_not_counted(tmp_path: Path) -> None:
    row = cell_of("ten-runs", "VMT + DIRT-T@160K")
    assert row.experiment is not None
    curve = [[40_000, 0.8, 0.9, 1.0], [100_000, 0.95, 0.9, 2.0]]
    lengths = {"vmt": 40_000, "dirt_t": 160_000}
    write(tmp_path, row.experiment, 0, {"vmt": 0.8}, curve=curve, phase_iterations=lengths, finished=False)
    (shown,) = rows_of(Table("t", "t", (row,)), tmp_path)
    assert (shown["ours"], shown["runs"]) == (None, 0)
    assert "95.0 after 60,000 of 160,000" in markdown(Table("t", "t", (row,)), tmp_path)


@pytest.mark.parametrize(("value", "bold"), [(0.9506, True), (0.9504, False)])
def test_a_number_is_bold_if_it_is_at_least_the_papers_on_the_same_data(
    value: float, bold: bool, tmp_path: Path
) -> None:
    row = cell_of("ten-runs", "VMT + DIRT-T@160K")
    assert row.experiment is not None
    write(tmp_path, row.experiment, 0, {"vmt": 0.8, "dirt_t": value}, domains=["MNIST train"])
    shown = markdown(Table("t", "t", (row,)), tmp_path)
    assert (f"**{100 * value:.1f}**" in shown) == bold
    write(tmp_path, row.experiment, 0, {"vmt": 0.8, "dirt_t": value}, domains=["MNIST (re-creation)"])
    assert "**9" not in markdown(Table("t", "t", (row,)), tmp_path)


def test_halves_are_rounded_up_everywhere(tmp_path: Path) -> None:
    """In binary, 11.35 is a little less than that, and 100 · 0.1135 printed with one decimal would be 11.3."""
    row = cell_of("ten-runs", "VMT@40K")
    assert row.experiment is not None
    write(tmp_path, row.experiment, 0, {"vmt": 0.1135}, environment={})
    table = Table("t", "t", (row,))
    assert "| 11.4 |" in markdown(table, tmp_path)
    assert "vmt 11.4" in list_of_runs([row.experiment], tmp_path, "")


def test_collapsed_runs_are_counted_not_dropped(tmp_path: Path) -> None:
    """They count for the phases in which they had collapsed: one that collapsed in DIRT-T had not before."""
    experiment = refined("dirt_t").experiment
    assert experiment is not None
    name = experiment.name
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
def test_bad_input_is_named_in_one_sentence(
    arguments: list[str],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["paper", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    message = printed.err.strip()
    assert message.startswith("vmt: ")
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_means_and_spreads_are_those_printed_in_the_paper() -> None:
    names = ("ten-runs", "mixup", "probabilities", "lambda-t")
    printed = {cell.row: (cell.paper, cell.paper_std) for name in names for cell in TABLES[name].cells}
    assert printed["VMT@40K"] == (85.2, 0.8)
    assert printed["VMT + DIRT-T@160K"] == (95.1, 1.0)
    assert printed["VMT@40K, no IN"] == (51.9, 5.7)
    assert printed["hidden"] == (65.7, 24.8)
    assert printed["probabilities"] == (None, None)
    assert printed["VMT@160K, no IN"] == (59.3, 5.5)
    assert printed["VMT_prob@160K"] == (55.8, 12.5)
    assert printed["λ_t 0.02, no IN: VMT@160K"] == (62.4, 17.3)
    assert printed["λ_t 0.02, no IN: VMT@40K, source"][1] == 27.6


def test_a_set_that_is_not_the_papers_is_named_beside_the_number(tmp_path: Path) -> None:
    """Synthetic Digits are a re-creation, and every table with a number on them says so."""
    shown = next(cell for cell in TABLES["priority"].cells if (cell.row, cell.column) == ("VMT", "syn-svhn"))
    assert shown.experiment is not None
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


def test_the_committed_pages_match_the_committed_results(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[2]
    made = pages(root / "results", root / "docs" / "paper")
    for name, text in made.items():
        assert (root / "docs" / "paper" / name).read_text() == text, f"{name}: run vmt paper pages, and commit it"
    linked = {link for text in made.values() for link in re.findall(r"\]\(([^)]+)\)", text)}
    assert all((root / "docs" / "paper" / link).exists() for link in linked)


def test_the_readme_has_the_numbers_of_the_result_files() -> None:
    """Its table has a row for each task, and for VMT and VMT + DIRT-T the paper's number and two of ours."""
    root = Path(__file__).parents[2]
    readme = (root / "README.md").read_text()
    main, without, ten = "evaluation", "evaluation-no-in", "ten-runs"
    cells: list[tuple[tuple[str, str] | None, ...]] = [
        ((ten, "VMT@40K"), (ten, "VMT@40K, warm-up"), (ten, "VMT + DIRT-T@160K"), (ten, "VMT + DIRT-T@160K, warm-up")),
        *[tuple((main, row) for row in ("VMT", "VMT, warm-up", "VMT + DIRT-T", "VMT + DIRT-T, warm-up"))] * 2,
        ((main, "VMT"), None, (main, "VMT + DIRT-T"), None),
        ((main, "VMT"), None, None, None),
        ((main, "VMT"), None, (main, "VMT + DIRT-T"), None),
        ((without, "VMT at 40,000"), None, (without, "VMT + DIRT-T"), None),
    ]
    tasks = ("mnist-svhn", "svhn-mnist", "mnist-mnistm", "syn-svhn", "cifar-stl", "stl-cifar", "mnist-svhn")

    def found(name: str, row: str, task: str) -> dict[str, Any]:
        return rows_of(Table("t", "t", (cell_of(name, row, task),)), root / "results")[0]

    def ours(of: dict[str, Any]) -> str:
        return f"{of['ours']:.1f}" + ("" if of["std"] is None else f" ± {of['std']:.1f}")

    table = readme.partition("| task | VMT: paper |")[2].partition("\n\n")[0]
    lines = [[part.strip() for part in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert len(lines) == len(cells) == len(tasks)
    for task, row, line in zip(tasks, cells, lines, strict=True):
        papers, shown = (line[1], line[4]), (*line[2:4], *line[5:7])
        for cell_name, text, expected in zip(row, shown, (papers[0],) * 2 + (papers[1],) * 2, strict=True):
            if cell_name is None:
                assert text == "–", line
                continue
            of = found(*cell_name, task)
            assert f"{of['paper']:.1f}" == expected.split(" ")[0], line
            assert text.replace("**", "") == (f"{ours(of)} ({of['runs']})" if of["runs"] else "–"), line
    prose = re.sub(r"\s+", " ", readme.replace("**", ""))
    source, vada = found(main, "Source-Only", "mnist-svhn"), found(main, "VADA", "mnist-svhn")
    assert f"Source only has {ours(source)} % (the paper: {source['paper']}; one seed)" in prose
    assert f"VADA {ours(vada)} % ({vada['paper']}; two seeds)" in prose
    assert (source["runs"], vada["runs"]) == (1, 2)
    source, vada = (found(without, row, "mnist-svhn") for row in ("Source-Only", "VADA"))
    bound = found("upper-bound", "Train on Target", "mnist-svhn")
    assert f"source only has {ours(source)} % ({source['paper']}), VADA {ours(vada)} % ({vada['paper']})" in prose
    assert f"training on target labels {ours(bound)} % ({bound['paper']})" in prose
    of_source = [ours(found(name, SOURCE_ROW, "mnist-svhn")) for name in (main, without)]
    assert f"it has {of_source[0]} % and, without instance norm, {of_source[1]} %" in prose
