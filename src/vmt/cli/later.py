"""The work of a command, imported when there is some: torch takes seconds, and help and refusals need none of it."""

import os
import signal
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

INTERRUPTED = 130


@dataclass(frozen=True)
class Later:
    """What a command runs, by name."""

    module: str
    function: str = "run"

    def load(self) -> Callable[[Namespace], int]:
        work: Callable[[Namespace], int] = getattr(import_module(self.module), self.function)
        return work

    def __call__(self, arguments: Namespace) -> int:
        with ended_by_ctrl_c():
            work = self.load()
        return work(arguments)


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Ctrl-C ends the process at once. While libraries are imported there is nothing to save, and an exception may pass
    for a failure of theirs. Where somebody else listens to the signal, or nobody may, it stays so."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    try:
        signal.signal(signal.SIGINT, end)
    except ValueError:  # not the main thread, which alone may set handlers
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end(number: int, frame: object) -> None:
    os.write(2, b"vmt: interrupted.\n")
    os._exit(INTERRUPTED)
