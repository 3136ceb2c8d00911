"""The progress of runs in other processes: each run tells what it does, and this process shows all of them.

On a terminal and in a notebook, the table has a bar for each run under way, and elsewhere a line for each evaluation.
This module does not import PyTorch, because the process that holds the board needs none.
"""

from collections.abc import Callable, Iterable
from typing import Any

from vmt.notebook import in_notebook
from vmt.progress import STDERR, Forecast, Progress, ProgressLines

Event = tuple[str, str, tuple[Any, ...]]
"""A run, the name of a method of :class:`vmt.progress.Progress`, and its arguments."""


class Board:
    """Holds the events of all runs until they are shown."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def tell(self, event: Event) -> None:
        self.events.append(event)

    def take(self) -> list[Event]:
        """The events since the last call."""
        taken, self.events = self.events, []
        return taken


class ToldProgress(Progress):
    """Tells the board about the progress of a run in this process."""

    def __init__(self, run: str, tell: Callable[[Event], None]) -> None:
        super().__init__(run, show=False)
        self.run, self.tell = run, tell

    def start(self, phase: str, total: int, done: int = 0, forecast: Forecast | None = None) -> None:
        self.tell((self.run, "start", (phase, total, done)))

    def advance(self, count: int) -> None:
        self.tell((self.run, "advance", (count,)))

    def show_accuracy(self, target: float | None, source: float | None) -> None:
        self.tell((self.run, "show_accuracy", (target, source)))

    def say(self, message: str) -> None:
        self.tell((self.run, "say", (message,)))

    def close(self) -> None:
        self.tell((self.run, "close", ()))


class ProgressTable:
    """Shows the progress of several runs: a row for each run under way, and how many have ended."""

    def __init__(self, show: bool) -> None:
        self.visible = show
        self.rows: dict[str, Progress] = {}
        self.whole = Progress("all", show, unit="runs")
        self.printed: set[str] = set()  # how a run is carried out is said once for all of them

    def begin(self, total: int) -> None:
        self.whole.start("", total)

    def count(self) -> None:
        """One more of all runs has ended."""
        self.whole.advance(1)

    def show(self, events: Iterable[Event]) -> None:
        for run, what, arguments in events:
            if self.visible:
                getattr(self.row(run), what)(*arguments)

    def row(self, run: str) -> Progress:
        if run not in self.rows:
            kind = Progress if STDERR.isatty() or in_notebook() else ProgressLines
            self.rows[run] = kind(run, printed=self.printed, leave=False)
        return self.rows[run]

    def remove(self, run: str) -> None:
        """A run has ended here, for whatever reason."""
        if run in self.rows:
            self.rows.pop(run).close()

    def close(self) -> None:
        for run in list(self.rows):
            self.remove(run)
        self.whole.close()
