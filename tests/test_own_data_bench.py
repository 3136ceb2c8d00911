"""The benchmark on own data: its tasks are fixed, its results are kept, and its page can be written."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import own_data_candidates as candidates  # noqa: E402
import own_data_rules as rules  # noqa: E402
import own_data_table as table  # noqa: E402
from own_data_peers import installed  # noqa: E402
from own_data_tasks import REPORTING, TASKS, side  # noqa: E402

import own_data as bench  # noqa: E402
from vmt.evaluate.polarity import target_is_negative  # noqa: E402

WITHOUT_DATA = [name for name, task in TASKS.items() if not task.sets]
# As they were before the first result: the split must not change afterwards.
FOR_REPORTING = {
    *("wine-gain", "blobs-features-rotated", "cancer-features-rotated", "moons-turned-moved", "digits-noise"),
    *("cancer-missing-sensors", "shells-covariate", "digits-sensor-dirichlet-2", "digits-absent-classes"),
    *("cancer-classes-unequal", "blobs-dirichlet-1", "digits-few", "blobs-few", "letters-fonts", "digits-no-shift"),
    *("pictures-inverted", "mnist-mnistm-1000", "mnist-usps-1000", "usps-mnist-1000"),
}


def test_the_split_is_the_one_that_was_written_down_first() -> None:
    assert {name for name in TASKS if side(name) == REPORTING} == FOR_REPORTING
    assert len(WITHOUT_DATA) == 36


@pytest.mark.parametrize("name", WITHOUT_DATA)
def test_a_task_depends_on_the_seed_alone_and_has_fixed_sizes(name: str) -> None:
    first, again, other = (TASKS[name].problem(seed) for seed in (0, 0, 1))
    for part in ("xs", "ys", "xt", "xt_test", "yt_test"):
        a, b, c = (getattr(problem, part) for problem in (first, again, other))
        assert np.array_equal(a, b)
        assert a.shape == c.shape
        assert a.dtype == c.dtype
    assert not np.array_equal(first.xs, other.xs)
    assert np.isfinite(first.xt.astype(np.float64)).all()
    assert len(first.xt_test) == len(first.yt_test)
    # Every class of the target is a class of the source.
    assert set(first.ys) == set(range(first.classes)) >= set(first.yt_test)


MINE = '{"method": "source_only", "iterations": 2}'


def test_results_are_kept_and_the_page_is_made_from_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, page = tmp_path / "own_data.jsonl", tmp_path / "page.md"
    asked = ["--tasks", "moons-turned-moved", "wine-gain", "--seeds", "2", "--methods", "svc", "svc-*", "mine"]
    asked += ["--variant", f"mine={MINE}", "--out", str(out), "--page", str(page)]
    bench.main(asked)
    records = bench.read(out)
    assert len(records) == 2 * 2 * 3
    assert all(record["accuracy"] > 0.2 for record in records), records
    assert "mine" in capsys.readouterr().out

    # A line that a kill cut short, and the result of earlier code, are measured again; all others are kept.
    records[0]["version"] = "earlier"
    lines = [json.dumps(record) for record in records]
    out.write_text("\n".join([*lines[:-1], lines[-1][:40]]))
    bench.main(asked)
    assert len(bench.read(out)) == len(records) + 1
    assert "[2/2]" in capsys.readouterr().out
    bench.main([*asked, "--any-version"])
    assert "[1/" not in capsys.readouterr().out

    bench.main([*asked, "--table"])
    written = page.read_text()
    assert "| wine-gain |" in written
    assert "`svc-per-domain`" in written
    assert "mine" not in written, "variants are not part of the published page"


def test_a_contender_that_fails_is_a_result_without_an_accuracy() -> None:
    def record(contender: str, task: str, **more: object) -> dict[str, object]:
        kind = {"task": task, "revision": table.REVISION, "seed": 0, "contender": contender, "settings": None}
        return {**kind, "version": "1", "cpu_s": 1.0, "wall_s": 1.0, **more}

    records = [record("svc", "wine-gain", accuracy=0.9), record("hgb", "wine-gain", failed="ValueError: no")]
    records += [record("svc", "digits-few", accuracy=0.5), record("hgb", "digits-few", accuracy=0.7)]
    written = table.page(records)
    assert "| wine-gain | 90.0 | – |" in written
    assert "| `hgb` | – | 1.5 | – | – | 1.0 | 1 |" in written


def test_the_page_in_the_documentation_matches_the_results() -> None:
    written = (ROOT / "docs" / "own-data-bench.md").read_text()
    assert written == table.page(bench.read(bench.RESULTS)), "run python benchmarks/own_data.py --table"


@pytest.mark.skipif(not installed("skada"), reason="skada is an optional competitor")
@pytest.mark.parametrize("contender", ["skada-coral", "skada-entropic-ot", "skada-jdot"])
def test_methods_of_skada_run(contender: str) -> None:
    (record,) = bench.measure(bench.Job("iris-offset", 0, contender))
    assert record["accuracy"] > 0.5, record


def test_a_variant_with_a_mistyped_setting_is_refused_before_any_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench.main(["--variant", 'x={"lambda_tt": 1}', "--out", str(tmp_path / "out.jsonl")])
    assert "lambda_tt" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_the_study_counts_what_each_score_would_have_chosen() -> None:
    def record(seed: int, accuracies: list[float], scores: list[float], alarms: list[str]) -> dict[str, object]:
        candidates = dict(zip(("source_only", "kernel", "average"), accuracies, strict=True))
        by_name = dict(zip(candidates, ({"im": score, "dev": None} for score in scores), strict=True))
        kind = {"task": "wine-gain", "revision": table.REVISION, "seed": seed, "contender": "auto", "settings": {}}
        about = {"accuracy": candidates["average"], "candidates": candidates, "scores": by_name, "alarms": alarms}
        return {**kind, **about, "version": "1", "cpu_s": 1.0, "wall_s": 1.0}

    records = [
        record(0, [0.9, 0.8, 0.85], [0.1, 0.2, 0.9], []),
        record(1, [0.6, 0.7, 0.7], [0.2, 0.1, 0.9], ["source_only"]),
    ]
    found = table.study(table.Results(records), ["wine-gain"])
    assert found is not None
    rows = dict(line.strip("| ").split(" | ", 1) for line in found.splitlines())
    assert rows["`im`"] == "75.0 | 5.0 | 50"
    assert rows["always `source_only`"] == "75.0 | 5.0 | 50"
    assert rows["the answer of `auto`"] == "77.5 | 2.5 | 50"
    assert "`dev`" not in rows
    assert "always `average`" not in rows


@pytest.mark.parametrize(
    "name", ["pictures-inverted-blurred", "pictures-inverted-dirichlet-1", "letters-pictures-inverted", "pictures-dim"]
)
def test_inverted_tasks_for_choosing_look_inverted(name: str) -> None:
    task = candidates.task_with_test(candidates.tasks_for_choosing()[name].problem(0))
    assert target_is_negative(task) == ("inverted" in name)


def test_rules_are_judged_on_what_the_candidates_of_auto_predict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmt.runs.recipes.LONGEST", 20)  # the longest run
    random = np.random.default_rng(0)
    of_features = {f"{name}_x": random.normal(size=(60, 8)).astype(np.float16) for name in ("photo", "sketch")}
    features = tmp_path / "features.npz"
    np.savez(features, **of_features, photo_y=np.arange(60) % 3, sketch_y=np.arange(60) % 3)
    for name, file in (("iris-offset", None), ("photo-sketch", features)):
        folder = tmp_path / name
        folder.mkdir()
        candidates.keep_outputs(name, 0, folder, file, [])
        rules.main([str(folder), "--out", str(tmp_path / "rules.json"), *([] if file is None else ["--features"])])
        tried = json.loads((tmp_path / "rules.json").read_text())
        assert tried["used"] in tried["rules"]
        assert tried["cases"] == 1
        every = tried["rules"]
        assert every["source_only"]["harmed"] == every["source_only"]["worst"] == 0
        best = max(every[each]["mean"] for each in every if " " not in each)
        assert every["kernel"]["regret"] == pytest.approx(best - every["kernel"]["mean"], abs=0.02)
        assert 0 < every["mean of all"]["mean"] <= 100
        assert 0 < every["candidates vmt"]["mean"] <= 100
