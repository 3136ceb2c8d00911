"""Splitting a domain."""

import numpy as np
import pytest
import torch

from vmt.data import domain
from vmt.errors import InputError


def test_split_is_disjoint_stratified_and_repeatable():
    y = np.repeat([0, 1, 2], [100, 50, 10])
    whole = domain(np.arange(160.0)[:, None], y, name="table")
    kept, held = whole.split(0.1, seed=3)
    assert held.y is not None
    assert held.y.bincount().tolist() == [10, 5, 1]
    assert sorted([*kept.x.flatten().tolist(), *held.x.flatten().tolist()]) == list(range(160))
    assert torch.equal(whole.split(0.1, seed=3)[1].x, held.x)
    assert not torch.equal(whole.split(0.1, seed=4)[1].x, held.x)


def test_split_keeps_samples_and_labels_together():
    whole = domain(np.arange(40.0)[:, None], np.arange(40) % 4, name="table")
    for part in whole.split(0.25, seed=0):
        assert part.y is not None
        assert torch.equal(part.x.flatten().long() % 4, part.y)


def test_split_without_labels_and_of_a_single_sample():
    kept, held = domain(np.zeros((20, 2)), name="table").split(0.25, seed=0)
    assert (len(kept), len(held)) == (15, 5)
    with pytest.raises(InputError, match="lonely has too few"):
        domain([[1.0]], name="lonely").split(0.1, seed=0)
