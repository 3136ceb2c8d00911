"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere."""

import sys
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


class Progress:
    """One bar per phase. Without ``show`` nothing is printed."""

    def __init__(self, label: str = "", show: bool = True) -> None:
        self.visible, self.label = show, label
        self.bar: Any = None

    def start(self, phase: str, total: int, done: int = 0) -> None:
        self.close()
        if self.visible:
            text = f"{self.label or phase}"
            # On a terminal a live bar; in a file or a pipe a line now and then.
            patience = 0.1 if STDERR.isatty() else 15.0
            about: dict[str, Any] = {"total": total, "initial": done, "desc": text, "unit": "it", "file": STDERR}
            self.bar = tqdm(**about, mininterval=patience, dynamic_ncols=True)

    def advance(self, steps: int) -> None:
        if self.bar is not None:
            self.bar.update(steps)

    def show(self, target: float | None, source: float | None) -> None:
        if self.bar is not None:
            known = {"target": target, "source": source}
            self.bar.set_postfix({name: f"{value:.1%}" for name, value in known.items() if value is not None})

    def say(self, sentence: str) -> None:
        if self.visible and sentence:
            tqdm.write(sentence, file=STDERR)

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
