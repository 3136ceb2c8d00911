"""The folder of ``vmt.adapt``: what a run was begun with, and whether it is the same run that is gone on with."""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from vmt.data.task import Task
from vmt.disk import write_atomically
from vmt.errors import InputError
from vmt.methods.nodes import View
from vmt.methods.nouns import Method
from vmt.nets.factory import NetSpec
from vmt.runs.environment import fingerprint
from vmt.runs.run import ADAPT, MODEL, RUN
from vmt.train.checkpoint import checkpoints
from vmt.train.config import Config
from vmt.train.loop import CHECKPOINTS


def record_of(task: Task, method: Method, net: NetSpec, config: Config) -> dict[str, Any]:
    """All that decides what a run computes, and can be written down."""
    updates = {f"{phase.name}/{update.name}": update for phase in method.phases for update in phase.updates}
    terms = {f"{name}/{term.name}": term for name, update in updates.items() for term in update.terms}
    return {
        "data": fingerprint(task),
        "method": method.name,
        "iterations": {phase.name: phase.iterations for phase in method.phases},
        "weights": {name: repr(term.weight) for name, term in terms.items() if is_plain(term.weight)},
        "terms": {name: {"loss": name_of(term.loss), **numbers_in(term.reads)} for name, term in terms.items()},
        "optimisers": {n: repr(update.optimiser) for n, update in updates.items() if is_plain(update.optimiser.lr)},
        "averages": {f"{n}/{each.into}": each.decay for n, update in updates.items() for each in update.averages},
        "events": {phase.name: [event.every for event in phase.events] for phase in method.phases},
        "net": json.loads(json.dumps(net.to_dict(), default=str)),
        "seed": config.seed,
        "batch_size": config.batch_size,
        "precision": config.precision,
        "keep_best": config.keep_best or None,
    }


def numbers_in(described: Any) -> dict[str, float | None]:
    """The numbers in the description of what a term reads: VAT's radius and ξ, the mix's α."""
    if isinstance(described, tuple):
        return {name: value for each in described for name, value in numbers_in(each).items()}
    found: dict[str, float | None] = {}
    for field in fields(described) if is_dataclass(described) else ():
        value = getattr(described, field.name)
        if not (value is None or isinstance(value, int | float)):
            found |= numbers_in(value)
        elif not isinstance(described, View):
            found[field.name] = value
    return found


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


def is_plain(weight: float | Callable[..., Any]) -> bool:
    """Whether a weight reads the same in every process: a number or a schedule of this package."""
    return not callable(weight) or is_dataclass(weight)


def begin_or_go_on(folder: Path, record: dict[str, Any], resume: bool) -> None:
    """Refuses to write over a run, and to go on with one as if it were another."""
    if (folder / RUN).exists():
        raise InputError(
            f"{folder} holds a run of vmt train: go on with it by --resume {folder}, or choose another out=."
        )
    path = folder / ADAPT
    if checkpoints(folder / CHECKPOINTS):
        if not resume:
            raise InputError(
                f"{folder} already holds a run: pass resume=True to go on with it, or choose another out=."
            )
        check_same(folder, record)
    elif (folder / MODEL).exists():
        raise InputError(f"{folder} holds a model and no checkpoint to go on from: choose another out=.")
    write_atomically(path, json.dumps(record, indent=1).encode())


def check_same(folder: Path, record: dict[str, Any]) -> None:
    path = folder / ADAPT
    if not path.is_file():
        return
    try:
        before = dict(json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error}): start the run again in another folder.") from error
    # What an earlier version did not write down is taken as it is.
    for name, was, now in differences(before, {name: value for name, value in record.items() if name in before}):
        if name == "data":
            raise InputError(
                f"the data of {folder} have changed since the run began: restore them, or choose another out=."
            )
        raise InputError(
            f"the run in {folder} was begun with {name} {was}, not {now}: go on with the same, or choose another out=."
        )


def differences(before: dict[str, Any], now: dict[str, Any], of: str = "") -> Iterator[tuple[str, Any, Any]]:
    """What two records do not agree in: its name, and both values."""
    for name in {**now, **before}:
        a, b = before.get(name), now.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from differences(a, b, f"{of}{name} ")
        elif a != b:
            yield f"{of}{name}", a, b
