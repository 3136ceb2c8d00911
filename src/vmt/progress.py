"""Progress of long work on stderr: a bar on a terminal, whole lines elsewhere, both with the time left.

Work must not stop because nobody reads its messages any more, so everything is written through :class:`SafeStream`.
"""

import sys
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any, Self

SECONDS_BETWEEN_LINES = 15.0


class SafeStream:
    """``sys.stderr`` or ``sys.stdout``, whose failures are ignored: a closed stream, a lost terminal, a full disk."""

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError, AttributeError):
            getattr(sys, self.name).write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError, AttributeError):
            getattr(sys, self.name).flush()

    def isatty(self) -> bool:
        with suppress(ValueError, AttributeError):
            return bool(getattr(sys, self.name).isatty())
        return False

    def __getattr__(self, name: str) -> Any:  # tqdm also reads fileno and encoding
        return getattr(getattr(sys, self.name), name)


STDERR, STDOUT = SafeStream("stderr"), SafeStream("stdout")


class Bar:
    """Progress of a job of ``total`` units, of which ``done`` are already done.

    Nothing is shown for work that takes less than ``delay`` seconds. With ``leave=False``, a bar disappears at the end.
    The unit ``B`` stands for bytes, which are shown in megabytes.
    """

    def __init__(
        self,
        label: str,
        unit: str,
        total: int | None = None,
        done: int = 0,
        *,
        show: bool = True,
        delay: float = 0.0,
        leave: bool = True,
    ) -> None:
        self.label, self.unit, self.total, self.done = label, unit, total, done
        self.show, self.delay, self.leave = show, delay, leave
        self.values: dict[str, str] = {}
        self.first = self.printed = done
        self.start = self.last = time.monotonic()
        self.drawn: Any = None
        if show and STDERR.isatty():
            from tqdm import tqdm  # only here: importing it takes a while

            scale = {"unit_scale": True} if unit == "B" else {}
            self.drawn = tqdm(
                total=total, initial=done, desc=label, unit=unit if scale else f" {unit}", delay=delay, leave=leave,
                file=STDERR, dynamic_ncols=True, **scale,
            )  # fmt: skip

    def update(self, count: int = 1) -> None:
        """Count ``count`` more units as done."""
        self.done += count
        if self.drawn is not None:
            self.drawn.total = self.total
            self.drawn.update(count)
        elif self._is_late() and time.monotonic() - self.last > SECONDS_BETWEEN_LINES:
            self._print_line()

    def show_values(self, values: dict[str, str]) -> None:
        """Show these values behind the counts from now on."""
        self.values = values
        if self.drawn is not None:
            self.drawn.set_postfix(values)

    def close(self) -> None:
        if self.drawn is not None:
            self.drawn.close()
        elif self._is_late() and self.leave and self.done > self.printed:
            self._print_line()
        self.show, self.drawn = False, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _is_late(self) -> bool:
        return self.show and time.monotonic() - self.start >= self.delay

    def _print_line(self) -> None:
        self.printed, self.last = self.done, time.monotonic()
        pace = (self.done - self.first) / max(self.last - self.start, 1e-6)
        unit, scale, digits = ("MB", 1e-6, ",.1f") if self.unit == "B" else (self.unit, 1, ",d")
        total = "" if self.total is None else f" of {self.total * scale:{digits}}"
        parts = [f"{self.label}: {self.done * scale:{digits}}{total} {unit}".rstrip(), f"{pace * scale:.3g} per second"]
        if self.total is not None and pace > 0 and self.done < self.total:
            parts.append(f"{timedelta(seconds=round((self.total - self.done) / pace))} left")
        print(", ".join(parts + [f"{name} {value}" for name, value in self.values.items()]), file=STDERR)
        STDERR.flush()


class Progress:
    """Progress of a job in several phases: a bar for each phase, and messages between them.

    Without ``show`` nothing is printed. Runs that share the set ``printed`` print each message once.
    """

    def __init__(
        self,
        label: str = "",
        show: bool = True,
        printed: set[str] | None = None,
        unit: str = "iterations",
        leave: bool = True,
    ) -> None:
        self.label, self.visible, self.printed, self.unit, self.leave = label, show, printed, unit, leave
        self.bar: Bar | None = None

    def start(self, phase: str, total: int, done: int = 0) -> None:
        """Begin a phase of which ``done`` units are already done."""
        self.close()
        self.bar = Bar(self.label or phase, self.unit, total, done, show=self.visible, leave=self.leave)

    def advance(self, count: int) -> None:
        if self.bar is not None:
            self.bar.update(count)

    def show_accuracy(self, target: float | None, source: float | None) -> None:
        """Show the accuracies of the last evaluation."""
        if self.bar is not None:
            self.bar.show_values(_percentages(target, source))

    def say(self, message: str) -> None:
        """Print a message above the bar."""
        if self.printed is not None:
            if message in self.printed:
                return
            self.printed.add(message)
        if self.visible and message:
            if self.bar is not None and self.bar.drawn is not None:
                self.bar.drawn.write(message, file=STDERR)
            else:
                print(message, file=STDERR)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class ProgressLines(Progress):
    """Prints a line at each evaluation in place of a bar, for several runs that share a terminal."""

    def start(self, phase: str, total: int, done: int = 0) -> None:
        self.done, self.total = done, total

    def advance(self, count: int) -> None:
        self.done += count

    def show_accuracy(self, target: float | None, source: float | None) -> None:
        shown = [f"{name} {value}" for name, value in _percentages(target, source).items()]
        self.say(", ".join([f"{self.label}: {self.done:,} of {self.total:,} {self.unit}", *shown]))


def _percentages(target: float | None, source: float | None) -> dict[str, str]:
    known = {"target": target, "source": source}
    return {name: f"{value:.1%}" for name, value in known.items() if value is not None}
