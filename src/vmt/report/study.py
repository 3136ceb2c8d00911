"""The data of runs through the eyes of their models."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from vmt.data.domains import Domain
from vmt.data.task import Task
from vmt.errors import InputError
from vmt.report.pictures import Indices, drawn, extremes, sheet_of
from vmt.report.predictions import Seen, flat_map, look, mixing, trained_network
from vmt.runs.environment import data_fingerprint
from vmt.runs.record import RunRecord
from vmt.train.loop import largest_class

MAP_SOURCE, MAP_TARGET = 350, 550


@dataclass(frozen=True)
class Options:
    """What a report takes into account."""

    map: str = "tsne"
    """tsne, pca or none."""
    samples: int = 10_000
    """Target samples to look at, drawn from all of them."""
    data: str | None = None
    """Folder of a task's files, if it is no longer where the run found it."""
    device: str = "auto"
    nets: tuple[str, ...] = ()
    """Functions that build networks of one's own, which may be imported: ``package.module:function``."""


@dataclass(frozen=True)
class Views:
    """What the network of a run says about the samples."""

    source: Seen
    target: Seen
    """With the hidden layer of those on the map alone: there may be many samples, and many runs."""
    origin: str
    """Which network it is."""


@dataclass(frozen=True, eq=False)
class Shown:
    """What of the target is on the page, the same for all runs."""

    labels: Indices | None
    """Of all the samples that were looked at."""
    chosen: Indices
    """Those on the map, and after them others that a person asks for."""


class Watcher(Protocol):
    """Is told how far a report is."""

    def start(self, what: str, total: int) -> None: ...

    def advance(self, count: int) -> None: ...


def study(
    task: Task, runs: Sequence[RunRecord], options: Options, budget: int, watch: Watcher
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the models of several runs say about the same samples."""
    target = task.target_test or task.target.without_labels()
    source = task.source_test or task.source
    of_target, of_source = drawn(options.samples, len(target)), drawn(MAP_SOURCE, len(source))
    target, source = target.subset(torch.from_numpy(of_target)), source.subset(torch.from_numpy(of_source))
    watch.start("looking at samples", len(runs) * (len(target) + len(source)))
    on_map = drawn(MAP_TARGET, len(target))
    seen = [views(run, task, source, target, on_map, options, watch) for run in runs]
    found_in = [found.target for found in seen if isinstance(found, Views)]
    shown = shown_of(target, on_map, found_in, len(task.classes), len(runs))
    pictured = target.subset(torch.from_numpy(shown.chosen))
    about = {
        "classes": list(task.classes),
        "images": task.source.is_images,
        "fingerprint": data_fingerprint(task),
        "target_samples": len(target),
        "target_name": target.name,
        "source_name": task.source.name,
        "labels": target.y is not None,
        "samples": {
            "source": len(source),
            "index": [*of_source.tolist(), *of_target[shown.chosen].tolist()],
            "label": [*integers(source), *integers(pictured)],
        },
        "sheet": None,
    }
    if task.source.is_images:
        about["sheet"] = asdict(sheet_of([(d.x, task.preprocess) for d in (source, pictured)], budget))
    assert task.source.y is not None
    counts = np.bincount(task.source.y.cpu().numpy(), minlength=len(task.classes))
    watch.start("drawing maps", len(runs))
    details = []
    for found in seen:
        detail: dict[str, Any] = {
            "source_shares": (counts / counts.sum()).tolist(),
            "largest": largest_class(task.source),
        }
        if isinstance(found, str):
            detail["missing"] = found
        else:
            detail |= detail_of(found, shown, counts, options.map)
        details.append(detail)
        watch.advance(1)
    return about, details


def views(
    run: RunRecord, task: Task, source: Domain, target: Domain, on_map: Indices, options: Options, watch: Watcher
) -> Views | str:
    """What a run's network says about source and target; a sentence where there is none."""
    try:
        network, origin = trained_network(run, task, options.device, options.nets)
    except InputError as error:
        watch.advance(len(source) + len(target))
        return f"No pictures, map or confusion matrix for this run: {str(error).rstrip('.')}."
    first, second = (look(network, domain.x, task.preprocess, watch.advance) for domain in (source, target))
    return Views(first, replace(second, hidden=second.hidden[on_map]), origin)


def shown_of(target: Domain, on_map: Indices, seen: Sequence[Seen], classes: int, runs: int) -> Shown:
    """Some samples of all kinds, and those that stand out in what any of the runs says."""
    labels = None if target.y is None else target.y.cpu().numpy()
    wanted = [extremes(each, labels, classes, max(6, min(36, 100 // runs))) for each in seen]
    more = np.setdiff1d(np.unique(np.concatenate([on_map, *wanted])), on_map)
    return Shown(labels, np.concatenate([on_map, more]))


def detail_of(views: Views, shown: Shown, source_counts: Indices, how: str) -> dict[str, Any]:
    """Predictions on the samples shown, the map, shares and confusions of one run."""
    source, target, labels, classes = views.source, views.target, shown.labels, len(source_counts)
    predicted = np.concatenate([source.predicted, target.predicted[shown.chosen]])
    confidence = np.concatenate([source.confidence, target.confidence[shown.chosen]])
    points, made = (None, "") if how == "none" else flat_map(np.concatenate([source.hidden, target.hidden]), how)
    return {
        "origin": views.origin,
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
        "sureness": sureness_of(target.confidence, None if labels is None else target.predicted == labels),
        "confusion": None if labels is None else confusion_of(labels, target.predicted, classes),
    }


def integers(domain: Domain) -> list[int | None]:
    return [None] * len(domain) if domain.y is None else domain.y.tolist()


def confusion_of(labels: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> dict[str, Any]:
    """Counts of (true, predicted), whole where they can be read, and the largest mistakes."""
    matrix = np.zeros((classes, classes), np.int64)
    np.add.at(matrix, (labels, predicted), 1)
    mistakes = matrix.copy()
    np.fill_diagonal(mistakes, 0)
    order = np.argsort(mistakes, axis=None, kind="stable")[::-1][:LARGEST]
    pairs = [(int(i) // classes, int(i) % classes) for i in order]
    return {
        "matrix": matrix.tolist() if classes <= MATRIX else None,
        "largest": [[t, p, int(mistakes[t, p]), int(matrix[t].sum())] for t, p in pairs if mistakes[t, p]],
    }


def sureness_of(confidence: NDArray[np.float32], right: NDArray[np.bool_] | None) -> list[list[Any]]:
    """Rows of (from, to, samples, how many of them are right): a model that knows itself is right as often as sure."""
    setting_rows = []
    for low, high in pairwise(SURE):
        inside = (confidence >= low) & ((confidence < high) | (high == 1))
        hits = None if right is None else int((inside & right).sum())
        setting_rows.append([low, high, int(inside.sum()), hits])
    return setting_rows


# A matrix of more classes than this is no longer read; its largest entries are.
MATRIX, LARGEST = 20, 12


SURE = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
