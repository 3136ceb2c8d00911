"""Several runs of a queue at once, each worker a process of its own on the same device."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from vmt.paper.experiment import Stage
from vmt.paper.runner import Filled, Load, Places, Say, fill, missing
from vmt.train.interrupt import handled
from vmt.train.progress import Lines


def fill_together(
    queue: Sequence[Stage], load: Load, places: Places, budget: float | None, changes: dict[str, Any], say: Say
) -> Filled:
    """``fill``, by ``places.at_once`` workers that share a queue: each takes the first run that nobody is at. What they
    are given has to be known to a new process by name."""
    wanted = len(missing(queue, places))
    start = get_context("spawn")  # a CUDA device cannot be used after a fork
    workers: list[SpawnProcess] = []
    words: list[Connection] = []
    complaints: dict[str, None] = {}
    with stoppable(workers) as stopped:
        while len(workers) < places.at_once and not stopped:
            ours, theirs = start.Pipe(duplex=False)
            worker = start.Process(target=work, args=(theirs, queue, load, places, budget, changes, say))
            worker.start()
            workers.append(worker)
            theirs.close()
            words.append(ours)
        if stopped:  # the last one may have begun just then
            for worker in workers:
                worker.terminate()
        for worker, connection in zip(workers, words, strict=True):
            with suppress(EOFError, OSError):  # it ended without a word
                complaints |= dict.fromkeys(connection.recv().complaints)
            worker.join()
            if worker.exitcode and not stopped:
                complaints[ended_badly(worker.exitcode)] = None
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
    connection.send(fill(queue, load, places, budget, changes, say, Lines))


def end_with_parent() -> None:
    """However it ends: a run stops as if it had been interrupted, with a checkpoint."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def stoppable(workers: Sequence[SpawnProcess]) -> Iterator[list[int]]:
    """Ctrl-C, a polite kill and a closed terminal stop the workers, who save first; after a second Ctrl-C they are not
    waited for. Yields the signals that came."""
    came: list[int] = []

    def stop(number: int, frame: object) -> None:
        for worker in workers:
            if came and number == signal.SIGINT:
                worker.kill()
            else:
                worker.terminate()
        came.append(number)

    with handled(stop):
        yield came


def ended_badly(code: int) -> str:
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"a worker {how} (out of memory?): the same command goes on with its run, --at-once 1 needs the least."


def side_by_side() -> bool:
    """Whether NVIDIA's MPS lets processes use a GPU at the same time; without it they take turns."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps").exists()
