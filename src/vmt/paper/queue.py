"""The paper's runs as a queue: which jobs are done, and how a job is done."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vmt.data.task import Task
from vmt.errors import InputError, parsing
from vmt.json_types import check_complete
from vmt.many.queue import Queue, explanation, remove_old_checkpoints
from vmt.many.storage import OpenRun, Storage
from vmt.paper.experiment import Job
from vmt.paper.results import is_done, write_result
from vmt.progress import Notify, Progress
from vmt.runs.folder import RUN, SUMMARY, RunSpec, read_run
from vmt.runs.run import Run, carry_out
from vmt.runs.spec import DataSpec, load_data

FINISHED_TYPES = {"phases": dict[str, Any], "clock": list[Any], "seconds": float}
"""What a result file needs of the summary of a finished run."""


@dataclass(frozen=True)
class Workspace:
    """Where the paper's runs find their data and write runs and results, and how many run at once."""

    data: str
    results: Path
    runs: Path
    at_once: int = 1


class PaperQueue(Queue[Job]):
    """The jobs of the paper's tables. ``overrides`` replaces fields of the runs' configs."""

    def __init__(self, jobs: Sequence[Job], workspace: Workspace, overrides: Mapping[str, Any]) -> None:
        super().__init__(jobs, Storage(workspace.runs), overrides.get("device", "auto"), workspace.at_once)
        self.workspace, self.overrides = workspace, overrides
        self.loaded = DataSpec()
        self.task: Task | None = None
        self.unreadable: dict[str, str] = {}
        """Why the samples of a task cannot be read."""

    def is_done(self, job: Job) -> bool:
        return is_done(self.workspace.results, job)

    def data_of(self, job: Job) -> DataSpec:
        """The samples of a job's run."""
        return DataSpec(job.experiment.task, self.workspace.data, choose_on=job.experiment.choose_on)

    def prepare(self, job: Job) -> None:
        if self.task is not None and self.loaded == self.data_of(job):
            return
        if reason := self.unreadable.get(job.experiment.task):
            raise InputError(reason)
        self.task = None  # the memory of one data set is freed before the next is loaded
        self.loaded = self.data_of(job)
        try:
            self.task = load_data(self.loaded)
        except (InputError, OSError) as error:
            self.unreadable[job.experiment.task] = explanation(error)
            raise

    def do(
        self, job: Job, run: OpenRun, budget: float | None, notify: Notify, new_progress: Callable[[str], Progress]
    ) -> bool:
        """Start or resume the run of a job, up to the end of its phase."""
        folder, workspace, task = run.folder, self.workspace, self.task
        assert task is not None
        if (summary := summary_of_finished_run(folder)) is not None:
            if job.phase not in summary["phases"]:
                raise InputError(
                    f"the run in {folder} was finished without {job.phase}: remove it, and run its table again."
                )
            # The run is complete, and only its result file is missing.
            write_result(workspace.results, job, summary, folder, task, self.at_once)
            return True
        overrides = {**self.overrides, "device": self.device}
        resume = (folder / RUN).exists()
        if resume:
            # The run keeps the settings that it was started with. Only the device may change.
            recipe = read_run(folder).recipe
            overrides = {"device": self.device}
        else:
            recipe = job.experiment.recipe(job.seed)
            if job.phase != job.experiment.phases[0]:
                notify(f"There is no run in {folder}: starting with {job.experiment.phases[0]}.")
        recipe = replace(recipe, config=replace(recipe.config, **overrides))
        spec = RunSpec(self.data_of(job), recipe)
        progress = new_progress(f"{job.run} {job.phase}")
        done = carry_out(Run.of(spec, task), folder, resume, progress, budget, until=job.phase, callbacks=run.callbacks)
        summary = done.summary
        progress.close()
        write_result(workspace.results, job, summary, folder, task, self.at_once, recipe.config.device)
        size = remove_old_checkpoints(folder, summary["finished"])
        notify(how_it_went(job, summary, size))
        return job.phase in summary["phases"]


def summary_of_finished_run(folder: Path) -> dict[str, Any] | None:
    """The summary of the run in a folder; None if the run has not finished."""
    path = folder / SUMMARY
    with parsing(path, "the summary of a run", f"remove {folder}, and run its table again"):
        summary: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {"finished": False}
        if not summary["finished"]:
            return None
        check_complete(summary, FINISHED_TYPES)
        return summary


def how_it_went(job: Job, summary: dict[str, Any], size: int) -> str:
    folder = f"{size / 1e6:.1f} MB in its folder"
    if job.phase not in summary["phases"]:
        return f"{job}: stopped at iteration {summary['iterations']}; {folder}."
    accuracy = summary["phases"][job.phase]
    reached = "no labels to measure the accuracy on" if accuracy is None else f"{accuracy:.2%}"
    state = "finished" if summary["finished"] else "not finished"
    warning = " COLLAPSED." if job.phase in summary["collapsed_phases"] else ""
    return f"{job}: {reached} after {summary['seconds']:.0f} s;{warning} {folder}, {state}."
