"""A network as named stages, so that a pass can enter and leave it at any of them."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from vmt.errors import InputError

INPUT = "input"


class Staged(nn.Module):
    """Stages applied in order; each is named by what it produces (its *tap*).

    The paper's classifier f = h ∘ g has the taps ``features`` (the output of g, which the discriminator reads),
    ``hidden`` (the input of the last dense layer) and ``logits``.

    ``separate_passes`` marks a network whose passes must not share a batch, because it has normalisation layers that
    do not know where one pass ends and the next begins.

    >>> net = Staged({"features": nn.Linear(5, 4), "logits": nn.Linear(4, 3)})
    >>> net.part(after="features").taps
    ('logits',)
    """

    def __init__(
        self, stages: Mapping[str, nn.Module], separate_passes: bool = False, *, one_by_one: bool | None = None
    ) -> None:
        super().__init__()
        self.stages = nn.ModuleDict(stages)
        self.separate_passes = separate_passes
        if one_by_one is not None:
            self.one_by_one = one_by_one

    @property
    def taps(self) -> tuple[str, ...]:
        return tuple(self.stages)

    def forward(self, x: Tensor, entry: str = INPUT, exit: str | None = None) -> dict[str, Tensor]:
        """Run from the tap ``entry`` to the tap ``exit`` (default: the last) and return every tap on the way."""
        outputs = {}
        for name in self.between(entry, exit):
            x = outputs[name] = self.stages[name](x)
        return outputs

    def part(self, after: str = INPUT, until: str | None = None) -> "Staged":
        """The stages after one tap and up to another as a network that shares their modules."""
        return Staged({name: self.stages[name] for name in self.between(after, until)}, self.separate_passes)

    def between(self, after: str, until: str | None) -> tuple[str, ...]:
        """The taps after one and up to another."""
        names = self.taps
        for tap in (after, until):
            if tap not in (INPUT, None, *names):
                raise InputError(f"the network has no tap {tap!r}: use one of {', '.join(names)}.")
        first = 0 if after == INPUT else names.index(after) + 1
        last = len(names) if until is None else names.index(until) + 1
        return names[first:last]

    @property
    def one_by_one(self) -> bool:
        """The earlier name of ``separate_passes``."""
        warn_of_earlier_name()
        return self.separate_passes

    @one_by_one.setter
    def one_by_one(self, value: bool) -> None:
        warn_of_earlier_name()
        self.separate_passes = value

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Estimators that were pickled by earlier versions hold the earlier name."""
        if "one_by_one" in state:
            state = {**state, "separate_passes": state["one_by_one"]}
            del state["one_by_one"]
        super().__setstate__(state)  # type: ignore[no-untyped-call]


def warn_of_earlier_name() -> None:
    warnings.warn("Staged.one_by_one has a new name: use separate_passes.", DeprecationWarning, stacklevel=3)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Use evaluation mode inside, and restore each layer's mode afterwards, which may differ from the network's."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
