"""``vmt.map_runs``: many calls of :func:`vmt.adapt`, on this machine or on a Ray cluster.

A run is the keyword arguments of ``vmt.adapt``: what a user has written once for one run becomes the item of a list.
A recorded :class:`vmt.runs.folder.RunSpec` could not hold samples in memory, nor a network that is a function.
"""

import copy
import json
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from vmt.api import adapt
from vmt.disk import write_atomically
from vmt.errors import InputError, message_of_gpu_error, parsing
from vmt.many.executors import run_in_workers, run_on_ray
from vmt.many.queue import Queue, remove_old_checkpoints, run_queue
from vmt.many.storage import OpenRun, Storage
from vmt.methods.settings import AUTO, DEFAULT_METHOD
from vmt.model import Model, load
from vmt.progress import Notify, Progress, silent, to_stderr
from vmt.ranks.launch import check_alone
from vmt.runs.folder import MODEL, RUN, SUMMARY
from vmt.runs.ray_tasks import own_fault, where_to_run
from vmt.train.loop import interruptible

ASKED = "asked.json"
"""The file in a run's folder that says which arguments it was started with, as a digest."""
SET_BY_MAP = ("resume", "progress")


@dataclass(frozen=True)
class MappedRun:
    """How a run of :func:`vmt.map_runs` went."""

    name: str
    place: str
    """Its folder, or its URL."""
    summary: dict[str, Any] | None
    """What summary.json has; None if the run has not ended."""
    problem: str | None
    """Why the run failed, or why it seems to have collapsed; None if nothing is wrong."""
    storage: Storage = field(repr=False)

    def model(self, **how: Any) -> Model:
        """The model of the run; ``how`` are further arguments of :func:`vmt.load`."""
        if self.summary is None:
            raise InputError(f"the run {self.name} has no model: {self.problem or 'it has not ended'}")
        if self.storage.folder is not None:
            return load(self.storage.folder / self.name, **how)
        content = self.storage.read(f"{self.name}/{MODEL}")
        if content is None:
            raise InputError(f"{self.place} has no model: run it again.")
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / MODEL).write_bytes(content)
            return load(Path(place) / MODEL, **how)


def map_runs(
    runs: Iterable[Mapping[str, Any]],
    *,
    out: str | Path,
    on: str = "local",
    at_once: int | None = None,
    gpus_per_run: float | None = None,
    progress: bool = True,
) -> list[MappedRun]:
    """Carry out many runs, and return how they went in the order of the list.

    Parameters
    ----------
    runs
        For each run, the keyword arguments of :func:`vmt.adapt`. ``out`` in them is the name of its folder, by default
        its number. ``resume`` and ``progress`` are set here, and the method is ``"vmt"`` unless it is named.
    out
        The folder of all runs, or a URL that fsspec opens, such as ``s3://bucket/runs``. The same call does not repeat
        a finished run, and resumes an interrupted one. With a URL, a run works in a local copy, which is sent there
        after each checkpoint. For several machines, give a URL or a folder that all of them reach.
    on
        ``"local"`` runs on this machine. ``"ray"`` starts Ray on this machine, or joins the cluster that RAY_ADDRESS in
        the environment names. ``"ray:HOST:PORT"``, ``"ray:auto"`` and ``"ray:ray://HOST:PORT"`` join a cluster.
    at_once
        How many runs at a time: by default one on this machine, and as many as there is room for on Ray. Locally, each
        of several is a process of its own, so the script must not start runs when it is imported
        (``if __name__ == "__main__":``), and functions must be defined in modules.
    gpus_per_run
        On Ray, the share of a GPU that each run takes, for example 0.33 for three runs on each, under NVIDIA's MPS. By
        default it is 1 if the cluster has GPUs, and otherwise 0.
    progress
        Whether to show the progress of the runs.

    Examples
    --------
    >>> import numpy as np, tempfile, vmt
    >>> random = np.random.default_rng(0)
    >>> ys = np.arange(60) % 3
    >>> xs = random.normal(size=(60, 5)) + 2 * ys[:, None]
    >>> data = dict(source=(xs, ys), target=xs + 0.5, iterations=2)
    >>> with tempfile.TemporaryDirectory() as out:
    ...     runs = vmt.map_runs([dict(data, seed=seed) for seed in range(2)], out=out, progress=False)
    >>> [(run.name, run.summary["seed"], run.problem) for run in runs]
    [('0000', 0, None), ('0001', 1, None)]
    """
    check_alone("map_runs")
    if at_once is not None and at_once < 1:
        raise InputError(f"at_once must be 1 or more, but got {at_once}.")
    place = where_to_run(on, gpus_per_run)
    queue = AdaptQueue([job_of(run, number) for number, run in enumerate(runs)], Storage(out))
    queue.shows = progress
    if place is None and (at_once or 1) > 1:
        queue.check_can_be_sent()
    queue.check_storage(several=place is not None or (at_once or 1) > 1)
    queue.check_arguments()
    notify: Notify = to_stderr if progress else silent
    with interruptible() as interrupted:
        if place is not None:
            outcome = run_on_ray(queue.from_anywhere(), place, None, notify, at_once)
        elif at_once is None or at_once == 1:
            outcome = run_queue(queue, None, notify, lambda label: Progress(label, progress))
        else:
            queue.at_once = at_once
            outcome = run_in_workers(queue, None, notify)
        if interrupted() and outcome.missing:
            raise KeyboardInterrupt(f"stopped with {outcome.missing} runs left; the same call continues")
    lost = [why for name, why in outcome.problems.items() if name not in queue.names]
    return [queue.result_of(job, outcome.problems.get(job.run) or (lost[0] if lost else None)) for job in queue.jobs]


@dataclass(frozen=True)
class AdaptJob:
    """A call of :func:`vmt.adapt`."""

    run: str
    arguments: Mapping[str, Any]
    digest: str
    """That of the arguments as they were given."""

    def __str__(self) -> str:
        return self.run


def digest_of(arguments: Mapping[str, Any]) -> str:
    """Changes with the arguments. Functions and objects are known by their names, because they have no content."""
    import joblib

    return str(joblib.hash(functions_by_name(arguments)))


def functions_by_name(value: Any) -> Any:
    """A value in which functions and objects of the user's are names."""
    if isinstance(value, Mapping):
        return {str(name): functions_by_name(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [functions_by_name(each) for each in value]
    if callable(value):
        return getattr(value, "__qualname__", type(value).__qualname__)
    if hasattr(value, "__array__"):  # arrays, tensors, data frames
        import numpy as np

        return np.asarray(value)
    if value is None or isinstance(value, str | bytes | int | float | complex):
        return value
    return str(value) if isinstance(value, Path) else type(value).__qualname__


def absolute(value: Any) -> Any:
    """A path of this machine that does not depend on the working directory; other values as they are."""
    is_path = isinstance(value, str | Path) and not Path(value).is_absolute() and Path(value).exists()
    return str(Path(value).absolute()) if is_path else value


def job_of(arguments: Any, number: int) -> AdaptJob:
    """A run of the list, with its name."""
    if not isinstance(arguments, Mapping):
        raise InputError(
            f"run {number} of the list is a {type(arguments).__name__}: give a dictionary of arguments of vmt.adapt."
        )
    rest = dict(arguments)
    for name in SET_BY_MAP:
        if name in rest:
            raise InputError(f"run {number} of the list has {name}, which map_runs sets: leave it out.")
    for name in ("source", "target"):
        if name not in rest:
            raise InputError(f"run {number} of the list has no {name}: give the arguments that vmt.adapt needs.")
    run = str(rest.pop("out", f"{number:04d}"))
    if PurePosixPath(run).name != run or Path(run).name != run or run.startswith("."):
        raise InputError(f"run {number} of the list has out={run!r}: give the name of a folder below map_runs' out.")
    return AdaptJob(run, rest, digest_of(rest))


class AdaptQueue(Queue[AdaptJob]):
    """Calls of :func:`vmt.adapt` as a queue."""

    def __init__(self, jobs: list[AdaptJob], storage: Storage) -> None:
        super().__init__(jobs, storage)
        self.ended: set[str] = set()
        if twice := [run for run, count in Counter(job.run for job in jobs).items() if count > 1]:
            raise InputError(f"two runs of the list have out={twice[0]!r}: give each its own.")

    @property
    def names(self) -> set[str]:
        return {job.run for job in self.jobs}

    def devices(self) -> set[str]:
        return {str(job.arguments.get("device", self.device)) for job in self.jobs}

    def is_done(self, job: AdaptJob) -> bool:
        if job.run not in self.ended and self.summary_of(job) is not None:
            self.ended.add(job.run)
        return job.run in self.ended

    def summary_of(self, job: AdaptJob) -> dict[str, Any] | None:
        """The summary of a run that has ended, also of one that was stopped because it collapsed."""
        content = self.storage.read(f"{job.run}/{SUMMARY}")
        if content is None:
            return None
        name = f"{self.storage}/{job.run}/{SUMMARY}"
        with parsing(name, "the summary of a run", "remove the run, and start it again"):
            summary: dict[str, Any] = json.loads(content)
            return summary if summary["finished"] or summary.get("given_up") else None

    def do(
        self, job: AdaptJob, run: OpenRun, budget: float | None, notify: Notify, new_progress: Callable[[str], Progress]
    ) -> bool:
        arguments = {"method": DEFAULT_METHOD, **job.arguments}
        callbacks = (*arguments.pop("callbacks", ()), *run.callbacks)
        if arguments.get("device", "auto") == "auto":
            arguments["device"] = self.device
        resume = (run.folder / RUN).exists()
        if not resume:
            write_atomically(run.folder / ASKED, json.dumps({"digest": job.digest}).encode())
        try:
            adapt(**arguments, out=run.folder, resume=resume, progress=new_progress(job.run), callbacks=callbacks)
        except KeyboardInterrupt:
            return False
        except (InputError, OSError, MemoryError):
            raise
        except Exception as error:  # of a function of the user's, for example: the other runs do not suffer from it
            if isinstance(error, RuntimeError) and message_of_gpu_error(error) is not None:
                raise
            raise InputError(own_fault(error, job.run)) from error
        remove_old_checkpoints(run.folder, finished=True)
        return True

    def result_of(self, job: AdaptJob, problem: str | None) -> MappedRun:
        summary = self.summary_of(job)
        if summary is not None:
            problem = summary.get("pruned") or summary["collapsed"]
        return MappedRun(job.run, f"{self.storage}/{job.run}", summary, problem, self.storage)

    def from_anywhere(self) -> "AdaptQueue":
        """The same runs for processes with another working directory."""
        other = copy.copy(self)
        other.jobs = [replace(job, arguments={n: absolute(v) for n, v in job.arguments.items()}) for job in self.jobs]
        return other

    def check_storage(self, several: bool) -> None:
        """Refuse a place that other processes cannot reach, and what cannot be kept under a URL."""
        if self.storage.folder is not None:
            self.storage.folder.mkdir(parents=True, exist_ok=True)
            self.storage = Storage(self.storage.folder.absolute())  # a worker may have another working directory
            return
        if several and str(self.storage).startswith("memory://"):
            raise InputError("memory:// is in the memory of one process: give a folder, or another URL.")
        for job in self.jobs:
            if job.arguments.get("method") == AUTO:
                raise InputError(f"method='auto' (run {job.run}) needs a folder: give out as a folder and not a URL.")
        self.storage.check()

    def check_arguments(self) -> None:
        """Refuse to continue runs with other arguments than they were started with."""
        for job in self.jobs:
            before = self.storage.read(f"{job.run}/{ASKED}")
            if before is None or self.storage.read(f"{job.run}/{RUN}") is None:
                continue
            with parsing(f"{self.storage}/{job.run}/{ASKED}", "the arguments of a run", "choose another out"):
                asked = json.loads(before)["digest"]
            if asked != job.digest:
                raise InputError(
                    f"the run {job.run} in {self.storage} was started with other arguments: give it another name with "
                    "out in its arguments, or choose another out for all."
                )

    def check_can_be_sent(self) -> None:
        """Refuse what worker processes cannot be given."""
        try:
            pickle.dumps(self)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"the runs cannot be sent to other processes ({error}): define functions in a module, or leave out "
                "at_once."
            ) from error
