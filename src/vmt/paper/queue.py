"""The queue: run the jobs that are missing, one after the other in one process, until all are done or time is up."""

import gc
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, cast

from torch import OutOfMemoryError

from vmt.data.task import Task
from vmt.device import torch_device
from vmt.errors import InputError, counted, message_of_gpu_error, message_of_os_error
from vmt.paper.experiment import Job
from vmt.paper.results import is_done, write_result
from vmt.runs.folder import RUN, SUMMARY, InUse, RunSpec, folder_lock, read_run
from vmt.runs.run import Run, carry_out
from vmt.runs.spec import DataSpec
from vmt.train.checkpoint import checkpoints
from vmt.train.interrupt import handled, interruptible
from vmt.train.loop import CHECKPOINTS
from vmt.train.progress import Lines, Progress

Say = Callable[[str], None]
Load = Callable[[DataSpec], Task]


@dataclass(frozen=True)
class Workspace:
    """Where a queue finds its data and leaves what it makes, and with how many others it shares the machine."""

    data: str
    results: Path
    runs: Path
    at_once: int = 1


@dataclass(frozen=True)
class QueueOutcome:
    """What a queue has done, what it has left to do, and the problems about what could not be done."""

    done: int
    missing: int
    problems: list[str]


def missing(queue: Sequence[Job], workspace: Workspace) -> list[Job]:
    """The jobs that have no result yet."""
    return [job for job in queue if not is_done(workspace.results, job)]


def run_queue(
    queue: Sequence[Job],
    load: Load,
    workspace: Workspace,
    budget: float | None,
    changes: dict[str, Any],
    say: Say = print,
    new_progress: Callable[[str], Progress] = Progress,
) -> QueueOutcome:
    """Do the jobs that are missing; one that is interrupted is gone on with next time. ``budget`` is in seconds,
    ``changes`` are settings of the run's config. A run that cannot be done, or that another process is at, holds up no
    other."""
    deadline = None if budget is None else time.monotonic() + budget
    wanted = len(missing(queue, workspace))
    problems: dict[str, str] = {}
    busy: set[str] = set()
    tasks: dict[str, Task] = {}
    with interruptible() as interrupted:
        while True:
            left = missing(queue, workspace)
            passed_over = busy | problems.keys()
            job = next((each for each in left if not {each.run, each.experiment.task} & passed_over), None)
            if job is None:
                break
            if interrupted():
                say(f"Stopped; {still_missing(left)}")
                break
            seconds = None if deadline is None else deadline - time.monotonic()
            if seconds is not None and seconds <= 0:
                say(f"The time is up; {still_missing(left)}")
                break
            at_fault = job.run
            gc.collect()  # graphs and their memory are held in cycles, and by an error until it is dealt with
            try:
                spec = DataSpec(job.experiment.task, workspace.data)
                if spec.name not in tasks:
                    at_fault = job.experiment.task
                    tasks = {}  # the set before makes room first
                    tasks[spec.name] = load(spec)
                at_fault = job.run
                with folder_lock(workspace.runs / job.run):
                    if is_done(workspace.results, job):
                        continue  # since the look above
                    say(f"[{wanted - len(left) + 1}/{wanted}] {job}")
                    task = tasks[spec.name]
                    got_there = do_job(job, spec, task, workspace, seconds, changes, say, new_progress)
            except InUse:
                busy.add(job.run)
                continue
            except (InputError, OSError) as error:
                problems[at_fault] = message_of_os_error(error) if isinstance(error, OSError) else str(error)
                continue
            except OutOfMemoryError as error:
                problems[at_fault] = f"{job}: {message_of_gpu_error(error)}"
                continue
            busy.clear()  # who was at a run may have come to its end, or to grief
            if not got_there:
                say(f"Stopped; {still_missing(left)}")
                break
    left = missing(queue, workspace)
    return QueueOutcome(wanted - len(left), len(left), list(problems.values()))


def still_missing(left: Sequence[Job]) -> str:
    return f"{counted(len(left), 'job')} {'is' if len(left) == 1 else 'are'} missing. The same command goes on."


def do_job(
    job: Job,
    data: DataSpec,
    task: Task,
    workspace: Workspace,
    budget: float | None,
    changes: dict[str, Any],
    say: Say,
    new_progress: Callable[[str], Progress],
) -> bool:
    """Go on with a run to the end of a job, or begin it. Returns whether it got there."""
    folder = workspace.runs / job.run
    if (summary := finished_summary(folder)) is not None:
        if job.phase not in summary["phases"]:
            raise InputError(f"{folder} was finished without {job.phase}: remove it, and run its table again.")
        # The run is there, only its result was lost.
        write_result(workspace.results, job, summary, folder, task, workspace.at_once)
        return True
    resume = (folder / RUN).exists()
    if resume:
        # With the settings that it began with, whatever is asked for now; the device may be another.
        recipe = read_run(folder).recipe
        changes = {name: value for name, value in changes.items() if name == "device"}
    else:
        recipe = job.experiment.recipe(job.seed)
        if job.phase != job.experiment.phases[0]:
            say(f"There is no run in {folder}: beginning with {job.experiment.phases[0]}.")
    spec = RunSpec(data, replace(recipe, config=replace(recipe.config, **changes)))
    progress = new_progress(f"{job.run} {job.phase}")
    summary = carry_out(Run.of(spec, task), folder, resume, progress, budget, until=job.phase).summary
    progress.close()
    write_result(workspace.results, job, summary, folder, task, workspace.at_once, spec.recipe.config.device)
    say(sentence(job, summary, tidy(folder, summary["finished"])))
    return job.phase in summary["phases"]


def finished_summary(folder: Path) -> dict[str, Any] | None:
    """The summary of a run that has come to its end."""
    path = folder / SUMMARY
    try:
        summary: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {"finished": False}
        if summary["finished"]:
            summary["phases"].keys(), summary["clock"], summary["seconds"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} cannot be read: remove {folder}, and run its table again.") from error
    return summary if summary["finished"] else None


def sentence(job: Job, summary: dict[str, Any], size: int) -> str:
    """How a job went."""
    if job.phase not in summary["phases"]:
        return f"{job}: at iteration {summary['iterations']}; {size / 1e6:.1f} MB in its folder to go on with."
    accuracy = summary["phases"][job.phase]
    shown = "no labels to judge by" if accuracy is None else f"{accuracy:.2%}"
    end = "finished" if summary["finished"] else "to go on with"
    warning = " COLLAPSED." if job.phase in summary["collapsed_phases"] else ""
    return f"{job}: {shown} after {summary['seconds']:.0f} s;{warning} {size / 1e6:.1f} MB in its folder, {end}."


def tidy(folder: Path, finished: bool) -> int:
    """Keep what a run needs to go on, the newest checkpoint, and nothing once it is finished; returns the bytes left.

    Folders are carried between machines, and there are many.
    """
    for old in checkpoints(folder / CHECKPOINTS)[0 if finished else 1 :]:
        shutil.rmtree(old, ignore_errors=True)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# In a row, of each worker, without a job done in between: a run that always fails must not keep a queue busy.
MOST_FAILURES = 3


def run_queue_in_workers(
    queue: Sequence[Job], load: Load, workspace: Workspace, budget: float | None, changes: dict[str, Any], say: Say
) -> QueueOutcome:
    """``run_queue``, by ``workspace.at_once`` workers that share a queue: each takes the first run that nobody is at.
    One that comes to grief is replaced. What they are given has to be known to a new process by name."""
    wanted = left = len(missing(queue, workspace))
    deadline = None if budget is None else time.monotonic() + budget
    start = get_context("spawn")  # a CUDA device cannot be used after a fork
    workers: dict[Connection, SpawnProcess] = {}
    problems: dict[str, None] = {}

    def begin() -> None:
        ours, theirs = start.Pipe(duplex=False)
        seconds = None if deadline is None else deadline - time.monotonic()
        worker = start.Process(target=work, args=(theirs, queue, load, workspace, seconds, changes, say))
        worker.start()
        workers[ours] = worker
        theirs.close()
        if stopped:  # just then
            worker.terminate()

    with stoppable(workers) as stopped:
        while len(workers) < workspace.at_once and not stopped:
            begin()
        failures = 0
        while workers:
            connection = cast(Connection, wait(list(workers))[0])
            with suppress(EOFError, OSError):  # it ended without a word
                problems |= dict.fromkeys(connection.recv().problems)
            worker = workers.pop(connection)
            worker.join()
            if not worker.exitcode or stopped:
                continue
            before, left = left, len(missing(queue, workspace))
            failures = failures + 1 if left == before else 1
            if (
                left
                and failures <= MOST_FAILURES * workspace.at_once
                and (deadline is None or time.monotonic() < deadline)
            ):
                say(f"A worker {how_it_ended(worker.exitcode)}: another takes its place.")
                begin()
            else:
                problems[
                    f"a worker {how_it_ended(worker.exitcode)} (out of memory?): the same command goes on with its "
                    "run, --at-once 1 needs the least."
                ] = None
    left = len(missing(queue, workspace))
    return QueueOutcome(wanted - left, left, list(problems))


def work(
    connection: Connection,
    queue: Sequence[Job],
    load: Load,
    workspace: Workspace,
    budget: float | None,
    changes: dict[str, Any],
    say: Say,
) -> None:
    """What a worker does. It has a session of its own: Ctrl-C is for the parent, who passes it on politely."""
    if hasattr(os, "setsid"):
        os.setsid()
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        torch_device(changes["device"])  # it may be gone for a while where another worker's has failed
        filled = run_queue(queue, load, workspace, budget, changes, say, Lines if workspace.at_once > 1 else Progress)
    except (InputError, RuntimeError) as error:
        if (sentence := str(error) if isinstance(error, InputError) else message_of_gpu_error(error)) is None:
            raise
        say(f"vmt: {sentence}")
        sys.exit(1)  # only a new process can go on with what a device has failed at
    connection.send(filled)


def end_with_parent() -> None:
    """However it ends: a run stops as if it had been interrupted, with a checkpoint."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def stoppable(workers: Mapping[Connection, SpawnProcess]) -> Iterator[list[int]]:
    """Ctrl-C, a polite kill and a closed terminal stop the workers, who save first; after a second Ctrl-C they are not
    waited for. Yields the signals that came."""
    came: list[int] = []

    def stop(number: int, frame: object) -> None:
        for worker in list(workers.values()):
            if came and number == signal.SIGINT:
                worker.kill()
            else:
                worker.terminate()
        came.append(number)

    with handled(stop):
        yield came


def how_it_ended(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"


def side_by_side() -> bool:
    """Whether NVIDIA's MPS lets processes use a GPU at the same time; without it they take turns."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps").exists()
