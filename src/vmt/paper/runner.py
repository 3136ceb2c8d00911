"""Fill a table: run what is missing, the most valuable first, until it is full or the time is up."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from vmt.data import Task
from vmt.environment import environment
from vmt.errors import InputError
from vmt.paper.tables import Experiment, Table
from vmt.run import RUN, DataSpec, RunSpec, execute
from vmt.train.checkpoint import write_atomically
from vmt.train.log import LOG, read_log
from vmt.train.progress import Progress


def fill(
    table: Table,
    load: Callable[[DataSpec], Task],
    data: str,
    results: Path,
    runs: Path,
    budget: float | None,
    changes: dict[str, Any],
    say: Callable[[str], None] = print,
) -> int:
    """Run the table's missing runs; each leaves a small file in ``results``, and one that was interrupted is gone on
    with next time. ``budget`` is in seconds. Returns how many runs are still missing."""
    started = time.monotonic()
    missing = [(e, seed) for e, seed in table.runs() if not is_finished(result_path(results, e, seed))]
    tasks: dict[str, Task] = {}
    for done, (experiment, seed) in enumerate(missing):
        left = None if budget is None else budget - (time.monotonic() - started)
        if left is not None and left <= 0:
            say(f"The time is up; {len(missing) - done} runs are missing. The same command goes on.")
            return len(missing) - done
        say(f"[{done + 1}/{len(missing)}] {experiment.name}, seed {seed}")
        recipe = experiment.recipe(seed)
        recipe = replace(recipe, config=replace(recipe.config, **changes))
        spec = RunSpec(DataSpec(experiment.task, data), recipe)
        if experiment.task not in tasks:
            tasks = {experiment.task: load(spec.data)}
        folder = runs / f"{experiment.name}_{seed}"
        resume = (folder / RUN).exists()
        summary = execute(spec, tasks[experiment.task], folder, resume, Progress(label=experiment.name), left)
        write_result(results, experiment, seed, summary, folder)
        if not summary["finished"]:
            say(f"The time is up; {len(missing) - done} runs are missing. The same command goes on.")
            return len(missing) - done
    return 0


def is_finished(path: Path) -> bool:
    """Whether a run has come to its end. The phases that an unfinished one did end are in its file all the same."""
    return path.exists() and bool(read_result(path)["finished"])


def result_path(results: Path, experiment: Experiment, seed: int) -> Path:
    return results / f"{experiment.name}_{seed}.json"


def write_result(results: Path, experiment: Experiment, seed: int, summary: dict[str, Any], folder: Path) -> None:
    """One small file: what was run, on what, how it went and where it ended."""
    started = json.loads((folder / RUN).read_text())
    curve = [
        [record["step"], record["target"]["accuracy"], record["source"] and record["source"]["accuracy"]]
        for record in read_log(folder / LOG)
        if "target" in record
    ]
    record = {
        "experiment": experiment.name,
        "task": experiment.task,
        "seed": seed,
        "recipe": started["recipe"],
        "finished": summary["finished"],
        "accuracy": summary["phases"],
        "collapsed": summary["collapsed"],
        "seconds": summary["seconds"],
        "environment": {**started["environment"], "finished_with": environment()},
        "curve": curve,
    }
    results.mkdir(parents=True, exist_ok=True)
    write_atomically(result_path(results, experiment, seed), json.dumps(record).encode())


def read_result(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text())
        record["accuracy"].get, record["finished"], record["seconds"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a result file: remove it, and run its table again.") from error
    return record
