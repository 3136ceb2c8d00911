"""A phase made ready by each engine, and what to do when that fails."""

from collections.abc import Callable

from vmt.engine.captured import captured
from vmt.engine.running import Prepare, Prepared
from vmt.engine.tally import Tally
from vmt.method import Phase
from vmt.state import State
from vmt.step import Setting, step

Say = Callable[[str], None]


def eager(why: str) -> Prepare:
    """The step as it is written."""

    def prepare(phase: Phase, state: State, setting: Setting) -> Prepared:
        tally = Tally()
        return Prepared(lambda: tally.add_(step(phase, state, setting)), tally, "eager", why)

    return prepare


def compiled(why: str, say: Say) -> Prepare:
    """The whole step compiled."""

    def prepare(phase: Phase, state: State, setting: Setting) -> Prepared:
        from vmt.engine.whole_step import compiled_step  # here, for it loads the whole compiler

        tally = Tally()
        say(f"compiling the {phase.name} step: up to a minute the first time, then from a cache")
        return Prepared(compiled_step(phase, state, setting, tally), tally, "compiled", why)

    return falling_back(prepare, eager, "compiled", say)


def captured_graph(why: str, say: Say, compile: bool) -> Prepare:
    """The whole step, compiled or not, as one CUDA graph."""

    def prepare(phase: Phase, state: State, setting: Setting) -> Prepared:
        inner = compiled(why, say)(phase, state, setting) if compile else eager(why)(phase, state, setting)
        say(f"capturing the {phase.name} step")
        advance = captured(inner.advance, state)
        inner.tally.reset()
        as_asked = inner.why if inner.why == why else f"{inner.why} It is replayed as one CUDA graph."
        return Prepared(advance, inner.tally, f"captured ({inner.name})", as_asked)

    return falling_back(prepare, eager, "captured", say)


def falling_back(prepare: Prepare, otherwise: Callable[[str], Prepare], what: str, say: Say) -> Prepare:
    """``prepare``; should it fail for whatever a user's module does, the plain way, with the reason."""

    def attempt(phase: Phase, state: State, setting: Setting) -> Prepared:
        try:
            return prepare(phase, state, setting)
        except Exception as error:  # compilers raise anything
            lines = str(error).strip().splitlines() or [type(error).__name__]
            why = f"The step runs as it is written, because it could not be {what}: {lines[0][:200]}"
            say(why)
            return otherwise(why)(phase, state, setting)

    return attempt
