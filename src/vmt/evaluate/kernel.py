r"""Classifiers that need no training: kernel ridge regression on the samples themselves.

There are two. :func:`source_kernel` reads both domains in the units of the source, like any classifier that is not
adapted. :func:`adapted_kernel` standardises each domain by itself, so it is strong where the domains differ in the
means and spreads of single features; if the class shares of the target seem to be very different
(:mod:`vmt.evaluate.matching`), the source counts with the weights that give it these shares. Where the classes have
gaps between them, it then learns from its own certain predictions on the target (self-training), which follows clusters
a little further.

For a sample x with the kernels :math:`k(x)` of N samples, the logits are :math:`t\, k(x)^\top (K + \lambda W^{-1})^{-1}
(Y - 1/C)`. The width of the kernel, λ and t are those with the smallest cross-entropy if each sample of the source is
predicted by the others, which has a closed form, too.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vmt.data.domains import Domain
from vmt.data.task import Task
from vmt.device import default_torch_settings
from vmt.evaluate.accuracy import network_inputs
from vmt.evaluate.polarity import in_polarity_of_target
from vmt.evaluate.probe import source_shares, subsample
from vmt.nets.composed import kernel, squared_distances, values_of
from vmt.nets.networks import Staged
from vmt.validators.class_shares import ClassShares

SAMPLES = 2000
"""At most this many samples of each domain are centres."""
SAMPLES_FOR_SETTING = 1000
WIDTHS, PENALTIES = (0.25, 0.5, 1.0, 2.0, 4.0), (0.01, 0.1, 1.0)
SCALES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
SMALLEST_WEIGHT = 1e-3
ROUNDS = 3
WEIGHT_OF_SOURCE = 0.3
"""The weight of a sample of the source in self-training, where a certain one of the target has 1."""
SURE = 0.9
"""Self-training needs a classifier that recognises this share of the source's samples by the others.

Where classes have no gaps between them, it only makes errors certain."""


@dataclass(frozen=True)
class Setting:
    """The width of the kernel, the penalty λ and the scale t of the logits."""

    width: float
    penalty: float
    scale: float
    right: float
    """The share of the samples that the others predict rightly."""


@dataclass(frozen=True)
class Fitted:
    """A kernel classifier of standardised rows."""

    centres: Tensor
    coefficients: Tensor
    setting: Setting

    def logits(self, rows: Tensor) -> Tensor:
        kernels = torch.exp(-squared_distances(rows, self.centres) / self.setting.width)
        return kernels @ self.coefficients


@torch.no_grad()
@default_torch_settings()
def adapted_kernel(task: Task, shares: ClassShares | None) -> Staged:
    """A classifier of the target, with ``shares`` the very different class shares of the target, if it has such."""
    xs, xt, y = rows_of(task)
    classes = len(task.classes)
    weights = torch.ones(len(y)).double()
    if shares is not None:
        ratios = torch.tensor(shares.target).double() / source_shares(task).double().cpu().clamp_min(SMALLEST_WEIGHT)
        weights = ratios[y]
    (mean, std), (own, spread) = moments(xs, weights), moments(xt)
    source, target = (xs - mean) / std, (xt - own) / spread
    model = fitted(source, y, classes, weights, None)
    rows = torch.cat([source, target])
    for _ in range(ROUNDS if model.setting.right >= SURE else 0):
        certainty, predicted = model.logits(target).softmax(1).max(1)
        labels, weight = torch.cat([y, predicted]), torch.cat([WEIGHT_OF_SOURCE * weights, certainty**2])
        model = fitted(rows, labels, classes, weight, model.setting)
    return network(task, model, own, spread)


@torch.no_grad()
@default_torch_settings()
def source_kernel(task: Task) -> Staged:
    """A classifier that is fitted to the source alone, in its units."""
    xs, xt, y = rows_of(task)
    mean, scale = units(xs, xt)
    model = fitted((xs - mean) / scale, y, len(task.classes), torch.ones(len(y)).double(), None)
    return network(task, model, mean, scale)


def units(xs: Tensor, xt: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the source, and one scale for both domains.

    A feature that never changes in the source alone would make every sample of the target infinitely far away.
    """
    (mean, own), (_, other) = moments(xs), moments(xt)
    return mean, ((own.square() + other.square()) / 2).sqrt()


def rows_of(task: Task) -> tuple[Tensor, Tensor, Tensor]:
    """At most SAMPLES rows of numbers of the source and of the target, in double precision, and the source's labels."""
    flatten, _ = values_of(task.sample_shape)

    def rows(part: Domain) -> Tensor:
        return torch.cat([flatten(x) for x in network_inputs(part.x, task.preprocess, torch.device("cpu"))]).double()

    source, target = subsample(task.source, SAMPLES), subsample(task.target.without_labels(), SAMPLES)
    source = in_polarity_of_target(source, task)
    assert source.y is not None
    return rows(source), rows(target), source.y.cpu()


def moments(rows: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The weighted mean and standard deviation of each feature."""
    weights = torch.ones(len(rows)).double() if weights is None else weights
    share = (weights / weights.sum())[:, None]
    mean = (share * rows).sum(0)
    return mean, (share * (rows - mean).square()).sum(0).sqrt().clamp_min(1e-6)


def fitted(rows: Tensor, y: Tensor, classes: int, weights: Tensor, setting: Setting | None) -> Fitted:
    """Kernel ridge regression on the classes; without ``setting``, the best one for these samples."""
    if setting is None:
        some = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:SAMPLES_FOR_SETTING]
        setting = best_setting(rows[some], y[some], classes, weights[some])
    targets = torch.nn.functional.one_hot(y, classes).double() - 1 / classes
    matrix = torch.exp(-squared_distances(rows, rows) / setting.width)
    matrix.diagonal().add_(setting.penalty / weights.clamp_min(SMALLEST_WEIGHT))
    factor = torch.linalg.cholesky(matrix)
    return Fitted(rows, setting.scale * torch.cholesky_solve(targets, factor), setting)


def best_setting(rows: Tensor, y: Tensor, classes: int, weights: Tensor) -> Setting:
    """The setting with the smallest cross-entropy of predictions that leave out the sample itself."""
    weights = weights.clamp_min(SMALLEST_WEIGHT)
    distances = squared_distances(rows, rows)
    typical = float(distances[~torch.eye(len(rows), dtype=torch.bool)].median()) if len(rows) > 1 else 1.0
    targets = torch.nn.functional.one_hot(y, classes).double() - 1 / classes
    best: tuple[float, Setting] | None = None
    for width in (typical * each for each in WIDTHS):
        kernels = torch.exp(-distances / max(width, 1e-12))
        for penalty in PENALTIES:
            inverse = torch.cholesky_inverse(torch.linalg.cholesky(kernels + torch.diag(penalty / weights)))
            left_out = targets - (inverse @ targets) / inverse.diagonal()[:, None]
            for scale in SCALES:
                losses = torch.nn.functional.cross_entropy(scale * left_out, y, reduction="none")
                loss = float((weights * losses).sum() / weights.sum())
                if best is None or loss < best[0]:
                    right = (weights * (left_out.argmax(1) == y)).sum() / weights.sum()
                    best = loss, Setting(width, penalty, scale, float(right))
    assert best is not None
    return best[1]


def network(task: Task, model: Fitted, mean: Tensor, std: Tensor) -> Staged:
    """The network that computes what was fitted."""
    net = kernel(task.sample_shape, len(task.classes), len(model.centres))
    tensors = {
        "mean": mean,
        "scale": 1 / std,
        "points": model.centres,
        "width": torch.tensor(model.setting.width),
        "weight": model.coefficients.T,
    }
    state = {name: tensors[name.rpartition(".")[2]].float() for name in net.state_dict()}
    net.load_state_dict(state)
    return net.eval()
