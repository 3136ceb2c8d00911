"""Domains, and the tasks made of them."""

from vmt.data.arrays import domain, from_dataset
from vmt.data.checks import check_pair
from vmt.data.domain import Domain
from vmt.data.files.own import Own, read_own
from vmt.data.files.paths import read_npz
from vmt.data.preprocess import Preprocess, preprocess_for
from vmt.data.readers.digits import read_mnist, read_svhn, read_syn, read_usps
from vmt.data.readers.photographs import read_cifar10, read_stl10
from vmt.data.synthetic.digits import digits_task
from vmt.data.synthetic.mnistm import build_mnistm, read_mnistm
from vmt.data.synthetic.syn import build_syn, read_recreation
from vmt.data.task import Task, make_task
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
