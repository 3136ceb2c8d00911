"""Which candidates of ``auto`` answer together: those that adapt if they are credible, and otherwise source only."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from vmt import InputError
from vmt.validators import Evidence, nearest_neighbours
from vmt.validators.together import AVERAGE, OF_FEATURES, OF_SAMPLES, Together, answer_together

PRIOR = torch.full((3,), 1 / 3)
TRUTH = torch.arange(120) % 3
SAMPLES = 4 * torch.eye(3)[TRUTH] + 0.3 * torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
NEIGHBOURS = nearest_neighbours(SAMPLES)
UNADAPTED = ("source_only", "source_kernel")


def outputs(predicted: Tensor, certainty: float = 6.0) -> Evidence:
    """Outputs of a network that predicts these classes, for samples in three clusters, which are the true classes."""
    return Evidence(target=certainty * torch.eye(3)[predicted], target_features=SAMPLES, neighbours=NEIGHBOURS)


def wrong(share: float, seed: int = 1) -> Tensor:
    """The true classes, but for a random share of the samples another one."""
    chosen = torch.rand(120, generator=torch.Generator().manual_seed(seed)) < share
    return torch.where(chosen, (TRUTH + 1) % 3, TRUTH)


def decided(source: Tensor, *adapted: Tensor, expected: Tensor | None = None, rule: object = OF_SAMPLES) -> Together:
    """The decision among source only, a source kernel that predicts the same, and candidates a, b, c …"""
    candidates = dict.fromkeys(UNADAPTED, outputs(source))
    candidates |= {name: outputs(each) for name, each in zip("abc", adapted, strict=False)}
    return answer_together(candidates, UNADAPTED, PRIOR, expected, rule=rule)  # type: ignore[arg-type]


def test_those_that_adapt_answer_where_they_fit_the_target_better() -> None:
    found = decided(wrong(0.4), TRUTH, wrong(0.01))
    assert found.adapted
    assert set(found.members) == {"a", "b"}
    assert found.choice.chosen == AVERAGE
    assert found.choice.findings["a"].doubt is None
    assert found.choice.findings["source_only"].doubt is not None


def test_one_that_fits_much_worse_than_the_others_is_not_part_of_the_answer() -> None:
    found = decided(wrong(0.4), TRUTH, wrong(0.3, seed=2))
    assert found.members == ("a",)
    assert found.choice.chosen == "a"
    assert found.choice.findings["b"].doubt is not None


def test_source_only_answers_where_those_that_adapt_change_much_and_fit_hardly_better() -> None:
    """As under covariate shift: the classes are moved as a whole."""
    found = decided(wrong(0.02), (wrong(0.02) + 1) % 3)
    assert not found.adapted
    assert set(found.members) == set(UNADAPTED)


def test_all_answer_together_where_hardly_anything_changes() -> None:
    found = decided(wrong(0.05), TRUTH)
    assert set(found.members) == {*UNADAPTED, "a"}
    assert found.adapted


def test_a_collapsed_candidate_never_answers_unless_its_class_is_expected_to_be_absent() -> None:
    merged = torch.where(TRUTH == 2, 1, TRUTH)
    found = decided(wrong(0.5), merged)
    assert not found.adapted
    assert found.choice.findings["a"].alarm is not None
    assert decided(wrong(0.5), merged, expected=torch.tensor([0.4, 0.6, 0.0])).adapted


def test_on_features_candidates_are_believed_unless_they_fit_much_worse() -> None:
    moved = (wrong(0.1) + 1) % 3
    assert not decided(wrong(0.02), moved).adapted
    assert decided(wrong(0.02), moved, rule=OF_FEATURES).adapted
    assert not decided(TRUTH, torch.randint(3, (120,)), rule=OF_FEATURES).adapted


def test_features_have_their_own_neighbourhoods_even_if_these_say_little() -> None:
    """In its own features, source only would seem to be right everywhere."""
    random = torch.randint(120, (120, 5), generator=torch.Generator().manual_seed(0))
    source = replace(outputs(wrong(0.5)), neighbours=random, target_features=torch.eye(3)[wrong(0.5)])
    candidates = {"source_only": source, "a": replace(outputs(TRUTH), neighbours=random)}
    assert not answer_together(candidates, ["source_only"], PRIOR).adapted
    assert answer_together(candidates, ["source_only"], PRIOR, rule=OF_FEATURES).adapted


def test_on_features_networks_and_kernel_classifiers_have_the_same_weight() -> None:
    candidates = {"source_only": outputs(wrong(0.4)), "a": outputs(TRUTH), "b": outputs(TRUTH), "k": outputs(TRUTH)}
    found = answer_together(candidates, ["source_only"], PRIOR, rule=OF_FEATURES, kernels=["k"])
    assert dict(zip(found.members, found.weights, strict=True)) == {"a": 0.5, "b": 0.5, "k": 1.0}
    assert set(answer_together(candidates, ["source_only"], PRIOR, kernels=["k"]).weights) == {1.0}


def test_without_averages_the_best_member_answers() -> None:
    candidates = {"source_only": outputs(wrong(0.4)), "a": outputs(wrong(0.05)), "b": outputs(TRUTH)}
    found = answer_together(candidates, ["source_only"], PRIOR, averages=False)
    assert (found.members, found.choice.chosen) == (("b",), "b")
    assert AVERAGE not in found.choice.ranking


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InputError, match="source_only"):
        answer_together({"a": outputs(TRUTH)}, ["source_only"], PRIOR)
    with pytest.raises(InputError, match="lack target"):
        answer_together({"source_only": Evidence()}, ["source_only"], PRIOR)
