"""The choice among candidates without target labels: who is credible, who is first, and what the user is told."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from vmt import InputError
from vmt.validators import Evidence, choose, nearest_neighbours, neighbour_agreement

PRIOR = torch.full((3,), 1 / 3)
TRUTH = torch.arange(90) % 3
CORNERS = 4 * torch.eye(3)


def outputs(predicted: Tensor, source_right: float = 1.0, certainty: float = 6.0) -> Evidence:
    """Outputs of a network that predicts these classes; the features are three clusters, which are the true classes."""
    random = torch.Generator().manual_seed(0)
    wrong = torch.arange(30) >= 30 * source_right
    labels = torch.arange(30) % 3
    return Evidence(
        target=certainty * torch.eye(3)[predicted],
        target_features=CORNERS[TRUTH] + 0.3 * torch.randn(90, 3, generator=random),
        source=6.0 * torch.eye(3)[torch.where(wrong, (labels + 1) % 3, labels)],
        source_labels=labels,
    )


def some_wrong(share: float) -> Tensor:
    """The true classes, but for a random share of the samples another one."""
    chosen = torch.rand(90, generator=torch.Generator().manual_seed(1)) < share
    return torch.where(chosen, (TRUTH + 1) % 3, TRUTH)


def test_a_candidate_that_fits_the_target_better_is_chosen() -> None:
    found = choose({"source_only": outputs(some_wrong(0.4)), "vmt": outputs(TRUTH)}, PRIOR)
    assert (found.chosen, found.ranking) == ("vmt", ("vmt", "source_only"))
    assert "vmt" in found.reason
    assert "source_only" in found.reason


def test_source_only_is_kept_if_classes_cut_through_its_neighbourhoods() -> None:
    """A certain network that splits the samples of a class at random, as under unequal classes."""
    found = choose({"source_only": outputs(some_wrong(0.1), certainty=1.0), "vmt": outputs(some_wrong(0.5))}, PRIOR)
    assert found.chosen == "source_only"
    assert found.ranking == ("source_only", "vmt")
    assert found.findings["vmt"].doubt is not None
    assert found.findings["source_only"].doubt is None


def test_equal_evidence_is_a_doubt() -> None:
    assert choose({"vmt": outputs(TRUTH), "source_only": outputs(TRUTH)}, PRIOR).chosen == "source_only"
    assert choose({"source_only": outputs(TRUTH)}, PRIOR).chosen == "source_only"


def test_a_collapsed_candidate_is_never_chosen_and_absent_classes_may_be_expected() -> None:
    """Two classes remain. That is a collapse, unless the target is estimated to lack the third."""
    merged = torch.where(TRUTH == 2, 1, TRUTH)
    both = {"source_only": outputs(some_wrong(0.5)), "vmt": outputs(merged)}
    found = choose(both, PRIOR)
    assert found.chosen == "source_only"
    assert found.findings["vmt"].alarm is not None
    assert choose(both, PRIOR, shares=torch.tensor([0.4, 0.6, 0.0])).chosen == "vmt"


def test_credible_candidates_are_ranked_by_the_validator() -> None:
    base = {"source_only": outputs(some_wrong(0.2))}
    candidates = {**base, "a": outputs(TRUTH, source_right=0.5), "b": outputs(TRUTH), "c": outputs(some_wrong(0.5))}
    found = choose(candidates, PRIOR, by="ami_source")
    assert found.ranking == ("b", "a", "source_only", "c")
    assert choose(candidates, PRIOR, by="class_ami").ranking[:1] == ("a",), "equals stay in their order"


def test_dirt_t_is_compared_with_the_model_that_it_began_from() -> None:
    candidates = {
        "source_only": outputs(some_wrong(0.5)),
        "vmt": outputs(TRUTH, certainty=3.0),
        "vmt+dirt_t": outputs(TRUTH, source_right=0.3),
    }
    by_source = choose(candidates, PRIOR, by="ami_source")
    assert by_source.chosen == "vmt", "without refines, DIRT-T is too low because it forgot the source"
    refined = choose(candidates, PRIOR, by="ami_source", refines={"vmt+dirt_t": "vmt"})
    assert refined.findings["vmt+dirt_t"].score >= refined.findings["vmt"].score  # type: ignore[operator]


def test_a_candidate_that_changes_few_classes_must_fit_clearly_better() -> None:
    """Nine of 90 classes differ, and all but those of the reference fit their neighbourhoods."""
    few = torch.where(torch.arange(90) < 9, (TRUTH + 1) % 3, TRUTH)
    assert choose({"source_only": outputs(few), "vmt": outputs(TRUTH)}, PRIOR).chosen == "vmt"
    fewer = torch.where(torch.arange(90) < 3, (TRUTH + 1) % 3, TRUTH)
    assert choose({"source_only": outputs(fewer), "vmt": outputs(TRUTH)}, PRIOR).chosen == "source_only"


def test_samples_whose_neighbours_say_nothing_are_compared_in_features() -> None:
    """The neighbours of the samples are random; the features are the true classes."""
    random = torch.randint(90, (90, 5), generator=torch.Generator().manual_seed(0))
    wrong, right = (replace(outputs(each), neighbours=random) for each in (some_wrong(0.4), TRUTH))
    assert choose({"source_only": wrong, "vmt": right}, PRIOR).chosen == "vmt"
    assert choose({"source_only": right, "vmt": wrong}, PRIOR).chosen == "source_only"


def test_what_is_wrong_is_named() -> None:
    vmt = outputs(TRUTH)
    with pytest.raises(InputError, match="source_only"):
        choose({"vmt": vmt}, PRIOR)
    with pytest.raises(InputError, match="'mcc'"):
        choose({"source_only": vmt, "vmt": vmt}, PRIOR, refines={"vmt": "mcc"})
    with pytest.raises(InputError, match="target_features"):
        choose({"source_only": replace(vmt, target_features=None)}, PRIOR)
    with pytest.raises(InputError, match="vmt"):
        choose({"source_only": vmt, "vmt": replace(vmt, target=vmt.target[:50])}, PRIOR)  # type: ignore[index]
    with pytest.raises(InputError, match="'accuracy'"):
        choose({"source_only": vmt}, PRIOR, by="accuracy")


def test_neighbour_agreement_is_corrected_for_chance() -> None:
    features = outputs(TRUTH).target_features
    assert features is not None
    eye, neighbours = torch.eye(3), nearest_neighbours(features)
    assert float(neighbour_agreement(neighbours, eye[TRUTH])) == pytest.approx(1)
    assert float(neighbour_agreement(neighbours, eye[torch.zeros_like(TRUTH)])) == 0
    random = torch.randint(3, (90,), generator=torch.Generator().manual_seed(0))
    assert abs(float(neighbour_agreement(neighbours, eye[random]))) < 0.15
    by_hand = []
    x = (features.double() - features.double().mean(0)) / features.double().std(0, correction=0)
    predicted = some_wrong(0.3)
    for i in range(90):
        near = (x - x[i]).square().sum(1).argsort()[1:6]
        by_hand += (predicted[near] == predicted[i]).tolist()
    chance = sum(float((predicted == k).double().mean()) ** 2 for k in range(3))
    expected = (sum(by_hand) / len(by_hand) - chance) / (1 - chance)
    assert float(neighbour_agreement(neighbours, eye[predicted])) == pytest.approx(expected)


def test_a_candidate_that_changes_many_classes_must_fit_better_in_proportion() -> None:
    """Under covariate shift, aligning changes many classes, and the new ones fit neighbourhoods hardly better."""
    both = {"source_only": outputs(some_wrong(0.25)), "vmt": outputs((some_wrong(0.22) + 1) % 3)}
    assert choose(both, PRIOR).findings["vmt"].neighbours > choose(both, PRIOR).findings["source_only"].neighbours
    assert choose(both, PRIOR).chosen == "source_only"
