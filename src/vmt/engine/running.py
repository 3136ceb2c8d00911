"""The loop that every engine shares: seed the layers, set the schedules, advance one step."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from vmt.draws import seed_layers
from vmt.engine.tally import STEPS, TOTAL, Tally
from vmt.method import Phase, Update
from vmt.state import State
from vmt.step import Setting


@dataclass(frozen=True)
class Prepared:
    """A phase made ready to run: ``advance`` does one iteration and adds its metrics to ``tally``."""

    advance: Callable[[], None]
    tally: Tally
    name: str
    why: str


Prepare = Callable[[Phase, State, Setting], Prepared]


class Engine:
    """Runs iterations. ``why`` says in a sentence what was chosen to run them and for what reason."""

    def __init__(self, name: str, why: str, prepare: Prepare, state: State, setting: Setting, seed: int) -> None:
        self.name, self.why = name, why
        self.state, self.setting, self.seed = state, setting, seed
        self.prepare = prepare
        self.ready: dict[tuple[Update, ...], Prepared] = {}
        self.current: Tally | None = None
        self.carried: dict[str, Tensor] = {}

    def run(self, phase: Phase, first: int, count: int, global_step: int) -> None:
        """Do ``count`` iterations of a phase from its iteration ``first``; the run as a whole has done ``global_step``.

        The first call for a phase prepares it: compiling and capturing take their time there, and where they cannot be
        done, ``name`` and ``why`` say so afterwards.
        """
        device = self.state.step.device
        # Streams, graphs and kernels belong to the current device, which need not be the one that holds the tensors.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            if phase.updates not in self.ready:
                set_schedules(self.setting, first / phase.iterations)
                self.ready[phase.updates] = self.prepare(phase, self.state, self.setting)
            prepared = self.ready[phase.updates]
            self.current, self.name, self.why = prepared.tally, prepared.name, prepared.why
            if self.carried:
                prepared.tally.restore_(self.carried, device)
                self.carried = {}
            for i in range(count):
                seed_layers(self.seed, global_step + i, device)
                set_schedules(self.setting, (first + i) / phase.iterations)
                prepared.advance()
                prepared.tally.steps += 1

    def metrics(self) -> dict[str, Tensor]:
        """The mean of every metric over the steps since the last call, on the CPU; the host waits for the device."""
        return {} if self.current is None else self.current.means()

    def tensors(self) -> dict[str, Tensor]:
        """What has been added up since the last call of ``metrics``, as a checkpoint names it."""
        return {} if self.current is None else self.current.tensors()

    def take_from(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Take what was added up out of a checkpoint's tensors, for the next steps to go on with; return the others."""
        self.carried = {name: tensors[name] for name in (TOTAL, STEPS) if name in tensors}
        return {name: tensor for name, tensor in tensors.items() if name not in self.carried}


def set_schedules(setting: Setting, progress: float) -> None:
    """In place: a captured graph reads these tensors."""
    for schedule, scalar in setting.scalars.items():
        scalar.fill_(schedule(progress))
