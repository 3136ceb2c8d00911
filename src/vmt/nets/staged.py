"""A network as named stages, so that a pass can enter and leave it at any of them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

from vmt.errors import InputError

INPUT = "input"


class Staged(nn.Module):
    """Stages applied in order; each is named by what it produces (its *tap*).

    The paper's classifier f = h ∘ g has the taps ``features`` (g, what the discriminator sees), ``hidden`` (the input
    of the last dense layer) and ``logits``.

    ``one_by_one`` marks a network whose passes may not share a batch, because it holds normalisation layers that
    cannot be told where one pass ends.

    >>> net = Staged({"features": nn.Linear(5, 4), "logits": nn.Linear(4, 3)})
    >>> net.part(after="features").taps
    ('logits',)
    """

    def __init__(self, stages: Mapping[str, nn.Module], one_by_one: bool = False) -> None:
        super().__init__()
        self.stages = nn.ModuleDict(stages)
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
        """The stages after one tap and up to another, as a network of their own (sharing the modules)."""
        return Staged({name: self.stages[name] for name in self.between(after, until)}, self.one_by_one)

    def between(self, after: str, until: str | None) -> tuple[str, ...]:
        """The taps after one and up to another."""
        names = self.taps
        for tap in (after, until):
            if tap not in (INPUT, None, *names):
                raise InputError(f"the network has no tap {tap!r}, only {', '.join(names)}: name one of them.")
        first = 0 if after == INPUT else names.index(after) + 1
        last = len(names) if until is None else names.index(until) + 1
        return names[first:last]


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards each layer is again in its own, which need not be that of the whole."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
