"""Validators against the same formulas written in another way, on ordinary and on degenerate predictions."""

import math
import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.validator_cases import each_case, one_class, random_logits
from vmt import InputError, validators
from vmt.validators import VALIDATORS, Evidence, collapse_alarm, scores


def softmax(logits: Tensor) -> list[list[float]]:
    rows = []
    for row in logits.double().tolist():
        top = max(row)
        exps = [math.exp(z - top) for z in row]
        rows.append([e / sum(exps) for e in exps])
    return rows


def h(p: list[float]) -> float:
    return -sum(q * math.log(q) for q in p if q > 0)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@each_case
def test_entropy_diversity_and_information(logits: Tensor) -> None:
    p = softmax(logits)
    certain = -mean([h(row) for row in p])
    even = h([mean(list(column)) for column in zip(*p, strict=True)])
    assert float(validators.entropy(logits)) == pytest.approx(certain, abs=1e-6)
    assert float(validators.diversity(logits)) == pytest.approx(even, abs=1e-6)
    assert float(validators.information_maximisation(logits)) == pytest.approx(even + certain, abs=1e-6)


@each_case
def test_bnm_is_the_nuclear_norm_per_sample(logits: Tensor) -> None:
    nuclear = np.linalg.svd(np.array(softmax(logits)), compute_uv=False).sum()
    assert float(validators.bnm(logits)) == pytest.approx(nuclear / len(logits), abs=1e-6)


@each_case
def test_snd(logits: Tensor) -> None:
    p = [np.array(row) / np.linalg.norm(row) for row in softmax(logits)]
    dense = []
    for n, row in enumerate(p):
        similar = np.array([float(row @ other) / 0.05 for m, other in enumerate(p) if m != n])
        weights = np.exp(similar - similar.max()) if len(similar) else similar
        dense.append(h(list(weights / weights.sum())) if len(similar) else 0.0)
    assert float(validators.snd(logits)) == pytest.approx(mean(dense), abs=1e-6)


def test_snd_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = random_logits(50, 4)
    whole = float(validators.snd(logits))
    monkeypatch.setattr("vmt.validators.predictions.ROWS", 7)
    assert float(validators.snd(logits)) == pytest.approx(whole, abs=1e-12)


@each_case
def test_mano(logits: Tensor) -> None:
    before = logits.clone()
    score = float(validators.mano(logits))
    assert torch.equal(logits, before), "the logits are never written to"
    z = logits.double().numpy()
    p = np.array(softmax(logits))
    tops = z.max(1, keepdims=True)
    log_p = z - tops - np.log(np.exp(z - tops).sum(1, keepdims=True))
    if -log_p.mean() > 5:
        q = p
    else:
        q = 1 + z + z**2 / 2
        q = q - q.min(1, keepdims=True)
        total = q.sum(1, keepdims=True)
        q = np.divide(q, total, out=np.full_like(q, 1 / z.shape[1]), where=total > 0)
    assert score == pytest.approx(np.mean(q**4) ** 0.25, abs=1e-6)


@each_case
def test_agreement_and_source_accuracy(logits: Tensor) -> None:
    other = random_logits(*logits.shape, seed=1)
    labels = torch.arange(len(logits)) % logits.shape[1]
    pairs = list(zip(logits.tolist(), other.tolist(), strict=True))
    same = mean([float(a.index(max(a)) == b.index(max(b))) for a, b in pairs])
    right = mean([float(a.index(max(a)) == n % len(a)) for n, a in enumerate(logits.tolist())])
    assert float(validators.agreement(logits, other)) == pytest.approx(same, abs=1e-6)
    assert float(validators.source_accuracy(logits, labels)) == pytest.approx(right, abs=1e-6)


@each_case
def test_mixval(logits: Tensor) -> None:
    mixed = random_logits(*logits.shape, seed=2) + logits / 10
    partner = validators.partners(len(logits))
    label = [row.index(max(row)) for row in logits.tolist()]
    kept: dict[bool, list[float]] = {True: [], False: []}
    for n, row in enumerate(mixed.tolist()):
        kept[label[n] == label[int(partner[n])]].append(float(row.index(max(row)) == label[n]))
    expected = mean([mean(kind) for kind in kept.values() if kind])
    assert float(validators.mixval(logits, mixed, partner)) == pytest.approx(expected, abs=1e-6)


def test_nothing_is_mixed_with_itself_and_partners_never_change() -> None:
    for n in (2, 3, 50):
        partner = validators.partners(n)
        assert sorted(partner.tolist()) == list(range(n))
        assert not (partner == torch.arange(n)).any()
        assert torch.equal(partner, validators.partners(n))


# Warnings in the documentation of these scores.


def test_entropy_is_not_divided_by_the_number_of_classes() -> None:
    assert float(validators.entropy(torch.zeros(5, 8))) == pytest.approx(-math.log(8))


def test_a_collapse_fools_entropy_snd_and_mixval_but_raises_the_alarm() -> None:
    n, k = 50, 10
    collapsed = one_class(n, k)
    assert float(validators.entropy(collapsed)) == pytest.approx(0, abs=1e-6)
    assert float(validators.snd(collapsed)) == pytest.approx(math.log(n - 1))
    assert float(validators.mixval(collapsed, collapsed, validators.partners(n))) == 1
    assert float(validators.information_maximisation(collapsed)) == pytest.approx(0, abs=1e-6)
    assert float(validators.bnm(collapsed)) == pytest.approx(1 / math.sqrt(n))
    assert "entropy" in str(collapse_alarm(collapsed, torch.full((k,), 1 / k)))


def test_bounds_of_bnm() -> None:
    k = 5
    certain, unsure = torch.eye(k).repeat(4, 1) * 90, torch.zeros(20, k)
    assert float(validators.bnm(certain)) == pytest.approx(math.sqrt(k / 20))
    assert float(validators.bnm(unsure)) == pytest.approx(1 / math.sqrt(20 * k))


def test_snd_depends_on_probabilities_not_logits() -> None:
    """A constant added to the logits of a sample does not change its probabilities."""
    logits = random_logits(30, 4)
    assert float(validators.snd(logits + 5 * torch.arange(30)[:, None])) == pytest.approx(
        float(validators.snd(logits)), abs=1e-5
    )


def test_mano_does_not_shift_the_logits_before_the_expansion() -> None:
    """For z − max z ≤ 0 the expansion grows where it should shrink, and an unlikely class would get a large share."""
    z = torch.tensor([[3.0, 0.0, 1.0]])
    q = 1 + z + z**2 / 2 - 1
    assert float(validators.mano(z)) == pytest.approx(float(((q / q.sum()) ** 4).mean() ** 0.25))


@pytest.mark.parametrize(
    ("logits", "prior", "says"),
    [
        (torch.eye(4).repeat(20, 1) * 9, [0.25] * 4, None),
        (torch.eye(4)[:3].repeat(20, 1) * 9, [0.25] * 4, "1 of 4 classes"),
        (torch.eye(4)[:3].repeat(20, 1) * 9, [0.33, 0.33, 0.33, 0.01], None),  # a rare class may be missing by chance
        (one_class(40, 4), [0.05, 0.9, 0.05, 0.0], "entropy"),
        (torch.full((9, 3), torch.nan), [1 / 3] * 3, "not numbers"),
    ],
)
def test_the_alarm(logits: Tensor, prior: list[float], says: str | None) -> None:
    sentence = collapse_alarm(logits, torch.tensor(prior))
    assert (sentence is None) if says is None else (says in str(sentence))


def evidence(logits: Tensor) -> Evidence:
    n, k = logits.shape
    features = random_logits(n, 4, seed=9)
    labels = torch.arange(n) % k
    partner = validators.partners(n)
    near = validators.nearest_neighbours(features)
    return Evidence(logits, features, logits, logits, partner, logits, features, labels, features + 1, near)


@each_case
def test_every_validator_has_a_value_for_every_case(logits: Tensor) -> None:
    found = scores(evidence(logits))
    assert set(found) == set(VALIDATORS)
    assert all(value is not None and math.isfinite(value) for value in found.values()), found


def test_scores_without_evidence_are_left_out_and_those_that_are_not_finite_are_none() -> None:
    assert set(scores(Evidence(target=random_logits(9, 3)))) == {"entropy", "diversity", "im", "bnm", "snd", "mano"}
    assert scores(Evidence()) == {}
    diverged = torch.full((50, 3), torch.nan)
    # Computed from such numbers, some scores would raise an error and others, such as agreement, would be perfect.
    assert scores(evidence(diverged)) == dict.fromkeys(VALIDATORS)
    assert scores(evidence(random_logits(50, 3)), leave_out=("dev",)).keys() == VALIDATORS.keys() - {"dev"}


@pytest.mark.parametrize("name", ["accuracy", ["im"], 3])
def test_an_unknown_validator_is_named(name: object) -> None:
    with pytest.raises(InputError, match=re.escape(f"{name!r}")):
        validators.check_name(name)  # type: ignore[arg-type]


WORSE: dict[str, Callable[[Tensor], Tensor]] = {
    "entropy": validators.entropy,
    "im": validators.information_maximisation,
    "bnm": validators.bnm,
}


@pytest.mark.parametrize("name", WORSE)
def test_higher_is_better(name: str) -> None:
    """The same predictions, more and more certain."""
    values = [float(WORSE[name](torch.eye(6).repeat(5, 1) * size)) for size in (0.5, 1, 2, 4, 8)]
    assert all(a < b for a, b in pairwise(values))
