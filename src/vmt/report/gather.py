"""From run folders to plain data: everything that the page shows, as one dictionary that JSON can hold."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import vmt
from vmt.data.task import Task
from vmt.errors import InputError
from vmt.figures import phase_changes
from vmt.nets.factory import factory_name
from vmt.report.curves import charts_for, curves_of, thinned
from vmt.report.signs import signs_of
from vmt.report.study import Options, Watcher, study
from vmt.report.verdict import accuracy_of, against, judge_all, judge_run
from vmt.runs.record import RunRecord, find_runs, in_order, names_of, read_run_record, status_of
from vmt.runs.spec import DataSpec


def shares_of(run: RunRecord, counted: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """How the classes are shared out: counts where the data are there, else what the log has of the target."""
    if counted is not None:
        return {**counted, "logged": False}
    if not run.last:
        return None
    target = run.last["target"]
    return {"source": None, "predicted": target["predicted_share"], "true": None, "logged": True}


def settings_tables(run: RunRecord) -> dict[str, list[list[str]]]:
    """What the run was asked for, and where it was made, as setting_rows of text."""
    recipe = asdict(run.spec.recipe)
    config = recipe.pop("config")
    method = {**recipe.pop("settings"), **{f"DIRT-T {k}": v for k, v in (recipe.pop("dirt_t") or {}).items()}}
    options = recipe.pop("net_options")
    data = {name: value for name, value in asdict(run.spec.data).items() if value is not None}
    made = run.written.get("environment") or {}
    return {
        "Method": setting_rows({**recipe, **options, **method}),
        "Run": setting_rows(config),
        "Data": setting_rows({**data, "fingerprint": run.written.get("fingerprint")}),
        "Environment": setting_rows(made),
    }


def setting_rows(values: Mapping[str, Any]) -> list[list[str]]:
    return [[name.replace("_", " "), "–" if value is None else str(value)] for name, value in values.items()]


# What keeps a page of many runs small: bytes of pictures, points of curves, both over all runs.
PICTURE_BYTES, CURVE_POINTS, POINTS_EACH = 2_600_000, 120_000, 300
CHANGED = "The data have changed since the run was made: what is shown is what is there now."
Loader = Callable[[DataSpec], Task]


def gather(folders: Sequence[Path], load: Loader, options: Options, watch: Watcher) -> dict[str, Any]:
    """Read the runs, and look at their data with their models where both are there."""
    runs = in_order([read_run_record(folder) for folder in find_runs(folders)])
    check_nets(runs, options.nets)
    groups: dict[str, list[int]] = {}
    for i, run in enumerate(runs):
        groups.setdefault(json.dumps(asdict(run.spec.data)), []).append(i)
    tasks: list[dict[str, Any]] = []
    details: list[dict[str, Any]] = [{} for _ in runs]
    for members in groups.values():
        data = runs[members[0]].spec.data
        task, note = loaded(data, load, options, watch)
        tasks.append({"name": data.name, "note": note, "classes": [], "samples": None, "sheet": None, "images": False})
        for i in members:
            details[i] |= {"task": len(tasks) - 1, "source_shares": None, "largest": None}
        if task is not None:
            about, seen = study(task, [runs[i] for i in members], options, PICTURE_BYTES // len(groups), watch)
            tasks[-1] |= about
            for i, detail in zip(members, seen, strict=True):
                details[i] |= detail
            if any(runs[i].written.get("fingerprint") not in (None, about["fingerprint"]) for i in members):
                tasks[-1]["note"] = CHANGED
    return page_data(runs, tasks, details)


def check_nets(runs: Sequence[RunRecord], nets: Sequence[str]) -> None:
    """Refuses a network that none of the runs has: it would be of no use, and perhaps another one was meant."""
    own = {name for run in runs if (name := factory_name(run.spec.recipe.net)) is not None}
    for net in nets:
        if factory_name(net) is None or factory_name(net) not in own:
            theirs = f"theirs: {', '.join(sorted(own))}" if own else "they have none of your own, so leave --net out"
            raise InputError(f"no run here was trained with --net {net} ({theirs}).")


def page_data(
    runs: Sequence[RunRecord], tasks: list[dict[str, Any]], details: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The dictionary of the page."""
    curves = [curves_of(run.log) for run in runs]
    every = list(dict.fromkeys(name for found in curves for name in found))
    each = max(30, min(POINTS_EACH, CURVE_POINTS // max(1, sum(len(found) for found in curves))))
    classes = {len(run.last["target"]["predicted_share"]) for run in runs if run.last}
    shown, judged = [], []
    for run, name, found, detail in zip(runs, names_of(runs), curves, details, strict=True):
        names = tasks[detail["task"]]["classes"]
        status = status_of(run, detail.pop("largest"), names)
        signs = signs_of(run, status, detail.pop("source_shares"), names)
        judged.append(judge_run(run, runs, status, signs))
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
                "gain": against(run, runs),
                "source_accuracy": (run.last.get("source") or {}).get("accuracy"),
                "verdict": judged[-1],
                "signs": [asdict(sign) for sign in signs],
                "curves": {key: thinned(series, each) for key, series in found.items()},
                "phases": phase_changes(run.log),
                "shares": shares_of(run, detail.pop("shares", None)),
                "settings": settings_tables(run),
                **detail,
            }
        )
    adapted = [i for i, run in enumerate(runs) if run.kind == "adapted"]
    return {
        "version": vmt.__version__,
        "verdict": judge_all(runs, judged),
        "charts": charts_for(every, classes.pop() if len(classes) == 1 else None),
        "tasks": tasks,
        "runs": shown,
        "first": adapted[-1] if adapted else 0,
    }


def loaded(data: DataSpec, load: Loader, options: Options, watch: Watcher) -> tuple[Task | None, str]:
    """The samples of a run; or None, and a sentence that says what the page lacks."""
    watch.start("reading data", 1)
    if data.task is not None and options.data is not None:
        data = replace(data, data=options.data)
    try:
        return load(data), ""
    except InputError as error:
        lost = "so there are no pictures, no map and no confusion matrix here; what follows is from the run's log."
        return None, f"The data of this run could not be read, {lost} ({error})"
