"""A few hundred damaged files over all formats; ``make fuzz`` reads many more."""

from pathlib import Path

from tests.fuzz.__main__ import ALL, MEMORY, run_chunk
from tests.fuzz.formats import all_formats


def test_damaged_files_of_every_format_are_read_or_refused_with_a_sentence(tmp_path: Path) -> None:
    each = 12
    cases = each * len(all_formats(tmp_path))
    counts = run_chunk(ALL, seed=1, first=0, count=cases)
    assert not counts.failures
    assert counts.cases == cases
    assert counts.read > cases // 5
    assert counts.refused > cases // 5
    assert counts.peak <= MEMORY
