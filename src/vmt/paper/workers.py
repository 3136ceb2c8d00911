"""Run the queue in worker processes: several runs at once, and a new process in place of one that has died."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, cast

from vmt.device import torch_device
from vmt.errors import InputError, message_of_gpu_error
from vmt.paper.experiment import Job
from vmt.paper.queue import Notify, QueueOutcome, Workspace, missing_jobs, run_queue
from vmt.progress import Progress, ProgressLines
from vmt.train.loop import handled

# How often each worker is replaced in a row without a finished job: a run that always fails must not block a queue.
MOST_FAILURES = 3


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
    wanted = left = len(missing_jobs(queue, workspace))
    deadline = None if budget is None else time.monotonic() + budget
    workers: dict[Connection, SpawnProcess] = {}
    problems: dict[str, None] = {}  # in order, each once

    def start_worker() -> None:
        spawn = get_context("spawn")  # CUDA cannot be used after a fork
        outcome, sender = spawn.Pipe(duplex=False)
        seconds = None if deadline is None else deadline - time.monotonic()
        worker = spawn.Process(target=work, args=(sender, queue, workspace, seconds, overrides, notify))
        worker.start()
        workers[outcome] = worker
        sender.close()
        if signals:  # a signal has arrived while the worker was started
            worker.terminate()

    with passing_signals_to(workers) as signals:
        while left and len(workers) < workspace.at_once and not signals:
            start_worker()
        failures = 0
        while workers:
            outcome = cast(Connection, wait(list(workers))[0])
            with suppress(EOFError, OSError):  # a worker that died has sent no outcome
                problems |= dict.fromkeys(outcome.recv().problems)
            worker = workers.pop(outcome)
            worker.join()
            if not worker.exitcode or signals:
                continue
            before, left = left, len(missing_jobs(queue, workspace))
            failures = failures + 1 if left == before else 1
            in_time = deadline is None or time.monotonic() < deadline
            if left and in_time and failures <= MOST_FAILURES * workspace.at_once:
                notify(f"A worker {how_it_ended(worker.exitcode)} and is replaced.")
                start_worker()
            else:
                problem = f"a worker {how_it_ended(worker.exitcode)}, perhaps because it was out of memory"
                problems[f"{problem}: run the same command to continue, with --at-once 1 to use the least memory."] = (
                    None
                )
    left = len(missing_jobs(queue, workspace))
    return QueueOutcome(wanted - left, left, list(problems))


def work(
    outcome: Connection,
    queue: Sequence[Job],
    workspace: Workspace,
    budget: float | None,
    overrides: Mapping[str, Any],
    notify: Notify,
) -> None:
    """The main function of a worker."""
    if hasattr(os, "setsid"):
        os.setsid()  # so that Ctrl-C reaches the parent alone, which passes it on
    threading.Thread(target=stop_with_parent, daemon=True).start()
    try:
        torch_device(overrides["device"])  # a GPU that has failed in another worker may be missing for a while
        result = run_queue(
            queue, workspace, budget, overrides, notify, ProgressLines if workspace.at_once > 1 else Progress
        )
    except (InputError, RuntimeError) as error:
        message = str(error) if isinstance(error, InputError) else message_of_gpu_error(error)
        if message is None:
            raise
        notify(f"vmt: {message}")
        sys.exit(1)  # only a new process can use the GPU again
    outcome.send(result)


def stop_with_parent() -> None:
    """When the parent process ends, for whatever reason, stop the run of this worker with a checkpoint."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def passing_signals_to(workers: Mapping[Connection, SpawnProcess]) -> Iterator[list[int]]:
    """On Ctrl-C, ``kill`` and a closed terminal, stop the workers, which save a checkpoint first.

    A second Ctrl-C kills them. Yields the list of signals that have arrived.
    """
    signals: list[int] = []

    def stop(number: int, frame: object) -> None:
        for worker in list(workers.values()):
            if signals and number == signal.SIGINT:
                worker.kill()
            else:
                worker.terminate()
        signals.append(number)

    with handled(stop):
        yield signals


def how_it_ended(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
