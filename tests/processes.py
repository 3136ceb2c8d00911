"""The command line, and functions of tests, in real processes that are forked from one that has imported PyTorch.

Such a process has streams, signals and an exit code of its own, and starts in milliseconds instead of seconds.
``tests/cli/test_start.py`` tests how the command starts, in processes that begin at the beginning.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(
    ["vmt.api", "vmt.cli.train", "vmt.runs.describe", "matplotlib.figure", "PIL.Image", "optuna", "tests.interrupted"]
)
# Seconds; many times what anything here takes, because a machine may be very busy.
PATIENCE = 300


class Started:
    """A process that calls a function, whose result is the exit code, and what it prints."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[object, ...], given: bytes = b"") -> None:
        inward, outward, errors = (FORKED.Pipe(duplex=False) for _ in range(3))
        theirs = (inward[0], outward[1], errors[1])
        place = (str(Path.cwd()), dict(os.environ))
        self.process = FORKED.Process(target=carry_out, args=(function, arguments, place, theirs))
        self.process.start()
        for connection in theirs:
            connection.close()
        self.printed = [bytearray(), bytearray()]
        self.threads = [threading.Thread(target=write, args=(inward[1], given))]
        for connection, text in zip((outward[0], errors[0]), self.printed, strict=True):
            self.threads.append(threading.Thread(target=read, args=(connection, text)))
        for thread in self.threads:
            thread.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return b"".join(self.printed).decode()

    def is_running(self) -> bool:
        return self.process.is_alive()

    def send_signal(self, number: int) -> None:
        if self.is_running():
            os.kill(self.pid, number)

    def ended(self) -> "subprocess.CompletedProcess[bytes]":
        """Wait for the end."""
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            raise TimeoutError(f"the process has not ended: {self.output}")
        for thread in self.threads:
            thread.join()
        assert self.process.exitcode is not None
        return subprocess.CompletedProcess([], self.process.exitcode, *map(bytes, self.printed))


def carry_out(
    function: Callable[..., Any],
    arguments: tuple[object, ...],
    place: tuple[str, dict[str, str]],
    streams: tuple[Connection, ...],
) -> None:
    """What the process does."""
    os.chdir(place[0])
    os.environ.clear()
    os.environ.update(place[1])
    for number, connection in enumerate(streams):
        os.dup2(connection.fileno(), number)
        connection.close()
    # The streams of the process that this one is forked from have other files.
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a shell may have started the tests under nohup
    sys.exit(function(*arguments))


def write(connection: Connection, given: bytes) -> None:
    with connection, os.fdopen(os.dup(connection.fileno()), "wb") as file:
        file.write(given)


def read(connection: Connection, text: bytearray) -> None:
    with connection, os.fdopen(os.dup(connection.fileno()), "rb") as file:
        while part := file.read1():
            text += part


def start(*arguments: object, given: bytes = b"", before: Callable[[], Any] | None = None) -> Started:
    """Start the command in a process, with ``given`` on its standard input, after a call of ``before``."""
    return Started(command, (before, *map(str, arguments)), given)


def command(before: Callable[[], Any] | None, *arguments: str) -> int:
    if before is not None:
        before()
    from vmt.cli.main import main

    return main(list(arguments))


def vmt(*arguments: object, **how: Any) -> "subprocess.CompletedProcess[str]":
    """Run the command in a process until it ends; the keyword arguments are those of :func:`start`."""
    return as_text(start(*arguments, **how).ended())


def call(function: Callable[..., Any], *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Call a function in a process until it ends. The function must be one that another process can import."""
    return as_text(Started(function, arguments).ended())


def as_text(done: "subprocess.CompletedProcess[bytes]") -> "subprocess.CompletedProcess[str]":
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
