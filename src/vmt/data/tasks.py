"""The tasks that have a name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vmt.data.arrays import domain
from vmt.data.domains import Domain
from vmt.data.readers.digits import Samples, Split, read_mnist, read_svhn, read_syn, read_usps
from vmt.data.readers.photographs import CIFAR_CLASSES, NINE, STL_CLASSES, read_cifar10, read_stl10, shared_classes
from vmt.data.synthetic.digits import digits_task
from vmt.data.synthetic.mnistm import read_mnistm
from vmt.data.synthetic.syn import read_recreation, recreation_exists
from vmt.data.task import Task, make_task
from vmt.errors import InputError, perhaps

Reader = Callable[[Path, Split], Domain]

DIGITS = tuple("0123456789")
SIZE = (32, 32)  # what the paper's networks see, whatever size a set is stored in


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
    """The named task, on the CPU; `data` is the folder under which its files lie.

    >>> task = load_task("digits")
    >>> task.source.name, task.preprocess.size, len(task.classes)
    ('rendered digits', (16, 16), 10)
    """
    if name not in TASKS:
        raise InputError(f"there is no task {name!r}{perhaps(name, TASKS)}: choose one of {', '.join(TASKS)}.")
    return TASKS[name].load(data)


def _named(name: str, read: Callable[[Path, Split], Samples]) -> Reader:
    return lambda folder, split: domain(*read(folder, split), name=f"{name} {split}")


def _syn(folder: Path, split: Split) -> Domain:
    """The published set where it lies there, else the re-creation, and never the one under the other's name."""
    if not (folder / f"synth_{split}_32x32.mat").exists() and recreation_exists(folder, split):
        return domain(*read_recreation(folder, split), name=f"SYN (re-creation) {split}")
    return domain(*read_syn(folder, split), name=f"SYN {split}")


def _cifar(folder: Path, split: Split) -> Domain:
    return domain(*shared_classes(*read_cifar10(folder, split), CIFAR_CLASSES), name=f"CIFAR-10 {split}")


def _stl(folder: Path, split: Split) -> Domain:
    samples = read_stl10(folder, split)
    name = f"STL-10 {split}" if samples.split == split else "STL-10 train (this copy has no test split)"
    return domain(*shared_classes(samples.images, samples.labels, STL_CLASSES), name=name)


# Each set's folder under the data folder, and its reader.
SETS: dict[str, tuple[str, Reader]] = {
    "MNIST": ("mnist", _named("MNIST", read_mnist)),
    "MNIST-M": ("mnistm", _named("MNIST-M", read_mnistm)),
    "SVHN": ("svhn", _named("SVHN", read_svhn)),
    "SYN": ("syn", _syn),
    "USPS": ("usps", _named("USPS", read_usps)),
    "CIFAR-10": ("cifar10", _cifar),
    "STL-10": ("stl10", _stl),
}


def _from_files(name: str, source: str, target: str, description: str, classes: tuple[str, ...] = DIGITS) -> TaskInfo:
    folders = " and ".join(SETS[kind][0] for kind in (source, target))

    def load(data: Path | None) -> Task:
        if data is None:
            raise InputError(
                f"the task {name} reads {source} and {target} from files: give their folder with --data; "
                "vmt data --help says how to get them."
            )
        if not data.is_dir():
            raise InputError(
                f"the data folder {data} does not exist: give the folder that holds {folders}; "
                "vmt data --help says how to get them."
            )

        def read(kind: str, split: Split) -> Domain:
            folder, reader = SETS[kind]
            return reader(data / folder, split)

        return make_task(
            read(source, "train"),
            read(target, "train"),
            source_test=read(source, "test"),
            target_test=read(target, "test"),
            classes=classes,
            name=name,
            size=SIZE,
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
        _from_files("mnist-mnistm", "MNIST", "MNIST-M", "the same digits inverted into photographs, 32×32"),
        _from_files("syn-svhn", "SYN", "SVHN", "digits drawn with fonts, the published set or its re-creation, 32×32"),
        _from_files("cifar-stl", "CIFAR-10", "STL-10", "small photographs, nine shared classes, 32×32", NINE),
        _from_files("stl-cifar", "STL-10", "CIFAR-10", "small photographs, nine shared classes, 32×32", NINE),
        _from_files("mnist-usps", "MNIST", "USPS", "handwritten digits to scanned postcodes, 32×32"),
        _from_files("usps-mnist", "USPS", "MNIST", "scanned postcodes to handwritten digits, 32×32"),
    )
}
