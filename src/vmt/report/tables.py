"""Tables of a run: class shares, confusions, settings."""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.report.records import Record

# A matrix of more classes than this is no longer read; its largest entries are.
MATRIX, LARGEST = 20, 12
SURE = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


def shares_of(run: Record, counted: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """How the classes are shared out: counts where the data are there, else what the log has of the target."""
    if counted is not None:
        return {**counted, "logged": False}
    if not run.last:
        return None
    target = run.last["target"]
    return {"source": None, "predicted": target["predicted_share"], "true": None, "logged": True}


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
    rows = []
    for low, high in pairwise(SURE):
        inside = (confidence >= low) & ((confidence < high) | (high == 1))
        hits = None if right is None else int((inside & right).sum())
        rows.append([low, high, int(inside.sum()), hits])
    return rows


def settings_tables(run: Record) -> dict[str, list[list[str]]]:
    """What the run was asked for, and where it was made, as rows of text."""
    recipe = asdict(run.spec.recipe)
    config = recipe.pop("config")
    method = {**recipe.pop("settings"), **{f"DIRT-T {k}": v for k, v in (recipe.pop("dirt_t") or {}).items()}}
    options = recipe.pop("net_options")
    data = {name: value for name, value in asdict(run.spec.data).items() if value is not None}
    made = run.written.get("environment") or {}
    return {
        "Method": rows({**recipe, **options, **method}),
        "Run": rows(config),
        "Data": rows({**data, "fingerprint": run.written.get("fingerprint")}),
        "Environment": rows(made),
    }


def rows(values: Mapping[str, Any]) -> list[list[str]]:
    return [[name.replace("_", " "), "–" if value is None else str(value)] for name, value in values.items()]
