"""Validators that compare classes with clusters, against scikit-learn and the same formulas written in another way."""

from statistics import mean

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score

from tests.validator_cases import CASES, one_class, random_logits
from vmt import validators
from vmt.validators.clusters import adjusted_mutual_information, class_centres, contingency, kmeans, source_support


def lloyd(x: np.ndarray, centres: np.ndarray) -> list[int]:
    """K-means in plain loops."""
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
    # If every sample is a class and a cluster of its own, chance explains everything, and 0/0 is taken as 0.
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


def test_a_collapsed_model_does_not_agree_with_clusters() -> None:
    """By convention, two labellings with one class each agree perfectly: a collapsed model would score 1."""
    assert adjusted_mutual_info_score([0, 0, 0], [0, 0, 0]) == 1
    assert float(validators.class_ami(torch.ones(30, 4), one_class(30, 6))) == 0
    assert float(validators.class_ami(random_logits(30, 4), one_class(30, 6))) == pytest.approx(0, abs=1e-9)


def test_few_predicted_classes_do_not_make_few_clusters() -> None:
    """With as many clusters as *predicted* classes, merging five blobs into two classes would be perfect."""
    blobs = torch.arange(100) % 5
    features = random_logits(100, 2, 0.1) + torch.stack([10.0 * blobs, 3.0 * (blobs % 2)], 1)
    merged = torch.eye(5)[(blobs > 2).long()] * 9
    assert float(validators.class_ami(features, torch.eye(5)[blobs] * 9)) == pytest.approx(1)
    assert float(validators.class_ami(features, merged)) < 0.7


def test_the_clusters_are_deterministic() -> None:
    features, logits = random_logits(60, 5), random_logits(60, 7)
    torch.manual_seed(0)
    first = float(validators.class_ami(features, logits))
    torch.manual_seed(1)
    assert float(validators.class_ami(features, logits)) == first


def test_the_source_supports_the_classes_of_its_samples_near_a_sample() -> None:
    random = np.random.default_rng(0)
    source, labels = random.normal(size=(40, 3)) * [1, 10, 100], random.integers(0, 4, 40)
    target = random.normal(size=(25, 3)) * [1.5, 10, 100] + [0.5, 0, 0]
    scale = np.sqrt((source.var(0) + target.var(0)) / 2)
    usual = [mean(sorted((((row - source) / scale) ** 2).sum(1))[1:6]) for row in source]
    support = source_support(*map(torch.from_numpy, (target, source, labels)), classes=4).numpy()
    for row, found in zip(target, support, strict=True):
        distances = (((row - source) / scale) ** 2).sum(1)
        nearest = np.argsort(distances)[:5]
        near = min(1, 2 * mean(float(each >= distances[nearest].mean()) for each in usual))
        np.testing.assert_allclose(found, near * np.bincount(labels[nearest], minlength=4) / 5, atol=1e-9)


def test_samples_that_were_moved_away_from_the_source_have_no_support() -> None:
    source, labels = random_logits(80, 3), torch.arange(80) % 2
    assert float(source_support(source + 1e-3, source, labels, 2).sum(1).mean()) > 0.7
    assert float(source_support(source + 100, source, labels, 2).max()) == 0
