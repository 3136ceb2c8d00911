"""Validators during a run, the best model that is kept, and ``vmt select``, on real runs and in real processes."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import vmt as library
from tests.interrupted import interrupted
from tests.own_data import write_blobs
from vmt import InputError, validators
from vmt.cli.main import main
from vmt.cli.select import advice
from vmt.data import domain
from vmt.evaluate.probe import subsample
from vmt.runs.ranking import History, ScoredModel, agreement, ranked, read_history, spearman, warnings
from vmt.train import Config
from vmt.validators import VALIDATORS

FLAGS = ["--iterations", 60, "--log-every", 30, "--evaluate-every", 5, "--checkpoint-every", 10, "--batch-size", 16]
FLAGS += ["--validate-samples", 60, "--precision", "float32"]


def evaluations_of(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [record for record in records if "target" in record]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two short runs with different learning rates. The second has no target labels and keeps its best model."""
    folder = tmp_path_factory.mktemp("select")
    source, target = write_blobs(folder)
    data = ["--source", source, "--target", target]
    labelled = [*data, "--target-test", folder / "test.npz"]
    for name, extra in (("slow", [*labelled, "--lr", 1e-4]), ("kept", [*data, "--lr", 3e-2, "--keep-best", "entropy"])):
        assert main(["train", *map(str, [*FLAGS, *extra]), "--out", str(folder / name)]) == 0
    return folder


def test_every_evaluation_is_validated(runs: Path) -> None:
    evaluations = evaluations_of(runs / "kept")
    assert [record["step"] for record in evaluations] == list(range(5, 65, 5))
    for record in evaluations:
        assert set(record["validators"]) == set(VALIDATORS)
        assert record["validated"] == 60
        assert record["target"]["accuracy"] is None
    assert evaluations[-1]["validators"]["source_accuracy"] > 0.9


def test_the_last_model_stays_the_runs_model_and_the_best_is_beside_it(runs: Path) -> None:
    summary = json.loads((runs / "kept" / "summary.json").read_text())
    evaluations = evaluations_of(runs / "kept")
    best = max(evaluations, key=lambda record: (record["alarm"] is None, record["validators"]["entropy"]))
    assert summary["best"]["step"] == best["step"]
    assert summary["best"]["score"] == best["validators"]["entropy"]
    assert not (runs / "slow" / "model_best.safetensors").exists(), "only where it is asked for"
    # On the samples that were validated: among others, the last model may be the more certain one.
    x = subsample(domain(np.load(runs / "target.npz")["x"], name="target"), evaluations[-1]["validated"]).x
    last, kept = (library.load(runs / "kept" / name) for name in ("model.safetensors", "model_best.safetensors"))
    entropies = [float(validators.entropy(torch.log(torch.from_numpy(m.predict_proba(x))))) for m in (last, kept)]
    assert entropies == pytest.approx([evaluations[-1]["validators"]["entropy"], summary["best"]["score"]], rel=1e-3)


def test_the_best_model_survives_a_kill(tmp_path: Path) -> None:
    """SND is highest before anything is learned, so after a kill only the checkpoint has the best model."""
    source, target = write_blobs(tmp_path)
    flags = ["--source", source, "--target", target, *FLAGS, "--iterations", 100, "--keep-best", "snd"]
    assert main(["train", *map(str, flags), "--out", str(tmp_path / "whole")]) == 0
    best = json.loads((tmp_path / "whole" / "summary.json").read_text())["best"]
    assert best["step"] <= 50, "the test needs the best model before the kill"
    code = interrupted(best["step"] + 1, "SIGKILL", "train", *flags, "--out", tmp_path / "killed")
    assert code == -signal.SIGKILL
    assert not (tmp_path / "killed" / "model_best.safetensors").exists()
    assert main(["train", "--resume", str(tmp_path / "killed")]) == 0
    assert json.loads((tmp_path / "killed" / "summary.json").read_text())["best"] == best
    ours, theirs = (load_file(tmp_path / name / "model_best.safetensors") for name in ("killed", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert evaluations_of(tmp_path / "whole") == evaluations_of(tmp_path / "killed")


def test_select_ranks_two_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", str(runs / "slow"), str(runs / "kept"), "--by", "source_accuracy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert Path(found["ranking"][0]["run"]).name == "kept"
    assert Path(found["ranking"][0]["file"]).exists()
    assert set(found["agreement"]["validators"]) == set(VALIDATORS)
    assert found["agreement"]["validators"]["entropy"]["entropy"] == pytest.approx(1)
    assert any("different data" in sentence for sentence in found["warnings"]), "one has a test set, the other none"
    assert len(found["looks"][str(runs / "slow")]) == 12


def test_the_answer_is_short_and_a_folder_of_runs_stands_for_all_of_them(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default only the ranking and the warnings are printed."""
    monkeypatch.chdir(runs)
    assert main(["select", "."]) == 0
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) <= 20
    head, *rows = printed.split("\n\n")[1].splitlines()
    assert head.split()[:4] == ["#", "run", "iteration", "ami_source"]
    assert {row.split()[1] for row in rows} == {"slow", "kept"}
    assert "bnm" not in printed
    assert "--all" in printed


def test_the_accuracy_is_shown_and_marked_as_not_used(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", str(runs / "slow"), str(runs / "kept"), "--history"]) == 0
    printed = capsys.readouterr().out
    assert "No target labels are used" in " ".join(printed.split())
    assert "target accuracy*" in printed
    assert "* measured with target labels" in printed
    assert "over time" in printed


@pytest.mark.parametrize("width", [80, 120, 300])
def test_tables_fit_the_terminal(
    runs: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe is 80 columns wide. Every score of every evaluation is shown whatever the width."""
    monkeypatch.chdir(runs)
    monkeypatch.delenv("COLUMNS", raising=False)
    if width != 80:
        monkeypatch.setenv("COLUMNS", str(width))
    assert main(["select", "slow", "kept", "--history", "--all"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    heads = [line.split() for line in printed.splitlines() if line.startswith("#")]
    assert (len(heads) == 1) == (width == 300), "one table where there is room"
    assert {name for head in heads for name in head} >= {"run", "iteration", *VALIDATORS}
    for record in evaluations_of(Path("kept")):
        assert {f"{score:.4f}" for score in record["validators"].values()} <= set(printed.split())


def test_a_long_path_is_shortened_at_its_start(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deep = runs.joinpath(*["..", runs.name] * 8)
    assert main(["select", str(deep / "slow"), str(deep / "kept")]) == 0
    table = capsys.readouterr().out.split("\n\n")[1]
    rows = table.splitlines()[1:]
    assert all("  …" in row and len(row) <= 80 for row in rows)
    assert {row.split()[1].rsplit("/", 1)[1] for row in rows} == {"slow", "kept"}


def test_a_ranking_of_different_data_begins_with_a_warning(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", str(runs / "slow"), str(runs / "kept")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.count("2 different data sets") == 1
    assert printed.index("2 different data sets") < printed.index("# run iteration")
    assert main(["select", str(runs / "slow")]) == 0
    assert "different data" not in capsys.readouterr().out


def test_without_labels_there_is_no_accuracy(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", str(runs / "kept"), "--by", "entropy", "--all"]) == 0
    printed = capsys.readouterr().out
    assert "accuracy*" not in printed
    assert "rank correlations over" in printed


def test_two_evaluations_are_too_few_to_correlate(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    brief = shutil.copytree(runs / "kept", tmp_path / "brief")
    records = (brief / "log.jsonl").read_text().splitlines(keepends=True)
    evaluations = [line for line in records if "validators" in json.loads(line)]
    (brief / "log.jsonl").write_text("".join(evaluations[-2:]))
    assert main(["select", str(brief), "--by", "entropy", "--all"]) == 0
    printed = capsys.readouterr().out
    assert "2 evaluations of 1 run" in printed
    assert "rank correlations" not in printed


def test_select_names_what_is_wrong(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
    assert main(["select", str(runs / "kept"), "--by", "accuracy"]) == 2
    assert "'accuracy'" in capsys.readouterr().err
    before = shutil.copytree(runs / "kept", tmp_path / "before")
    log = (before / "log.jsonl").read_text()
    (before / "log.jsonl").write_text(log.replace('"ami_source"', '"another"'))
    assert main(["select", str(before)]) == 2
    printed = capsys.readouterr().err
    assert "ami_source" in printed
    assert "--by" in printed
    (before / "summary.json").write_text("{")
    assert main(["select", str(before)]) == 2
    assert str(before) in capsys.readouterr().err
    unvalidated = shutil.copytree(runs / "kept", tmp_path / "unvalidated")
    (unvalidated / "log.jsonl").write_text(log.replace('"validators"', '"others"'))
    assert main(["select", str(unvalidated)]) == 2
    assert "--validate-samples" in capsys.readouterr().err


def test_folders_without_a_run_are_named_and_left_out(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pattern runs/* may match such folders."""
    assert main(["select", str(tmp_path), str(runs / "kept"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {model["run"] for model in found["ranking"]} == {str(runs / "kept")}
    assert str(tmp_path) in found["warnings"][0]


def test_an_unknown_validator_is_refused_before_training() -> None:
    with pytest.raises(InputError, match="'accuracy'"):
        Config(keep_best="accuracy")
    with pytest.raises(InputError, match="validate_samples"):
        Config(keep_best="im", validate_samples=0)


def model(score: float | None, alarm: str | None = None, accuracy: float | None = None, step: int = 1) -> ScoredModel:
    return ScoredModel("run", step, "vmt", {"im": score, "bnm": score}, alarm, accuracy)


def test_a_collapsed_model_ranks_below_every_other() -> None:
    order = ranked([model(None), model(2.0, "one class"), model(0.5), model(1.0)], "im")
    assert [each.scores["im"] for each in order] == [1.0, 0.5, 2.0, None]


@pytest.mark.parametrize(("scores", "mentioned"), [((0.5, 0.5), False), ((0.6, 0.5), True), ((0.6, None), True)])
def test_an_earlier_model_is_mentioned_only_if_it_ranked_higher(
    scores: tuple[float, float | None], mentioned: bool
) -> None:
    """Some validators reach 1 and stay there."""
    history = History(tuple(model(score, step=k) for k, score in enumerate(scores)), ("data", 9), None, True)
    printed = advice([history.evaluations[-1]], [history], "im")
    assert any("run at iteration 0" in sentence for sentence in printed) == mentioned


def test_how_validators_agree() -> None:
    made = [History((model(s, accuracy=a),), ("data", 9), None, True) for s, a in ((1, 0.3), (2, 0.2), (3, 0.1))]
    found = agreement(made)
    assert found["validators"]["im"]["bnm"] == pytest.approx(1)
    assert found["accuracy"]["im"] == pytest.approx(-1)
    unlabelled = [History((model(1.0), model(2.0)), ("data", 9), None, True)]
    assert agreement(unlabelled)["accuracy"] is None


def test_warnings_about_a_ranking() -> None:
    one = History((model(1.0, "one class"),), ("data", 9), None, True)
    other = History((model(1.0),), ("data", 10), "at iteration 3 collapsed: all is one class", False)
    printed = " ".join(warnings([one, other]))
    for part in ("numbers of samples", "may have collapsed", "at iteration 3 collapsed", "not finished"):
        assert part in printed


def test_a_run_without_evaluations_is_refused(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "run.json").write_text((runs / "kept" / "run.json").read_text())
    with pytest.raises(InputError, match="old"):
        read_history(folder)


def test_a_model_after_dirt_t_is_not_ranked_lower_because_it_forgot_the_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = write_blobs(tmp_path)
    flags = [*FLAGS, "--source", source, "--target", target, "--keep-best", "ami_source"]
    for name, more in (("plain", []), ("refined", ["--dirt-t", "--dirt-t-iterations", 20])):
        assert main(["train", *map(str, [*flags, *more]), "--out", str(tmp_path / name)]) == 0
    log = tmp_path / "refined" / "log.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    before = [record for record in records if record["phase"] == "vmt"][-1]["validators"]
    # The model that is ranked is the last; in its run DIRT-T forgot the source and kept the classes, or merged some.
    for change, first in ((0.1, "refined"), (-0.1, "plain")):
        changed = {"ami_source": 0.1, "neighbours": before["neighbours"] + change}
        records[-1]["validators"] |= changed
        records[-1]["alarm"] = None
        log.write_text("".join(json.dumps(record) + "\n" for record in records))
        ours, theirs = (read_history(tmp_path / name).evaluations[-1] for name in ("refined", "plain"))
        best = ranked([replace(ours, alarm=None), replace(theirs, alarm=None)], "ami_source")[0]
        assert Path(best.run).name == first
    capsys.readouterr()
    assert main(["select", str(tmp_path / "plain"), str(tmp_path / "refined")]) == 0
    assert "DIRT-T" in capsys.readouterr().out
    assert main(["select", str(tmp_path / "plain"), str(tmp_path / "refined"), "--by", "im"]) == 0
    assert "DIRT-T" not in capsys.readouterr().out


def test_spearman_with_ties_and_unknown_values() -> None:
    assert spearman([3, 1, 3, 2], [1, 2, 4, 3]) == pytest.approx(0.5 / np.sqrt(4.5 * 5))
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert spearman([1], [2]) is None
    assert spearman([1, None, 3, 4], [2, 9, None, 5]) == pytest.approx(1)


def test_a_run_of_adapt_of_an_earlier_version_is_ranked() -> None:
    history = read_history(Path(__file__).parents[1] / "fixtures" / "364b1c0" / "adapted")
    assert history.finished
    assert history.evaluations[-1].file is not None
