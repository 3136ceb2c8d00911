"""What the tests of methods share."""

import numpy as np
import pytest

from vmt.data import Task, domain, make_task


@pytest.fixture
def task() -> Task:
    """Three clusters that every method can learn, the target's moved."""
    random = np.random.default_rng(0)
    y = np.arange(240) % 3
    centres = 3 * random.standard_normal((3, 6))
    x, moved = (centres[y] + random.standard_normal((240, 6)) for _ in range(2))
    target = domain(moved + 0.8, name="target")
    return make_task(domain(x, y, name="source"), target, target_test=domain(moved + 0.8, y, name="test"))
