"""Requests to stop: Ctrl-C, ``kill``, a terminal that is closed."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A terminal that is closed, or a connection that breaks, sends SIGHUP; Windows does not have it.
STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class StopRequest:
    """A signal handler that remembers a request to stop. A second Ctrl-C stops immediately."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, number: int, frame: object) -> None:
        if self.numbers and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.numbers.append(number)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Remember requests to stop, so that work can be saved first. Yields a function that says whether there was one.

    Inside another ``interruptible`` the request is shared, so that a queue stops with its run.
    """
    outer = signal.getsignal(signal.SIGTERM)
    if isinstance(outer, StopRequest):
        yield lambda: bool(outer.numbers)
        return
    request = StopRequest()
    with handled(request):
        yield lambda: bool(request.numbers)


@contextmanager
def handled(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Send the signals that ask to stop to a handler. SIGHUP stays ignored if it was, as under nohup."""
    before = {}
    try:
        for number in STOP_SIGNALS:
            if number != getattr(signal, "SIGHUP", None) or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    except ValueError:  # only the main thread may set handlers
        pass
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
