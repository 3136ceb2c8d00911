"""The data of runs through the eyes of their models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from vmt.data import Domain, Task
from vmt.environment import fingerprint
from vmt.errors import InputError
from vmt.report.looking import Seen, flat_map, look, mixing, network_of
from vmt.report.pictures import drawn, extremes, sheet_of
from vmt.report.records import Record
from vmt.report.tables import confusion_of, sureness_of
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


class Watcher(Protocol):
    """Is told how far a report is."""

    def start(self, what: str, total: int) -> None: ...

    def advance(self, count: int) -> None: ...


def study(
    task: Task, runs: Sequence[Record], options: Options, budget: int, watch: Watcher
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the models of several runs say about the same samples."""
    target = task.target_test or task.target.without_labels()
    source = task.source_test or task.source
    of_target, of_source = drawn(options.samples, len(target)), drawn(MAP_SOURCE, len(source))
    target, source = target.subset(torch.from_numpy(of_target)), source.subset(torch.from_numpy(of_source))
    watch.start("looking at samples", len(runs) * (len(target) + len(source)))
    seen = [views(run, task, source, target, options, watch) for run in runs]
    labels = None if target.y is None else target.y.cpu().numpy()
    each = max(6, min(36, 100 // len(runs)))
    on_map = drawn(MAP_TARGET, len(target))
    wanted = [extremes(found[1], labels, len(task.classes), each) for found in seen if isinstance(found, tuple)]
    chosen = np.concatenate([on_map, np.setdiff1d(np.unique(np.concatenate([on_map, *wanted])), on_map)])
    shown = target.subset(torch.from_numpy(chosen))
    about = {
        "classes": list(task.classes),
        "images": task.source.is_images,
        "fingerprint": fingerprint(task),
        "target_samples": len(target),
        "target_name": target.name,
        "source_name": task.source.name,
        "labels": labels is not None,
        "samples": {
            "source": len(source),
            "index": [*of_source.tolist(), *of_target[chosen].tolist()],
            "label": [*integers(source), *integers(shown)],
        },
        "sheet": None,
    }
    if task.source.is_images:
        about["sheet"] = sheet_of([(d.x, task.preprocess) for d in (source, shown)], budget).to_dict()
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
            detail |= detail_of(*found, labels, chosen, len(on_map), counts, options)
        details.append(detail)
        watch.advance(1)
    return about, details


def views(
    run: Record, task: Task, source: Domain, target: Domain, options: Options, watch: Watcher
) -> tuple[Seen, Seen, str] | str:
    """What a run's network says about source and target, and which network it is; a sentence where there is none."""
    try:
        network, origin = network_of(run, task, options.device)
    except InputError as error:
        watch.advance(len(source) + len(target))
        return f"No pictures, map or confusion matrix for this run: {error}."
    first, second = (look(network, domain.x, task.preprocess, watch.advance) for domain in (source, target))
    return first, second, origin


def detail_of(
    source: Seen,
    target: Seen,
    origin: str,
    labels: NDArray[np.int64] | None,
    chosen: NDArray[np.int64],
    on_map: int,
    source_counts: NDArray[np.int64],
    options: Options,
) -> dict[str, Any]:
    """Predictions on the samples shown, the map, shares and confusions of one run."""
    classes = len(source_counts)
    predicted = np.concatenate([source.predicted, target.predicted[chosen]])
    confidence = np.concatenate([source.confidence, target.confidence[chosen]])
    hidden = np.concatenate([source.hidden, target.hidden[chosen[:on_map]]])
    points, how = (None, "") if options.map == "none" else flat_map(hidden, options.map)
    return {
        "origin": origin,
        "predicted": predicted.tolist(),
        "confidence": [round(float(p), 4) for p in confidence],
        "map": None if points is None else [[round(float(v), 4) for v in row] for row in points],
        "map_how": how,
        "mixing": mixing(source.hidden, target.hidden[chosen[:on_map]]) if points is not None else None,
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
