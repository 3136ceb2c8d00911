"""Ten runs on a Ray cluster of two nodes, one of which is killed in the middle, against the same runs in one process.

    python benchmarks/lost_node.py --iterations 300 --out results/lost_node.json

Both nodes are on this machine, on its loopback address. The second is killed, with its worker, when the run on it is
some iterations after a checkpoint. Prints from where to where each attempt of a run went, and whether the models are
equal bit for bit.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Before Ray is imported: everything is on the loopback address, nothing is reported, and a busy machine gets time.
os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
os.environ |= {"RAY_raylet_start_wait_time_s": "300"}

import torch
from ray.cluster_utils import Cluster
from safetensors.torch import load_file

import vmt
from vmt.data.tasks import load_task
from vmt.runs.folder import commit

RUNS = 10


class Watched(vmt.Callback):
    """Writes down every iteration, and kills the node of a run some iterations after a checkpoint, once."""

    def __init__(self, steps: Path, node: str = "", raylet: int = 0, at: int = 0, mark: Path = Path()) -> None:
        self.steps, self.node, self.raylet, self.at, self.mark = steps, node, raylet, at, mark

    def on_start(self, record: Mapping[str, Any], folder: Path | None) -> None:
        with self.steps.open("a") as file:
            file.write("\n")

    def on_log(self, record: Mapping[str, Any]) -> None:
        import ray

        with self.steps.open("a") as file:
            file.write(f"{record['step']} ")
        here = ray.get_runtime_context().get_node_id()
        if record["step"] == self.at and here == self.node and not self.mark.exists():
            self.mark.touch()
            os.kill(self.raylet, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="vmt-", dir="/tmp"))
    os.environ["RAY_TMPDIR"] = str(folder)
    task = load_task("digits", None)
    every = arguments.iterations // 3
    shared = {
        "source": task.source, "target": task.target, "target_test": task.target_test, "method": "vmt", "net": "tiny",
        "iterations": arguments.iterations, "checkpoint_every": every, "evaluate_every": arguments.iterations,
        "log_every": 1, "device": "cpu", "threads": 1, "batch_size": 16, "match_shares": False,
    }  # fmt: skip
    node = {"num_cpus": 1, "object_store_memory": 80_000_000, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        second = cluster.add_node(**node)
        raylet = second.all_processes["raylet"][0].process.pid
        runs = []
        for seed in range(RUNS):
            watch = Watched(folder / f"steps-{seed}", second.node_id, raylet, every + every // 2, folder / "mark")
            runs.append({**shared, "seed": seed, "callbacks": (watch,)})
        began = time.monotonic()
        done = vmt.map_runs(runs, out=folder / "ray", on=f"ray:{cluster.address}")
        on_ray = time.monotonic() - began
    finally:
        cluster.shutdown()
    began = time.monotonic()
    vmt.map_runs([{**shared, "seed": seed} for seed in range(RUNS)], out=folder / "here")
    here = time.monotonic() - began
    attempts = [
        [
            f"{line.split()[0]}-{line.split()[-1]}"
            for line in (folder / f"steps-{seed}").read_text().splitlines()
            if line
        ]
        for seed in range(RUNS)
    ]
    result = {
        "node_lost": (folder / "mark").exists(),
        "finished": sum(run.problem is None for run in done),
        "iterations_of_each_attempt": attempts,
        "equal_to_one_process": [same(folder / "ray" / run.name, folder / "here" / run.name) for run in done],
        "target_accuracy": [run.summary and run.summary["target_accuracy"] for run in done],
        "seconds_on_ray": round(on_ray, 1),
        "seconds_in_one_process": round(here, 1),
        "iterations": arguments.iterations,
        "commit": commit(),
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPU cores",
        "load": os.getloadavg(),
    }
    shutil.rmtree(folder, ignore_errors=True)
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")


def same(one: Path, other: Path) -> bool:
    """Whether two runs ended with the same model, bit for bit."""
    a, b = (load_file(folder / "model.safetensors") for folder in (one, other))
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


if __name__ == "__main__":
    main()
