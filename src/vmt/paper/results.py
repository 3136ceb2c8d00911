"""One small file per run: what was run, on what, how it went and where it ended."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vmt.data.task import Task
from vmt.disk import explain_write_errors, write_atomically
from vmt.errors import InputError
from vmt.methods.nouns import Phase
from vmt.paper.experiment import Experiment, Job
from vmt.runs.environment import environment
from vmt.runs.folder import RUN, read_run
from vmt.train.log import LOG, read_log


def result_path(results: Path, run: str) -> Path:
    return results / f"{run}.json"


def is_done(results: Path, job: Job) -> bool:
    """Whether a job has come to its end. The phases that an unfinished run did end are in its file all the same."""
    path = result_path(results, job.run)
    return path.exists() and job.phase in read_result(path)["accuracy"]


def results_of(results: Path, experiment: Experiment) -> list[dict[str, Any]]:
    """The results of an experiment, by seed."""
    begin = f"{experiment.name}_"
    seeds = [path.stem.removeprefix(begin) for path in results.glob("*.json") if path.stem.startswith(begin)]
    return [read_result(result_path(results, begin + seed)) for seed in sorted(filter(str.isdecimal, seeds), key=int)]


def write_result(
    results: Path,
    job: Job,
    summary: dict[str, Any],
    folder: Path,
    task: Task,
    runs_at_once: int = 1,
    device: str = "auto",
) -> None:
    """What is known of a run after a job, which was done on a device, together with others if there were more runs at
    once; its file is replaced."""
    path = result_path(results, job.run)
    started = json.loads((folder / RUN).read_text())
    phases = read_run(folder).recipe.build().phases
    now = environment(device)
    seconds = dict(summary["clock"])
    log = read_log(folder / LOG) if (folder / LOG).exists() else []
    looks = [record for record in log if "target" in record]
    curve = [
        [
            look["step"],
            look["target"]["accuracy"],
            look["source"] and look["source"]["accuracy"],
            seconds.get(look["step"]),
        ]
        for look in looks
    ]
    record = {
        "experiment": job.experiment.name,
        "task": job.experiment.task,
        "domains": [domain.name for domain in (task.source, task.target, task.target_test) if domain is not None],
        "seed": job.seed,
        "command": f"vmt paper run all --only {shlex.quote(job.experiment.name)} --seeds {job.seed} --data DATA",
        "recipe": started["recipe"],
        "finished": summary["finished"],
        "iterations": summary["iterations"],
        "accuracy": summary["phases"],
        "collapsed": summary["collapsed"],
        "collapsed_phases": summary["collapsed_phases"],
        "seconds": summary["seconds"],
        "phase_iterations": {phase.name: phase.iterations for phase in phases},
        "phase_seconds": phase_seconds(phases, seconds),
        "at_once": max(runs_at_once, at_once(read_result(path)) if path.exists() else 1),
        "environment": started["environment"] | ({} if now == started["environment"] else {"ended_on": now}),
        "fingerprint": started["fingerprint"],
        "curve_columns": ["iteration", "target accuracy", "source accuracy", "seconds"],
        "curve": curve,
        "validators": by_validator(looks),
    }
    with explain_write_errors(results):
        results.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(record).encode())


def by_validator(looks: list[dict[str, Any]]) -> dict[str, list[float | None]]:
    """The scores of each validator, one per point of the curve."""
    names = dict.fromkeys(name for look in looks for name in look.get("validators", {}))
    return {name: [look.get("validators", {}).get(name) for look in looks] for name in names}


def phase_seconds(phases: Sequence[Phase], seconds: dict[int, float]) -> dict[str, float]:
    """How long each phase took that has ended, compiling included; ``seconds`` are those until an iteration."""
    spent, step, before = {}, 0, 0.0
    for phase in phases:
        step += phase.iterations
        if step in seconds:
            spent[phase.name] = round(seconds[step] - before, 1)
            before = seconds[step]
    return spent


def read_result(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text())
        record["accuracy"].get, record["finished"], record["seconds"], record["collapsed"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a result file: remove it, and run its table again.") from error
    return record


def at_once(record: Mapping[str, Any]) -> int:
    """How many runs shared the machine at some time of a run: what its seconds are worth."""
    return int(record.get("at_once", 1))


def collapsed(record: dict[str, Any], phase: str) -> bool:
    """Whether a run had collapsed when a phase ended."""
    if "collapsed_phases" in record:
        return phase in record["collapsed_phases"]
    return record["collapsed"] is not None
