"""The training step equals two whole iterations of the authors' own program."""

from pathlib import Path

from tests.golden import run

FIXTURE = Path(__file__).parents[1] / "fixtures" / "vmt_small_instance_norm.npz"


def test_equal_to_the_authors_program() -> None:
    comparisons = list(run(FIXTURE, "vmt", "small", instance_norm=True))
    assert len(comparisons) > 300
    assert [str(c) for c in comparisons if not c.ok] == []


def test_the_comparison_can_fail() -> None:
    """A recording with instance norm does not match a network without it."""
    assert any(not c.ok for c in run(FIXTURE, "vmt", "small", instance_norm=False))
