"""The embedded task, digits drawn with fonts to scanned handwriting, with the defaults of vmt.adapt for own data.

    python benchmarks/own_data_embedded.py --jobs 2

Weights and length are those that pictures of any kind get on a CPU; the network and its learning rate are also those of
``vmt demo``, whose recipe was chosen on a part of the handwriting that is not reported. Each result is a line of
results/own_data_embedded.jsonl: the accuracy on the 497 digits of the test part, and the CPU seconds of one thread.
"""

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "own_data_embedded.jsonl"
METHODS = ("source_only", "mcc", "vmt", "vmt_mcc", "auto")


def measure(method: str, seed: int) -> dict[str, Any]:
    """Train with the defaults and measure the accuracy on held-out handwriting."""
    import torch

    import vmt
    from vmt.data import digits_task

    torch.set_num_threads(1)
    task = digits_task(seed)
    assert task.target_test is not None
    assert task.source.y is not None
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(action="ignore"):
        model = vmt.adapt(
            (task.source.x.numpy(), task.source.y.numpy()),
            task.target.x.numpy(),
            method=method,
            seed=seed,
            device="cpu",
            progress=False,
        )
    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
    accuracy = model.evaluate(task.target_test.x.numpy(), task.target_test.y.numpy()).accuracy  # type: ignore[union-attr]
    record = {"task": "digits", "method": method, "seed": seed, "accuracy": accuracy}
    return record | {"cpu_s": round(cpu_s, 1), "wall_s": round(wall_s, 1), "torch": torch.__version__}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--methods", nargs="+", default=METHODS, help="methods of vmt.adapt (default: %(default)s)")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    add("--jobs", type=int, default=1, help="processes, one thread each (default: 1)")
    add("--out", type=Path, default=RESULTS)
    asked = parser.parse_args(arguments)
    from vmt.runs.folder import commit, environment

    about = {"commit": commit(), "machine": environment("cpu")["machine"]}
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(asked.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(measure, method, seed) for seed in asked.seeds for method in reversed(asked.methods)]
        for job in as_completed(jobs):
            record = job.result() | about
            with asked.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(
                f"{record['method']}, seed {record['seed']}: {record['accuracy']:.1%}, {record['cpu_s']} CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()
