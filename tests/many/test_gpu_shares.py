"""How many runs a Ray cluster carries out at once, by the share of a GPU that each of them takes; Ray is not needed."""

from types import ModuleType

import pytest

from vmt.errors import InputError
from vmt.progress import silent
from vmt.runs.board import ProgressTable
from vmt.runs.ray_tasks import Cluster, share_of_gpu


def cluster_of(share: float, **resources: float) -> Cluster:
    """A cluster with these resources, each of whose tasks takes a share of a GPU."""
    ray = ModuleType("ray")
    ray.cluster_resources = lambda: resources  # type: ignore[attr-defined]
    return Cluster(ray, share, silent, ProgressTable(False))


@pytest.mark.parametrize(
    ("gpus", "asked", "devices", "share"),
    [
        (4, 0.33, {"cuda"}, 0.33),
        (4, 0.33, {"auto", "cuda"}, 0.33),
        (1, 1, {"auto"}, 1.0),
        (4, None, {"auto"}, 1.0),
        (4, None, {"cuda"}, 1.0),
        (4, None, {"cpu", "auto"}, 1.0),
        (4, None, {"cpu"}, 0.0),
        (4, 0, {"auto"}, 0.0),
        (0, None, {"auto"}, 0.0),
        (0, 0, {"cpu"}, 0.0),
    ],
)
def test_a_run_takes_the_share_that_was_asked_for_or_one_gpu_if_there_are_any(
    gpus: float, asked: float | None, devices: set[str], share: float
) -> None:
    assert share_of_gpu(gpus, asked, devices) == share


@pytest.mark.parametrize(
    ("gpus", "asked", "devices", "named"),
    [
        (4, None, {"auto", "cuda:1"}, "cuda:1"),
        (4, 0.33, {"cpu"}, "gpus-per-run"),
        (0, 0.33, {"auto"}, "no GPU"),
        (4, 0, {"cuda"}, "gpus-per-run"),
        (0, None, {"cuda"}, "cuda"),
    ],
)
def test_a_share_that_no_run_can_take_is_refused(
    gpus: float, asked: float | None, devices: set[str], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        share_of_gpu(gpus, asked, devices)


@pytest.mark.parametrize(
    ("share", "cpus", "gpus", "on_each", "in_all"),
    [
        (0.33, 16, 1, 3, 3),
        (0.33, 16, 2, 3, 6),
        (1, 16, 2, 1, 2),
        (0.5, 16, 4, 2, 8),
        (0.4, 16, 2, 2, 4),  # what is left of two GPUs does not make a third share
        (1 / 93, 128, 1, 93, 93),  # 1 / (1 / 93) is a little less than 93
        (0.25, 3, 1, 4, 3),  # a run takes a CPU as well
    ],
)
def test_a_third_of_a_gpu_is_for_three_runs_at_once(
    share: float, cpus: int, gpus: int, on_each: int, in_all: int
) -> None:
    cluster = cluster_of(share, CPU=float(cpus), GPU=float(gpus))
    assert (cluster.on_a_device, cluster.at_once, cluster.device) == (on_each, in_all, "cuda")


@pytest.mark.parametrize(("resources", "in_all"), [({"CPU": 8.0}, 8), ({"CPU": 8.0, "GPU": 2.0}, 8), ({"CPU": 0.0}, 1)])
def test_runs_without_a_gpu_take_a_cpu_each(resources: dict[str, float], in_all: int) -> None:
    cluster = cluster_of(0, **resources)
    assert (cluster.on_a_device, cluster.at_once, cluster.device) == (in_all, in_all, "cpu")
