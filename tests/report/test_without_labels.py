"""The report on runs without target labels: which run to use, why, and what to do next."""

import ast
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmt
from tests.own_data import write_blobs
from tests.report_runs import fabricate, report, three_runs, train
from vmt.cli.main import build_parser, main
from vmt.report.next_steps import again, report_command
from vmt.report.samples import Options
from vmt.report.standing import standing_of
from vmt.report.verdict import run_to_use, verdict_on_all
from vmt.runs.record import read_run_record, status_of
from vmt.runs.spec import DataSpec
from vmt.validators.choice import Fit
from vmt.validators.registry import DEFAULT

GOOD = {"scores": (0.80, 0.82)}
BETTER = {"scores": (0.90, 0.91)}
SHORT = {"scores": (0.1, 0.3), "source_before": 0.3, "source_accuracy": 0.6}
ALARM = {"scores": (0.97, 0.99), "alarm": "1 of 3 classes is never predicted"}
COLLAPSED = {"scores": (0.9, 0.99), "summary": {"collapsed": "at iteration 200 collapsed."}, "share": (1.0, 0.0, 0.0)}


@pytest.fixture(scope="module")
def unlabelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run without target labels, in a folder whose name a shell would split."""
    folder = tmp_path_factory.mktemp("it's mine")
    source, target = write_blobs(folder)
    return train(folder / "run", ["--source", str(source), "--target", str(target)], "--method", "dann")


@pytest.mark.parametrize(
    ("runs", "use", "tone"),
    [
        ({"a": GOOD, "b": BETTER}, "b", "unknown"),
        ({"lower": GOOD, "a": BETTER}, "a", "unknown"),
        ({"lower": BETTER, "a": GOOD}, "lower", "watch"),
        ({"a": GOOD, "b": COLLAPSED, "c": SHORT}, "a", "unknown"),
        ({"a": GOOD, "b": ALARM}, "a", "unknown"),
        ({"lower": GOOD, "a": ALARM}, "lower", "bad"),
        ({"a": SHORT, "b": COLLAPSED}, None, "bad"),
        ({"a": ALARM}, None, "bad"),
        ({"a": {"finished": False, **GOOD}}, None, "unknown"),
        ({"a": {}}, "a", "unknown"),
    ],
)
def test_the_headline_names_the_run_to_use_or_none(
    tmp_path: Path, runs: dict[str, Any], use: str | None, tone: str
) -> None:
    for name, numbers in runs.items():
        method = "source_only" if name == "lower" else "vmt"
        fabricate(tmp_path / "runs" / name, method, accuracy=None, lambda_t=0.1, **numbers)
    page, data = report(tmp_path / "r.html", tmp_path / "runs")
    assert (data["chosen"] is None) == (use is None)
    assert data["verdict"]["tone"] == tone
    heading = re.findall(r"<h1.*?</h1>", page, re.DOTALL)[0]
    if use is not None:
        assert data["runs"][data["chosen"]]["name"] == use
        assert data["use"] == data["runs"][data["chosen"]]["folder"]
        assert data["first"] == data["chosen"], "the run to use is opened first"
        assert f" {use}" in heading
    assert data["next"], "there is always something to do next"


def test_no_tick_stands_beside_an_alarm(tmp_path: Path) -> None:
    for name, numbers in {"a": ALARM, "b": COLLAPSED, "c": SHORT}.items():
        fabricate(tmp_path / "runs" / name, accuracy=None, **numbers)
    page, data = report(tmp_path / "r.html", tmp_path / "runs")
    assert [run["state"] for run in data["runs"]] == ["alarm", "collapsed", "too short"]
    assert 'class="status good"' not in page
    assert "✓" not in page.split("<script")[0].split("</style>")[1]
    # With labels and an alarm, a gain is not good without reserve.
    fabricate(tmp_path / "labelled" / "lower", "source_only", 0.5)
    fabricate(tmp_path / "labelled" / "mine", "vmt", 0.9, **ALARM)
    assert report(tmp_path / "r.html", tmp_path / "labelled")[1]["verdict"]["tone"] == "watch"


def test_a_best_model_that_was_kept_is_used_after_a_collapse(tmp_path: Path) -> None:
    best = {"by": DEFAULT, "step": 100, "score": 0.9, "alarm": None, "phase": "vmt"}
    run = fabricate(tmp_path / "run", accuracy=None, **{**COLLAPSED, "summary": {"collapsed": "yes", "best": best}})
    for name in ("model.safetensors", "model_best.safetensors"):
        (run / name).touch()
    _, data = report(tmp_path / "r.html", run)
    assert data["runs"][0]["state"] == "best kept"
    assert data["verdict"]["tone"] == "watch"
    assert "model_best.safetensors" in data["next"][0]["command"]


def test_source_only_is_what_the_others_are_compared_with(unlabelled: Path, tmp_path: Path) -> None:
    data_flags = ["--source", str(unlabelled.parent / "source.npz"), "--target", str(unlabelled.parent / "target.npz")]
    lower = train(tmp_path / "lower", data_flags, "--method", "source_only")
    _, data = report(tmp_path / "r.html", lower, unlabelled, "--map", "none")
    base, mine = data["runs"]
    assert mine["base"] == 0
    assert mine["score"]["more"] == pytest.approx(mine["score"]["value"] - base["score"]["value"])
    source = data["tasks"][0]["samples"]["source"]  # the page shows all 240 target samples
    same = np.mean(np.array(mine["predicted"])[source:] == np.array(base["predicted"])[source:])
    assert mine["agreement"] == pytest.approx(same)
    assert not any(step["text"].startswith("Compare") for step in data["next"]), "it is there already"
    _, alone = report(tmp_path / "r.html", unlabelled, "--map", "none")
    assert any(step["text"].startswith("Compare") for step in alone["next"])


@pytest.mark.parametrize(
    ("fits", "use"),
    [
        ({"a": Fit(0.95, 0.8, 0.5, 400), "b": Fit(0.95, 0.8, 0.5, 400)}, "b"),
        ({"a": Fit(0.95, 0.8, 0.5, 400), "b": Fit(0.7, 0.8, 0.5, 400)}, "a"),
        ({"a": Fit(0.95, 0.8, 0.5, 400), "b": Fit(0.85, 0.8, 0.1, 400)}, "a"),
        ({"a": Fit(0.8, 0.8, 0.5, 400), "b": Fit(0.7, 0.8, 0.5, 400)}, "lower"),
    ],
)
def test_a_run_that_is_not_credibly_better_than_source_only_is_not_used(
    tmp_path: Path, fits: dict[str, Fit], use: str
) -> None:
    standings = []
    for name, numbers in {"lower": SHORT | {"source_before": 0.6}, "a": GOOD, "b": BETTER}.items():
        method = "source_only" if name == "lower" else "vmt"
        run = read_run_record(fabricate(tmp_path / name, method, accuracy=None, **numbers))
        standings.append(standing_of(run, name, status_of(run), [], fit=fits.get(name)))
    chosen = run_to_use(standings)
    assert chosen is not None
    assert chosen.name == use
    verdict = verdict_on_all(standings, chosen)
    assert use in verdict["headline"]
    assert verdict["tone"] == ("watch" if use == "lower" else "unknown")
    # Labels decide where there are some.
    known = [replace(each, run=replace(each.run, tested={"accuracy": 0.9, "samples": 999})) for each in standings[1:]]
    base = replace(standings[0], run=replace(standings[0].run, tested={"accuracy": 0.5, "samples": 999}))
    helped = run_to_use([base, *known])
    assert helped is not None
    assert helped.name == "b"


def test_settings_that_differ_have_columns(tmp_path: Path) -> None:
    fabricate(tmp_path / "runs" / "a", accuracy=None, lambda_t=0.1, radius=2.0, **GOOD)
    fabricate(tmp_path / "runs" / "b", accuracy=None, lambda_t=0.3, radius=2.0, seed=1, **GOOD)
    fabricate(tmp_path / "runs" / "lower", "source_only", accuracy=None, **GOOD)
    page, data = report(tmp_path / "r.html", tmp_path / "runs")
    assert data["columns"] == ["λ_t", "seed"]
    assert [run["differs"] for run in data["runs"]] == [["–", "0"], ["0.1", "0"], ["0.3", "1"]]
    assert 'data-label="λ_t">0.3<' in page


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({}, ["predict", "--test", "source_only"]),
        (SHORT, ["--iterations 800", "source_only"]),
        (ALARM, ["--lambda-t 0.05", "source_only"]),
        ({"finished": False}, ["--resume", "source_only"]),
    ],
)
def test_what_to_do_next(tmp_path: Path, numbers: dict[str, Any], words: list[str]) -> None:
    run = fabricate(tmp_path / "my runs" / "a", accuracy=None, lambda_t=0.1, **{**GOOD, **numbers})
    page, data = report(tmp_path / "r.html", run)
    commands = [step["command"] for step in data["next"]]
    assert len(commands) == len(words)
    assert all(word in command for word, command in zip(words, commands, strict=True))
    for command in commands:
        assert f"'{run.parent}/" in command, "a path with a space is quoted for a shell"
    assert page.count('class="copy"') == len(commands)


@pytest.mark.parametrize("runs", [["good", "short"], ["collapsed"], ["short"]])
def test_the_commands_work_as_they_are_written(
    unlabelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    three_runs(unlabelled, Path("my runs"))
    _, data = report(Path("r.html"), *(f"my runs/{name}" for name in runs), "--map", "none")
    blobs = np.load(unlabelled.parent / "test.npz")
    np.savez("labels.npz", x=blobs["x"][:50], y=blobs["y"][:50])
    for step in data["next"]:
        program, *arguments = shlex.split(step["command"].replace("held-out/", "labels.npz"))
        assert program == "vmt"
        assert main([*arguments, *(["--iterations", "2"] if arguments[0] == "train" else [])]) == 0, step
    made = ["predictions.csv"] if "good" in runs else [f"my runs/{runs[0]}-2/model.safetensors"]
    assert all(Path(name).is_file() for name in made)


def test_a_run_that_is_repeated_with_another_seed_has_the_same_settings(tmp_path: Path) -> None:
    """Among them the radius, which follows from the number of features and has many digits."""
    source, target = write_blobs(tmp_path)
    run = read_run_record(
        train(tmp_path / "run", ["--source", str(source), "--target", str(target)], "--method", "vmt")
    )
    step = again("", standing_of(run, "run", status_of(run), []), Options(), tmp_path / "other", seed=1)
    assert main(shlex.split(step.command)[1:]) == 0
    other = read_run_record(tmp_path / "other")
    assert other.spec.recipe.config.seed == 1
    assert other.settings_key == run.settings_key


def test_the_command_of_a_report_has_the_same_places(tmp_path: Path) -> None:
    places = DataSpec(data="DATA", source="s.npz", target="t.npz", target_test="test.csv")
    options = Options(places=places, label="species", nets=("mine:make", "mine:other"), features=("mine:features",))
    words = shlex.split(report_command([tmp_path], options, "held-out", Path("r.html")))
    read = build_parser("report").parse_args(words[1:])
    assert (read.data, read.source, read.target, read.target_test) == ("DATA", "s.npz", "t.npz", "test.csv")
    assert (read.net, read.features) == (["mine:make", "mine:other"], ["mine:features"])
    assert (read.runs, read.test, read.label, read.out) == ([tmp_path], "held-out", "species", Path("r.html"))


def test_labels_that_turn_up_later(
    unlabelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    test = unlabelled.parent / "test.npz"
    capsys.readouterr()
    assert main(["evaluate", str(unlabelled), "--test", str(test), "--json"]) == 0
    expected = json.loads(capsys.readouterr().out.splitlines()[-1])
    before = report(tmp_path / "r.html", unlabelled, "--map", "none")[1]
    _, data = report(tmp_path / "r.html", unlabelled, "--test", test, "--map", "none", "--samples", 10)
    (run,) = data["runs"]
    assert before["runs"][0]["accuracy"] is None
    assert run["accuracy"]["value"] == pytest.approx(expected["accuracy"])
    assert run["accuracy"]["samples"] == 240, "all of them are used, whatever --samples says"
    assert np.array(run["confusion"]["matrix"]).sum() == 240
    assert data["tasks"][0]["note"] == "", "the data of the run have not changed"
    # The model alone is enough, if the data of the run are gone.
    gone = tmp_path / "gone"
    shutil.copytree(unlabelled, gone)
    named = json.loads((gone / "run.json").read_text())
    named["data"] |= {"source": "nowhere.npz", "target": "nowhere-too.npz"}
    (gone / "run.json").write_text(json.dumps(named))
    monkeypatch.chdir(tmp_path)
    _, data = report(tmp_path / "r.html", gone, "--test", test)
    assert data["runs"][0]["accuracy"]["value"] == pytest.approx(expected["accuracy"])
    assert main(["report", str(unlabelled), "--test", str(unlabelled.parent / "target.npz"), "-o", "r.html"]) == 2
    assert "target.npz" in capsys.readouterr().err


def test_a_run_from_python_has_steps_in_python(tmp_path: Path) -> None:
    source, target = write_blobs(tmp_path)
    arrays = np.load(source)
    given = (arrays["x"], arrays["y"]), np.load(target)["x"]
    vmt.adapt(*given, iterations=6, out=tmp_path / "run", progress=False)
    _, data = report(tmp_path / "r.html", tmp_path / "run")
    python = [step["command"] for step in data["next"] if step["python"]]
    assert python
    for code in python:
        assert isinstance(ast.parse(code, mode="eval").body, ast.Call)
        assert str(tmp_path) in code


def test_warnings_of_runs_are_shown_and_lower_the_tone(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "a", accuracy=None, summary={"warnings": ["Class <7> has 0 % of the target."]}, **GOOD)
    page, data = report(tmp_path / "r.html", run)
    assert data["warnings"] == [["a", "Class <7> has 0 % of the target."]]
    assert "Class &lt;7&gt; has 0 % of the target." in page.split('id="runs"')[0]
    assert data["verdict"]["tone"] == "watch"
    assert "--test" in data["next"][0]["command"], "measure before use"


def test_re_normalising_alone_has_a_row_beside_source_only(tmp_path: Path) -> None:
    adabn = {"adabn": {"target_accuracy": None, "validators": {DEFAULT: 0.5}}}
    fabricate(tmp_path / "runs" / "lower", "source_only", accuracy=None, summary=adabn, **GOOD)
    fabricate(tmp_path / "runs" / "mine", accuracy=None, summary=adabn, **BETTER)
    page, data = report(tmp_path / "r.html", tmp_path / "runs")
    (row,) = data["references"]
    assert row["after"] == 0
    assert row["score"]["value"] == 0.5
    assert page.index("lower</button>") < page.index("AdaBN)</th>") < page.index("mine</button>")
    labelled = {"adabn": {"target_accuracy": 0.7, "validators": {}}}
    fabricate(tmp_path / "known" / "lower", "source_only", 0.6, summary=labelled)
    fabricate(tmp_path / "known" / "mine", "vmt", 0.8)
    (row,) = report(tmp_path / "r.html", tmp_path / "known")[1]["references"]
    assert row["accuracy"]["low"] < 0.7 < row["accuracy"]["high"]


@pytest.mark.parametrize("inside", ["", "candidates"])
def test_a_choice_among_candidates_is_explained(tmp_path: Path, inside: str) -> None:
    folder = tmp_path / "auto"
    fabricate(folder / inside / "source_only", "source_only", accuracy=None, **GOOD)
    fabricate(folder / inside / "vmt", accuracy=None, **BETTER)
    choice = {"text": "Nothing is <credibly> better.", "chosen": "source_only", "candidates": {"adabn": {"score": 0.3}}}
    (folder / "summary.json").write_text(json.dumps({"choice": choice}))
    page, data = report(tmp_path / "r.html", folder)
    assert "Nothing is &lt;credibly&gt; better." in page
    assert data["runs"][data["chosen"]]["name"] == "source_only"
    assert [row["name"] for row in data["references"]] == ["adabn"]
    assert len(data["runs"]) == 2
    # Before the choice is made, the folder has only the record of a run.
    (folder / "summary.json").unlink()
    shutil.copy(folder / inside / "vmt" / "run.json", folder)
    assert [run["name"] for run in report(tmp_path / "r.html", folder)[1]["runs"]] == ["source_only", "vmt"]


@pytest.mark.parametrize(
    ("accuracies", "tone"),
    [((None, None), "unknown"), ((0.9, 0.6), "good"), ((0.6, 0.9), "bad"), ((0.61, 0.6), "unknown")],
)
def test_an_answer_that_no_run_is_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], accuracies: tuple[float | None, float | None], tone: str
) -> None:
    folder, (right, unadapted) = tmp_path / "auto", accuracies
    fabricate(folder / "source_only", "source_only", unadapted, **GOOD)
    fabricate(folder / "vmt", accuracy=right, **BETTER)
    candidates = {
        "average": {"score": 0.3, "scores": {DEFAULT: 0.5}, "alarm": None, "target_accuracy": right},
        "source_only": {"target_accuracy": unadapted},
    }
    choice = {"text": "All agree.", "chosen": "average", "candidates": candidates}
    (folder / "summary.json").write_text(json.dumps({"choice": choice}))
    shutil.copy(folder / "vmt" / "run.json", folder)
    assert report(tmp_path / "r.html", folder)[1]["answer"] is None, "there is no model to use"
    (folder / "model.safetensors").touch()
    data = report(tmp_path / "r.html", folder)[1]
    assert data["answer"] == "average"
    assert data["chosen"] is None
    assert data["use"] == str(folder)
    assert str(folder) in data["verdict"]["headline"]
    assert data["verdict"]["tone"] == tone
    assert [row["score"]["value"] for row in data["references"]] == [0.5]
    (use,) = [step["command"] for step in data["next"] if "predict" in step["command"]]
    assert str(folder) in shlex.split(use)
    for step in data["next"]:
        build_parser().parse_args(shlex.split(step["command"])[1:])
    assert main(["select", str(folder)]) == 0
    assert str(folder / "model.safetensors") in capsys.readouterr().out.replace("\n", "")


def test_the_header_has_runs_task_and_date(tmp_path: Path) -> None:
    page, data = report(tmp_path / "r.html", fabricate(tmp_path / "mine"))
    top = page.split('class="about">')[1].split("</p>")[0]
    assert "mine" in top
    assert "gone.npz → gone-too.npz" in top
    assert f'<time datetime="{data["date"]}">' in top
