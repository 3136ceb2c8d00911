r"""Do the predicted classes agree with clusters of the features, or with neighbourhoods of the samples?"""

import torch
from torch import Tensor

from vmt.validators.predictions import source_accuracy

ROWS_AT_A_TIME = 1024


def class_ami(features: Tensor, logits: Tensor) -> Tensor:
    r"""Adjusted mutual information of :math:`\arg\max z_n` and k-means clusters of the features, at most 1.

    K-means starts from the mean feature of each predicted class and, for a class that is never predicted, from the
    sample farthest from the centres before it. So nothing is random, and there are always K clusters. If only one class
    is predicted the score is 0, where the usual convention for two trivial labellings would be 1. It is fooled by clean
    clusters with wrong names.
    """
    predicted = logits.argmax(1)
    features = features.double().flatten(1)
    features = features - features.mean(0)  # for precision: differences of small numbers lose fewer digits
    clusters = kmeans(features, class_centres(features, predicted, logits.shape[1]))
    return adjusted_mutual_information(contingency(predicted, clusters, logits.shape[1]))


def ami_source(features: Tensor, logits: Tensor, source: Tensor, labels: Tensor) -> Tensor:
    """:func:`class_ami` on the target × accuracy on held-out source samples, at most 1.

    Each factor recognises what fools the other: the clusters show whether the classes fit the target, the source
    whether the classes still have the right names. It is fooled if the names are right on the source and swapped on the
    target.
    """
    return class_ami(features, logits) * source_accuracy(source, labels)


def nearest_neighbours(samples: Tensor, count: int = 5) -> Tensor:
    """(N, count): for each of N samples, the rows of those that are nearest to it once every value is standardised."""
    x = samples.double().flatten(1)
    x = (x - x.mean(0)) / x.std(0, correction=0).clamp_min(1e-12)
    nearest = []
    for first in range(0, len(x), ROWS_AT_A_TIME):
        distances = squared_distances(x[first : first + ROWS_AT_A_TIME], x)
        distances.diagonal(first).fill_(torch.inf)  # a sample is not its own neighbour
        nearest.append(distances.topk(min(count, len(x) - 1), largest=False).indices)
    return torch.cat(nearest)


def source_support(samples: Tensor, source: Tensor, labels: Tensor, classes: int, count: int = 5) -> Tensor:
    """(N, K): how much the nearest samples of the source say for each class of a sample; a row sums to 0 up to 1.

    The sum is 1 for a sample that is as near to its nearest samples of the source as a typical sample of the source is
    to its own, and otherwise twice the share of the source's samples that are at least as far from theirs. It is
    divided among the classes of these nearest samples. Every value has one scale in both domains, so samples that were
    moved away from the source have little support for any class.
    """
    x, y = samples.double().flatten(1), source.double().flatten(1)
    scale = ((x.var(0, correction=0) + y.var(0, correction=0)) / 2).sqrt().clamp_min(1e-6)
    x, y = (x - y.mean(0)) / scale, (y - y.mean(0)) / scale
    among = squared_distances(y, y).fill_diagonal_(torch.inf)  # a sample is not its own neighbour
    count = min(count, len(y) - 1)
    usual = among.topk(count, largest=False).values.mean(1)
    nearest = squared_distances(x, y).topk(count, largest=False)
    near = (2 * (usual >= nearest.values.mean(1)[:, None]).double().mean(1)).clamp_max(1)
    return near[:, None] * torch.nn.functional.one_hot(labels[nearest.indices], classes).double().mean(1)


def neighbour_agreement(neighbours: Tensor, logits: Tensor) -> Tensor:
    r"""How often the neighbours of a sample are predicted as the same class, corrected for chance, at most 1:
    :math:`(a - c) / (1 - c)`, a being the share of equal predictions among neighbours, and c the share of equal
    predictions among all pairs. If one class is predicted for all, it is 0.

    ``neighbours`` are those of :func:`nearest_neighbours`, among the samples themselves or in the features of any
    network. It is fooled by classes that are neighbourhoods with wrong names.
    """
    predicted = logits.argmax(1)
    if neighbours.numel() == 0:  # a single sample
        return torch.zeros((), dtype=torch.double, device=logits.device)
    equal = (predicted[neighbours] == predicted[:, None]).double().mean()
    chance = (predicted.bincount(minlength=logits.shape[1]).double() / len(predicted)).square().sum()
    return torch.where(chance < 1, (equal - chance) / (1 - chance).clamp_min(1e-12), 0.0)


def class_centres(features: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """The mean feature of each predicted class; for a class without samples, the sample farthest from all centres."""
    counts = predicted.bincount(minlength=classes)
    centres = sums_by(predicted, features, classes) / counts.clamp_min(1)[:, None]
    used = counts.nonzero().flatten().tolist()
    nearest = squared_distances(features, centres[used]).amin(1)
    for k in sorted(set(range(classes)) - set(used)):
        centres[k] = features[nearest.argmax()]
        nearest = nearest.minimum(squared_distances(features, centres[k : k + 1])[:, 0])
    return centres


def kmeans(features: Tensor, centres: Tensor, iterations: int = 100) -> Tensor:
    """Lloyd's algorithm from given centres until no sample changes its cluster; centres without samples do not move."""
    assigned = squared_distances(features, centres).argmin(1)
    for _ in range(iterations):
        counts = assigned.bincount(minlength=len(centres))[:, None]
        centres = torch.where(counts > 0, sums_by(assigned, features, len(centres)) / counts.clamp_min(1), centres)
        before, assigned = assigned, squared_distances(features, centres).argmin(1)
        if torch.equal(before, assigned):
            break
    return assigned


def sums_by(group: Tensor, features: Tensor, groups: int) -> Tensor:
    """The sum of the features of each group, by a matrix product, which is deterministic on a GPU as well."""
    return torch.nn.functional.one_hot(group, groups).to(features.dtype).T @ features


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    return a.square().sum(1)[:, None] - 2 * a @ b.T + b.square().sum(1)


def contingency(a: Tensor, b: Tensor, size: int) -> Tensor:
    """The number of samples that have label i in ``a`` and label j in ``b``."""
    return (a * size + b).bincount(minlength=size * size).view(size, size).double()


def adjusted_mutual_information(table: Tensor) -> Tensor:
    r""":math:`(I - E[I]) / (\frac12 (H_U + H_V) - E[I])` of two labellings, from their table of counts.

    E is over all labellings with the same class sizes. If chance explains everything, the result is 0.
    """
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    total, rows, columns = table.sum(), table.sum(1), table.sum(0)
    information = torch.xlogy(table, table * total / torch.outer(rows, columns)).sum() / total
    entropies = [-torch.xlogy(side / total, side / total).sum() for side in (rows, columns)]
    expected = expected_information(rows, columns)
    room = (entropies[0] + entropies[1]) / 2 - expected
    return torch.where(room > 1e-12, (information - expected) / room.clamp_min(1e-12), 0.0)


def expected_information(rows: Tensor, columns: Tensor) -> Tensor:
    r"""E[I] under the hypergeometric distribution of tables with the margins a and b,

    .. math:: \sum_{ij} \sum_{n=\max(1, a_i + b_j - N)}^{\min(a_i, b_j)} \frac nN \ln \frac{N n}{a_i b_j}
        \frac{a_i!\, b_j!\, (N - a_i)!\, (N - b_j)!}{N!\, n!\, (a_i - n)!\, (b_j - n)!\, (N - a_i - b_j + n)!} .
    """
    total = rows.sum()

    def log_factorial(n: Tensor) -> Tensor:
        return torch.lgamma(n + 1)

    b = columns[:, None]
    n = torch.arange(1, int(torch.minimum(rows.max(), columns.max())) + 1, device=rows.device, dtype=torch.float64)
    expected = rows.new_zeros(())
    for a in rows:
        possible = (n <= a) & (n <= b) & (n >= a + b - total)
        log_chance = (
            log_factorial(a)
            + log_factorial(b)
            + log_factorial(total - a)
            + log_factorial(total - b)
            - log_factorial(total)
            - log_factorial(n)
            - log_factorial((a - n).clamp_min(0))
            - log_factorial((b - n).clamp_min(0))
            - log_factorial((total - a - b + n).clamp_min(0))
        )
        terms = n / total * torch.log(total * n / (a * b)) * log_chance.exp()
        expected = expected + torch.where(possible, terms, 0.0).sum()
    return expected
