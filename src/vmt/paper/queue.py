"""Run the jobs that have no result yet, one after another, until all are done or the time is up."""

import gc
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import OutOfMemoryError

from vmt.data.task import Task
from vmt.errors import InputError, counted, message_of_gpu_error, message_of_os_error, parsing
from vmt.paper.experiment import Job
from vmt.paper.results import is_done, write_result
from vmt.progress import Progress
from vmt.runs.folder import RUN, SUMMARY, InUse, RunSpec, folder_lock, read_run
from vmt.runs.run import Run, carry_out
from vmt.runs.spec import DataSpec, load_data
from vmt.train.checkpoint import CHECKPOINTS, checkpoints
from vmt.train.loop import interruptible

Notify = Callable[[str], None]
"""Prints a line for the user."""


@dataclass(frozen=True)
class Workspace:
    """Where a queue reads its data and writes runs and results, and how many jobs it runs at once."""

    data: str
    results: Path
    runs: Path
    at_once: int = 1


@dataclass(frozen=True)
class QueueOutcome:
    """How many jobs a queue has done, how many are still missing, and the reasons why some could not be done."""

    done: int
    missing: int
    problems: list[str]


def missing_jobs(queue: Sequence[Job], workspace: Workspace) -> list[Job]:
    """The jobs that have no result yet."""
    return [job for job in queue if not is_done(workspace.results, job)]


def run_queue(
    queue: Sequence[Job],
    workspace: Workspace,
    budget: float | None,
    overrides: Mapping[str, Any],
    notify: Notify = print,
    new_progress: Callable[[str], Progress] = Progress,
) -> QueueOutcome:
    """Run the jobs that have no result yet in this process.

    ``budget`` is in seconds, and ``overrides`` replaces fields of the runs' configs. An interrupted job is resumed by
    the next call. A job that fails, or whose run another process works on, does not hold up the others.
    """
    deadline = None if budget is None else time.monotonic() + budget
    wanted = len(missing_jobs(queue, workspace))
    problems: dict[str, str] = {}  # by the name of a run or, if its data cannot be read, of a task
    busy: set[str] = set()  # runs that other processes work on
    task: Task | None = None
    loaded = DataSpec()
    with interruptible() as interrupted:
        while True:
            left = missing_jobs(queue, workspace)
            skipped = busy | problems.keys()
            job = next((job for job in left if not {job.run, job.experiment.task} & skipped), None)
            if job is None:
                break
            seconds = None if deadline is None else deadline - time.monotonic()
            if interrupted() or (seconds is not None and seconds <= 0):
                notify(f"{'Stopped' if interrupted() else 'The time is up'}; {still_missing(left)}")
                break
            gc.collect()  # CUDA graphs and their memory are held in reference cycles, and by the last error
            if task is None or loaded != data_of(job, workspace):
                task = None  # the memory of one data set is freed before the next is loaded
                loaded = data_of(job, workspace)
                try:
                    task = load_data(loaded)
                except (InputError, OSError) as error:
                    problems[job.experiment.task] = explanation(error)
                    continue
            try:
                with folder_lock(workspace.runs / job.run):
                    if is_done(workspace.results, job):
                        continue  # another process has finished it in the meantime
                    notify(f"[{wanted - len(left) + 1}/{wanted}] {job}")
                    ended = do_job(job, task, workspace, seconds, overrides, notify, new_progress)
            except InUse:
                busy.add(job.run)
                continue
            except (InputError, OSError) as error:
                problems[job.run] = explanation(error)
                continue
            except OutOfMemoryError as error:
                problems[job.run] = f"{job}: {message_of_gpu_error(error)}"
                continue
            busy.clear()  # the other processes may have finished, or died
            if not ended:
                notify(f"Stopped; {still_missing(left)}")
                break
    left = missing_jobs(queue, workspace)
    return QueueOutcome(wanted - len(left), len(left), list(problems.values()))


def data_of(job: Job, workspace: Workspace) -> DataSpec:
    """The samples of a job's run."""
    return DataSpec(job.experiment.task, workspace.data, choose_on=job.experiment.choose_on)


def still_missing(left: Sequence[Job]) -> str:
    return f"{counted(len(left), 'job')} {'is' if len(left) == 1 else 'are'} missing. Run the same command to continue."


def explanation(error: InputError | OSError) -> str:
    return message_of_os_error(error) if isinstance(error, OSError) else str(error)


def do_job(
    job: Job,
    task: Task,
    workspace: Workspace,
    budget: float | None,
    overrides: Mapping[str, Any],
    notify: Notify,
    new_progress: Callable[[str], Progress],
) -> bool:
    """Start or resume the run of a job, up to the end of its phase. Returns whether the phase has ended."""
    folder = workspace.runs / job.run
    if (summary := summary_of_finished_run(folder)) is not None:
        if job.phase not in summary["phases"]:
            raise InputError(
                f"the run in {folder} was finished without {job.phase}: remove it, and run its table again."
            )
        # The run is complete, and only its result file is missing.
        write_result(workspace.results, job, summary, folder, task, workspace.at_once)
        return True
    resume = (folder / RUN).exists()
    if resume:
        # The run keeps the settings that it was started with. Only the device may change.
        recipe = read_run(folder).recipe
        overrides = {name: value for name, value in overrides.items() if name == "device"}
    else:
        recipe = job.experiment.recipe(job.seed)
        if job.phase != job.experiment.phases[0]:
            notify(f"There is no run in {folder}: starting with {job.experiment.phases[0]}.")
    recipe = replace(recipe, config=replace(recipe.config, **overrides))
    spec = RunSpec(data_of(job, workspace), recipe)
    progress = new_progress(f"{job.run} {job.phase}")
    summary = carry_out(Run.of(spec, task), folder, resume, progress, budget, until=job.phase).summary
    progress.close()
    write_result(workspace.results, job, summary, folder, task, workspace.at_once, recipe.config.device)
    size = remove_old_checkpoints(folder, summary["finished"])
    notify(how_it_went(job, summary, size))
    return job.phase in summary["phases"]


def summary_of_finished_run(folder: Path) -> dict[str, Any] | None:
    """The summary of the run in a folder; None if the run has not finished."""
    path = folder / SUMMARY
    with parsing(path, "the summary of a run", f"remove {folder}, and run its table again"):
        summary: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {"finished": False}
        if summary["finished"]:
            summary["phases"].keys(), summary["clock"], summary["seconds"]
        return summary if summary["finished"] else None


def how_it_went(job: Job, summary: dict[str, Any], size: int) -> str:
    folder = f"{size / 1e6:.1f} MB in its folder"
    if job.phase not in summary["phases"]:
        return f"{job}: stopped at iteration {summary['iterations']}; {folder}."
    accuracy = summary["phases"][job.phase]
    reached = "no labels to measure the accuracy on" if accuracy is None else f"{accuracy:.2%}"
    state = "finished" if summary["finished"] else "not finished"
    warning = " COLLAPSED." if job.phase in summary["collapsed_phases"] else ""
    return f"{job}: {reached} after {summary['seconds']:.0f} s;{warning} {folder}, {state}."


def remove_old_checkpoints(folder: Path, finished: bool) -> int:
    """Keep the newest checkpoint, or none of a finished run, and return the size of the folder in bytes.

    Many of these folders are copied between machines.
    """
    for old in checkpoints(folder / CHECKPOINTS)[0 if finished else 1 :]:
        shutil.rmtree(old, ignore_errors=True)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
