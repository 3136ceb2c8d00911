"""Which candidates of ``auto`` answer together: those that adapt if they are credible, and otherwise source only."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from vmt import InputError
from vmt.validators import Evidence, nearest_neighbours
from vmt.validators.together import AVERAGE, OF_FEATURES, OF_SAMPLES, Rule, Together, answer_together

PRIOR = torch.full((3,), 1 / 3)
TRUTH = torch.arange(120) % 3
SAMPLES = 4 * torch.eye(3)[TRUTH] + 0.3 * torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
NEIGHBOURS = nearest_neighbours(SAMPLES)
UNADAPTED = ("source_only", "source_kernel")
FAR, NEAR = torch.zeros(120, 3), torch.eye(3)[TRUTH]
"""What the source says about the classes: nothing, and the true classes."""


def outputs(predicted: Tensor, certainty: float = 6.0) -> Evidence:
    """Outputs of a network that predicts these classes, for samples in three clusters, which are the true classes."""
    return Evidence(target=certainty * torch.eye(3)[predicted], target_features=SAMPLES, neighbours=NEIGHBOURS)


def wrong(share: float, seed: int = 1) -> Tensor:
    """The true classes, but for a random share of the samples another one."""
    chosen = torch.rand(120, generator=torch.Generator().manual_seed(seed)) < share
    return torch.where(chosen, (TRUTH + 1) % 3, TRUTH)


def decided(
    source: Tensor,
    *adapted: Tensor,
    expected: Tensor | None = None,
    support: Tensor | None = FAR,
    rule: Rule = OF_SAMPLES,
) -> Together:
    """The decision among source only, a source kernel that predicts the same, and candidates a, b, c …"""
    candidates = dict.fromkeys(UNADAPTED, outputs(source))
    candidates |= {name: outputs(each) for name, each in zip("abc", adapted, strict=False)}
    return answer_together(candidates, UNADAPTED, PRIOR, expected, support, rule)


def weight_of(found: Together, *names: str) -> float:
    """The weight that these candidates have in the answer."""
    weights = dict(zip(found.members, found.weights, strict=True))
    return sum(weights.get(name, 0.0) for name in names)


def test_those_that_adapt_count_most_where_they_fit_the_target_better() -> None:
    found = decided(wrong(0.5), TRUTH, wrong(0.01))
    assert weight_of(found, "a", "b") > 0.6
    assert found.members[0] == "a"
    assert found.doubt is None
    assert found.choice.chosen == AVERAGE
    assert sum(found.weights) == pytest.approx(1)


def test_a_candidate_counts_less_the_worse_it_fits_and_is_left_out_in_the_end() -> None:
    found = decided(wrong(0.1), wrong(0.02), wrong(0.02, seed=2), wrong(0.6, seed=3))
    assert weight_of(found, "a") > weight_of(found, "b") > 0
    assert "c" not in found.members
    assert found.choice.findings["a"].doubt is None
    assert found.choice.findings["c"].doubt is not None


def test_source_only_counts_most_where_the_source_speaks_against_the_changes() -> None:
    """As under covariate shift: the classes are moved as a whole."""
    moved = (wrong(0.02) + 1) % 3
    found = decided(wrong(0.02), moved, support=NEAR)
    assert weight_of(found, *UNADAPTED) > 0.9
    assert found.doubt is not None
    assert "100%" in found.doubt
    assert weight_of(decided(wrong(0.02), moved, support=FAR), "a") > 0.2


def test_a_change_counts_only_where_the_source_speaks_for_the_class_before() -> None:
    before, after = wrong(0.4), wrong(0.05, seed=2)
    weights = [weight_of(decided(before, after, support=s), "a") for s in (FAR, NEAR, torch.eye(3)[before], None)]
    assert weights[0] == pytest.approx(weights[1])
    assert weights[2] == pytest.approx(weights[3])
    assert weights[0] > 0.4 > weights[2]


def test_one_that_knows_the_source_alone_counts_less_if_it_is_wrong_on_the_source() -> None:
    labels = torch.arange(20) % 3
    right, wrong_half = torch.eye(3)[labels], torch.eye(3)[(labels + torch.arange(20) % 2) % 3]
    for logits, rule, as_before in (
        (right, OF_SAMPLES, True),
        (wrong_half, OF_SAMPLES, False),
        (wrong_half, OF_FEATURES, True),
    ):
        kernel = replace(outputs(TRUTH), source=logits, source_labels=labels)
        candidates = {
            "source_only": replace(outputs(TRUTH), source=right, source_labels=labels),
            "source_kernel": kernel,
        }
        found = answer_together(candidates, UNADAPTED, PRIOR, None, FAR, rule)
        assert (weight_of(found, "source_kernel") == 0.5) == as_before
        assert weight_of(found, "source_kernel") <= 0.5


def test_nothing_is_in_doubt_where_hardly_anything_changes() -> None:
    found = decided(wrong(0.03), wrong(0.04, seed=2))
    assert set(found.members) == {*UNADAPTED, "a"}
    assert found.doubt is None


def test_a_collapsed_candidate_never_answers_unless_its_class_is_expected_to_be_absent() -> None:
    merged = torch.where(TRUTH == 2, 1, TRUTH)
    found = decided(wrong(0.5), merged)
    assert set(found.members) == set(UNADAPTED)
    assert found.choice.findings["a"].alarm is not None
    assert "a" in decided(wrong(0.5), merged, expected=torch.tensor([0.4, 0.6, 0.0])).members
    nothing = torch.zeros_like(TRUTH)
    assert decided(nothing, nothing).members == ("source_only",)


def test_on_features_a_candidate_may_change_more_classes() -> None:
    moved = (wrong(0.02) + 1) % 3
    of_samples, of_features = (
        weight_of(decided(wrong(0.02), moved, support=None, rule=rule), "a") for rule in (OF_SAMPLES, OF_FEATURES)
    )
    assert of_samples < 0.1 < of_features < 1 / 3


def test_without_averages_the_best_of_the_kind_that_counts_more_answers() -> None:
    candidates = {"source_only": outputs(wrong(0.4)), "a": outputs(wrong(0.05)), "b": outputs(TRUTH)}
    found = answer_together(candidates, ["source_only"], PRIOR, None, FAR, averages=False)
    assert (found.members, found.weights, found.choice.chosen) == (("b",), (1.0,), "b")
    assert AVERAGE not in found.choice.ranking
    candidates = {"source_only": outputs(wrong(0.02)), "a": outputs((TRUTH + 1) % 3)}
    assert (
        answer_together(candidates, ["source_only"], PRIOR, None, NEAR, averages=False).choice.chosen == "source_only"
    )


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InputError, match="source_only"):
        answer_together({"a": outputs(TRUTH)}, ["source_only"], PRIOR)
    with pytest.raises(InputError, match="lack target"):
        answer_together({"source_only": Evidence()}, ["source_only"], PRIOR)
    with pytest.raises(InputError, match="lack neighbours"):
        answer_together({"source_only": Evidence(target=torch.eye(3)[TRUTH])}, ["source_only"], PRIOR)
