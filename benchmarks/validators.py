"""Which validator chooses the best model? Many short runs on the embedded digits, good ones and collapsed ones.

    python benchmarks/validators.py --workers 2

The number of a run determines its random method, weights, learning rate and seed. The run trains the thin network from
fonts to handwriting or the other way round. Its line in results/validators.jsonl holds every evaluation: the validators
and the true accuracy on the target, which no validator uses. Runs that have a line are not run again. Then the tables
and the figure of docs/validators-study.md are made from that file; --tables does only that.

The 497 handwritten digits that the demo reports on are not used.
"""

import argparse
import inspect
import json
import multiprocessing
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from validators_tables import write_tables

from vmt import InputError, methods
from vmt.data import Domain, Task, digits_task, make_task
from vmt.methods.nouns import Adam, Method, decay_for
from vmt.nets.factory import NetSpec
from vmt.runs.folder import environment
from vmt.runs.recipes import DIGITS_RADIUS
from vmt.train import Config, train

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "validators.jsonl"
TASKS = ("fonts → handwriting", "handwriting → fonts")
KINDS = ("source_only", "dann", "mmd", "L_c", "vada", "vada, no L_c", "vmt", "vmt, no L_c", "vmt, then dirt_t")
ITERATIONS, EVALUATIONS = 400, 8
CONFIG = Config(batch_size=32, log_every=ITERATIONS, evaluate_every=ITERATIONS // EVALUATIONS, validate_samples=500)


def draw(number: int) -> dict[str, Any]:
    """The settings of the run with a number."""
    random = np.random.default_rng(number)

    def between(low: float, high: float) -> float:
        """A log-uniform number with two digits."""
        return float(f"{np.exp(random.uniform(np.log(low), np.log(high))):.2g}")

    return {
        "number": number,
        "task": TASKS[number % 2],
        "kind": KINDS[number // 2 % len(KINDS)],
        "lr": between(1.5e-3, 2e-2),
        "lambda_d": between(1e-3, 1.0),
        "lambda_s": float(random.choice([0.0, 1.0])),
        "lambda_t": between(2e-2, 50.0),
        "weight": between(0.03, 10.0),
        "seed": number,
    }


def build(asked: dict[str, Any]) -> Method:
    """The method with the drawn settings, as far as it has them."""
    name, _, change = asked["kind"].partition(", ")
    make = {"L_c": methods.vmt}.get(name) or getattr(methods, name)
    known = {**asked, "radius": DIGITS_RADIUS, "optimiser": Adam(lr=asked["lr"])}
    takes = inspect.signature(make).parameters
    settings = {n: v for n, v in known.items() if n in takes}
    if name == "L_c":
        settings |= {"mix": None, "vat": False}
    method: Method = make(**settings, iterations=ITERATIONS)
    if change == "no L_c":
        method = without(method, "L_c(target)")
    if change == "then dirt_t":
        method = methods.dirt_t(
            method.with_iterations(2 * ITERATIONS // 3),
            beta=0.1,
            lambda_t=asked["lambda_t"],
            radius=DIGITS_RADIUS,
            interval=ITERATIONS // 12,
            iterations=ITERATIONS // 3,
        )
    return method.with_decay(decay_for(ITERATIONS))


def without(method: Method, term: str) -> Method:
    """A method of one phase without one of its terms."""
    (phase,) = method.phases
    updates = tuple(replace(u, terms=tuple(t for t in u.terms if t.name != term)) for u in phase.updates)
    return replace(method, phases=(replace(phase, updates=updates),))


def task_named(name: str) -> Task:
    """A task whose accuracy is measured on held-out target samples and on those that are trained on without labels."""
    digits = digits_task(evaluate_on="validation")
    assert digits.target_test is not None
    assert digits.source_test is not None
    if name == TASKS[0]:
        return replace(digits, target_test=both(digits.target, digits.target_test))
    fonts = digits.source.subset(torch.arange(1000))
    turned = make_task(digits.target, digits.source, source_test=digits.target_test, classes=digits.classes, name=name)
    return replace(turned, target_test=both(fonts, digits.source_test))


def both(a: Domain, b: Domain) -> Domain:
    assert a.y is not None
    assert b.y is not None
    return Domain(torch.cat([a.x, b.x]), torch.cat([a.y, b.y]), a.name)


def carry_out(number: int) -> dict[str, Any]:
    """The record of one run."""
    torch.set_num_threads(1)
    asked = draw(number)
    task = task_named(asked["task"])
    net = NetSpec("tiny", (1, 16, 16), len(task.classes))
    started = time.perf_counter()
    try:
        outcome = train(task, build(asked), net.build, replace(CONFIG, seed=asked["seed"]))
    except InputError as error:
        return {**asked, "failed": str(error), "looks": []}
    evaluations = [
        {"step": r["step"], "accuracy": round(r["target"]["accuracy"], 4), "alarm": r["alarm"], **r["validators"]}
        for r in outcome.records
        if "target" in r
    ]
    seconds = round(time.perf_counter() - started, 1)
    return {
        **asked,
        "collapsed": outcome.loop_state.collapsed,
        "looks": evaluations,
        "seconds": seconds,
        "made": environment(),
    }


def read(path: Path) -> list[dict[str, Any]]:
    """The records in a file; a line that a kill cut short is left out."""
    records = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        with suppress(ValueError):
            records.append(json.loads(line))
    return records


def fill(path: Path, count: int, workers: int) -> None:
    """Carry out the runs that have no record, and add a line as each ends."""
    done_before = {record["number"] for record in read(path)}
    missing = [number for number in range(count) if number not in done_before]
    path.parent.mkdir(parents=True, exist_ok=True)
    for done, record in enumerate(records(missing, workers), 1):
        with path.open("a") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        last = record["looks"][-1] if record["looks"] else {"accuracy": float("nan"), "alarm": record["failed"]}
        print(f"[{done}/{len(missing)}] {record['kind']}, {record['task']}: {last['accuracy']:.1%}", flush=True)


def records(missing: list[int], workers: int) -> Iterable[dict[str, Any]]:
    if workers == 1:
        yield from map(carry_out, missing)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(carry_out, number) for number in missing]):
            yield future.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the records")
    parser.add_argument("--runs", type=int, default=288, help="total number of runs (default: 288)")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time, one thread each (default: 1)")
    parser.add_argument("--tables", action="store_true", help="only make the tables and the figure")
    parser.add_argument(
        "--docs", type=Path, default=ROOT / "docs", help="folder of validators-study.md (default: docs)"
    )
    arguments = parser.parse_args()
    if not arguments.tables:
        fill(arguments.out, arguments.runs, arguments.workers)
    if arguments.docs.is_dir():
        write_tables(sorted(read(arguments.out), key=lambda record: record["number"]), arguments.docs)


if __name__ == "__main__":
    main()
