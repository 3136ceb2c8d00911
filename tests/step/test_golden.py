"""The training step computes what the authors' program computed in two recorded iterations of VMT and of DIRT-T."""

from pathlib import Path

import pytest

from tests.golden import run

FIXTURES = Path(__file__).parents[1] / "fixtures"
VMT = FIXTURES / "vmt_small_instance_norm.npz"
DIRT_T = FIXTURES / "dirt_t_small_no_instance_norm.npz"


@pytest.mark.parametrize(
    ("recording", "method", "instance_norm", "count"),
    [(VMT, "vmt", True, 368), (DIRT_T, "dirt_t", False, 170)],
    ids=["vmt", "dirt_t"],
)
def test_equal_to_the_authors_program(recording: Path, method: str, instance_norm: bool, count: int) -> None:
    comparisons = list(run(recording, method, "small", instance_norm))
    assert len(comparisons) == count
    assert [str(c) for c in comparisons if not c.ok] == []


def test_the_comparison_can_fail() -> None:
    """A recording with instance norm does not match a network without it."""
    assert any(not c.ok for c in run(VMT, "vmt", "small", instance_norm=False))
