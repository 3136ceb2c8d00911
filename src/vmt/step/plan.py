"""From the terms of an update to the few network calls that serve them all.

Views share one call on a concatenated batch if they run the same stages of the same network, in the same mode, and
depend on equally many earlier calls. For VMT this makes three classifier calls of eight views of N samples each:

- [source | target | mixed source | mixed target], (4N, …);
- [source + ξd | target + ξd], (2N, …), whose gradients at the input are the directions of VAT;
- [adversarial source | adversarial target], (2N, …).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from vmt.errors import InputError
from vmt.methods.nodes import SLOPE, Batch, Node, Tap, View, below
from vmt.methods.nouns import Phase, Update
from vmt.nets.networks import INPUT


@dataclass(frozen=True)
class Pass:
    """Views that share one call of one network, and the settings that they have in common."""

    role: str
    views: tuple[View, ...]
    entry: str
    """The tap at which the inputs enter the network."""
    exit: str
    """The last tap that is computed."""
    training: bool
    gradient: bool
    probing: bool
    """Whether the views have a probe, so that the gradient at their input is computed in place of the taps."""


def plan(update: Update, taps: Mapping[str, tuple[str, ...]]) -> tuple[Pass, ...]:
    """The passes of an update, in an order in which the inputs of each are ready; ``taps`` has each role's taps."""
    return _cached_plan(update, tuple(taps.items()))


@lru_cache(maxsize=64)  # an update is planned once and not at every step
def _cached_plan(update: Update, taps_of_roles: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[Pass, ...]:
    exits = _last_taps(update, dict(taps_of_roles))
    groups: dict[tuple[object, ...], list[View]] = {}
    for view, exit in exits.items():
        key = (depth(view), view.role, view.entry, exit, view.training, view.gradient, view.probe is None)
        groups.setdefault(key, []).append(view)
    passes = []
    for views in sorted(groups.values(), key=lambda views: depth(views[0])):
        any_view = views[0]  # the settings of all views are equal
        passes.append(
            Pass(
                role=any_view.role,
                views=tuple(views),
                entry=any_view.entry,
                exit=exits[any_view],
                training=any_view.training,
                gradient=any_view.gradient,
                probing=any_view.probe is not None,
            )
        )
    return tuple(passes)


def _last_taps(update: Update, taps: Mapping[str, tuple[str, ...]]) -> dict[View, str]:
    """Every view that an update needs, and the last tap of it that is read."""
    exits: dict[View, str] = {}

    def need(view: View, tap: str | None) -> None:
        """Run a view at least up to a tap; None stands for the whole network."""
        if view.role not in taps:
            raise InputError(
                f"the update {update.name!r} reads the role {view.role!r}, which the method does not have."
            )
        names = taps[view.role]
        if view.entry not in (INPUT, *names):
            raise InputError(
                f"the update {update.name!r} enters the role {view.role!r} at {view.entry!r}, but its taps are "
                f"{', '.join(names)}."
            )
        produced = names if view.entry == INPUT else names[names.index(view.entry) + 1 :]
        if tap is None or (tap == SLOPE and view.probe):
            tap = names[-1]
        elif view.probe:
            raise InputError(
                f"the update {update.name!r} reads {tap!r} of a view with a probe, whose only tap is {SLOPE}."
            )
        if tap not in produced:
            after = "" if view.entry == INPUT else f" after {view.entry}"
            raise InputError(
                f"the update {update.name!r} reads {tap!r} of the role {view.role!r}, but its taps{after} are "
                f"{', '.join(produced) or 'none'}."
            )
        exits[view] = max(tap, exits.get(view, tap), key=names.index)

    for term in update.terms:
        for node in term.reads:
            for tap in taps_below(node):
                need(tap.view, tap.name)
    for view in update.keep:
        need(view, None)
        for tap in taps_below(view):
            need(tap.view, tap.name)
    return exits


def taps_below(node: Node | View) -> Iterator[Tap]:
    """Every tap that a node depends on, itself included, in an order in which they can be computed."""
    return (each for each in below(node) if isinstance(each, Tap))


def depth(view: View) -> int:
    """The number of passes that must come before the pass of a view."""
    return max((1 + depth(tap.view) for tap in taps_below(view)), default=0)


def batches_of(update: Update) -> set[Batch]:
    """The batches that an update reads."""
    nodes: list[Node | View] = [*update.keep, *(node for term in update.terms for node in term.reads)]
    return {each for node in nodes for each in below(node) if isinstance(each, Batch)}


def trains_on(phase: Phase, stream: str) -> bool:
    """Whether any update of a phase reads samples of a stream."""
    return any(batch.stream == stream for update in phase.updates for batch in batches_of(update))


def name_of_indices(update: Update, repeat: int, batch: Batch) -> str:
    """The name of the draw that chooses the samples of a batch."""
    return f"{update.batch or prefix_of(update, repeat)}/{batch.name}/indices"


def prefix_of(update: Update, repeat: int) -> str:
    """What the names of the other draws of an update begin with."""
    return update.name + (f"#{repeat}" if repeat else "")
