"""A queue of runs, and doing its jobs in this process until all are done or the time is up."""

import copy
import gc
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

from torch import OutOfMemoryError

from vmt.errors import InputError, counted, message_of_gpu_error, message_of_os_error
from vmt.many.storage import OpenRun, Storage
from vmt.progress import Notify, Progress
from vmt.runs.folder import InUse
from vmt.train.checkpoint import CHECKPOINTS, checkpoints
from vmt.train.loop import interruptible


class Job(Protocol):
    """A part of a run, or all of it. Its text is what is printed when it begins."""

    @property
    def run(self) -> str:
        """The name of the run's folder."""


J = TypeVar("J", bound=Job)


class Queue(ABC, Generic[J]):
    """Jobs, where their runs are kept, and how a job is done.

    A queue is copied to the processes that share it. What they share is the storage: a job that one of them has done is
    done for all, and a run that another process works on is locked.
    """

    def __init__(self, jobs: Sequence[J], storage: Storage, device: str = "auto", at_once: int = 1) -> None:
        self.jobs, self.storage, self.device, self.at_once = jobs, storage, device, at_once
        self.is_part = False
        """Whether other processes do the other jobs."""
        self.shows = True
        """Whether the progress of the runs is shown."""

    @abstractmethod
    def is_done(self, job: J) -> bool:
        """Whether any process has done the job."""

    @abstractmethod
    def do(
        self, job: J, run: OpenRun, budget: float | None, notify: Notify, new_progress: Callable[[str], Progress]
    ) -> bool:
        """Start or resume the run of a job, for at most ``budget`` seconds. Returns whether the job has been done."""

    def prepare(self, job: J) -> None:
        """Read what the job needs, before there is a folder for its run."""

    def devices(self) -> set[str]:
        """The devices that the jobs ask for."""
        return {self.device}

    def left(self) -> list[J]:
        """The jobs that are not done."""
        return [job for job in self.jobs if not self.is_done(job)]

    def only(self, run: str) -> Self:
        """The jobs of one run."""
        part = copy.copy(self)
        part.jobs, part.is_part = [job for job in self.jobs if job.run == run], True
        return part

    def on_device(self, device: str) -> Self:
        """The same jobs; those that name no device use this one."""
        other = copy.copy(self)
        other.device = device
        return other


@dataclass(frozen=True)
class QueueOutcome:
    """How many jobs have been done, how many are still missing, and why some could not be done."""

    done: int
    missing: int
    problems: Mapping[str, str]
    """A sentence for each run that failed, under its name; that of a lost worker has another name."""


def run_queue(
    queue: Queue[J],
    budget: float | None,
    notify: Notify,
    new_progress: Callable[[str], Progress] = Progress,
) -> QueueOutcome:
    """Do the jobs that are not done in this process, one after another.

    ``budget`` is in seconds. An interrupted job is resumed by the next call. A job that fails, or whose run another
    process works on, does not hold up the others. Whether another process has done a job is asked when its turn comes:
    with a storage under a URL, every such question is a request.
    """
    deadline = None if budget is None else time.monotonic() + budget
    pending = queue.left()
    wanted = len(pending)
    problems: dict[str, str] = {}
    busy: set[str] = set()  # runs that other processes work on
    has_run = False
    with interruptible() as interrupted:
        while True:
            job = next((job for job in pending if job.run not in busy | problems.keys()), None)
            if job is None:
                break
            seconds = None if deadline is None else deadline - time.monotonic()
            if interrupted() or (seconds is not None and seconds <= 0):
                if left := queue.left():
                    notify(f"{'Stopped' if interrupted() else 'The time is up'}; {still_missing(left)}")
                break
            if has_run:
                gc.collect()  # CUDA graphs and their memory are held in reference cycles, and by the last error
                has_run = False
            try:
                if queue.is_done(job):  # another process has finished it in the meantime
                    pending = [each for each in pending if each is not job]
                    continue
                queue.prepare(job)
                with queue.storage.opened(job.run, notify) as run:
                    if queue.is_done(job):  # the same, while this process waited or read samples
                        continue
                    notify(str(job) if queue.is_part else f"[{wanted - len(pending) + 1}/{wanted}] {job}")
                    has_run = True
                    ended = queue.do(job, run, seconds, notify, new_progress)
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
                notify(f"Stopped; {still_missing(queue.left())}")
                break
            pending = [each for each in pending if each is not job]
    left = queue.left()
    return QueueOutcome(wanted - len(left), len(left), problems)


def still_missing(left: Sequence[Job]) -> str:
    return f"{counted(len(left), 'job')} {'is' if len(left) == 1 else 'are'} missing. Run the same command to continue."


def explanation(error: InputError | OSError) -> str:
    return message_of_os_error(error) if isinstance(error, OSError) else str(error)


def remove_old_checkpoints(folder: Path, finished: bool) -> int:
    """Keep the newest checkpoint, or none of a finished run, and return the size of the folder in bytes.

    Many of these folders are copied between machines.
    """
    for old in checkpoints(folder / CHECKPOINTS)[0 if finished else 1 :]:
        shutil.rmtree(old, ignore_errors=True)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
