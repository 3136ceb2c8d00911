"""Domains and tasks: from arrays, from your own files, and from published sets."""

from typing import TYPE_CHECKING

from vmt._imports import lazy

if TYPE_CHECKING:
    from vmt.data.domains import Domain, domain, from_dataset
    from vmt.data.files.numpy_files import read_npz
    from vmt.data.files.own import Own, read_own
    from vmt.data.preprocess import Preprocess, preprocess_for
    from vmt.data.readers.digits import read_mnist, read_svhn, read_syn, read_usps
    from vmt.data.readers.photographs import read_cifar10, read_stl10
    from vmt.data.synthetic.digits import digits_task
    from vmt.data.synthetic.mnistm import build_mnistm, read_mnistm
    from vmt.data.synthetic.syn import build_syn, read_recreation
    from vmt.data.task import Task, check_pair, make_task
    from vmt.data.tasks import TASKS, TaskInfo, load_task

__all__ = [
    "TASKS",
    "Domain",
    "Own",
    "Preprocess",
    "Task",
    "TaskInfo",
    "build_mnistm",
    "build_syn",
    "check_pair",
    "digits_task",
    "domain",
    "from_dataset",
    "load_task",
    "make_task",
    "preprocess_for",
    "read_cifar10",
    "read_mnist",
    "read_mnistm",
    "read_npz",
    "read_own",
    "read_recreation",
    "read_stl10",
    "read_svhn",
    "read_syn",
    "read_usps",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        **dict.fromkeys(("domain", "from_dataset"), "vmt.data.domains"),
        "check_pair": "vmt.data.task",
        "Domain": "vmt.data.domains",
        **dict.fromkeys(("Own", "read_own"), "vmt.data.files.own"),
        "read_npz": "vmt.data.files.numpy_files",
        **dict.fromkeys(("Preprocess", "preprocess_for"), "vmt.data.preprocess"),
        **dict.fromkeys(("read_mnist", "read_svhn", "read_syn", "read_usps"), "vmt.data.readers.digits"),
        **dict.fromkeys(("read_cifar10", "read_stl10"), "vmt.data.readers.photographs"),
        "digits_task": "vmt.data.synthetic.digits",
        **dict.fromkeys(("build_mnistm", "read_mnistm"), "vmt.data.synthetic.mnistm"),
        **dict.fromkeys(("build_syn", "read_recreation"), "vmt.data.synthetic.syn"),
        **dict.fromkeys(("Task", "make_task"), "vmt.data.task"),
        **dict.fromkeys(("TASKS", "TaskInfo", "load_task"), "vmt.data.tasks"),
    },
)
