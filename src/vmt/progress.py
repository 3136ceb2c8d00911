"""Progress of long work, with the time left: a bar on a terminal and in a notebook, whole lines elsewhere.

Work must not stop because nobody reads its messages any more, so everything is written through :class:`SafeStream`.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any, Protocol, Self

from vmt.errors import printable
from vmt.notebook import NotebookOutput, in_notebook

SECONDS_BETWEEN_LINES = 15.0
SECONDS_BETWEEN_DRAWINGS = 0.2
# Seconds after which a measurement counts for little: a machine may become faster or slower during a run.
MEMORY = 30.0
# The least columns of a bar. Texts that would leave less room are not shown; these are the most important ones.
LEAST_BAR = 8
FIRST = ("left", "counts", "target")
STYLES = {"bold": "1", "red": "1;31", "green": "32", "yellow": "33", "cyan": "36"}
# Starts a style in a text of this process. It is random, so that no name from a file can contain it.
STYLE = f"\033[{os.urandom(8).hex()}"


def terminal_text(text: str) -> str:
    """A text as it is written to a terminal: styles take effect, and other control characters are escaped."""
    return "\033[".join(map(printable, text.split(STYLE)))


class CleanStream:
    """A stream of text through which no name from a file can command a terminal."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(terminal_text(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class SafeStream:
    """``sys.stderr`` or ``sys.stdout``, whose failures are ignored: a closed stream, a lost terminal, a full disk.

    Control characters are escaped, except for a stream that ``draws``: it must get clean texts.
    """

    def __init__(self, name: str, draws: bool = False) -> None:
        self.name, self.draws = name, draws

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError, AttributeError):
            stream = getattr(sys, self.name)
            stream = stream.stream if isinstance(stream, CleanStream) else stream
            stream.write(text if self.draws else terminal_text(text))
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError, AttributeError):
            getattr(sys, self.name).flush()

    def isatty(self) -> bool:
        with suppress(ValueError, AttributeError):
            return bool(getattr(sys, self.name).isatty())
        return False

    def width(self) -> int:
        """The number of columns of the terminal."""
        with suppress(OSError, ValueError, AttributeError):
            return os.get_terminal_size(self.fileno()).columns or 80
        return 80

    def styled(self, text: str, style: str) -> str:
        """The text in a style, if the stream is a terminal that shows colours and ``NO_COLOR`` is not set."""
        knows_colours = os.environ.get("TERM", "dumb") != "dumb" or "WT_SESSION" in os.environ  # Windows has the latter
        if not knows_colours or os.environ.get("NO_COLOR") or not self.isatty():
            return text
        return f"{STYLE}{STYLES[style]}m{text}{STYLE}0m"

    def __getattr__(self, name: str) -> Any:  # tqdm also reads fileno and encoding
        return getattr(getattr(sys, self.name), name)


STDERR, STDOUT = SafeStream("stderr"), SafeStream("stdout")
BARS = SafeStream("stderr", draws=True)


Notify = Callable[[str], None]
"""Prints a line for the user."""


def to_stderr(sentence: str) -> None:
    """Print a line about the progress. Worker processes import this function."""
    print(sentence, file=STDERR, flush=True)


def silent(sentence: str) -> None:
    """Print nothing."""


def as_vmt(message: str, style: str = "bold") -> None:
    """Print a message to the user, behind the name of the program."""
    to_stderr(f"{STDERR.styled('vmt:', style)} {message}")


def duration(seconds: float) -> str:
    """A time in words, with two units at most.

    >>> [duration(seconds) for seconds in (0.2, 59.7, 125, 3599.9, 3900, 200_000)]
    ['0 s', '1 min', '2 min 5 s', '1 h', '1 h 5 min', '2 d 8 h']
    """
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    whole = round(seconds)
    for (name, size), (smaller, part) in pairwise(units):
        rounded = round(whole / part) * part  # so that 59 min 59 s becomes 1 h
        if rounded >= size:
            rest = rounded % size // part
            return f"{rounded // size} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


class Pace:
    """How many seconds a unit of work takes; recent work counts more."""

    def __init__(self) -> None:
        self.units = self.seconds = 0.0

    def add(self, units: float, seconds: float) -> None:
        kept = math.exp(-seconds / MEMORY)
        self.units, self.seconds = kept * self.units + units, kept * self.seconds + seconds

    @property
    def seconds_per_unit(self) -> float | None:
        """None before anything is measured."""
        return self.seconds / self.units if self.units > 0 else None


class Forecast(Protocol):
    """What is expected of the work that a bar shows."""

    def rate(self) -> float | None:
        """Units per second."""

    def left(self) -> float | None:
        """The seconds until the whole work is done."""


class Bar:
    """Progress of a job of ``total`` units, of which ``done`` are already done.

    Nothing is shown for work that takes less than ``delay`` seconds. With ``leave=False``, a bar disappears at the end.
    The unit ``B`` stands for bytes, which are shown in megabytes. Without a ``forecast``, the work is expected to
    continue at its recent pace. ``began`` is the time at which the whole work began, if the bar shows a part of it.
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
        forecast: Forecast | None = None,
        began: float | None = None,
        output: NotebookOutput | None = None,
    ) -> None:
        self.label, self.unit, self.total, self.done = printable(label), unit, total, done
        self.show, self.delay, self.leave = show, delay, leave
        self.values: Mapping[str, str] = {}
        self.forecast, self.pace = forecast, Pace()
        self.printed = done
        self.start = self.last = self.measured = time.monotonic()
        self.began = self.start if began is None else began
        self.drawn: Any = None
        self.output = None
        if show and in_notebook():
            self.output = output or NotebookOutput()
            self.last = 0.0
        elif show and STDERR.isatty():
            from tqdm import tqdm  # only here: importing it takes a while

            self.drawn = tqdm(
                total=total, initial=done, delay=delay, leave=leave, file=BARS, dynamic_ncols=True,
                bar_format=self._bar_format(),
            )  # fmt: skip

    def update(self, count: int = 1) -> None:
        """Count ``count`` more units as done."""
        now = time.monotonic()
        self.done += count
        self.pace.add(count, now - self.measured)
        self.measured = now
        if self.drawn is not None:
            self.drawn.total, self.drawn.bar_format = self.total, self._bar_format()
            self.drawn.update(count)
        elif self.output is not None:
            if self._is_late() and now - self.last > SECONDS_BETWEEN_DRAWINGS:
                self._draw_in_notebook()
        elif self._is_late() and now - self.last > SECONDS_BETWEEN_LINES:
            self._print_line()

    def show_values(self, values: Mapping[str, str]) -> None:
        """Show these values behind the counts from now on."""
        self.values = values
        if self.drawn is not None:
            self.drawn.bar_format = self._bar_format()
            self.drawn.refresh()

    def write(self, message: str) -> None:
        """Print a message above the bar."""
        if self.drawn is not None:
            self.drawn.write(terminal_text(message), file=BARS)
        elif self.output is not None:
            self.output.write(message)
        else:
            to_stderr(message)

    def close(self) -> None:
        if self.drawn is not None:
            self.drawn.bar_format = self._bar_format()
            self.drawn.close()
        elif self.output is not None:
            self.output.remove_bar()
            if self._is_late() and self.leave and self.done > self.printed:
                self.output.write(self.line())
        elif self._is_late() and self.leave and self.done > self.printed:
            self._print_line()
        self.show, self.drawn, self.output = False, None, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def counts(self) -> str:
        """How much is done, for example ``1,200 of 40,000 iterations``."""
        unit, scale, digits = ("MB", 1e-6, ",.1f") if self.unit == "B" else (self.unit, 1, ",d")
        total = "" if self.total is None else f" of {self.total * scale:{digits}}"
        return f"{self.done * scale:{digits}}{total} {unit}".rstrip()

    def rate(self) -> float | None:
        """Units per second; None if that is not known yet."""
        if self.forecast is not None:
            return self.forecast.rate()
        seconds = self.pace.seconds_per_unit
        return None if not seconds else 1 / seconds

    def left(self) -> float | None:
        """The seconds until the work is done; None if that is not known yet."""
        if self.forecast is not None:
            return self.forecast.left()
        rate = self.rate()
        return None if rate is None or self.total is None else max(0, self.total - self.done) / rate

    def texts(self) -> dict[str, str]:
        """What is shown of the work, in the order in which it is written."""
        left, rate = self.left(), self.rate()
        texts = {"counts": self.counts, "elapsed": f"{duration(time.monotonic() - self.began)} elapsed"}
        if left is not None and (self.done != self.total or round(left) > 0):
            texts["left"] = f"{duration(left)} left"
        if rate is not None:
            scale, unit = (1e-6, " MB") if self.unit == "B" else (1, "")
            texts["rate"] = f"{rate * scale:.3g}{unit} per second"
        return texts | {name: f"{name} {value}" for name, value in self.values.items()}

    def line(self) -> str:
        """The counts, the time elapsed and left, the rate and the values."""
        return f"{self.label}: {', '.join(self.texts().values())}"

    def _is_late(self) -> bool:
        return self.show and time.monotonic() - self.start >= self.delay

    def _print_line(self) -> None:
        self.printed, self.last = self.done, time.monotonic()
        to_stderr(self.line())

    def _draw_in_notebook(self) -> None:
        assert self.output is not None
        self.last = time.monotonic()
        share = None if not self.total else min(1.0, self.done / self.total)
        self.output.show(self.line(), share)

    def _bar_format(self) -> str:
        """The line for tqdm, with those texts that leave room for the bar on this terminal."""
        width, texts = STDERR.width(), self.texts()
        texts["counts"] = texts["counts"].removesuffix(self.unit).rstrip().replace(" of ", "/")
        texts |= {"rate": texts["rate"].replace(" per second", "/s")} if "rate" in texts else {}
        label = self.label if len(self.label) <= width // 3 else self.label[: width // 3 - 1] + "…"
        room = width - len(label) - (len(": ") if self.total is None else len(" 100%|| ") + LEAST_BAR)
        chosen: set[str] = set()
        for name in dict.fromkeys([*FIRST, *texts]):
            if name in texts and len(", ".join(texts[each] for each in [*chosen, name])) <= room:
                chosen.add(name)
        shown = ", ".join(text for name, text in texts.items() if name in chosen)
        label, shown = (text.replace("{", "{{").replace("}", "}}") for text in (label, shown))
        return f"{label}: {shown}" if self.total is None else f"{label} {{percentage:3.0f}}%|{{bar}}| {shown}"


class Progress:
    """Progress of a job in several phases: a bar for each phase, and messages between them.

    Without ``show`` nothing is printed. Runs that share the set ``printed`` print each message once. With
    ``name_phases``, a log also gets a line when a phase starts, for jobs that are too short for other lines.
    """

    def __init__(
        self,
        label: str = "",
        show: bool = True,
        printed: set[str] | None = None,
        unit: str = "iterations",
        leave: bool = True,
        name_phases: bool = False,
    ) -> None:
        self.label, self.visible, self.printed, self.unit, self.leave = label, show, printed, unit, leave
        self.name_phases = name_phases
        self.bar: Bar | None = None
        self.began = time.monotonic()
        self.output: NotebookOutput | None = None

    def start(self, phase: str, total: int, done: int = 0, forecast: Forecast | None = None) -> None:
        """Begin a phase of which ``done`` units are already done."""
        self.close()
        if self.name_phases and not in_notebook() and not STDERR.isatty():
            self.say(f"{phase} …")
        self.bar = Bar(
            self.label or phase,
            self.unit,
            total,
            done,
            show=self.visible,
            leave=self.leave,
            forecast=forecast,
            began=self.began,
            output=self._notebook_output(),
        )

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
            if self.bar is not None:
                self.bar.write(message)
            elif (output := self._notebook_output()) is not None:
                output.write(message)
            else:
                to_stderr(message)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def _notebook_output(self) -> NotebookOutput | None:
        """The area in which messages and all bars are shown, if this is a notebook."""
        if self.output is None and self.visible and in_notebook():
            self.output = NotebookOutput()
        return self.output


class ProgressLines(Progress):
    """Prints a line at each evaluation in place of a bar, for several runs that share a terminal."""

    evaluated = False

    def start(self, phase: str, total: int, done: int = 0, forecast: Forecast | None = None) -> None:
        self.evaluated = False
        # A bar that is not shown knows what to write.
        self.bar = Bar(self.label, self.unit, total, done, show=False, forecast=forecast, began=self.began)

    def show_accuracy(self, target: float | None, source: float | None) -> None:
        super().show_accuracy(target, source)
        self.evaluated = True

    def advance(self, count: int) -> None:
        super().advance(count)
        if self.bar is not None and self.evaluated:
            self.say(self.bar.line())
        self.evaluated = False


def _percentages(target: float | None, source: float | None) -> dict[str, str]:
    known = {"target": target, "source": source}
    return {name: f"{value:.1%}" for name, value in known.items() if value is not None}
