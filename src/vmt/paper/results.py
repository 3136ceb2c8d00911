"""The results of runs: a small file for each, with what was run, on what machine, and how it went."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vmt.data.task import Task
from vmt.disk import explain_write_errors, write_atomically
from vmt.errors import parsing
from vmt.json_types import check_complete
from vmt.methods.nouns import Phase
from vmt.paper.experiment import Experiment, Job
from vmt.runs.folder import RUN, environment, read_run
from vmt.train.log import LOG, read_log

RESULT_TYPES: dict[str, Any] = {
    "accuracy": dict[str, Any],
    "finished": bool,
    "seconds": float,
    "collapsed": str | None,
}
CURVE = ("iteration", "target accuracy", "source accuracy", "seconds")


def result_path(results: Path, run: str) -> Path:
    return results / f"{run}.json"


def is_done(results: Path, job: Job) -> bool:
    """Whether the phase of a job has ended; the result file of an unfinished run lists the phases that have ended."""
    path = result_path(results, job.run)
    return path.exists() and job.phase in read_result(path)["accuracy"]


def results_of(results: Path, experiment: Experiment) -> list[dict[str, Any]]:
    """The results of an experiment in the order of their seeds."""
    prefix = f"{experiment.name}_"
    seeds = [path.stem.removeprefix(prefix) for path in results.glob("*.json") if path.stem.startswith(prefix)]
    return [read_result(result_path(results, prefix + seed)) for seed in sorted(filter(str.isdecimal, seeds), key=int)]


def read_result(path: Path) -> dict[str, Any]:
    with parsing(path, "a result file", "remove it, and run its table again"):
        result: dict[str, Any] = json.loads(path.read_bytes())
        check_complete(result, RESULT_TYPES)
        return result


def runs_at_once(result: Mapping[str, Any]) -> int:
    """The largest number of runs, this one included, that ran at the same time; the time of a run depends on it."""
    return int(result.get("at_once", 1))


def had_collapsed(result: Mapping[str, Any], phase: str) -> bool:
    """Whether a run had collapsed at the end of a phase."""
    if "collapsed_phases" in result:
        return phase in result["collapsed_phases"]
    return result["collapsed"] is not None


def write_result(
    results: Path,
    job: Job,
    summary: dict[str, Any],
    folder: Path,
    task: Task,
    at_once: int = 1,
    device: str = "auto",
) -> None:
    """Write the result file of a run after a job; it replaces an earlier one.

    ``device`` is the device that the job ran on, and ``at_once`` the number of runs on it at the same time.
    """
    path = result_path(results, job.run)
    started = json.loads((folder / RUN).read_text())
    phases = read_run(folder).recipe.build().phases
    now = environment(device)
    seconds = dict(summary["clock"])
    log = read_log(folder / LOG) if (folder / LOG).exists() else []
    evaluations = [record for record in log if "target" in record]
    result = {
        "experiment": job.experiment.name,
        "task": job.experiment.task,
        "domains": [domain.name for domain in (task.source, task.target, task.target_test) if domain is not None],
        "seed": job.seed,
        "command": replace(job, phase=job.experiment.phases[-1]).command,
        "recipe": started["recipe"],
        "finished": summary["finished"],
        "iterations": summary["iterations"],
        "accuracy": summary["phases"],
        "choose_on": summary.get("choose_on"),
        "choice_accuracy": summary.get("choice_phases", {}),
        "collapsed": summary["collapsed"],
        "collapsed_phases": summary["collapsed_phases"],
        "seconds": summary["seconds"],
        "phase_iterations": {phase.name: phase.iterations for phase in phases},
        "phase_seconds": phase_seconds(phases, seconds),
        "at_once": max(at_once, runs_at_once(read_result(path)) if path.exists() else 1),
        "environment": started["environment"] | ({} if now == started["environment"] else {"ended_on": now}),
        "fingerprint": started["fingerprint"],
        "curve_columns": [*CURVE, *(["choice accuracy"] if summary.get("choose_on") else [])],
        "curve": [
            [
                record["step"],
                record["target"]["accuracy"],
                record["source"] and record["source"]["accuracy"],
                seconds.get(record["step"]),
                *([record["choice"]["accuracy"]] if "choice" in record else []),
            ]
            for record in evaluations
        ],
        "validators": scores_by_validator(evaluations),
    }
    with explain_write_errors(results):
        results.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(result).encode())


def scores_by_validator(evaluations: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """The scores of each validator, one for each evaluation."""
    names = dict.fromkeys(name for record in evaluations for name in record.get("validators", {}))
    return {name: [record.get("validators", {}).get(name) for record in evaluations] for name in names}


def phase_seconds(phases: Sequence[Phase], seconds: dict[int, float]) -> dict[str, float]:
    """The seconds of each ended phase, including compiling; ``seconds`` maps an iteration to the time until then."""
    spent, step, before = {}, 0, 0.0
    for phase in phases:
        step += phase.iterations
        if step in seconds:
            spent[phase.name] = round(seconds[step] - before, 1)
            before = seconds[step]
    return spent
