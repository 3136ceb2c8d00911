"""The tasks that have a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from vmt.data.benchmarks import Split, read_mnist, read_svhn
from vmt.data.convert import domain
from vmt.data.digits import digits_task
from vmt.data.domain import Domain
from vmt.data.task import Task, make_task
from vmt.errors import InputError

Reader = Callable[[Path, Split], Domain]

CLASSES = tuple("0123456789")


@dataclass(frozen=True)
class TaskInfo:
    """What there is to know about a named task before it is loaded."""

    name: str
    description: str
    source: str
    target: str
    needs_data: bool
    load: Callable[[Path | None], Task]


def load_task(name: str, data: Path | None = None) -> Task:
    """The named task, on the CPU; `data` is the folder under which its files lie."""
    if name not in TASKS:
        near = get_close_matches(name, TASKS, n=1)
        hint = f" (perhaps {near[0]}?)" if near else ""
        raise InputError(f"there is no task {name!r}{hint}: choose one of {', '.join(TASKS)}.")
    return TASKS[name].load(data)


def _mnist(data: Path, split: Split) -> Domain:
    return domain(*read_mnist(data / "mnist", split), name=f"MNIST {split}")


def _svhn(data: Path, split: Split) -> Domain:
    return domain(*read_svhn(data / "svhn", split), name=f"SVHN {split}")


def _from_files(name: str, source: str, target: str, description: str) -> TaskInfo:
    readers: dict[str, Reader] = {"MNIST": _mnist, "SVHN": _svhn}

    def load(data: Path | None) -> Task:
        if data is None:
            raise InputError(f"the task {name} reads {source} and {target} from files: give their folder with --data.")
        if not data.is_dir():
            raise InputError(f"the data folder {data} does not exist: give the folder that holds mnist and svhn.")
        return make_task(
            readers[source](data, "train"),
            readers[target](data, "train"),
            source_test=readers[source](data, "test"),
            target_test=readers[target](data, "test"),
            classes=CLASSES,
            name=name,
        )

    return TaskInfo(name, description, source, target, needs_data=True, load=load)


TASKS: dict[str, TaskInfo] = {
    info.name: info
    for info in (
        TaskInfo(
            "digits",
            "digits drawn with text fonts to scanned handwriting, 16×16; nothing to download",
            "rendered fonts",
            "scanned handwriting",
            needs_data=False,
            load=lambda data: digits_task(),
        ),
        _from_files("mnist-svhn", "MNIST", "SVHN", "handwritten digits to house numbers, 32×32; the hard direction"),
        _from_files("svhn-mnist", "SVHN", "MNIST", "house numbers to handwritten digits, 32×32"),
    )
}
