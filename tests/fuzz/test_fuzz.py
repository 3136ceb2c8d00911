"""A few hundred damaged files over all formats; ``make fuzz`` reads many more."""

from tests.fuzz.__main__ import MEMORY, known_formats, run_all


def test_damaged_files_of_every_format_are_read_or_refused_with_a_sentence() -> None:
    counts = run_all(known_formats(), cases=12, seed=1, jobs=1, show=lambda row: None)
    assert not [failure for each in counts.values() for failure in each.failures]
    assert {each.cases for each in counts.values()} == {12}
    total = 12 * len(counts)
    assert sum(each.read for each in counts.values()) > total // 5
    assert sum(each.refused for each in counts.values()) > total // 5
    assert max(each.peak for each in counts.values()) <= MEMORY
