"""What ``vmt report`` says about runs: the verdict, the signs, the state of each."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report_runs import fabricate, report
from vmt.cli.main import main


@pytest.mark.parametrize(
    ("lower", "mine", "words", "tone"),
    [
        (0.7, 0.9, "Yes", "good"),
        (0.9, 0.7, "worse", "bad"),
        (0.80, 0.82, "Uncertain", "watch"),
        (0.30, 0.34, "guessing", "bad"),
    ],
)
def test_the_verdict(tmp_path: Path, lower: float, mine: float, words: str, tone: str) -> None:
    fabricate(tmp_path / "runs" / "a", "source_only", lower)
    fabricate(tmp_path / "runs" / "b", "vmt", mine)
    page, data = report(tmp_path / "r.html", tmp_path / "runs")
    assert words in data["verdict"]["headline"]
    assert data["verdict"]["tone"] == tone
    assert words in page.split("</h1>")[0].split("<h1")[1]
    gain = data["runs"][1]["gain"]
    assert gain["value"] == pytest.approx(mine - lower)
    assert gain["low"] < gain["value"] < gain["high"]


def test_it_says_what_re_normalising_alone_gives(tmp_path: Path) -> None:
    fabricate(tmp_path / "runs" / "a", "source_only", 0.7, summary={"adabn": {"target_accuracy": 0.805}})
    fabricate(tmp_path / "runs" / "b", "vmt", 0.9)
    data = report(tmp_path / "r.html", tmp_path / "runs")[1]
    for run in data["runs"]:
        assert any("80.5" in sentence and "AdaBN" in sentence for sentence in run["verdict"]["sentences"])


@pytest.mark.parametrize(
    ("accuracies", "parts"),
    [
        ((0.82, 0.97), ["2 runs", "1 helped", "1 is"]),
        ((0.82, 0.81, 0.2), ["3 runs", "2 are", "1 failed"]),
        ((0.97, None), ["2 runs", "1 helped", "1 cannot"]),
    ],
)
def test_the_headline_of_several_runs(tmp_path: Path, accuracies: tuple[float | None, ...], parts: list[str]) -> None:
    fabricate(tmp_path / "runs" / "lower", "source_only", 0.8)
    for i, accuracy in enumerate(accuracies):
        fabricate(tmp_path / "runs" / str(i), accuracy=accuracy, lambda_t=float(i))
    headline = report(tmp_path / "r.html", tmp_path / "runs")[1]["verdict"]["headline"]
    assert all(part in headline for part in parts)


@pytest.mark.parametrize(
    ("mine", "words"),
    [
        (0.85, "50\u00a0% of the way"),
        (0.94, "more than a model trained on target labels"),
    ],
)
def test_the_way_to_the_upper_bound(tmp_path: Path, mine: float, words: str) -> None:
    for method, accuracy in (("source_only", 0.8), ("vmt", mine), ("target_only", 0.9)):
        fabricate(tmp_path / "runs" / method, method, accuracy)
    sentences = report(tmp_path / "r.html", tmp_path / "runs")[1]["verdict"]["sentences"]
    assert any(words in sentence and "90.0\u00a0%" in sentence for sentence in sentences)


def test_the_verdict_of_one_run_of_many_seeds_and_of_a_collapse(tmp_path: Path) -> None:
    alone = report(tmp_path / "r.html", fabricate(tmp_path / "alone"))[1]["verdict"]
    assert alone["tone"] == "unknown"
    assert "unknown" in " ".join(alone["sentences"])
    for seed, accuracy in enumerate((0.8, 0.9)):
        fabricate(tmp_path / "seeds" / str(seed), accuracy=accuracy, seed=seed)
    sentences = report(tmp_path / "r.html", tmp_path / "seeds")[1]["verdict"]["sentences"]
    assert any("85.0 ± 7.1 %" in sentence for sentence in sentences)
    fabricate(tmp_path / "seeds" / "other", accuracy=0.3, seed=2, lambda_t=7.0)
    again = report(tmp_path / "r.html", tmp_path / "seeds")[1]["verdict"]["sentences"]
    assert any("85.0 ± 7.1 %" in sentence and "2 seeds" in sentence for sentence in again)
    collapsed = {"collapsed": "at iteration 200 collapsed: everything is class 0."}
    page, data = report(tmp_path / "r.html", fabricate(tmp_path / "bad", summary=collapsed, share=(1.0, 0.0, 0.0)))
    assert "collapsed" in data["verdict"]["headline"]
    assert data["verdict"]["tone"] == "bad"
    assert '<span class="status bad">collapsed</span>' in page
    assert data["runs"][0]["signs"][0]["level"] == "bad"
    # The collapse of a run that was killed is found in its log.
    killed = report(tmp_path / "r.html", fabricate(tmp_path / "k", share=(0.99, 0.01, 0.0), finished=False))[1]
    assert killed["runs"][0]["status"]["kind"] == "collapsed"
    for dirt_t, kind in ((False, "collapsed"), (True, "unfinished")):  # DIRT-T does not see the source
        run = fabricate(tmp_path / kind, source_accuracy=0.3, dirt_t=dirt_t, finished=False)
        shown = report(tmp_path / "r.html", run)[1]["runs"][0]
        assert shown["status"]["kind"] == kind
        (sign,) = (each for each in shown["signs"] if each["text"].startswith("Source accuracy"))
        assert sign["level"] == ("unknown" if dirt_t else "bad")


@pytest.mark.parametrize(
    ("then", "kind"), [({"dirt_t": True}, "collapsed"), ({}, "unfinished")], ids=["DIRT-T", "the same phase"]
)
def test_a_collapse_that_a_phase_ended_with_is_found_in_the_log(
    tmp_path: Path, then: dict[str, Any], kind: str
) -> None:
    """A later evaluation of the same phase may show that a collapse is over; one of DIRT-T, without the source, not."""
    run = fabricate(tmp_path / "run", finished=False, **then)
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    records[1]["target"]["predicted_share"] = [0.0, 0.99, 0.01]
    (run / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    status = report(tmp_path / "r.html", run)[1]["runs"][0]["status"]
    assert status["kind"] == kind
    assert ("At iteration 100 collapsed: 99% of the target" in status["text"]) == (kind == "collapsed")


def test_data_that_have_fewer_classes_now_are_not_compared_with_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fabricate(tmp_path / "run", share=(0.5, 0.5, 0.0))
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
    np.savez("gone.npz", x=x, y=np.arange(20) % 2)
    np.savez("gone-too.npz", x=x)
    data = report(tmp_path / "r.html", run)[1]
    assert "have changed" in data["tasks"][0]["note"]
    assert any(sign["text"].startswith("Never predicted on the target: 2.") for sign in data["runs"][0]["signs"])
    piled = fabricate(tmp_path / "piled", finished=False, share=(0.0, 0.01, 0.99))
    status = report(tmp_path / "r.html", piled)[1]["runs"][0]["status"]
    assert "99% of the target is predicted as class 2" in status["text"]


@pytest.mark.parametrize(
    "damage",
    [
        ('"predicted_share"', '"predicted_chare"'),
        ('"phase"', '"validators": {}, "phase"'),
    ],
)
def test_a_damaged_evaluation_is_left_out(tmp_path: Path, damage: tuple[str, str]) -> None:
    run = fabricate(tmp_path / "run")
    *others, last = (run / "log.jsonl").read_text().splitlines()
    assert damage[0] in last
    (run / "log.jsonl").write_text("\n".join([*others, last.replace(*damage)]))
    assert report(tmp_path / "r.html", run)[1]["runs"][0]["accuracy"]["value"] == pytest.approx(0.85)


def test_a_damaged_summary_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = fabricate(tmp_path / "run")
    (run / "summary.json").write_text("[1, 2]")
    assert main(["report", str(run), "-o", str(tmp_path / "r.html")]) == 2
    assert "summary.json" in capsys.readouterr().err
