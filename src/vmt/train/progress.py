"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from contextlib import suppress
from typing import Any

from tqdm import tqdm


class Words:
    """``sys.stderr`` or ``sys.stdout`` of the moment, or nowhere if it was closed, its reader went away, its terminal
    is gone or its disk is full: a run goes on unheard."""

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

    def __getattr__(self, name: str) -> Any:  # fileno and encoding, which tqdm asks for
        return getattr(getattr(sys, self.name), name)


STDERR, STDOUT = Words("stderr"), Words("stdout")
SECONDS_BETWEEN_LINES = 15.0


class Dispatches:
    """What a bar says, in a file or a pipe: a whole line now and then, and one at the end."""

    def __init__(self, label: str, total: int, done: int) -> None:
        self.label, self.total, self.begun, self.done, self.told = label, total, done, done, done
        self.start = self.last = time.monotonic()
        self.known: dict[str, str] = {}

    def update(self, steps: int) -> None:
        self.done += steps
        if time.monotonic() - self.last > SECONDS_BETWEEN_LINES:
            self.tell()

    def set_postfix(self, known: dict[str, str]) -> None:
        self.known = known

    def tell(self) -> None:
        self.told, self.last = self.done, time.monotonic()
        pace = (self.done - self.begun) / max(self.last - self.start, 1e-6)
        parts = [f"{self.label}: {self.done:,} of {self.total:,} iterations", f"{pace:.3g} a second"]
        print(", ".join(parts + [f"{name} {value}" for name, value in self.known.items()]), file=STDERR)
        STDERR.flush()

    def close(self) -> None:
        if self.done > self.told:
            self.tell()


class Progress:
    """One bar per phase. Without ``show`` nothing is printed. Runs that share what was ``said`` do not say it again."""

    def __init__(self, label: str = "", show: bool = True, said: set[str] | None = None) -> None:
        self.visible, self.label, self.said = show, label, said
        self.bar: Any = None

    def start(self, phase: str, total: int, done: int = 0) -> None:
        self.close()
        if self.visible:
            text = self.label or phase
            if STDERR.isatty():
                self.bar = tqdm(total=total, initial=done, desc=text, unit="it", file=STDERR, dynamic_ncols=True)
            else:
                self.bar = Dispatches(text, total, done)

    def advance(self, steps: int) -> None:
        if self.bar is not None:
            self.bar.update(steps)

    def show(self, target: float | None, source: float | None) -> None:
        if self.bar is not None:
            known = {"target": target, "source": source}
            self.bar.set_postfix({name: f"{value:.1%}" for name, value in known.items() if value is not None})

    def say(self, sentence: str) -> None:
        if self.said is not None and sentence in self.said:
            return
        if self.visible and sentence:
            tqdm.write(sentence, file=STDERR)
        if self.said is not None:
            self.said.add(sentence)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class Lines(Progress):
    """A line at each look at the model instead of a bar, for several runs that share a terminal."""

    def start(self, phase: str, total: int, done: int = 0) -> None:
        self.done, self.total = done, total

    def advance(self, steps: int) -> None:
        self.done += steps

    def show(self, target: float | None, source: float | None) -> None:
        known = {"target": target, "source": source}
        shown = [f"{name} {value:.1%}" for name, value in known.items() if value is not None]
        self.say(", ".join([f"{self.label}: {self.done:,} of {self.total:,}", *shown]))
