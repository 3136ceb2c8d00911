"""What carries out a queue: this process, worker processes of this machine, or the tasks of a Ray cluster."""

import os
import time
from pathlib import Path
from typing import Any

from vmt.device import torch_device
from vmt.errors import InputError
from vmt.many.queue import Queue, QueueOutcome, run_queue
from vmt.progress import Notify, Progress, ProgressLines
from vmt.runs.board import ToldProgress
from vmt.runs.ray_tasks import OnRay, Tell, connected
from vmt.runs.workers import in_workers
from vmt.train.loop import interruptible

# A process that was lost may hold the lock of its run for a while. The next one waits for at most this many seconds.
WAIT_FOR_LOCK = 60.0


def run_here(queue: Queue[Any], budget: float | None, notify: Notify) -> QueueOutcome:
    """Do the jobs that are not done, in this process or, on a GPU and for several at once, in worker processes."""
    device = torch_device(queue.device)
    on_gpu = device.type == "cuda"
    if queue.at_once == 1 and not on_gpu:
        return run_queue(queue, budget, notify)
    if on_gpu and queue.at_once > 1 and not mps_is_running():
        notify("NVIDIA's MPS is not running, so runs on one GPU take turns: start it with nvidia-cuda-mps-control -d.")
    # A process that has seen its GPU fail cannot use it again, so even one run at a time has a worker. The device is
    # named, so that a worker that finds no GPU does not continue on the CPU.
    return run_in_workers(queue.on_device(str(device)), budget, notify)


def mps_is_running() -> bool:
    """Whether NVIDIA's MPS runs, which lets processes use a GPU at the same time."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps").exists()


def run_in_workers(queue: Queue[Any], budget: float | None, notify: Notify) -> QueueOutcome:
    """:func:`vmt.many.queue.run_queue` in ``queue.at_once`` processes that share the queue.

    Each worker takes the first run that no other process works on. A worker that dies is replaced. ``notify`` must be
    a function that a new process can import.
    """
    wanted = len(queue.left())
    outcomes, lost = in_workers(work, (queue,), queue.at_once, lambda: len(queue.left()), budget, notify)
    problems = {run: problem for outcome in outcomes for run, problem in outcome.problems.items()}
    for how in lost:
        problems[how] = f"{how}: run the same command to continue, with --at-once 1 to use the least memory."
    left = len(queue.left())
    return QueueOutcome(wanted - left, left, problems)


def work(queue: Queue[Any], budget: float | None, notify: Notify) -> QueueOutcome:
    """What a worker process does."""
    torch_device(queue.device)  # a GPU that has failed in another worker may be missing for a while
    kind = ProgressLines if queue.at_once > 1 else Progress
    return run_queue(queue, budget, notify, lambda label: kind(label, queue.shows))


def run_on_ray(
    queue: Queue[Any], place: OnRay, budget: float | None, notify: Notify, at_once: int | None = None
) -> QueueOutcome:
    """:func:`vmt.many.queue.run_queue` for each run of the queue as a task of Ray; ``at_once`` limits their number.

    If a worker or a node is lost, its run is given to another, which resumes it from its last checkpoint.
    """
    left = queue.left()
    if not left:
        return QueueOutcome(0, 0, {})
    deadline = None if budget is None else time.time() + budget
    with connected(place, queue.devices(), notify, queue.shows) as cluster:
        shared = queue.on_device(cluster.device)
        shared.at_once = min(cluster.on_a_device, at_once or cluster.on_a_device)
        calls = {job.run: (job.run, deadline) for job in left}
        outcomes, problems = cluster.run(carry_out_run, (shared,), calls, at_once)
    for outcome in outcomes.values():
        problems |= outcome.problems
    missing = len(queue.left())
    return QueueOutcome(len(left) - missing, missing, {run: problems[run] for run in calls if run in problems})


def carry_out_run(tell: Tell, queue: Queue[Any], run: str, deadline: float | None) -> QueueOutcome:
    """What a task does: the jobs of one run, until the time ``deadline``."""
    part = queue.only(run)
    until = time.monotonic() + WAIT_FOR_LOCK
    with interruptible() as interrupted:
        while True:
            budget = None if deadline is None else deadline - time.time()
            outcome = run_queue(
                part,
                budget,
                lambda line: tell((run, "say", (line,))),
                lambda label: ToldProgress(run, tell),
            )
            is_late = deadline is not None and time.time() >= deadline
            if not outcome.missing or outcome.problems or interrupted() or is_late:
                return outcome
            if time.monotonic() > until:
                raise InputError(f"another process is writing to the run {run}: wait until it has ended.")
            time.sleep(1)
