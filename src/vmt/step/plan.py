"""From the terms of an update to the few network calls that serve them all.

Views that need the same network, in the same mode, and that wait for equally many earlier passes, run as one
concatenated batch. For VMT this makes three classifier calls of eight views: [source | target | mixed source | mixed
target], [source + ξd | target + ξd] and [adversarial source | adversarial target].
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from vmt.errors import InputError
from vmt.methods.nodes import SLOPE, Batch, Node, Tap, View, below
from vmt.methods.nouns import Phase, Update
from vmt.nets.staged import INPUT


@dataclass(frozen=True)
class Pass:
    """Views that share one call of one network."""

    role: str
    views: tuple[View, ...]
    entry: str
    exit: str
    training: bool
    gradient: bool
    probing: bool


def plan(update: Update, taps: Mapping[str, tuple[str, ...]]) -> tuple[Pass, ...]:
    """The passes of an update in an order in which each finds its inputs ready. ``taps`` are those of each role."""
    return planned(update, tuple(taps.items()))


@lru_cache(maxsize=64)
def planned(update: Update, taps_of_roles: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[Pass, ...]:
    """The same from values that can be remembered: an update is planned once, not at every step."""
    taps = dict(taps_of_roles)
    exits: dict[View, str] = {}

    def need(view: View, tap: str | None) -> None:
        """A view must run up to a tap; None means all of its network."""
        if view.role not in taps:
            raise InputError(f"update {update.name!r} reads the role {view.role!r}, which the method does not have")
        names = taps[view.role]
        if view.entry not in (INPUT, *names):
            raise InputError(
                f"update {update.name!r} enters the role {view.role!r} at {view.entry!r}, which has only "
                f"{', '.join(names)}"
            )
        produced = names if view.entry == INPUT else names[names.index(view.entry) + 1 :]
        if tap is None or (tap == SLOPE and view.probe):
            tap = names[-1]
        elif view.probe:
            raise InputError(f"update {update.name!r} reads {tap!r} of a view with a probe, which has only {SLOPE}")
        if tap not in produced:
            behind = "" if view.entry == INPUT else f" behind {view.entry}"
            raise InputError(
                f"update {update.name!r} reads {tap!r} of the role {view.role!r}, which has only "
                f"{', '.join(produced) or 'nothing'}{behind}"
            )
        before = exits.get(view, tap)
        exits[view] = max(tap, before, key=names.index)

    for term in update.terms:
        for node in term.reads:
            for tap in taps_below(node):
                need(tap.view, tap.name)
    for view in update.keep:
        need(view, None)
        for tap in taps_below(view):
            need(tap.view, tap.name)

    groups: dict[tuple[object, ...], list[View]] = {}
    for view, exit in exits.items():
        key = (depth(view), view.role, view.entry, exit, view.training, view.gradient, view.probe is None)
        groups.setdefault(key, []).append(view)
    ordered = sorted(groups.items(), key=lambda item: depth(item[1][0]))
    return tuple(
        Pass(
            first.role,
            tuple(views),
            first.entry,
            exits[first],
            first.training,
            first.gradient,
            first.probe is not None,
        )
        for _, views in ordered
        for first in views[:1]
    )


def taps_below(node: Node | View) -> Iterator[Tap]:
    """Every tap that a node depends on, itself included, in the order in which they can run."""
    return (each for each in below(node) if isinstance(each, Tap))


def reads_stream(update: Update, stream: str) -> bool:
    """Whether an update sees anything of a stream."""
    nodes: list[Node | View] = [*update.keep, *(node for term in update.terms for node in term.reads)]
    return any(isinstance(each, Batch) and each.stream == stream for node in nodes for each in below(node))


def trains_on(phase: Phase, stream: str) -> bool:
    """Whether any update of a phase sees anything of a stream."""
    return any(reads_stream(update, stream) for update in phase.updates)


def depth(view: View) -> int:
    """How many passes must come before this one."""
    return max((1 + depth(tap.view) for tap in taps_below(view)), default=0)
