"""Run the queue in worker processes: several runs at once, and a new process in place of one that has died."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vmt.device import torch_device
from vmt.paper.experiment import Job
from vmt.paper.queue import Notify, QueueOutcome, Workspace, missing_jobs, run_queue
from vmt.progress import Progress, ProgressLines
from vmt.runs.workers import in_workers


def run_jobs(
    queue: Sequence[Job], workspace: Workspace, budget: float | None, overrides: Mapping[str, Any], notify: Notify
) -> QueueOutcome:
    """Run the jobs that have no result yet, in this process or, on a GPU and for several at once, in workers."""
    device = torch_device(overrides["device"])
    on_gpu = device.type == "cuda"
    if workspace.at_once == 1 and not on_gpu:
        return run_queue(queue, workspace, budget, overrides, notify)
    if on_gpu and workspace.at_once > 1 and not mps_is_running():
        notify("NVIDIA's MPS is not running, so runs on one GPU take turns: start it with nvidia-cuda-mps-control -d.")
    # A process that has seen its GPU fail cannot use it again, so even one run at a time has a worker. The device is
    # named, so that a worker that finds no GPU does not continue on the CPU.
    return run_queue_in_workers(queue, workspace, budget, {**overrides, "device": str(device)}, notify)


def mps_is_running() -> bool:
    """Whether NVIDIA's MPS runs, which lets processes use a GPU at the same time."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps").exists()


def run_queue_in_workers(
    queue: Sequence[Job], workspace: Workspace, budget: float | None, overrides: Mapping[str, Any], notify: Notify
) -> QueueOutcome:
    """:func:`vmt.paper.queue.run_queue` in ``workspace.at_once`` processes that share the queue.

    Each worker takes the first run that no other process works on. A worker that dies is replaced. ``notify`` must be
    a function that a new process can import.
    """
    wanted = len(missing_jobs(queue, workspace))
    outcomes, lost = in_workers(
        work,
        (queue, workspace, overrides),
        workspace.at_once,
        lambda: len(missing_jobs(queue, workspace)),
        budget,
        notify,
    )
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    problems += [f"{how}: run the same command to continue, with --at-once 1 to use the least memory." for how in lost]
    left = len(missing_jobs(queue, workspace))
    return QueueOutcome(wanted - left, left, list(dict.fromkeys(problems)))


def work(
    queue: Sequence[Job], workspace: Workspace, overrides: Mapping[str, Any], budget: float | None, notify: Notify
) -> QueueOutcome:
    """What a worker does."""
    torch_device(overrides["device"])  # a GPU that has failed in another worker may be missing for a while
    new_progress = ProgressLines if workspace.at_once > 1 else Progress
    return run_queue(queue, workspace, budget, overrides, notify, new_progress)
