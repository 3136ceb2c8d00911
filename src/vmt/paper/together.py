"""Several runs of a queue at once, each worker a process of its own on the same device."""

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

from vmt.errors import InputError, gave_up
from vmt.paper.experiment import Stage
from vmt.paper.runner import Filled, Load, Places, Say, fill, missing
from vmt.train.config import torch_device
from vmt.train.interrupt import handled
from vmt.train.progress import Lines, Progress

# In a row, of each worker, without a stage done in between: a run that always fails must not keep a queue busy.
MOST_FAILURES = 3


def fill_together(
    queue: Sequence[Stage], load: Load, places: Places, budget: float | None, changes: dict[str, Any], say: Say
) -> Filled:
    """``fill``, by ``places.at_once`` workers that share a queue: each takes the first run that nobody is at. One that
    comes to grief is replaced. What they are given has to be known to a new process by name."""
    wanted = left = len(missing(queue, places))
    deadline = None if budget is None else time.monotonic() + budget
    start = get_context("spawn")  # a CUDA device cannot be used after a fork
    workers: dict[Connection, SpawnProcess] = {}
    complaints: dict[str, None] = {}

    def begin() -> None:
        ours, theirs = start.Pipe(duplex=False)
        seconds = None if deadline is None else deadline - time.monotonic()
        worker = start.Process(target=work, args=(theirs, queue, load, places, seconds, changes, say))
        worker.start()
        workers[ours] = worker
        theirs.close()
        if stopped:  # just then
            worker.terminate()

    with stoppable(workers) as stopped:
        while len(workers) < places.at_once and not stopped:
            begin()
        failures = 0
        while workers:
            connection = cast(Connection, wait(list(workers))[0])
            with suppress(EOFError, OSError):  # it ended without a word
                complaints |= dict.fromkeys(connection.recv().complaints)
            worker = workers.pop(connection)
            worker.join()
            if not worker.exitcode or stopped:
                continue
            before, left = left, len(missing(queue, places))
            failures = failures + 1 if left == before else 1
            if (
                left
                and failures <= MOST_FAILURES * places.at_once
                and (deadline is None or time.monotonic() < deadline)
            ):
                say(f"A worker {how_it_ended(worker.exitcode)}: another takes its place.")
                begin()
            else:
                complaints[
                    f"a worker {how_it_ended(worker.exitcode)} (out of memory?): the same command goes on with its "
                    "run, --at-once 1 needs the least."
                ] = None
    left = len(missing(queue, places))
    return Filled(wanted - left, left, list(complaints))


def work(
    connection: Connection,
    queue: Sequence[Stage],
    load: Load,
    places: Places,
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
        filled = fill(queue, load, places, budget, changes, say, Lines if places.at_once > 1 else Progress)
    except (InputError, RuntimeError) as error:
        if (sentence := str(error) if isinstance(error, InputError) else gave_up(error)) is None:
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
