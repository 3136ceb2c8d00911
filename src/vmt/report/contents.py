"""From run folders to everything that the page shows, as one dictionary that JSON can hold."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import vmt
from vmt.data.task import Task
from vmt.errors import InputError
from vmt.figures import phase_changes
from vmt.nets.factory import factory_name
from vmt.progress import Progress
from vmt.report.curves import charts_for, curves_of, thinned
from vmt.report.samples import Options, describe_samples
from vmt.report.signs import signs_of
from vmt.report.verdict import accuracy_of, gain_of, verdict_on, verdict_on_all
from vmt.runs.record import RunRecord, bounds_outside, find_runs, read_run_record, short_names, status_of
from vmt.runs.spec import DataSpec, load_data

# Limits that keep a page of many runs small: bytes of thumbnails and points of curves over all runs, points per curve.
THUMBNAIL_BYTES, CURVE_POINTS, POINTS_PER_CURVE = 2_600_000, 120_000, 300
CHANGED = "The data have changed since the run was made: the page shows them as they are now."
NO_DATA = (
    "The data of this run could not be read, so there are no images, no map and no confusion matrix; the rest of the "
    "page is from the run's log."
)


def gather(folders: Sequence[Path], options: Options, progress: Progress) -> dict[str, Any]:
    """Read the runs, and predict their data with their models if both can be read."""
    runs = bounds_outside([read_run_record(folder) for folder in find_runs(folders)])
    check_nets(runs, options.nets)
    groups: dict[str, list[int]] = {}  # for each data set, the indices of its runs in ``runs``
    for i, run in enumerate(runs):
        data = run.spec.data
        groups.setdefault(json.dumps(asdict(data)) if data.in_files else run.data_key, []).append(i)
    tasks: list[dict[str, Any]] = []
    details: list[dict[str, Any]] = [{} for _ in runs]
    for members in groups.values():
        data = runs[members[0]].spec.data
        progress.start("reading data", 1)
        task, note = load_or_explain(data.moved(options.places))
        tasks.append({"name": data.name, "note": note, "classes": [], "samples": None, "sheet": None, "images": False})
        for i in members:
            details[i] |= {"task": len(tasks) - 1, "source_shares": None, "largest": None}
        if task is not None:
            budget = THUMBNAIL_BYTES // len(groups)
            about, described = describe_samples(task, [runs[i] for i in members], options, budget, progress)
            tasks[-1] |= about
            for i, detail in zip(members, described, strict=True):
                details[i] |= detail
            if any(runs[i].run_json.get("fingerprint") not in (None, about["fingerprint"]) for i in members):
                tasks[-1]["note"] = CHANGED
    return page_data(runs, tasks, details)


def check_nets(runs: Sequence[RunRecord], nets: Sequence[str]) -> None:
    """Refuse a network that none of the runs has, which is probably a mistake."""
    own = {name for run in runs if (name := factory_name(run.spec.recipe.net)) is not None}
    for net in nets:
        if factory_name(net) is None or factory_name(net) not in own:
            theirs = f"choose among {', '.join(sorted(own))}" if own else "leave --net out"
            raise InputError(f"none of these runs was trained with --net {net}: {theirs}.")


def load_or_explain(data: DataSpec) -> tuple[Task | None, str]:
    """The task of a run, or None and a note on what the page lacks."""
    try:
        return load_data(data), ""
    except InputError as error:
        return None, f"{NO_DATA} ({error})"


def page_data(
    runs: Sequence[RunRecord], tasks: list[dict[str, Any]], details: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The dictionary of the page."""
    curves = [curves_of(run.log) for run in runs]
    curve_names = list(dict.fromkeys(name for series_of_run in curves for name in series_of_run))
    points = max(30, min(POINTS_PER_CURVE, CURVE_POINTS // max(1, sum(len(series_of_run) for series_of_run in curves))))
    classes = {len(run.last["target"]["predicted_share"]) for run in runs if run.last}
    shown, verdicts = [], []
    for run, name, series_of_run, detail in zip(runs, short_names(runs), curves, details, strict=True):
        class_names = tasks[detail["task"]]["classes"]
        status = status_of(run, detail.pop("largest"), class_names)
        signs = signs_of(run, status, detail.pop("source_shares"), class_names)
        verdicts.append(verdict_on(run, runs, status, signs))
        shown.append(
            {
                "name": name,
                "folder": str(run.folder),
                "method": run.method,
                "kind": run.kind,
                "seed": run.spec.recipe.config.seed,
                "data": run.spec.data.name,
                "status": status,
                "iterations": run.iterations,
                "seconds": (run.summary or {}).get("seconds"),
                "accuracy": accuracy_of(run),
                "gain": gain_of(run, runs),
                "source_accuracy": (run.last.get("source") or {}).get("accuracy"),
                "verdict": verdicts[-1],
                "signs": [asdict(sign) for sign in signs],
                "curves": {key: thinned(series, points) for key, series in series_of_run.items()},
                "phases": phase_changes(run.log),
                "shares": class_shares(run, detail.pop("shares", None)),
                "settings": settings_tables(run),
                **detail,
            }
        )
    adapted = [i for i, run in enumerate(runs) if run.kind == "adapted"]
    return {
        "version": vmt.__version__,
        "verdict": verdict_on_all(runs, verdicts),
        "charts": charts_for(curve_names, classes.pop() if len(classes) == 1 else None),
        "tasks": tasks,
        "runs": shown,
        "first": adapted[-1] if adapted else 0,
    }


def class_shares(run: RunRecord, counted: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """How often each class occurs: counted in the data or, without data, the predictions in the log."""
    if counted is not None:
        return {**counted, "logged": False}
    if not run.last:
        return None
    return {"source": None, "predicted": run.last["target"]["predicted_share"], "true": None, "logged": True}


def settings_tables(run: RunRecord) -> dict[str, list[list[str]]]:
    """What the run was started with, and where, as tables of names and values."""
    recipe = asdict(run.spec.recipe)
    config = recipe.pop("config")
    method = {**recipe.pop("settings"), **{f"DIRT-T {k}": v for k, v in (recipe.pop("dirt_t") or {}).items()}}
    net_options = recipe.pop("net_options")
    data = {name: value for name, value in asdict(run.spec.data).items() if value is not None}
    return {
        "Method": as_rows({**recipe, **net_options, **method}),
        "Run": as_rows(config),
        "Data": as_rows({**data, "fingerprint": run.run_json.get("fingerprint")}),
        "Environment": as_rows(run.run_json.get("environment") or {}),
    }


def as_rows(values: Mapping[str, Any]) -> list[list[str]]:
    return [[name.replace("_", " "), "–" if value is None else str(value)] for name, value in values.items()]
