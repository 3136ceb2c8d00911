"""Domains, and the tasks made of them."""

from vmt.data.benchmarks import read_mnist, read_svhn, read_syn
from vmt.data.catalogue import TASKS, TaskInfo, load_task
from vmt.data.checks import check_pair
from vmt.data.cifar import read_cifar10
from vmt.data.convert import domain
from vmt.data.datasets import from_dataset
from vmt.data.digits import digits_task
from vmt.data.domain import Domain
from vmt.data.files import read_npz
from vmt.data.mnistm import build_mnistm, read_mnistm
from vmt.data.own import Own, read_own
from vmt.data.preprocess import Preprocess, preprocess_for
from vmt.data.stl import read_stl10
from vmt.data.syn import build_syn, read_recreation
from vmt.data.task import Task, make_task
from vmt.data.usps import read_usps

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
