"""Networks as named stages: the earlier name of ``separate_passes`` still works."""

import copy
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from vmt.nets import Staged

PICKLED = Path(__file__).parents[1] / "fixtures" / "364b1c0" / "classifier.pickle"


def network(**options: bool) -> Staged:
    return Staged({"features": nn.Linear(3, 2), "logits": nn.Linear(2, 2)}, **options)


def test_the_earlier_name_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="separate_passes"):
        staged = network(one_by_one=True)
    assert staged.separate_passes
    assert staged.part(until="features").separate_passes
    with pytest.warns(DeprecationWarning, match="separate_passes"):
        staged.one_by_one = False
    assert not staged.separate_passes
    with pytest.warns(DeprecationWarning, match="separate_passes"):
        assert staged.one_by_one is False


def test_networks_that_earlier_versions_pickled_have_the_new_name() -> None:
    staged = network()
    state = staged.__reduce_ex__(4)[2]
    assert isinstance(state, dict)
    earlier = {**state, "one_by_one": True}
    del earlier["separate_passes"]
    again = Staged.__new__(Staged)
    again.__setstate__(earlier)
    assert again.separate_passes
    assert "one_by_one" not in vars(again)
    x = torch.randn(4, 3)
    assert torch.equal(again(x)["logits"], staged(x)["logits"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_pickled_estimator_loads() -> None:
    with PICKLED.open("rb") as file:
        classifier = pickle.load(file)
    parts = [part for part in classifier.model_.network.modules() if isinstance(part, Staged)]
    assert parts
    assert not any(part.separate_passes for part in parts)


def test_copies_keep_it() -> None:
    assert copy.deepcopy(network(separate_passes=True)).separate_passes
    assert pickle.loads(pickle.dumps(network(separate_passes=True))).separate_passes
