"""Domains, and the tasks made of them."""

from vmt.data.benchmarks import read_mnist, read_svhn
from vmt.data.catalogue import TASKS, TaskInfo, load_task
from vmt.data.checks import check_pair
from vmt.data.convert import domain
from vmt.data.digits import digits_task
from vmt.data.domain import Domain
from vmt.data.files import read_npz
from vmt.data.preprocess import Preprocess, preprocess_for
from vmt.data.task import Task, make_task

__all__ = [
    "TASKS",
    "Domain",
    "Preprocess",
    "Task",
    "TaskInfo",
    "check_pair",
    "digits_task",
    "domain",
    "load_task",
    "make_task",
    "preprocess_for",
    "read_mnist",
    "read_npz",
    "read_svhn",
]
