"""Worker processes: the same function several times at once, and a new process in place of one that has died."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, cast

from vmt.errors import InputError, message_of_gpu_error
from vmt.progress import Notify
from vmt.train.loop import signals_handled_by

# A worker is replaced at most this often in a row while nothing gets done: work that always fails must end.
MOST_FAILURES = 3


def in_workers(
    work: Callable[..., Any],
    arguments: Sequence[Any],
    count: int,
    missing: Callable[[], int],
    budget: float | None,
    notify: Notify,
) -> tuple[list[Any], list[str]]:
    """Call ``work(*arguments, budget, notify)`` in ``count`` processes, until nothing is ``missing``.

    The processes share the work through the disk. A worker that dies is replaced, with what is left of the ``budget``
    in seconds. Returns what the workers returned, and how those ended that were not replaced. ``work`` and ``notify``
    must be functions that a new process can import.
    """
    left = missing()
    deadline = None if budget is None else time.monotonic() + budget
    workers: dict[Connection, SpawnProcess] = {}
    outcomes: list[Any] = []
    lost: list[str] = []

    def start_worker() -> None:
        spawn = get_context("spawn")  # CUDA cannot be used after a fork
        outcome, sender = spawn.Pipe(duplex=False)
        seconds = None if deadline is None else deadline - time.monotonic()
        worker = spawn.Process(target=_main, args=(sender, work, arguments, seconds, notify))
        worker.start()
        workers[outcome] = worker
        sender.close()
        if signals:  # a signal has arrived while the worker was started
            worker.terminate()

    with passing_signals_to(workers) as signals:
        while left and len(workers) < count and not signals:
            start_worker()
        failures = 0
        while workers:
            outcome = cast(Connection, wait(list(workers))[0])
            with suppress(EOFError, OSError):  # a worker that died has sent no outcome
                outcomes.append(outcome.recv())
            worker = workers.pop(outcome)
            worker.join()
            if not worker.exitcode or signals:
                continue
            before, left = left, missing()
            failures = failures + 1 if left == before else 1
            in_time = deadline is None or time.monotonic() < deadline
            if left and in_time and failures <= MOST_FAILURES * count:
                notify(f"A worker {how_it_ended(worker.exitcode)} and is replaced.")
                start_worker()
            else:
                lost.append(f"a worker {how_it_ended(worker.exitcode)}, perhaps because it was out of memory")
    return outcomes, lost


def _main(
    outcome: Connection, work: Callable[..., Any], arguments: Sequence[Any], budget: float | None, notify: Notify
) -> None:
    """The main function of a worker."""
    if hasattr(os, "setsid"):
        os.setsid()  # so that Ctrl-C reaches the parent alone, which passes it on
    threading.Thread(target=stop_with_parent, daemon=True).start()
    try:
        result = work(*arguments, budget, notify)
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

    with signals_handled_by(stop):
        yield signals


def how_it_ended(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
