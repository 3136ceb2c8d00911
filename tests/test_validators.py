"""Validators against the same formulas written another way, on ordinary and on degenerate predictions."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score
from torch import Tensor

from vmt import InputError, validators
from vmt.validators import VALIDATORS, Evidence, collapse_alarm, scores
from vmt.validators.clusters import adjusted_mutual_information, class_centres, contingency, kmeans
from vmt.validators.ranks import ranks, spearman, spearman_of_known
from vmt.validators.risk import LEAST, STRENGTHS, four_fifths, logistic_regression


def random_logits(n: int, k: int, scale: float = 3.0, seed: int = 0) -> Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(seed)) * scale


def one_class(n: int, k: int) -> Tensor:
    """A collapse: certain, and always of the same class."""
    return torch.eye(k)[1].repeat(n, 1) * 60


CASES: dict[str, Tensor] = {
    "random": random_logits(60, 7),
    "few samples": random_logits(4, 9),
    "one sample": random_logits(1, 5),
    "two samples": random_logits(2, 3),
    "two classes": random_logits(40, 2),
    "uniform": torch.zeros(30, 6),
    "one class": one_class(30, 6),
    "one class, N < K": one_class(3, 8),
    "certain": torch.eye(5).repeat(6, 1) * 80,
    "large logits": random_logits(20, 4, 500.0),
    "all equal": torch.tensor([[0.3, -0.2, 0.1]]).repeat(12, 1),
}
each_case = pytest.mark.parametrize("logits", CASES.values(), ids=CASES.keys())


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


def lloyd(x: np.ndarray, centres: np.ndarray) -> list[int]:
    """K-means as one would write it by hand."""
    centres = centres.copy()
    while True:
        nearest = [int(np.argmin([((row - c) ** 2).sum() for c in centres])) for row in x]
        moved = centres.copy()
        for k in set(nearest):
            moved[k] = np.mean([row for row, c in zip(x, nearest, strict=True) if c == k], axis=0)
        if np.allclose(moved, centres, atol=1e-12):
            return nearest
        centres = moved


@pytest.mark.parametrize("name", ["random", "few samples", "two classes", "certain"])
def test_class_ami(name: str) -> None:
    logits = CASES[name]
    n, k = logits.shape
    predicted = logits.argmax(1)
    features = random_logits(n, 3, seed=3) + 2 * random_logits(k, 3, seed=4)[predicted]
    x = features.double().numpy() - features.double().numpy().mean(0)
    centres: list[np.ndarray | None] = [
        x[predicted.numpy() == c].mean(0) if (predicted == c).any() else None for c in range(k)
    ]
    for c in range(k):
        if centres[c] is None:
            there = [centre for centre in centres if centre is not None]
            centres[c] = x[np.argmax([min(((row - centre) ** 2).sum() for centre in there) for row in x])]
    clusters = lloyd(x, np.array(centres))
    # Where everything is apart, chance explains all, and 0/0 is taken for 0.
    apart = len(set(clusters)) == len(set(predicted.tolist())) == n
    expected = 0.0 if apart else adjusted_mutual_info_score(predicted.numpy(), clusters)
    assert float(validators.class_ami(features, logits)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ["random", "few samples", "one class", "one class, N < K", "uniform", "certain"])
def test_ami_source_is_the_product(name: str) -> None:
    logits = CASES[name]
    n, k = logits.shape
    features, labels = random_logits(n, 3, seed=3), torch.arange(n) % k
    right = mean([float(row.index(max(row)) == i % k) for i, row in enumerate(logits.tolist())])
    expected = float(validators.class_ami(features, logits)) * right
    assert float(validators.ami_source(features, logits, logits, labels)) == pytest.approx(expected, abs=1e-6)


def test_kmeans_is_that_of_scikit_learn() -> None:
    features = random_logits(80, 4).double() + 4 * random_logits(3, 4, seed=1).double().repeat(27, 1)[:80]
    centres = class_centres(features, torch.arange(80) % 3, 3)
    theirs = KMeans(3, init=centres.numpy(), n_init=1, tol=0).fit(features.numpy()).labels_
    assert kmeans(features, centres).tolist() == theirs.tolist()


@pytest.mark.parametrize(("n", "k"), [(200, 5), (30, 12), (9, 3), (7, 7)])
def test_adjusted_mutual_information(n: int, k: int) -> None:
    random = np.random.default_rng(n)
    a = random.integers(0, k, n)
    b = np.where(random.random(n) < 0.5, a, random.integers(0, k, n))
    table = contingency(torch.from_numpy(a), torch.from_numpy(b), k)
    assert float(adjusted_mutual_information(table)) == pytest.approx(adjusted_mutual_info_score(a, b), abs=1e-6)


def test_a_collapse_agrees_with_no_clusters() -> None:
    """Two labellings of one class each are "perfectly alike" by convention: the score of a collapsed model was 1."""
    assert adjusted_mutual_info_score([0, 0, 0], [0, 0, 0]) == 1
    assert float(validators.class_ami(torch.ones(30, 4), one_class(30, 6))) == 0
    assert float(validators.class_ami(random_logits(30, 4), one_class(30, 6))) == pytest.approx(0, abs=1e-9)


def test_few_predicted_classes_do_not_make_few_clusters() -> None:
    """With as many clusters as *predicted* classes, naming two blobs of five would be perfect."""
    blobs = torch.arange(100) % 5
    features = random_logits(100, 2, 0.1) + torch.stack([10.0 * blobs, 3.0 * (blobs % 2)], 1)
    merged = torch.eye(5)[(blobs > 2).long()] * 9
    assert float(validators.class_ami(features, torch.eye(5)[blobs] * 9)) == pytest.approx(1)
    assert float(validators.class_ami(features, merged)) < 0.7


def test_the_clusters_do_not_depend_on_chance() -> None:
    features, logits = random_logits(60, 5), random_logits(60, 7)
    torch.manual_seed(0)
    first = float(validators.class_ami(features, logits))
    torch.manual_seed(1)
    assert float(validators.class_ami(features, logits)) == first


def test_dev_risk() -> None:
    random = np.random.default_rng(0)
    w, losses = random.gamma(1.0, size=50), random.gamma(2.0, size=50)
    u = w * losses
    eta = -np.cov(u, w, ddof=1)[0, 1] / np.var(w, ddof=1)
    expected = u.mean() + eta * w.mean() - eta
    ours = validators.dev_risk(torch.from_numpy(w), torch.from_numpy(losses))
    assert float(ours) == pytest.approx(expected, abs=1e-6)


def test_dev_without_variance_is_the_plain_mean() -> None:
    losses = torch.tensor([1.0, 2.0, 6.0])
    assert float(validators.dev_risk(torch.ones(3), losses)) == pytest.approx(3)
    assert float(validators.dev_risk(torch.tensor([2.0]), torch.tensor([4.0]))) == pytest.approx(8)


def test_dev_refuses_shapes_that_would_broadcast() -> None:
    """Weights (n, 1) times losses (n,) are an n × n table whose mean is not the weighted risk."""
    with pytest.raises(ValueError, match="not two vectors"):
        validators.dev_risk(torch.ones(5, 1), torch.ones(5))


def test_the_domain_classifier_is_at_its_minimum() -> None:
    x = torch.cat([random_logits(90, 3, 1.0), torch.ones(90, 1)], 1).double()
    y = (x[:, 0] + random_logits(90, 1, 0.5, 5)[:, 0] > 0.2).double()
    ours = logistic_regression(x, y, torch.tensor(STRENGTHS, dtype=torch.float64))
    for row, strength in zip(ours, STRENGTHS, strict=True):

        def objective(w: np.ndarray, strength: float = strength) -> float:
            z = x.numpy() @ w
            return float(np.mean(np.logaddexp(0, z) - y.numpy() * z) + strength / 2 * (w[:-1] ** 2).sum())

        theirs = minimize(objective, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).x
        assert objective(row.numpy()) <= objective(theirs) + 1e-12
        assert row.numpy() == pytest.approx(theirs, abs=1e-4 / min(1, strength * 100))


def test_density_ratio() -> None:
    """Of two unit Gaussians two apart, the ratio is known: the estimate is near it, and it is of the right kind."""
    source, target = random_logits(3000, 2, 1.0), random_logits(1500, 2, 1.0, 1) + torch.tensor([2.0, 0.0])
    at = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    true = torch.exp(2 * at[:, 0] - 2).double()
    torch.testing.assert_close(validators.density_ratio(source, target, at), true, rtol=0.25, atol=0.0)


def test_density_ratio_restated() -> None:
    source, target, at = random_logits(50, 3), random_logits(40, 3, seed=1) + 1, random_logits(9, 3, seed=2)
    (fit_s, held_s), (fit_t, held_t) = four_fifths(source.double()), four_fifths(target.double())
    assert len(held_s) == 10
    assert sorted(map(tuple, torch.cat([fit_s, held_s]).tolist())) == sorted(map(tuple, source.double().tolist()))
    x = np.concatenate([fit_s.numpy(), fit_t.numpy()])
    y = np.array([1.0] * len(fit_s) + [0.0] * len(fit_t))
    middle, scale = x.mean(0), x.std(0)
    tried = []
    for strength in STRENGTHS:

        def objective(w: np.ndarray, strength: float = strength) -> float:
            z = (x - middle) / scale @ w[:3] + w[3]
            return float(np.mean(np.logaddexp(0, z) - y * z) + strength / 2 * (w[:3] ** 2).sum())

        w = minimize(objective, np.zeros(4), method="BFGS", options={"gtol": 1e-10}).x

        def odds(of: Tensor, w: np.ndarray = w) -> np.ndarray:
            return np.asarray((of.double().numpy() - middle) / scale @ w[:3] + w[3])

        tried.append(((odds(held_s) > 0).mean() + (odds(held_t) <= 0).mean(), odds(at)))
    best = max(range(len(tried)), key=lambda i: (tried[i][0], -i))
    p = 1 / (1 + np.exp(-tried[best][1]))
    expected = 50 / 40 * (1 - p) / p
    assert validators.density_ratio(source, target, at).numpy() == pytest.approx(expected, rel=1e-4)


def test_weights_stay_finite_where_the_domains_are_apart() -> None:
    source, target = random_logits(40, 2), random_logits(40, 2) + 1000
    w = validators.density_ratio(source, target, target)
    assert float(w.max()) <= 1 / LEAST
    assert bool(w.isfinite().all())
    same = torch.ones(20, 3)
    assert bool(validators.density_ratio(same, same, same).isfinite().all())


def test_dev_is_higher_for_the_better_model() -> None:
    features = random_logits(200, 3, 1.0)
    labels = (features[:, 0] > 0).long()
    right = torch.stack([-features[:, 0], features[:, 0]], 1) * 3
    target = random_logits(200, 3, 1.0, 1) + 0.3
    held_out = random_logits(200, 3, 1.0, 2)
    good = validators.dev(held_out, target, features, right, labels)
    assert float(good) > float(validators.dev(held_out, target, features, -right, labels))


# What the notes on these scores warn of.


def test_entropy_is_not_divided_by_the_number_of_classes() -> None:
    assert float(validators.entropy(torch.zeros(5, 8))) == pytest.approx(-math.log(8))


def test_a_collapse_fools_entropy_snd_and_mixval_but_rings_the_alarm() -> None:
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


def test_snd_looks_at_probabilities_not_logits() -> None:
    """A constant added to the logits of a sample changes nothing that the model says."""
    logits = random_logits(30, 4)
    assert float(validators.snd(logits + 5 * torch.arange(30)[:, None])) == pytest.approx(
        float(validators.snd(logits)), abs=1e-5
    )


def test_mano_does_not_shift_the_logits_before_the_expansion() -> None:
    """For z − max z ≤ 0 the expansion grows where it should shrink: an unlikely class would get the mass."""
    z = torch.tensor([[3.0, 0.0, 1.0]])
    q = 1 + z + z**2 / 2 - 1
    assert float(validators.mano(z)) == pytest.approx(float(((q / q.sum()) ** 4).mean() ** 0.25))


@pytest.mark.parametrize(
    ("logits", "prior", "says"),
    [
        (torch.eye(4).repeat(20, 1) * 9, [0.25] * 4, None),
        (torch.eye(4)[:3].repeat(20, 1) * 9, [0.25] * 4, "1 of 4 classes is never predicted"),
        (torch.eye(4)[:3].repeat(20, 1) * 9, [0.33, 0.33, 0.33, 0.01], None),  # a rare class may well be missing
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
    return Evidence(logits, features, logits, logits, partner, logits, features, labels, features + 1)


@each_case
def test_every_validator_has_a_value_for_every_case(logits: Tensor) -> None:
    found = scores(evidence(logits))
    assert set(found) == set(VALIDATORS)
    assert all(value is not None and math.isfinite(value) for value in found.values()), found


def test_what_cannot_be_computed_is_left_out_and_what_is_no_number_is_none() -> None:
    assert set(scores(Evidence(target=random_logits(9, 3)))) == {"entropy", "diversity", "im", "bnm", "snd", "mano"}
    assert scores(Evidence()) == {}
    assert scores(Evidence(target=torch.full((5, 3), torch.nan)), leave_out=("bnm",))["entropy"] is None


def test_an_unknown_validator_is_named() -> None:
    with pytest.raises(InputError, match="no validator 'accuracy': choose one of source_accuracy"):
        validators.check_name("accuracy")


WORSE: dict[str, Callable[[Tensor], Tensor]] = {
    "entropy": validators.entropy,
    "im": validators.information_maximisation,
    "bnm": validators.bnm,
}


@pytest.mark.parametrize("name", WORSE)
def test_higher_is_better(name: str) -> None:
    """The same predictions, less and less certain."""
    values = [float(WORSE[name](torch.eye(6).repeat(5, 1) * size)) for size in (0.5, 1, 2, 4, 8)]
    assert all(a < b for a, b in pairwise(values))


def test_spearman_with_ties() -> None:
    random = np.random.default_rng(0)
    for n in (2, 5, 40):
        a, b = random.integers(0, 6, n).tolist(), random.integers(0, 6, n).tolist()
        if len(set(a)) > 1 and len(set(b)) > 1:
            assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert ranks([3, 1, 3]).tolist() == [2.5, 1, 2.5]
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert spearman([1], [2]) is None
    assert spearman_of_known([1, None, 3, 4], [2, 9, None, 5]) == pytest.approx(1)
