"""Train the candidates of ``auto`` on the tasks for choosing, and keep what they predict.

    python benchmarks/own_data_candidates.py --jobs 2 --out build/candidates
    python benchmarks/own_data_candidates.py --jobs 2 --features styled.npz --out build/of-features

A rule that decides which candidates answer can then be tried on every task within seconds (own_data_rules.py). Each
task and seed has a file, TASK.SEED.npz, with the log-probabilities of every candidate for the target samples that
``auto`` looks at and for the test part of the target. Files that exist are not made again. --further trains other
methods as well, so that they can be tried as candidates. --tasks may also name tasks of validators_tasks.py on which
nothing about ``auto`` was chosen. With --features, the tasks are the pairs of the domains in a file of
styled_pictures.py.
"""

import argparse
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from itertools import permutations
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import numpy as np
import torch
from own_data_more import tasks_for_choosing
from own_data_tasks import TASKS, Array, Problem
from validators_tasks import PAIR_TASKS

from vmt.api import task_of
from vmt.data.files.features import Extractor
from vmt.data.task import Task
from vmt.evaluate.accuracy import logits_of
from vmt.evaluate.kernel import adapted_kernel, source_kernel
from vmt.evaluate.probe import make_probe
from vmt.nets.registry import KERNEL
from vmt.runs.auto import PROBE_SAMPLES, SOURCE_KERNEL, Portfolio
from vmt.runs.run import carry_out
from vmt.runs.spec import DataSpec
from vmt.train.config import Config

# fonts-handwriting takes several times as long as any other task, so it comes first.
FIRST = ("fonts-handwriting",)
# Log-probabilities are kept, in half precision, and none is smaller than this.
LEAST = -30.0


def task_with_test(problem: Problem) -> Task:
    """The task that vmt.adapt would make of the arrays, with the test part of the target."""
    task = task_of((problem.xs, problem.ys), problem.xt, (problem.xt_test, problem.yt_test), None, None)
    assert task.source_test is not None
    assert task.target_test is not None
    return task


def file_of(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{name}.{seed}.npz"


def task_of_features(file: Path, pair: str) -> Task:
    """Adapting from one domain of a file of features to another one, which is also what is tested on."""
    with np.load(file) as found:
        source, target = ((found[f"{name}_x"].astype(np.float32), found[f"{name}_y"]) for name in pair.split("-"))
    task = task_of(source, target[0], target, None, None, standardise_per_domain=True)
    # As if a frozen network had computed the features just now.
    return replace(task, backbone=cast(Extractor, "of the file"))


def keep_outputs(name: str, seed: int, folder: Path, features: Path | None, further: Sequence[str]) -> str:
    """Train the candidates on one task and write its file."""
    torch.set_num_threads(1)
    began = time.process_time()
    if features is None:
        task = task_with_test((PAIR_TASKS | tasks_for_choosing())[name].problem(seed))
    else:
        task = task_of_features(features, name)
    with warnings.catch_warnings(action="ignore"):
        found = outputs(task, seed, further)
    path = file_of(folder, name, seed)
    partial = path.with_suffix(".part")
    with partial.open("wb") as file:
        np.savez_compressed(file, **found)
    partial.rename(path)
    return f"{name} {seed}: {time.process_time() - began:.0f} CPU seconds"


def outputs(task: Task, seed: int, further: Sequence[str]) -> Mapping[str, Any]:
    """What the candidates predict, and what ``auto`` knows about the task."""
    portfolio = Portfolio(task, DataSpec(), Config(seed=seed, device="cpu", validate_samples=0))
    probe = make_probe(task, PROBE_SAMPLES)
    assert probe is not None
    shares = portfolio.shares
    methods = dict.fromkeys([*portfolio.candidates, *further])
    networks = {
        **{method: carry_out(portfolio.run_of(method, None)).model.network for method in methods},
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
    if task.backbone is None:
        found["support"] = probe.support.float().numpy()
    assert task.target_test is not None
    assert task.target_test.y is not None
    assert probe.source is not None
    assert probe.source.y is not None
    found["labels/source"] = probe.source.y.numpy().astype(np.uint8)
    found["labels/test"] = task.target_test.y.numpy().astype(np.uint8)
    for part, domain in {"target": probe.target, "source": probe.source, "test": task.target_test}.items():
        for name, network in networks.items():
            logits = logits_of(network, domain.x, task.preprocess).double()
            found[f"{name}/{part}"] = logits.log_softmax(1).clamp_min(LEAST).numpy().astype(np.float16)
    return found


def pairs_in(file: Path) -> list[str]:
    """The pairs of the domains in a file of features."""
    with np.load(file) as found:
        domains = [name.removesuffix("_x") for name in found if name.endswith("_x")]
    return [f"{source}-{target}" for source, target in permutations(domains, 2)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--tasks", nargs="+", default=list(tasks_for_choosing()), help="names of tasks (default: those for choosing)")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], help="those of the tasks of own_data_tasks.py")
    add("--more-seeds", type=int, nargs="+", default=[0, 1], help="those of the other tasks")
    add("--features", type=Path, help="use the pairs of the domains in this file, with --more-seeds")
    add("--further", nargs="+", default=[], help="methods that are trained beside those of auto")
    add("--jobs", type=int, default=1)
    add("--out", type=Path, required=True, help="the folder of the files")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    names = asked.tasks if asked.features is None else pairs_in(asked.features)
    jobs = [(name, seed) for name in names for seed in (asked.seeds if name in TASKS else asked.more_seeds)]
    jobs = [job for job in jobs if not file_of(asked.out, *job).exists()]
    jobs.sort(key=lambda job: (job[1], job[0] not in FIRST))
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(keep_outputs, *job, asked.out, asked.features, asked.further): job for job in jobs}
        for number, future in enumerate(as_completed(futures), 1):
            error = future.exception()
            done = future.result() if error is None else f"{futures[future]}: {type(error).__name__}: {error}"
            print(f"{number} of {len(jobs)}: {done}", flush=True)


if __name__ == "__main__":
    main()
