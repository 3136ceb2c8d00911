"""The named tasks: the embedded one, and those of the published sets.

The readers are imported when a task is loaded: the command line lists the tasks without NumPy and PyTorch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vmt.data.picture_sets import PICTURE_TASKS, PictureTask
from vmt.errors import InputError, perhaps

if TYPE_CHECKING:
    from vmt.data.domains import Domain
    from vmt.data.files.own import ReadOptions
    from vmt.data.readers.digits import Split
    from vmt.data.task import Task

DIGITS = tuple("0123456789")
SIZE = (32, 32)  # the image size of the paper's networks, to which stored images are resized


@dataclass(frozen=True)
class TaskInfo:
    """A named task, described before it is loaded."""

    name: str
    description: str
    source: str
    target: str
    needs_data: bool
    load: "Callable[[Path | None], Task]"

    def missing(self, data: Path) -> str:
        """What the data folder lacks for this task, and where to get it; an empty text if everything is there."""
        if self.name in PICTURE_TASKS:
            published = PICTURE_TASKS[self.name].set
            lacking = published.missing(data)
            return f"{', '.join(lacking)} of {published.title}, from {published.home}" if lacking else ""
        lacking = [FOLDERS[each] for each in (self.source, self.target) if self.needs_data]
        lacking = [folder for folder in lacking if not (data / folder).is_dir()]
        return f"{', '.join(lacking)}; see vmt data --help" if lacking else ""


def load_task(name: str, data: Path | None = None) -> "Task":
    """Load a named task on the CPU; `data` is the folder with the files of the published sets.

    >>> task = load_task("digits")
    >>> task.source.name, task.preprocess.size, len(task.classes)
    ('rendered digits', (16, 16), 10)
    """
    if name not in TASKS:
        raise InputError(f"there is no task {name!r}{perhaps(name, TASKS)}: choose one of {', '.join(NAMES_OF_TASKS)}.")
    return TASKS[name].load(data)


# The folder of each set below the data folder.
FOLDERS = {
    "MNIST": "mnist",
    "MNIST-M": "mnistm",
    "SVHN": "svhn",
    "SYN": "syn",
    "USPS": "usps",
    "CIFAR-10": "cifar10",
    "STL-10": "stl10",
}


def read_set(name: str, data: Path, split: "Split") -> "Domain":
    """One split of a set, from its folder below the data folder."""
    from vmt.data.domains import domain
    from vmt.data.readers import digits, photographs
    from vmt.data.synthetic.mnistm import read_mnistm
    from vmt.data.synthetic.syn import read_recreation, recreation_exists

    folder, label = data / FOLDERS[name], f"{name} {split}"
    match name:
        case "MNIST":
            samples = digits.read_mnist(folder, split)
        case "MNIST-M":
            samples = read_mnistm(folder, split)
        case "SVHN":
            samples = digits.read_svhn(folder, split)
        case "USPS":
            samples = digits.read_usps(folder, split)
        case "SYN":
            # The published set if it exists, otherwise the re-creation; the name says which of them it is.
            if not (folder / f"synth_{split}_32x32.mat").exists() and recreation_exists(folder, split):
                samples, label = read_recreation(folder, split), f"SYN (re-creation) {split}"
            else:
                samples = digits.read_syn(folder, split)
        case "CIFAR-10":
            samples = photographs.shared_classes(*photographs.read_cifar10(folder, split), photographs.CIFAR_CLASSES)
        case "STL-10":
            stl = photographs.read_stl10(folder, split)
            samples = photographs.shared_classes(stl.images, stl.labels, photographs.STL_CLASSES)
            if stl.split != split:
                label = "STL-10 train (this copy has no test split)"
        case _:
            raise KeyError(name)
    return domain(*samples, name=label)


def _from_files(name: str, source: str, target: str, description: str) -> TaskInfo:
    folders = " and ".join(FOLDERS[kind] for kind in (source, target))

    def load(data: Path | None) -> "Task":
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

        from vmt.data.readers.photographs import NINE
        from vmt.data.task import make_task

        return make_task(
            read_set(source, data, "train"),
            read_set(target, data, "train"),
            source_test=read_set(source, data, "test"),
            target_test=read_set(target, data, "test"),
            classes=NINE if "CIFAR-10" in (source, target) else DIGITS,
            name=name,
            size=SIZE,
        )

    return TaskInfo(name, description, source, target, needs_data=True, load=load)


def picture_task(
    task: PictureTask, data: Path | None, how: "ReadOptions | None" = None
) -> "tuple[Task, tuple[str, ...]]":
    """A task of a set of pictures in folders, and notes on how they were read; ``how`` is as for your own pictures.

    The source is its whole domain, and so is the target, whose labels only measure the accuracy.
    """
    from vmt.data.files.own import own_task

    source, target = task.folders(data)
    names = task.names(data)
    made, notes = own_task(source, target, how=how)
    test = None if made.target_test is None else replace(made.target_test, name=names[1])
    source_test = None if made.source_test is None else replace(made.source_test, name=f"{names[0]} held out")
    made = replace(made, name=task.name, source_test=source_test, target_test=test)
    made = replace(made, source=replace(made.source, name=names[0]), target=replace(made.target, name=names[1]))
    return made, notes


def _pictures(task: PictureTask) -> TaskInfo:
    domains = task.set.domains
    return TaskInfo(
        task.name,
        task.description,
        f"{task.set.title} {domains[task.source].title}",
        domains[task.target].title,
        needs_data=True,
        load=lambda data: picture_task(task, data)[0],
    )


def _digits(data: Path | None) -> "Task":
    from vmt.data.synthetic.digits import digits_task

    return digits_task()


TASKS: dict[str, TaskInfo] = {
    info.name: info
    for info in (
        TaskInfo(
            "digits",
            "digits drawn with text fonts to scanned handwriting, 16×16; nothing to download",
            "rendered fonts",
            "scanned handwriting",
            needs_data=False,
            load=_digits,
        ),
        _from_files("mnist-svhn", "MNIST", "SVHN", "handwritten digits to house numbers, 32×32; the hard direction"),
        _from_files("svhn-mnist", "SVHN", "MNIST", "house numbers to handwritten digits, 32×32"),
        _from_files("mnist-mnistm", "MNIST", "MNIST-M", "the same digits, blended with photographs, 32×32"),
        _from_files("syn-svhn", "SYN", "SVHN", "digits drawn with fonts, the published set or its re-creation, 32×32"),
        _from_files("cifar-stl", "CIFAR-10", "STL-10", "small photographs, nine shared classes, 32×32"),
        _from_files("stl-cifar", "STL-10", "CIFAR-10", "small photographs, nine shared classes, 32×32"),
        _from_files("mnist-usps", "MNIST", "USPS", "handwritten digits to scanned postcodes, 32×32"),
        _from_files("usps-mnist", "USPS", "MNIST", "scanned postcodes to handwritten digits, 32×32"),
        *map(_pictures, PICTURE_TASKS.values()),
    )
}
# For help and messages, which need not list every pair of the sets of pictures.
NAMES_OF_TASKS = (*(name for name in TASKS if name not in PICTURE_TASKS), "pacs-photo-art and others (vmt tasks)")
