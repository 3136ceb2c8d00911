"""Runs on a real Ray cluster of two nodes on the loopback address, one of which is lost in the middle."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import vmt
from tests.many.runs_of_vectors import (
    CHECKPOINT_EVERY,
    ITERATIONS,
    LosesItsNode,
    Steps,
    StopsItsDriver,
    arguments,
    trained,
)
from tests.own_data import write_blobs
from tests.paper_cells import OVERRIDES, cell
from vmt.cli.main import main
from vmt.errors import InputError
from vmt.many.executors import run_on_ray
from vmt.paper.experiment import jobs_for
from vmt.paper.queue import PaperQueue, Workspace
from vmt.paper.results import read_result
from vmt.runs.ray_tasks import OnRay

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(os.name == "nt", reason="Ray's clusters of several nodes need POSIX"),
]
ROOT = Path(__file__).parents[2]
RUNS = 10


@dataclass(frozen=True)
class TwoNodes:
    address: str
    second: str
    """The number of the second node."""
    raylet: int
    """The process that is the second node."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    """A head and a second node, each with room for one run. The first test loses the second."""
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="vmt-", dir="/tmp")  # Ray's sockets need a short name
    small = {"num_cpus": 1, "object_store_memory": 80_000_000, "node_ip_address": "127.0.0.1"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_raylet_start_wait_time_s", "300")  # on a machine that is busy with other tests
        started = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
        try:
            second = started.add_node(**small)
            raylet = second.all_processes["raylet"][0].process.pid
            yield TwoNodes(started.address, second.node_id, raylet)
        finally:
            started.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def test_ten_runs_finish_although_a_node_is_lost(cluster: TwoNodes, tmp_path: Path) -> None:
    steps = [tmp_path / f"steps-{seed}" for seed in range(RUNS)]
    loses = LosesItsNode(cluster.second, cluster.raylet, tmp_path / "mark")
    runs = [arguments(seed=seed, callbacks=(Steps(steps[seed]), loses)) for seed in range(RUNS)]
    done = vmt.map_runs(runs, out=tmp_path / "ray", on=f"ray:{cluster.address}", progress=False)
    assert (tmp_path / "mark").exists(), "the node was lost while it worked on a run"
    assert [run.problem for run in done] == RUNS * [None]
    assert [run.summary["seed"] for run in done if run.summary is not None] == list(range(RUNS))
    resumed = 0
    for path in steps:
        first, *later = trained(path)
        resumed += len(later)
        for attempt in later:
            assert attempt[0] == CHECKPOINT_EVERY + 1, "it continues after its checkpoint"
        assert (later or [first])[-1][-1] == ITERATIONS
        if not later:
            assert first == list(range(1, ITERATIONS + 1))
    assert resumed == 1
    vmt.map_runs([arguments(seed=seed) for seed in range(RUNS)], out=tmp_path / "here", progress=False)
    for run in done:
        one, other = (load_file(tmp_path / place / run.name / "model.safetensors") for place in ("ray", "here"))
        assert all(one[name].equal(other[name]) for name in one), f"run {run.name} differs from that in one process"
    assert not ray.is_initialized()


def test_the_paper_s_queue_runs_on_ray(
    cluster: TwoNodes, official_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    workspace = Workspace(str(official_data), tmp_path / "results", tmp_path / "runs")
    queue = PaperQueue(jobs_for([cell("Source-Only", "source_only")]), workspace, OVERRIDES)
    lines: list[str] = []
    outcome = run_on_ray(queue, OnRay(cluster.address), None, lines.append, at_once=1)
    assert (outcome.done, outcome.missing, outcome.problems) == (1, 0, {})
    assert all(read_result(path)["at_once"] == 1 for path in workspace.results.iterdir())
    printed = capfd.readouterr()
    assert printed.out == ""
    for job in queue.jobs:
        assert f"{job.run}: 3 of 3 iterations" in printed.err, "the progress of runs elsewhere is shown here"
    assert run_on_ray(queue, OnRay("127.0.0.1:1"), None, lines.append).done == 0, "nothing is left, so nothing is asked"


def test_a_search_on_ray_finds_what_it_finds_here(
    cluster: TwoNodes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One process at a time works on it in both cases, so that each trial sees the same trials before it."""
    write_blobs(tmp_path)
    flags = ["--method", "source_only", "--trials", "2", "--iterations", "8", "--batch-size", "8", "--device", "cpu"]
    flags += ["--source", str(tmp_path / "source.npz"), "--target", str(tmp_path / "target.npz")]
    found = {}
    for name, place in (("ray", ["--on", f"ray:{cluster.address}", "--jobs", "1"]), ("here", [])):
        assert main(["search", *flags, *place, "--out", str(tmp_path / name)]) == 0
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        found[name] = (
            summary["choice"]["chosen"],
            [(trial["state"], trial["score"], trial["settings"]) for trial in summary["search"]["trials"]],
        )
        assert ("Ray: joined" in capfd.readouterr().err) == (name == "ray")
    assert found["ray"] == found["here"]
    assert not ray.is_initialized()


def test_runs_that_fail_are_not_tried_again(cluster: TwoNodes, tmp_path: Path) -> None:
    """And runs under a URL are kept there. The runs get no GPU of a cluster that has none."""
    steps, on = tmp_path / "steps", f"ray:{cluster.address}"
    runs = [arguments(net="nonsense"), arguments(callbacks=(Steps(steps),)), arguments(lr=1e9, method="vmt")]
    unknown, good, infinite = vmt.map_runs(runs, out=(tmp_path / "far").as_uri(), on=on, progress=False)
    assert "'nonsense'" in str(unknown.problem)
    assert "infinite" in str(infinite.problem)
    assert good.problem is None
    assert trained(steps) == [list(range(1, ITERATIONS + 1))]
    assert good.model().predict(arguments()["target"]).shape == (30,)
    for more, named in (({"gpus_per_run": 0.5}, "no GPU"), ({}, "cuda")):
        asked = arguments(device="auto" if more else "cuda")
        with pytest.raises(InputError, match=named):
            vmt.map_runs([asked], out=tmp_path / "gpu", on=on, progress=False, **more)


def test_ray_on_this_machine_stops_with_a_checkpoint_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    steps, before = tmp_path / "steps", set(Path("/tmp").glob("vmt-ray-*"))
    handler = signal.getsignal(signal.SIGTERM)

    def runs() -> list[dict[str, Any]]:
        stops = StopsItsDriver(os.getpid(), tmp_path / "mark")
        return [arguments(callbacks=(Steps(steps), stops))]

    with pytest.raises(KeyboardInterrupt):
        vmt.map_runs(runs(), out=tmp_path / "runs", on="ray", progress=False)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert not ray.is_initialized()
    assert set(Path("/tmp").glob("vmt-ray-*")) == before
    (done,) = vmt.map_runs(runs(), out=tmp_path / "runs", progress=False)
    assert done.problem is None
    first, second = trained(steps)
    assert first + second == list(range(1, ITERATIONS + 1)), "it stopped with a checkpoint and was resumed from there"


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:PORT", "ray://127.0.0.1:PORT"])
def test_an_address_without_ray_is_refused(address: str, tmp_path: Path) -> None:
    with socket.socket() as closed:  # bound but not listening, so that nobody else answers there
        closed.bind(("127.0.0.1", 0))
        address = address.replace("PORT", str(closed.getsockname()[1]))
        with pytest.raises(InputError, match=address):
            vmt.map_runs([arguments()], out=tmp_path, on=f"ray:{address}", progress=False)


def test_without_ray_the_command_names_what_to_install(tmp_path: Path) -> None:
    """In a process in which Ray cannot be imported."""
    probe = "import sys; sys.modules['ray'] = None; from vmt.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = ["paper", "run", "priority", "--data", str(tmp_path), "--device", "cpu", "--on", "ray"]
    folders = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    done = subprocess.run([sys.executable, "-c", probe, *command, *folders], capture_output=True, text=True)
    assert done.returncode == 2
    assert "vmt[ray]" in done.stderr
    assert "Traceback" not in done.stderr
