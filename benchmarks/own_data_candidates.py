"""Train the networks that ``auto`` chooses from on the tasks for choosing, and keep what they predict.

    python benchmarks/own_data_candidates.py --jobs 15 --out build/auto/outputs --minutes 6

A rule that chooses among candidates, or that averages them, can then be tried on every task within seconds. For each
task and seed, the logits of each network are kept for the source that is trained on, the source that is held out, the
target and its test part, as half-precision numbers, in a few .npz files: ``TASK/SEED/NETWORK/PART``, with the labels
under ``TASK/SEED/labels/PART``. The samples themselves are made again from the task and the seed.
"""

import argparse
import multiprocessing
import os
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import numpy as np
from own_data_more import tasks_for_choosing
from own_data_tasks import TASKS, Array, Problem

from vmt.api import task_of
from vmt.data.task import Task
from vmt.runs.auto import Portfolio
from vmt.runs.run import carry_out
from vmt.runs.spec import DataSpec
from vmt.train.config import Config

# Each network: the method, and the network for vectors and for pictures where it is not the usual one.
NETWORKS: dict[str, tuple[str, str | None, str | None]] = {
    "source_only": ("source_only", None, None),
    "mcc": ("mcc", None, None),
    "vmt_mcc": ("vmt_mcc", None, None),
    "mcc_by_sample": ("mcc", "mlp_layer_norm", "tiny_group_norm"),
}
SLOWEST, LAST = "vmt_mcc", "mcc_by_sample"
FILES = 4
# fonts-handwriting takes several times as long as any other task, so it comes first.
FIRST = ("fonts-handwriting",)


def task_with_test(problem: Problem) -> Task:
    """The task that vmt.adapt would make of the arrays, with the test part of the target."""
    task = task_of((problem.xs, problem.ys), problem.xt, (problem.xt_test, problem.yt_test), None, None)
    assert task.source_test is not None
    assert task.target_test is not None
    return task


def outputs(name: str, seed: int, network: str) -> dict[str, Array]:
    """The logits of one network on one task, and the CPU seconds of its training."""
    import torch

    from vmt.evaluate.accuracy import feature_tap, logits_of, outputs_of
    from vmt.validators.clusters import nearest_neighbours

    torch.set_num_threads(1)
    task = task_with_test(tasks_for_choosing()[name].problem(seed))
    method, for_vectors, for_pictures = NETWORKS[network]
    net = for_vectors if len(task.sample_shape) == 1 else for_pictures
    portfolio = Portfolio(task, DataSpec(), Config(seed=seed, device="cpu", validate_samples=0), net)
    began = time.process_time()
    with warnings.catch_warnings(action="ignore"):
        model = carry_out(portfolio.run_of(method, None)).model
    found: dict[str, Any] = {f"{network}/seconds": np.float32(time.process_time() - began)}
    parts = {"source": task.source, "held": task.source_test, "target": task.target, "test": task.target_test}
    for part, domain in parts.items():
        assert domain is not None
        found[f"{network}/{part}"] = logits_of(model.network, domain.x, task.preprocess).half().numpy()
        if network == "source_only" and domain.y is not None:
            found[f"labels/{part}"] = domain.y.numpy().astype(np.uint8)
    if network == "source_only":
        found["checksum"] = np.float64(task.target.x.double().sum())
        (features,) = outputs_of(model.network, task.target.x, task.preprocess, (feature_tap(model.network),))
        found["feature_neighbours"] = nearest_neighbours(features.flatten(1)).numpy().astype(np.int16)
    return {f"{name}/{seed}/{key}": value for key, value in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--tasks", nargs="+", default=list(tasks_for_choosing()), help="names of tasks for choosing (default: all)")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    add("--more-seeds", type=int, nargs="+", default=[0, 1, 2], help="those of the tasks of own_data_more.py")
    add("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    add("--jobs", type=int, default=1)
    add("--minutes", type=float, default=1e6, help="begin no training after this time")
    add("--out", type=Path, required=True, help="the files get this name, a number and .npz")
    asked = parser.parse_args(arguments)
    jobs = [
        (name, seed, network)
        for name in asked.tasks
        for seed in (asked.seeds if name in TASKS else asked.more_seeds)
        for network in asked.networks
    ]
    # If time runs out, the last seeds are left out; within a seed, the slowest come first.
    jobs.sort(key=lambda job: (job[2] == LAST, job[1], job[0] not in FIRST, job[2] != SLOWEST))
    began = time.monotonic()
    kept: dict[str, Array] = {}
    waiting, running = list(reversed(jobs)), dict[Future[dict[str, Array]], Any]()
    with ProcessPoolExecutor(asked.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        while waiting or running:
            while waiting and len(running) < asked.jobs + 2:
                if time.monotonic() - began > 60 * asked.minutes:
                    print(f"Out of time: {len(waiting)} trainings are left out, from {waiting[-1]}.", flush=True)
                    waiting = []
                    break
                job = waiting.pop()
                running[pool.submit(outputs, *job)] = job
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                try:
                    kept |= future.result()
                except Exception as error:  # the others go on
                    print(f"{job}: {type(error).__name__}: {error}", flush=True)
        print(f"{time.monotonic() - began:.0f} s", flush=True)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    tasks = sorted({key.split("/")[0] for key in kept})
    for number in range(FILES):
        part = {key: value for key, value in kept.items() if tasks.index(key.split("/")[0]) % FILES == number}
        np.savez_compressed(f"{asked.out}{number}.npz", **part)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
