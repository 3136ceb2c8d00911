"""The studies of validators: the tables in the documentation match their records, and their runs can be built."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import validators_choice as choice  # noqa: E402
import validators_tables as tables  # noqa: E402
import validators_tasks as pair_tasks  # noqa: E402

import validators as study  # noqa: E402

RECORDS = ROOT / "results" / "validators.jsonl"


def test_the_tables_in_the_documentation_match_the_records() -> None:
    written = (ROOT / "docs" / "validators-study.md").read_text().split(tables.BEGIN)[1].split(tables.END)[0]
    records = sorted(study.read(RECORDS), key=lambda record: record["number"])
    assert len(records) >= 20
    assert written.strip() == tables.study(records), "run python benchmarks/validators.py --tables"


def test_the_tables_of_the_choice_match_their_records() -> None:
    written = (ROOT / "docs" / "validators-study.md").read_text().split(choice.BEGIN)[1].split(choice.END)[0]
    expected = choice.study(choice.latest(choice.RESULTS))
    assert written.strip() == expected, (
        "run python benchmarks/validators_choice.py --tables --docs docs/validators-study.md"
    )


def test_every_record_matches_the_settings_that_its_number_draws() -> None:
    for record in study.read(RECORDS):
        asked = study.draw(record["number"])
        assert {name: record[name] for name in asked} == asked


@pytest.mark.parametrize("number", range(0, 2 * len(study.KINDS), 2), ids=study.KINDS)
def test_every_kind_of_run_is_a_method(number: int) -> None:
    asked = study.draw(number)
    method = study.build(asked)
    assert abs(method.iterations - study.ITERATIONS) <= 1
    terms = {term.name: term.weight for term in method.phases[0].updates[-1].terms}
    assert ("L_c(target)" in terms) == (
        asked["kind"].split(",")[0] in ("L_c", "vada", "vmt") and "no" not in asked["kind"]
    )


def test_runs_with_a_record_are_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "validators.jsonl"
    copy.write_text("".join(line + "\n" for line in RECORDS.read_text().splitlines()[:40]))
    there = {record["number"] for record in study.read(copy)}
    study.fill(copy, next(n for n in range(200) if n not in there), workers=1)
    assert capsys.readouterr().out == ""


def test_pairs_are_judged_on_at_least_ten_tasks_that_are_not_for_the_design() -> None:
    assert len(pair_tasks.JUDGING) >= 10
    assert not set(pair_tasks.JUDGING) & set(pair_tasks.DESIGN)
    assert not set(pair_tasks.PAIR_TASKS) & set(choice.OWN_DATA)


def test_a_trial_has_every_candidate_and_is_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, evidence = tmp_path / "trials.jsonl", tmp_path / "evidence"
    trial = choice.Trial("wine-sensor-0.2-2.0", 1, ("source_only", "vmt", "vmt+dirt_t"), 3, evidence)
    choice.fill(out, [trial], jobs=1)
    assert trial.task in capsys.readouterr().out
    (record,) = choice.latest(out)
    assert set(record["candidates"]) == set(trial.candidates)
    assert set(record["candidates"]["vmt+dirt_t"]["scores"]) == set(choice.VALIDATORS)
    assert record["choice"]["chosen"] in record["candidates"]
    choice.fill(out, [trial], jobs=1)
    assert capsys.readouterr().out == ""
    again = choice.carry_out(replace(trial, rescore=True))["candidates"]
    for name, candidate in record["candidates"].items():
        assert again[name]["scores"] == pytest.approx(candidate["scores"], rel=1e-5)


def test_an_alarm_decides_before_the_score() -> None:
    def candidate(accuracy: float, score: float, alarm: str | None = None) -> dict[str, Any]:
        return {"accuracy": accuracy, "alarm": alarm, "scores": {"im": score}}

    record = {"candidates": {"vmt": candidate(0.9, 1.0), "vmt+dirt_t": candidate(0.2, 2.0, "collapsed")}}
    assert choice.lost_by([record], "im")[0] == [0.0]
    assert choice.pairs_right([record], "im") == (1, 1)
    record["candidates"]["vmt+dirt_t"]["alarm"] = None
    assert choice.lost_by([record], "im")[0] == [pytest.approx(70)]
    assert choice.pairs_right([record], "im") == (0, 1)
