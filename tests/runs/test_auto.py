"""The method auto: candidates are ordinary runs, one is chosen without target labels, and the folder can be used."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import vmt
from tests.own_data import write_blobs
from tests.processes import vmt as command
from vmt.api import task_of
from vmt.cli.main import main
from vmt.data.files.features import Extractor
from vmt.runs.auto import TRAINED, Portfolio, carry_out_auto, within_budget
from vmt.runs.folder import MODEL, RUN, SUMMARY, RunSpec, data_fingerprint, recorded_recipe, write_record
from vmt.runs.recipes import Recipe, own_recipe
from vmt.runs.run import carry_out
from vmt.runs.spec import DataSpec, load_data
from vmt.train.config import Config
from vmt.validators.class_shares import SEEMS


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_blobs(folder)
    return folder


@pytest.fixture(scope="module")
def chosen(files: Path) -> Path:
    """A folder that vmt train --method auto has written."""
    out = files / "auto"
    ran = command(
        "train", "--source", files / "source.npz", "--target", files / "target.npz", "--target-test",
        files / "test.npz", "--method", "auto", "--iterations", 40, "--device", "cpu", "--out", out,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads((out / SUMMARY).read_text())["choice"]["text"] in ran.stdout
    return out


def test_every_candidate_is_a_run_and_the_model_is_that_of_the_chosen_one(chosen: Path, files: Path) -> None:
    choice = json.loads((chosen / SUMMARY).read_text())["choice"]
    candidates = {*TRAINED, "kernel", "source_kernel"}
    assert candidates <= set(choice["ranking"]) <= {*candidates, "average"}
    assert choice["chosen"] == choice["ranking"][0]
    assert set(choice["candidates"]) == set(choice["ranking"])
    for name in TRAINED:
        assert json.loads((chosen / name / SUMMARY).read_text())["method"] == name
    x = np.load(files / "test.npz")["x"]
    np.testing.assert_array_equal(
        vmt.load(chosen, device="cpu").predict_proba(x),
        vmt.load(chosen / choice["chosen"], device="cpu").predict_proba(x),
    )


def test_a_record_without_source_only_is_refused(chosen: Path, tmp_path: Path) -> None:
    shutil.copytree(chosen, tmp_path / "auto")
    record = json.loads((tmp_path / "auto" / RUN).read_text())
    record["recipe"]["settings"]["iterations"] = {}
    (tmp_path / "auto" / RUN).write_text(json.dumps(record))
    (tmp_path / "auto" / SUMMARY).unlink()
    ran = command("train", "--resume", tmp_path / "auto")
    assert ran.returncode == 2
    assert RUN in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_folder_can_be_reported_and_used(chosen: Path, files: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    ran = command("report", chosen, "-o", page)
    assert ran.returncode == 0, ran.stderr
    assert "How it was chosen" in page.read_text()
    ran = command("predict", chosen, files / "target.npz", "--out", tmp_path / "predictions.csv")
    assert ran.returncode == 0, ran.stderr


def test_a_folder_of_runs_stands_for_the_candidates_in_it(chosen: Path, files: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(chosen, runs / "auto")
    shutil.copytree(chosen / "vmt", runs / "alone")
    data = DataSpec(source=str(files / "source.npz"), target=str(files / "target.npz"))
    (runs / "begun").mkdir()
    write_record(runs / "begun", {**RunSpec(data, Recipe("auto", {"iterations": {"mcc": 40}})).to_dict()})
    ran = command("report", runs, "-o", tmp_path / "report.html")
    assert ran.returncode == 0, ran.stderr
    ran = command("select", runs, "--json")
    assert ran.returncode == 0, ran.stderr
    ranked = {each["run"] for each in json.loads(ran.stdout)["ranking"]}
    assert ranked == {str(runs / "alone"), *(str(runs / "auto" / name) for name in TRAINED)}


def test_a_choice_without_a_candidate_yet_cannot_be_reported(tmp_path: Path) -> None:
    write_record(tmp_path, {**RunSpec(DataSpec(), Recipe("auto", {"iterations": {"mcc": 40}})).to_dict()})
    ran = command("report", tmp_path, "-o", tmp_path / "report.html")
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    assert str(tmp_path) in ran.stderr


def test_the_report_has_the_doubt_about_the_answer(chosen: Path, tmp_path: Path) -> None:
    doubtful = tmp_path / "doubtful"
    shutil.copytree(chosen, doubtful)
    summary = json.loads((doubtful / SUMMARY).read_text())
    summary["choice"]["doubt"] = "whether <adapting> helps is in doubt"
    (doubtful / SUMMARY).write_text(json.dumps(summary))
    ran = command("report", doubtful, "-o", tmp_path / "report.html")
    assert ran.returncode == 0, ran.stderr
    assert "whether <adapting> helps is in doubt" in ran.stdout
    assert "whether &lt;adapting&gt; helps is in doubt" in (tmp_path / "report.html").read_text()


def test_an_interrupted_choice_is_resumed_to_the_same_model(chosen: Path, files: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(chosen, cut)
    for file in (SUMMARY, MODEL):
        (cut / file).unlink()
    shutil.rmtree(cut / "vmt")
    ran = command("train", "--resume", cut)
    assert ran.returncode == 0, ran.stderr
    x = np.load(files / "test.npz")["x"]
    for part in (".", "vmt"):  # the chosen model, and the candidate that was trained again
        before, after = (vmt.load(folder / part, device="cpu").predict_proba(x) for folder in (chosen, cut))
        np.testing.assert_array_equal(before, after)
    choices = [json.loads((folder / SUMMARY).read_text())["choice"]["ranking"] for folder in (chosen, cut)]
    assert choices[0] == choices[1]


@pytest.mark.parametrize("other", [{"seed": 5}, {"iterations": 4}, {"batch_size": 8}, {"net": "mlp"}])
def test_a_choice_is_not_resumed_with_other_settings(tmp_path: Path, other: dict[str, Any]) -> None:
    y = np.arange(40) % 2
    x = np.random.default_rng(0).normal(size=(40, 3)) + 3 * y[:, None]
    given: dict[str, Any] = {"iterations": 3, "progress": False, "device": "cpu", "out": tmp_path / "run"}
    first = vmt.adapt((x, y), x + 0.5, "auto", **given)
    again = vmt.adapt((x, y), x + 0.5, "auto", resume=True, **given)
    np.testing.assert_array_equal(first.predict_proba(x), again.predict_proba(x))
    with pytest.raises(vmt.InputError, match=next(iter(other))):
        vmt.adapt((x, y), x + 0.5, "auto", resume=True, **{**given, **other})


def test_source_only_warns_of_the_data_and_no_candidate_that_has_aligned_the_domains(
    chosen: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(chosen, cut)
    for name in TRAINED:
        summary = json.loads((cut / name / SUMMARY).read_text())
        (cut / name / SUMMARY).write_text(json.dumps({**summary, "warnings": [name], "collapsed": name}))
    before = json.loads((cut / SUMMARY).read_text())["choice"]["chosen"]
    (cut / SUMMARY).unlink()
    assert command("train", "--resume", cut).returncode == 0
    after = json.loads((cut / SUMMARY).read_text())
    assert after["warnings"] == ["source_only"]
    assert after["collapsed"] == (before if before in TRAINED else None)


def test_both_that_know_the_source_alone_must_find_other_class_proportions(chosen: Path, tmp_path: Path) -> None:
    """Source only says so here, and the kernel classifier does not: the blobs have equal shares in both domains."""
    cut = tmp_path / "cut"
    shutil.copytree(chosen, cut)
    summary = json.loads((cut / "source_only" / SUMMARY).read_text())
    said = ["something else", f"{SEEMS} (few or no 1): and so on."]
    (cut / "source_only" / SUMMARY).write_text(json.dumps({**summary, "warnings": said}))
    (cut / SUMMARY).unlink()
    assert command("train", "--resume", cut).returncode == 0
    assert json.loads((cut / SUMMARY).read_text())["warnings"] == ["something else"]


def test_features_of_a_target_that_lacks_classes() -> None:
    random = np.random.default_rng(0)
    y = np.arange(600) % 3
    x = random.normal(size=(600, 6)) + 4 * np.eye(6)[y]
    task = task_of((x, y), x[y == 0] + 0.1, None, None, None, standardise_per_domain=False)
    # As if a frozen network had computed the features.
    task = replace(task, backbone=cast(Extractor, "of an array"))
    portfolio = Portfolio(task, DataSpec(), Config(device="cpu", validate_samples=0), iterations=200)
    (sentence,) = carry_out_auto(portfolio, show=False).summary["warnings"]
    assert sentence.startswith(SEEMS)
    assert "; more 0)" in sentence


def test_a_candidate_is_resumed_with_its_settings_although_the_defaults_have_changed(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataSpec(source=str(files / "source.npz"), target=str(files / "target.npz"))
    portfolio = Portfolio(load_data(data), data, Config(device="cpu", threads=1, validate_samples=0))
    plan = Recipe("auto", {"iterations": {"source_only": 40}})
    record = {**RunSpec(data, plan).to_dict(), "fingerprint": data_fingerprint(portfolio.task)}
    write_record(tmp_path, record)
    carry_out(portfolio.run_of("source_only", 40), tmp_path / "source_only", budget=0)  # stops early
    before = recorded_recipe(tmp_path / "source_only")

    later = own_recipe(portfolio.task, "source_only", iterations=40)
    later = replace(later, settings={**later.settings, "lr": 1e-4})
    assert before is not None
    assert before.settings["lr"] != 1e-4
    monkeypatch.setattr("vmt.runs.run.own_recipe", lambda *_, **__: later)
    assert carry_out_auto(portfolio, tmp_path, resume=True, show=False).summary["finished"]
    assert recorded_recipe(tmp_path / "source_only") == before


@pytest.mark.parametrize(
    ("arguments", "offender"),
    [
        ({"method": "auto", "lambda_t": 0.1}, "lambda_t"),
        ({"method": "auto", "dirt_t": True}, "dirt_t"),
        ({"method": "auto", "keep_best": "snd"}, "keep_best"),
        ({"method": "auto", "minutes": 0}, "minutes"),
        ({"method": "vmt", "minutes": 3}, "minutes"),
    ],
)
def test_what_auto_cannot_use_is_refused(arguments: dict[str, Any], offender: str) -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    with pytest.raises(vmt.InputError, match=offender):
        vmt.adapt((x, y), x, progress=False, **arguments)


def test_a_best_model_of_a_run_is_nothing_for_auto(files: Path, tmp_path: Path) -> None:
    source, target = files / "source.npz", files / "target.npz"
    data = ("--source", source, "--target", target, "--out", tmp_path / "out")
    ran = command("train", *data, "--method", "auto", "--keep-best", "snd")
    assert ran.returncode == 2
    assert "--keep-best" in ran.stderr
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    with pytest.raises(vmt.InputError, match="keep_best"):
        vmt.VMTClassifier("auto", keep_best="snd").fit(x, y, X_target=x)


class Asked(Exception):
    """Auto was asked for."""


def ask(*_: Any, **__: Any) -> None:
    raise Asked


@pytest.mark.parametrize(
    "of_one", [{"lambda_t": 0.1}, {"iterations": 1}, {"net": "mlp"}, {"keep_best": "snd"}, {"method": "vmt"}]
)
def test_auto_is_the_method_if_nothing_of_a_single_one_is_asked(
    of_one: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmt.api.carry_out_auto", ask)
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    with pytest.raises(Asked):
        vmt.adapt((x, y), x, batch_size=8, progress=False)
    model = vmt.adapt((x, y), x, progress=False, **{"iterations": 2, "batch_size": 8, **of_one})
    assert model.about["method"] == "vmt"


@pytest.mark.parametrize("flags", [("--lambda-t", 0.1), ("--iterations", 2), ("--net", "mlp"), ("--keep-best", "snd")])
def test_the_command_line_has_the_same_default(
    flags: tuple[Any, ...], files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmt.cli.train.run_auto", ask)
    words = ["train", "--source", files / "source.npz", "--target", files / "target.npz", "--out", tmp_path / "out"]
    with pytest.raises(Asked):
        main(list(map(str, words)))
    short = ("--iterations", 2, "--batch-size", 8, "--device", "cpu")
    assert main(list(map(str, [*words, *short, *flags]))) == 0
    assert json.loads((tmp_path / "out" / SUMMARY).read_text())["method"] == "vmt"


def test_a_run_of_another_method_is_resumed_without_naming_it(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    out = tmp_path / "run"
    vmt.adapt((x, y), x, "vmt", iterations=2, batch_size=8, out=out, progress=False)
    model = vmt.adapt((x, y), x, batch_size=8, out=out, resume=True, progress=False)
    assert model.about["method"] == "vmt"


def test_auto_is_for_own_data(tmp_path: Path) -> None:
    ran = command("train", "digits", "--method", "auto", "--out", tmp_path / "out")
    assert ran.returncode == 2
    assert "digits" in ran.stderr
    assert not (tmp_path / "out" / RUN).exists()


def test_a_small_budget_shortens_candidates_and_leaves_out_the_costly_ones(files: Path) -> None:
    data = DataSpec(source=str(files / "source.npz"), target=str(files / "target.npz"))
    task = load_data(data)
    config = Config(device="cpu", threads=1)
    usual = within_budget(Portfolio(task, data, config))
    assert set(usual) == set(TRAINED)
    short = within_budget(Portfolio(task, data, config, minutes=1e-4))
    assert list(short) == ["source_only"]
    plenty = within_budget(Portfolio(task, data, config, minutes=1e4))
    assert plenty == dict.fromkeys(TRAINED, 1000)
