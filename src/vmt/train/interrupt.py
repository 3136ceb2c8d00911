"""Being asked to stop: Ctrl-C, a polite kill, a terminal that is closed."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A terminal that is closed, or a connection that breaks, sends SIGHUP; Windows has none.
POLITE = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Asked:
    """A handler that remembers; the second Ctrl-C does not wait."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, number: int, frame: object) -> None:
        if self.numbers and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.numbers.append(number)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Ends at the next good moment, with everything saved, instead of anywhere. Inside another one it is the same one:
    a queue knows of what its run was asked."""
    outer = signal.getsignal(signal.SIGTERM)
    if isinstance(outer, Asked):
        yield lambda: bool(outer.numbers)
        return
    asked = Asked()
    with handled(asked):
        yield lambda: bool(asked.numbers)


@contextmanager
def handled(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Polite signals go to a handler. One that is ignored stays so, which is what nohup does to SIGHUP."""
    before = {}
    try:
        for number in POLITE:
            if number != getattr(signal, "SIGHUP", None) or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    except ValueError:  # not the main thread, which alone may set handlers
        pass
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
