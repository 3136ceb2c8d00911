"""From run folders to everything that the page shows, as one dictionary that JSON can hold."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import vmt
from vmt.data.files.own import read_labelled
from vmt.data.files.stream import InputSpec
from vmt.data.task import Task
from vmt.errors import InputError, counted, few
from vmt.figures import phase_changes
from vmt.methods.settings import AUTO
from vmt.nets.backbone import same_backbone
from vmt.nets.factory import factory_name
from vmt.progress import Progress
from vmt.report.beside_runs import (
    about_adabn,
    answer_beside,
    choice_in,
    chosen_by,
    references,
    search_in,
    with_candidates,
)
from vmt.report.curves import charts_for, curves_of, thinned
from vmt.report.next_steps import next_steps
from vmt.report.predictions import accuracy_alone, trusted_net
from vmt.report.samples import Options, describe_samples
from vmt.report.settings import differences, settings_tables
from vmt.report.signs import signs_of
from vmt.report.standing import Standing, baseline_among, best_first, standing_of
from vmt.report.verdict import accuracy_of, gain_of, run_to_use, verdict_on, verdict_on_all
from vmt.runs.folder import data_fingerprint
from vmt.runs.record import RunRecord, bounds_outside, find_runs, read_run_record, short_names, status_of
from vmt.runs.spec import DataSpec, check_features, load_data
from vmt.validators.registry import DEFAULT

# Limits that keep a page of many runs small: bytes of thumbnails and points of curves over all runs, points per curve.
THUMBNAIL_BYTES, CURVE_POINTS, POINTS_PER_CURVE = 2_600_000, 120_000, 300
CHANGED = "The data have changed since the run was made: the page shows them as they are now."
NO_DATA = (
    "The data of this run could not be read, so there are no images, no map and no confusion matrix; the rest of the "
    "page is from the run's log."
)


def gather(
    folders: Sequence[Path], options: Options, progress: Progress, out: Path = Path("report.html")
) -> dict[str, Any]:
    """Read the runs, and predict their data with their models if both can be read. ``out`` is the page's own file."""
    choice, search = choice_in(folders), search_in(folders)
    found = [read_run_record(folder) for folder in find_runs(with_candidates(folders))]
    runs = bounds_outside([run for run in found if run.spec.recipe.method != AUTO])
    if not runs:
        raise InputError(f"{found[0].folder} has no candidate yet: report it when one of them has begun.")
    check_nets(runs, options.nets)
    check_features_of(runs, options.features)
    groups: dict[str, list[int]] = {}  # for each data set, the indices of its runs in ``runs``
    for i, run in enumerate(runs):
        data = run.spec.data
        groups.setdefault(json.dumps(asdict(data)) if data.in_files else run.data_key, []).append(i)
    tasks: list[dict[str, Any]] = []
    details: list[dict[str, Any]] = [{} for _ in runs]
    for members in groups.values():
        data = runs[members[0]].spec.data
        progress.start("reading data", 1)
        task, note = load_or_explain(data.moved(options.places), options, runs[members[0]])
        tasks.append({"name": name_of_data(data), "note": note, "classes": [], "samples": None})
        tasks[-1] |= {"sheet": None, "images": False, "labels": False}
        for i in members:
            details[i] |= {"task": len(tasks) - 1, "source_shares": None, "largest": None}
        if task is not None:
            fingerprint = data_fingerprint(task)
            task = with_test(task, options, data.label)
            budget = THUMBNAIL_BYTES // len(groups)
            about, described = describe_samples(task, [runs[i] for i in members], options, budget, progress)
            tasks[-1] |= about
            for i, detail in zip(members, described, strict=True):
                details[i] |= detail
            if any(runs[i].run_json.get("fingerprint") not in (None, fingerprint) for i in members):
                tasks[-1]["note"] = CHANGED
        for i in members:
            runs[i] = with_test_accuracy(
                runs[i], details[i].pop("right", None), tasks[-1].get("target_samples"), options
            )
    return page_data(runs, tasks, details, Asked(folders, options, out, choice, search))


@dataclass(frozen=True)
class Asked:
    """What the report was asked for, and the choice that was made among its runs, if any."""

    folders: Sequence[Path]
    options: Options
    out: Path
    choice: Mapping[str, Any] | None
    search: Mapping[str, Any] | None


def with_test(task: Task, options: Options, label: str | None) -> Task:
    """A task with the labelled samples of ``--test``, if they are given, as its target test set."""
    if options.test is None:
        return task
    reads = InputSpec(task.preprocess, task.source.features, options.label or label)
    samples, _ = read_labelled(options.test, task.classes, reads, task.backbone)
    return replace(task, target_test=replace(samples, x=task.preprocess.fit(samples.x)))


def with_test_accuracy(run: RunRecord, right: float | None, samples: int | None, options: Options) -> RunRecord:
    """A run with its accuracy on the samples of ``--test``, if they are given."""
    if options.test is None:
        return run
    if right is None:
        label = options.label or run.spec.data.label
        found = accuracy_alone(run, options.test, label, options.device, options.nets, options.features)
        if found is None:
            return run
        right, samples = found
    return replace(run, tested={"accuracy": right, "samples": samples, "name": options.test})


def name_of_data(data: DataSpec) -> str:
    """What the data of a run are, in a few words."""
    if data.from_model is not None and data.target is not None:
        return f"{data.name}: {Path(data.target).name}, without a source"
    if data.source is None or data.target is None:
        return data.name
    return f"{data.name}: {Path(data.source).name} → {Path(data.target).name}"


def check_nets(runs: Sequence[RunRecord], nets: Sequence[str]) -> None:
    """Refuse a network that none of the runs has, which is probably a mistake."""
    own = {name for run in runs if (name := factory_name(run.spec.recipe.net)) is not None}
    for net in nets:
        if factory_name(net) is None or factory_name(net) not in own:
            theirs = f"choose among {', '.join(sorted(own))}" if own else "leave --net out"
            raise InputError(f"none of these runs was trained with --net {net}: {theirs}.")


def check_features_of(runs: Sequence[RunRecord], features: Sequence[str]) -> None:
    """Refuse a network for features that none of the runs has."""
    known = {name for run in runs if (name := run.spec.data.features) is not None}
    for name in features:
        if not any(same_backbone(name, other) for other in known):
            theirs = f"choose among {', '.join(sorted(known))}" if known else "leave --features out"
            raise InputError(f"none of these runs was trained with --features {name}: {theirs}.")


def load_or_explain(data: DataSpec, options: Options, run: RunRecord) -> tuple[Task | None, str]:
    """The task of a run, or None and a note on what the page lacks."""
    memory, network = run.spec.recipe.config.memory, trusted_net(run, options.nets)
    try:
        check_features(data, options.features, run.folder)
        return load_data(data, memory=memory, network=network), ""
    except InputError as error:
        return None, f"{NO_DATA} ({error})"


def page_data(
    runs: Sequence[RunRecord], tasks: list[dict[str, Any]], details: Sequence[dict[str, Any]], asked: Asked
) -> dict[str, Any]:
    """The dictionary of the page."""
    curves = [curves_of(run.log) for run in runs]
    curve_names = list(dict.fromkeys(name for series_of_run in curves for name in series_of_run))
    points = max(30, min(POINTS_PER_CURVE, CURVE_POINTS // max(1, sum(len(series_of_run) for series_of_run in curves))))
    classes = {len(run.last["target"]["predicted_share"]) for run in runs if run.last}
    standings = []
    for run, name, detail in zip(runs, short_names(runs), details, strict=True):
        class_names = tasks[detail["task"]]["classes"]
        status = status_of(run, detail.pop("largest"), class_names)
        signs = signs_of(run, status, detail.pop("source_shares"), class_names)
        standings.append(standing_of(run, name, status, signs, detail.get("agreement"), detail.pop("fit", None)))
    chosen = chosen_by(asked.choice, standings) or run_to_use(standings)
    columns, values = differences(runs)
    shown = []
    for standing, series_of_run, detail, row in zip(standings, curves, details, values, strict=True):
        about = {
            "differs": row,
            "curves": {key: thinned(series, points) for key, series in series_of_run.items()},
            "shares": class_shares(standing.run, detail.pop("shares", None)),
            "settings": settings_tables(standing.run, tasks[detail["task"]].get("seen", {})),
        }
        shown.append({**entry_of(standing, standings), **about, **detail})
    answer = answer_beside(asked.choice, standings, asked.folders)
    use = answer.folder if answer is not None else chosen.run.folder if chosen is not None else None
    steps = next_steps(
        standings, chosen, asked.folders, asked.out, asked.options, None if answer is None else answer.folder
    )
    beside = references(standings, asked.choice)
    verdict = verdict_on_all(standings, chosen)
    if answer is not None:
        verdict = {
            **verdict,
            **answer.verdict(standings[0].run.target_samples),
            "sentences": [verdict["headline"], *verdict["sentences"]],
        }
    verdict["sentences"][1:1] = about_adabn(beside)
    return {
        "version": vmt.__version__,
        "date": datetime.now().astimezone().isoformat(timespec="minutes"),
        "about": about_runs(standings, tasks),
        "verdict": verdict,
        "warnings": [*doubts_of(asked.choice), *([each.name, text] for each in standings for text in each.warnings)],
        "choice": asked.choice,
        "search": asked.search,
        "next": [asdict(step) for step in steps],
        "score": DEFAULT,
        "columns": columns,
        "charts": charts_for(curve_names, classes.pop() if len(classes) == 1 else None),
        "tasks": tasks,
        "runs": shown,
        "references": beside,
        "chosen": None if chosen is None or answer is not None else standings.index(chosen),
        "answer": None if answer is None else answer.name,
        "use": None if use is None else str(use),
        "first": standings.index(chosen or best_first(standings)[0]),
    }


def doubts_of(choice: Mapping[str, Any] | None) -> list[list[str]]:
    """The warning of a choice itself, if it has one."""
    doubt = None if choice is None else choice.get("doubt")
    return [["the answer", doubt]] if isinstance(doubt, str) else []


def about_runs(standings: Sequence[Standing], tasks: Sequence[Mapping[str, Any]]) -> str:
    """What the page is about: the runs and their data."""
    names = [each.name for each in standings]
    on = list(dict.fromkeys(task["name"] for task in tasks))
    return f"{counted(len(names), 'run')}: {few(names, 4)} · {few(on, 2)}"


def entry_of(standing: Standing, standings: Sequence[Standing]) -> dict[str, Any]:
    """What the page says about a run, as far as it follows from where the runs stand."""
    run, base = standing.run, baseline_among(standing, standings)
    return {
        "name": standing.name,
        "folder": str(run.folder),
        "method": run.method,
        "kind": run.kind,
        "seed": run.spec.recipe.config.seed,
        "data": run.spec.data.name,
        "status": standing.status,
        "state": standing.state,
        "usable": standing.usable,
        "reason": standing.reason,
        "warnings": standing.warnings,
        "iterations": run.iterations,
        "seconds": (run.summary or {}).get("seconds"),
        "accuracy": accuracy_of(run),
        "gain": gain_of(run, [each.run for each in standings]),
        "score": score_of(standing, base),
        "alarm": None if standing.model is None else standing.model.alarm or "none",
        "source_accuracy": (run.last.get("source") or {}).get("accuracy"),
        "verdict": verdict_on(standing, standings),
        "signs": [asdict(sign) for sign in standing.signs],
        "phases": phase_changes(run.log),
        "base": None if base is None else standings.index(base),
    }


def score_of(standing: Standing, base: Standing | None) -> dict[str, Any] | None:
    """The score of the best model of a run, its iteration, and the difference to source only."""
    if standing.model is None or standing.score is None:
        return None
    more = None if base is None or base.score is None else standing.score - base.score
    is_last = standing.model.step == standing.run.last["step"]
    return {"value": standing.score, "more": more, "step": standing.model.step, "last": is_last}


def class_shares(run: RunRecord, counted: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """How often each class occurs: counted in the data or, without data, the predictions in the log."""
    if counted is not None:
        return {**counted, "logged": False}
    if not run.last:
        return None
    return {"source": None, "predicted": run.last["target"]["predicted_share"], "true": None, "logged": True}
