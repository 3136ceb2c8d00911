"""Validators during a run, the best model that is kept, and ``vmt select``: real runs, real processes."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import vmt as library
from tests.own_data import start, vmt, write_blobs
from vmt import InputError, validators
from vmt.cli.main import main
from vmt.cli.select import advice
from vmt.runs.ranking import History, Look, agreement, ranked, read_history, warnings
from vmt.train import Config
from vmt.validators import VALIDATORS

FLAGS = ["--iterations", 120, "--log-every", 30, "--evaluate-every", 10, "--checkpoint-every", 20, "--batch-size", 16]
FLAGS += ["--validate-samples", 60, "--precision", "float32"]


def looks_of(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [record for record in records if "target" in record]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two short runs with different rates; the second knows no target labels and keeps its best model."""
    folder = tmp_path_factory.mktemp("select")
    source, target = write_blobs(folder)
    data = ["--source", source, "--target", target]
    labelled = [*data, "--target-test", folder / "test.npz"]
    for name, extra in (("slow", [*labelled, "--lr", 1e-4]), ("kept", [*data, "--lr", 3e-2, "--keep-best", "entropy"])):
        assert main(["train", *map(str, [*FLAGS, *extra]), "--out", str(folder / name)]) == 0
    return folder


def test_every_look_is_validated(runs: Path) -> None:
    looks = looks_of(runs / "kept")
    assert [look["step"] for look in looks] == list(range(10, 130, 10))
    for look in looks:
        assert set(look["validators"]) == set(VALIDATORS)
        assert look["validated"] == 60
        assert look["target"]["accuracy"] is None
    assert looks[-1]["validators"]["source_accuracy"] > 0.9


def test_the_last_model_stays_the_runs_model_and_the_best_is_beside_it(runs: Path) -> None:
    summary = json.loads((runs / "kept" / "summary.json").read_text())
    looks = looks_of(runs / "kept")
    best = max(looks, key=lambda look: (look["alarm"] is None, look["validators"]["entropy"]))
    assert summary["best"]["step"] == best["step"]
    assert summary["best"]["score"] == best["validators"]["entropy"]
    assert not (runs / "slow" / "model_best.safetensors").exists(), "only where it is asked for"
    x = np.load(runs / "target.npz")["x"]
    last, kept = (library.load(runs / "kept" / name) for name in ("model.safetensors", "model_best.safetensors"))
    entropies = [float(validators.entropy(torch.log(torch.from_numpy(m.predict_proba(x))))) for m in (last, kept)]
    assert entropies[1] >= entropies[0]


def test_the_best_model_survives_a_kill(tmp_path: Path) -> None:
    """Neighbourhoods are densest before anything is learned, so after a kill only the checkpoint knows the best."""
    source, target = write_blobs(tmp_path)
    flags = ["--source", source, "--target", target, *FLAGS, "--iterations", 200, "--keep-best", "snd"]
    assert main(["train", *map(str, flags), "--out", str(tmp_path / "whole")]) == 0
    best = json.loads((tmp_path / "whole" / "summary.json").read_text())["best"]
    assert best["step"] <= 100, "or nothing is shown"
    process = start("train", *flags, "--out", tmp_path / "killed")
    while newest(tmp_path / "killed") < f"step-{best['step']:09d}" and process.poll() is None:
        time.sleep(0.01)
    assert process.poll() is None, "the run ended before it could be killed"
    process.kill()
    process.wait()
    assert not (tmp_path / "killed" / "model_best.safetensors").exists()
    assert main(["train", "--resume", str(tmp_path / "killed")]) == 0
    assert json.loads((tmp_path / "killed" / "summary.json").read_text())["best"] == best
    ours, theirs = (load_file(tmp_path / name / "model_best.safetensors") for name in ("killed", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert looks_of(tmp_path / "whole") == looks_of(tmp_path / "killed")


def newest(run: Path) -> str:
    return max((path.name for path in run.glob("checkpoints/step-*")), default="")


def test_select_ranks_two_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", str(runs / "slow"), str(runs / "kept"), "--by", "source_accuracy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert Path(found["ranking"][0]["run"]).name == "kept"
    assert Path(found["ranking"][0]["file"]).exists()
    assert set(found["agreement"]["validators"]) == set(VALIDATORS)
    assert found["agreement"]["validators"]["entropy"]["entropy"] == pytest.approx(1)
    assert any("different data" in sentence for sentence in found["warnings"]), "one has a test set, the other none"
    assert len(found["looks"][str(runs / "slow")]) == 12


def test_the_answer_is_short_and_takes_a_folder_of_runs(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ranking, and what to know of it; all else if asked for."""
    monkeypatch.chdir(runs)
    assert main(["select", "."]) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) <= 20
    head, *rows = said.split("\n\n")[1].splitlines()
    assert head.split()[:4] == ["#", "run", "iteration", "ami_source"]
    assert {row.split()[1] for row in rows} == {"slow", "kept"}
    assert "bnm" not in said
    assert "--all" in said


def test_select_in_words(runs: Path) -> None:
    done = vmt("select", runs / "slow", runs / "kept", "--history")
    assert done.returncode == 0, done.stderr
    assert "No target labels are used" in " ".join(done.stdout.split())
    assert "target accuracy*" in done.stdout
    assert "* measured with target labels" in done.stdout
    assert "over time" in done.stdout


@pytest.mark.parametrize("width", [80, 120, 300])
def test_tables_fit_the_terminal(
    runs: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe is 80 wide. Whatever the width, every score of every look is there."""
    monkeypatch.chdir(runs)
    monkeypatch.delenv("COLUMNS", raising=False)
    if width != 80:
        monkeypatch.setenv("COLUMNS", str(width))
    assert main(["select", "slow", "kept", "--history", "--all"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= width
    heads = [line.split() for line in said.splitlines() if line.startswith("#")]
    assert (len(heads) == 1) == (width == 300), "one table where there is room"
    assert {name for head in heads for name in head} >= {"run", "iteration", *VALIDATORS}
    for look in looks_of(Path("kept")):
        assert {f"{score:.4f}" for score in look["validators"].values()} <= set(said.split())


def test_a_long_path_is_cut_where_it_says_least(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deep = runs.joinpath(*["..", runs.name] * 8)
    assert main(["select", str(deep / "slow"), str(deep / "kept")]) == 0
    table = capsys.readouterr().out.split("\n\n")[1]
    rows = table.splitlines()[1:]
    assert all("  …" in row and len(row) <= 80 for row in rows)
    assert {row.split()[1].rsplit("/", 1)[1] for row in rows} == {"slow", "kept"}


def test_runs_of_different_data_are_told_apart_first(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the ranking, and once."""
    assert main(["select", str(runs / "slow"), str(runs / "kept")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    words = "These runs are on different data, 2 kinds of it: scores compare within one kind only."
    assert said.count(words) == 1
    assert said.index(words) < said.index("# run iteration")
    assert main(["select", str(runs / "slow")]) == 0
    assert "different data" not in capsys.readouterr().out


def test_without_labels_there_is_no_accuracy(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", str(runs / "kept"), "--by", "entropy", "--all"]) == 0
    said = capsys.readouterr().out
    assert "accuracy*" not in said
    assert "rank correlations over" in said


def test_two_looks_do_not_correlate(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    brief = shutil.copytree(runs / "kept", tmp_path / "brief")
    records = (brief / "log.jsonl").read_text().splitlines(keepends=True)
    looks = [line for line in records if "validators" in json.loads(line)]
    (brief / "log.jsonl").write_text("".join(looks[-2:]))
    assert main(["select", str(brief), "--by", "entropy", "--all"]) == 0
    assert "How the validators agree cannot be said from 2 looks of 1 run." in capsys.readouterr().out


def test_select_refuses_with_a_sentence(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", str(tmp_path)]) == 2
    assert "is not the folder of a run" in capsys.readouterr().err
    assert main(["select", str(runs / "kept"), "--by", "accuracy"]) == 2
    assert "choose one of source_accuracy" in capsys.readouterr().err
    before = shutil.copytree(runs / "kept", tmp_path / "before")
    log = (before / "log.jsonl").read_text()
    (before / "log.jsonl").write_text(log.replace('"ami_source"', '"another"'))
    assert main(["select", str(before)]) == 2
    assert "no look of these runs has ami_source: choose with --by one of source_accuracy" in capsys.readouterr().err
    (before / "summary.json").write_text("{")
    assert main(["select", str(before)]) == 2
    assert f"the run {before} cannot be read" in capsys.readouterr().err
    source, target = write_blobs(tmp_path)
    flags = ["--source", str(source), "--target", str(target), "--out", str(tmp_path / "run"), "--iterations", "2"]
    assert main(["train", *flags, "--validate-samples", "0"]) == 0
    capsys.readouterr()
    assert main(["select", str(tmp_path / "run")]) == 2
    assert "without validators" in capsys.readouterr().err


def test_folders_that_are_no_runs_are_named_and_left_out(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As runs/* may name them."""
    assert main(["select", str(tmp_path), str(runs / "kept"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {look["run"] for look in found["ranking"]} == {str(runs / "kept")}
    assert f"{tmp_path} is not the folder of a run" in found["warnings"][0]


def test_an_unknown_validator_is_refused_before_training() -> None:
    with pytest.raises(InputError, match="choose one of"):
        Config(keep_best="accuracy")
    with pytest.raises(InputError, match="needs validate_samples"):
        Config(keep_best="im", validate_samples=0)


def look(score: float | None, alarm: str | None = None, accuracy: float | None = None, step: int = 1) -> Look:
    return Look("run", step, "vmt", {"im": score, "bnm": score}, alarm, accuracy)


def test_a_collapsed_model_ranks_below_every_other() -> None:
    order = ranked([look(None), look(2.0, "one class"), look(0.5), look(1.0)], "im")
    assert [each.scores["im"] for each in order] == [1.0, 0.5, 2.0, None]


@pytest.mark.parametrize(("scores", "missed"), [((0.5, 0.5), False), ((0.6, 0.5), True), ((0.6, None), True)])
def test_an_earlier_model_is_missed_only_if_it_was_better(scores: tuple[float, float | None], missed: bool) -> None:
    """Some validators come to 1 and stay there."""
    history = History(tuple(look(score, step=k) for k, score in enumerate(scores)), ("data", 9), None, True)
    said = advice([history.looks[-1]], [history], "im")
    assert any("run at iteration 0" in sentence for sentence in said) == missed


def test_how_validators_agree() -> None:
    made = [History((look(s, accuracy=a),), ("data", 9), None, True) for s, a in ((1, 0.3), (2, 0.2), (3, 0.1))]
    found = agreement(made)
    assert found["validators"]["im"]["bnm"] == pytest.approx(1)
    assert found["accuracy"]["im"] == pytest.approx(-1)
    unlabelled = [History((look(1.0), look(2.0)), ("data", 9), None, True)]
    assert agreement(unlabelled)["accuracy"] is None


def test_what_ranking_warns_of() -> None:
    one = History((look(1.0, "one class"),), ("data", 9), None, True)
    other = History((look(1.0),), ("data", 10), "at iteration 3 collapsed: all is one class", False)
    said = " ".join(warnings([one, other]))
    for part in ("numbers of samples", "may have collapsed", "at iteration 3 collapsed", "not finished"):
        assert part in said


def test_an_old_log_is_refused(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "run.json").write_text((runs / "kept" / "run.json").read_text())
    with pytest.raises(InputError, match="has not been looked at yet"):
        read_history(folder)
