"""Train the candidates of ``auto`` on the tasks for choosing, and keep what they predict.

    python benchmarks/own_data_candidates.py --jobs 2 --out build/candidates

A rule that decides which candidates answer can then be tried on every task within seconds (own_data_rules.py). Each
task and seed has a file, TASK.SEED.npz, with the logits of every candidate for the target samples that ``auto`` looks
at and for the test part of the target. Files that exist are not made again.
"""

import argparse
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import numpy as np
import torch
from own_data_more import tasks_for_choosing
from own_data_tasks import TASKS, Array, Problem

from vmt.api import task_of
from vmt.data.task import Task
from vmt.evaluate.accuracy import logits_of
from vmt.evaluate.kernel import adapted_kernel, source_kernel
from vmt.evaluate.probe import make_probe
from vmt.nets.registry import KERNEL
from vmt.runs.auto import PROBE_SAMPLES, SOURCE_KERNEL, Portfolio
from vmt.runs.run import carry_out
from vmt.runs.spec import DataSpec
from vmt.train.config import Config
from vmt.validators.choice import REFERENCE

# fonts-handwriting takes several times as long as any other task, so it comes first.
FIRST = ("fonts-handwriting",)


def task_with_test(problem: Problem) -> Task:
    """The task that vmt.adapt would make of the arrays, with the test part of the target."""
    task = task_of((problem.xs, problem.ys), problem.xt, (problem.xt_test, problem.yt_test), None, None)
    assert task.source_test is not None
    assert task.target_test is not None
    return task


def file_of(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{name}.{seed}.npz"


def keep_outputs(name: str, seed: int, folder: Path) -> str:
    """Train the candidates on one task and write its file."""
    torch.set_num_threads(1)
    began = time.process_time()
    task = task_with_test(tasks_for_choosing()[name].problem(seed))
    with warnings.catch_warnings(action="ignore"):
        found = outputs(task, seed)
    path = file_of(folder, name, seed)
    partial = path.with_suffix(".part")
    with partial.open("wb") as file:
        np.savez_compressed(file, **found)
    partial.rename(path)
    return f"{name} {seed}: {time.process_time() - began:.0f} CPU seconds"


def outputs(task: Task, seed: int) -> Mapping[str, Any]:
    """What the candidates predict, and what ``auto`` knows about the task."""
    portfolio = Portfolio(task, DataSpec(), Config(seed=seed, device="cpu", validate_samples=0))
    probe = make_probe(task, PROBE_SAMPLES)
    assert probe is not None
    shares = portfolio.shares
    networks = {
        **{method: carry_out(portfolio.run_of(method, None)).model.network for method in portfolio.candidates},
        SOURCE_KERNEL: source_kernel(task),
        KERNEL: adapted_kernel(task, shares),
    }
    found: dict[str, Array] = {
        "prior": probe.prior.numpy(),
        "neighbours": probe.neighbours.numpy().astype(np.int16),
        "candidates": np.array(list(networks)),
    }
    if shares is not None:
        found["shares"] = np.array(shares.target, np.float32)
    assert task.target_test is not None
    assert task.target_test.y is not None
    found["labels/test"] = task.target_test.y.numpy().astype(np.uint8)
    for part, domain in {"target": probe.target, "test": task.target_test}.items():
        for name, network in networks.items():
            found[f"{name}/{part}"] = logits_of(network, domain.x, task.preprocess).float().numpy()
    _, features = probe.outputs(networks[REFERENCE], probe.target)
    found["features"] = features.float().numpy()
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--tasks", nargs="+", default=list(tasks_for_choosing()), help="names of tasks for choosing (default: all)")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], help="those of the tasks of own_data_tasks.py")
    add("--more-seeds", type=int, nargs="+", default=[0, 1], help="those of the other tasks")
    add("--jobs", type=int, default=1)
    add("--out", type=Path, required=True, help="the folder of the files")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    jobs = [(name, seed) for name in asked.tasks for seed in (asked.seeds if name in TASKS else asked.more_seeds)]
    jobs = [job for job in jobs if not file_of(asked.out, *job).exists()]
    jobs.sort(key=lambda job: (job[1], job[0] not in FIRST))
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(keep_outputs, *job, asked.out): job for job in jobs}
        for number, future in enumerate(as_completed(futures), 1):
            error = future.exception()
            done = future.result() if error is None else f"{futures[future]}: {type(error).__name__}: {error}"
            print(f"{number} of {len(jobs)}: {done}", flush=True)


if __name__ == "__main__":
    main()
