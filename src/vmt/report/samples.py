"""The samples on the page: which are shown, what each model predicts for them, and the map of their features."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import one_hot

from vmt.data.domains import Domain
from vmt.data.task import Task
from vmt.errors import InputError
from vmt.evaluate.probe import sample_rows
from vmt.progress import Progress
from vmt.report.predictions import Floats, Predictions, predict, trained_network
from vmt.report.standing import baseline_of
from vmt.report.thumbnails import LARGEST_TILE, at_most, decoded, make_sheet
from vmt.runs.record import RunRecord
from vmt.runs.spec import DataSpec
from vmt.train.collapse import largest_class
from vmt.validators.choice import fit_of, neighbourhoods
from vmt.validators.clusters import nearest_neighbours

Rows = NDArray[np.int64]
MAP_SOURCE, MAP_TARGET = 350, 550
NEIGHBOURS = 10
# A larger confusion matrix cannot be read; its largest entries are listed instead.
LARGEST_MATRIX, LISTED_MISTAKES = 20, 12
CONFIDENCE_BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


@dataclass(frozen=True)
class Options:
    """What a report shows, and where its data are."""

    map: str = "tsne"
    """How features are projected to a plane: tsne, pca or none."""
    samples: int = 10_000
    """The number of random target samples to predict."""
    places: DataSpec = field(default_factory=DataSpec)
    """Where the data are now; paths that it leaves out are those of the runs."""
    device: str = "auto"
    nets: tuple[str, ...] = ()
    """User-defined networks that may be imported: ``package.module:function``."""
    test: str | None = None
    """Labelled target samples to test the models of all runs on; all of them are predicted."""
    label: str | None = None
    """The column of a table given as ``test`` that holds the classes; None for that of the run."""
    features: tuple[str, ...] = ()
    """Functions for features that may be imported: ``package.module:function``."""


@dataclass(frozen=True)
class RunPredictions:
    """What the network of one run predicts for the samples."""

    source: Predictions
    target: Predictions
    """It has the hidden layer only of the samples on the map, because there may be many samples and many runs."""
    origin: str
    """Which network predicts: the finished model or a checkpoint."""


def describe_samples(
    task: Task, runs: Sequence[RunRecord], options: Options, budget: int, progress: Progress
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The samples of a task that the page shows, and what the model of each run predicts for them.

    ``budget`` is the size of the thumbnails in bytes.
    """
    target, source = task.target_test or task.target.without_labels(), task.source_test or task.source
    most = len(target) if options.test is not None else options.samples
    target_rows, source_rows = draw_rows(len(target), most), draw_rows(len(source), MAP_SOURCE)
    target, source = target.subset(torch.from_numpy(target_rows)), source.subset(torch.from_numpy(source_rows))
    on_map = draw_rows(len(target), MAP_TARGET)
    progress.start("predicting samples", len(runs) * (len(target) + len(source)))
    predictions = [predictions_of(run, task, source, target, on_map, options, progress) for run in runs]

    labels = None if target.y is None else target.y.cpu().numpy()
    per_run = max(6, min(36, 100 // len(runs)))
    known = [each.target for each in predictions if isinstance(each, RunPredictions)]
    striking = [striking_rows(each, labels, len(task.classes), per_run) for each in known]
    more = np.setdiff1d(np.unique(np.concatenate([on_map, *striking])), on_map)
    shown = np.concatenate([on_map, more])  # the map shows the first of them
    shown_samples = target.subset(torch.from_numpy(shown))
    about: dict[str, Any] = {
        "classes": list(task.classes),
        "images": task.source.is_images,
        "target_samples": len(target),
        "target_name": target.name,
        "source_name": task.source.name,
        "labels": labels is not None,
        "samples": {
            "source": len(source),
            "index": [*source_rows.tolist(), *target_rows[shown].tolist()],
            "label": [*labels_or_none(source), *labels_or_none(shown_samples)],
        },
        "sheet": None,
        "seen": seen_by_the_network(task),
    }
    if task.source.is_images:
        about["sheet"] = asdict(make_sheet([source.x, shown_samples.x], task.preprocess, budget))
    elif task.backbone is not None and source.files and shown_samples.files:
        preprocess = at_most(task.backbone.preprocess, LARGEST_TILE)
        pictures = [decoded(part.files, preprocess) for part in (source, shown_samples)]
        about["sheet"] = asdict(make_sheet(pictures, preprocess, budget))

    assert task.source.y is not None
    source_counts = np.bincount(task.source.y.cpu().numpy(), minlength=len(task.classes))
    progress.start("drawing maps", len(runs))
    details = []
    of_source_only = source_only_predictions(runs, predictions)
    neighbours = nearest_neighbours(sample_rows(target.subset(torch.from_numpy(on_map)).x, task.preprocess))
    for of_run, base in zip(predictions, of_source_only, strict=True):
        detail: dict[str, Any] = {
            "source_shares": (source_counts / source_counts.sum()).tolist(),
            "largest": largest_class(task.source),
        }
        if isinstance(of_run, str):
            detail["missing"] = of_run
        else:
            detail |= describe_run(of_run, shown, labels, source_counts, options.map)
            if base is not None:
                detail["agreement"] = float((of_run.target.predicted == base.target.predicted).mean())
                predicted = (torch.from_numpy(each.target.predicted[on_map]) for each in (of_run, base))
                mine, others = (one_hot(classes, len(task.classes)) for classes in predicted)
                near = neighbourhoods(neighbours, others, torch.from_numpy(base.target.hidden))
                assert near is not None
                detail["fit"] = fit_of(near, mine, others)
        details.append(detail)
        progress.advance(1)
    return about, details


def seen_by_the_network(task: Task) -> dict[str, str]:
    """What the networks see of the samples, for the table of settings."""
    if task.backbone is None:
        return {"the network sees": task.preprocess.sentence()}
    sees, features = task.backbone.preprocess.sentence(), task.preprocess.sentence()
    return {"the frozen network sees": sees, "the trained network sees its features": features}


def source_only_predictions(
    runs: Sequence[RunRecord], predictions: Sequence[RunPredictions | str]
) -> list[RunPredictions | None]:
    """For each run, the predictions of the source-only run that it is compared with; None without one."""
    by_run = {id(run): found for run, found in zip(runs, predictions, strict=True)}
    bases = [None if run.kind == "lower" else baseline_of(run, runs) for run in runs]
    found = [None if base is None else by_run[id(base)] for base in bases]
    return [each if isinstance(each, RunPredictions) else None for each in found]


def draw_rows(rows: int, most: int) -> Rows:
    """At most ``most`` of the rows, in order and always the same ones.

    They are random, because evenly spaced rows may miss classes in a file that repeats them in turn.
    """
    if most >= rows:
        return np.arange(rows, dtype=np.int64)
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False)).astype(np.int64)


def striking_rows(predictions: Predictions, labels: Rows | None, classes: int, each: int) -> Rows:
    """The most informative samples: the most and least confident ones, also of each class, and the wrong ones."""
    order = np.argsort(predictions.confidence, kind="stable")
    picked = [order[:each], order[::-1][:each]]
    per_class = max(2, 4 * each // max(classes, 1))
    for k in range(classes):
        of_class = order[predictions.predicted[order] == k]
        picked += [of_class[:per_class], of_class[::-1][:per_class]]
    if labels is not None:
        wrong = order[predictions.predicted[order] != labels[order]]
        picked += [wrong[:each], wrong[::-1][: 2 * each]]
    return np.unique(np.concatenate(picked)).astype(np.int64)


def labels_or_none(domain: Domain) -> list[int | None]:
    return [None] * len(domain) if domain.y is None else domain.y.tolist()


def predictions_of(
    run: RunRecord, task: Task, source: Domain, target: Domain, on_map: Rows, options: Options, progress: Progress
) -> RunPredictions | str:
    """What the network of a run predicts for source and target, or a message that says why there are no predictions."""
    try:
        network, origin = trained_network(run, task, options.device, options.nets)
    except InputError as error:
        progress.advance(len(source) + len(target))
        return f"No images, map or confusion matrix for this run: {str(error).rstrip('.')}."
    of_source, of_target = (predict(network, each.x, task.preprocess, progress.advance) for each in (source, target))
    return RunPredictions(of_source, replace(of_target, hidden=of_target.hidden[on_map]), origin)


def describe_run(
    predictions: RunPredictions, shown: Rows, labels: Rows | None, source_counts: Rows, how: str
) -> dict[str, Any]:
    """Predictions for the samples shown, the map, class shares and mistakes of one run."""
    source, target, classes = predictions.source, predictions.target, len(source_counts)
    predicted = np.concatenate([source.predicted, target.predicted[shown]])
    confidence = np.concatenate([source.confidence, target.confidence[shown]])
    points, made = (None, "") if how == "none" else project(np.concatenate([source.hidden, target.hidden]), how)
    return {
        "origin": predictions.origin,
        "predicted": predicted.tolist(),
        "confidence": [round(float(p), 4) for p in confidence],
        "map": None if points is None else [[round(float(v), 4) for v in row] for row in points],
        "map_how": made,
        "mixing": None if points is None else mixing(source.hidden, target.hidden),
        "shares": {
            "source": source_counts.tolist(),
            "predicted": np.bincount(target.predicted, minlength=classes).tolist(),
            "true": None if labels is None else np.bincount(labels, minlength=classes).tolist(),
        },
        "calibration": calibration(target.confidence, None if labels is None else target.predicted == labels),
        "confusion": None if labels is None else confusion(labels, target.predicted, classes),
        "right": None if labels is None else float((target.predicted == labels).mean()),
    }


def confusion(labels: Rows, predicted: Rows, classes: int) -> dict[str, Any]:
    """Counts of true and predicted classes: the matrix, unless it is too large, and the most frequent mistakes."""
    matrix = np.zeros((classes, classes), np.int64)
    np.add.at(matrix, (labels, predicted), 1)
    mistakes = matrix.copy()
    np.fill_diagonal(mistakes, 0)
    order = np.argsort(mistakes, axis=None, kind="stable")[::-1][:LISTED_MISTAKES]
    pairs = [(int(i) // classes, int(i) % classes) for i in order]
    return {
        "matrix": matrix.tolist() if classes <= LARGEST_MATRIX else None,
        "largest": [[t, p, int(mistakes[t, p]), int(matrix[t].sum())] for t, p in pairs if mistakes[t, p]],
    }


def calibration(confidence: Floats, right: NDArray[np.bool_] | None) -> list[list[Any]]:
    """For each range of confidence: lower end, upper end, number of samples and, with labels, how many are right."""
    rows = []
    for low, high in pairwise(CONFIDENCE_BINS):
        inside = (confidence >= low) & ((confidence < high) | (high == 1))
        rows.append([low, high, int(inside.sum()), None if right is None else int((inside & right).sum())])
    return rows


def project(features: Floats, how: str) -> tuple[Floats | None, str]:
    """Project features to points in the unit square, and say how; None if all features are the same."""
    spread = features.std(0)
    if len(features) < 3 or not np.isfinite(spread).all() or float(spread.max()) < 1e-9:
        return None, "The last hidden layer is the same for every sample, so there is nothing to map."
    # Columns are not standardised, which would amplify those that hardly vary.
    centred = (features - features.mean(0)).astype(np.float64)
    if how == "tsne" and len(features) >= 30:
        from sklearn.manifold import TSNE

        perplexity = min(30.0, (len(features) - 1) / 3)
        fitted = TSNE(init="pca", perplexity=perplexity, max_iter=500, random_state=0).fit_transform(centred)
        points, name = np.asarray(fitted, np.float64), f"t-SNE (perplexity {perplexity:.0f})"
    else:
        u, s, _ = np.linalg.svd(centred, full_matrices=False)
        points, name = np.zeros((len(features), 2)), "PCA"
        points[:, : min(2, s.size)] = (u * s)[:, :2]
        if s.size:
            name += f" (first two components, {(s[:2] ** 2).sum() / (s**2).sum():.0%} of the variance)"
    low, high = points.min(0), points.max(0)
    # Distances mean something along principal components, so both have one scale. In t-SNE the map may fill its square.
    side = np.where(high > low, high - low, 1.0) if name.startswith("t-SNE") else (float((high - low).max()) or 1.0)
    return ((points - (low + high) / 2) / side + 0.5).astype(np.float32), name


def mixing(source: Floats, target: Floats) -> float:
    """The share of source samples among the nearest neighbours of target samples, if the domains were equally large."""
    from sklearn.neighbors import NearestNeighbors

    both = np.concatenate([source, target])
    count = min(NEIGHBOURS, len(both) - 1)
    nearest = NearestNeighbors(n_neighbors=count + 1).fit(both).kneighbors(target, return_distance=False)[:, 1:]
    from_source = float((nearest < len(source)).sum()) / len(source)
    from_target = float((nearest >= len(source)).sum()) / max(1, len(target) - 1)
    return from_source / (from_source + from_target)
