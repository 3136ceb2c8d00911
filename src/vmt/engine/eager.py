"""The step as it is written."""

from vmt.engine.running import Prepared
from vmt.engine.tally import Tally
from vmt.method import Phase
from vmt.state import State
from vmt.step import Setting, step


def prepare_eager(phase: Phase, state: State, setting: Setting) -> Prepared:
    tally = Tally()

    def advance() -> None:
        tally.add_(step(phase, state, setting))

    return Prepared(advance, tally)
