"""The study of validators: the tables in the documentation match its records, and its runs can be built."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import validators_tables as tables  # noqa: E402

import validators as study  # noqa: E402

RECORDS = ROOT / "results" / "validators.jsonl"


def test_the_tables_in_the_documentation_match_the_records() -> None:
    written = (ROOT / "docs" / "choosing.md").read_text().split(tables.BEGIN)[1].split(tables.END)[0]
    records = sorted(study.read(RECORDS), key=lambda record: record["number"])
    assert len(records) >= 20
    assert written.strip() == tables.study(records), "run python benchmarks/validators.py --tables"


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
