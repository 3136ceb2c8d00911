"""Compare the time that a run announces after 20 iterations with the time that it takes.

    python benchmarks/estimates.py --device cpu
    python benchmarks/estimates.py --device cpu --cpu-seconds    # on a machine with other work

Each run is carried out as ``vmt train`` would, with checkpoints and evaluations. A row has the estimate of the time
left after the first 20 iterations, the time that was left, and their ratio. The command fails if a ratio is off by more
than 30 %. Other work on the machine changes the pace of a run, so use an idle one, or let all clocks count the CPU time
of this process.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from vmt.data.domains import domain
from vmt.data.task import Task, make_task
from vmt.data.tasks import load_task
from vmt.progress import Forecast, Progress
from vmt.runs.folder import RunSpec
from vmt.runs.recipes import Recipe, digits, evaluations_for, own_recipe, with_settings
from vmt.runs.run import Run, carry_out
from vmt.runs.spec import DataSpec
from vmt.train.config import Config

AFTER, TOLERANCE = 20, 0.30


class Watch(Progress):
    """Remembers the estimate after 20 iterations, and when they were done."""

    def __init__(self) -> None:
        super().__init__(show=False)
        self.count = 0
        self.estimate: float | None = None
        self.at = 0.0
        self.forecast: Forecast | None = None

    def start(self, phase: str, total: int, done: int = 0, forecast: Forecast | None = None) -> None:
        self.forecast = forecast

    def advance(self, count: int) -> None:
        self.count += count
        if self.estimate is None and self.count >= AFTER:
            assert self.forecast is not None
            self.estimate, self.at = self.forecast.left(), time.monotonic()

    def close(self) -> None:
        self.ended = time.monotonic()


def on_digits(method: str, device: str, dirt_t: bool = False, iterations: int = 300) -> tuple[Task, Recipe]:
    recipe = digits(method, dirt_t)
    more = {"dirt_t_iterations": iterations // 2} if dirt_t else {}
    recipe = with_settings(recipe, {"iterations": iterations, **more})
    return load_task("digits"), replace(recipe, config=replace(recipe.config, device=device))


def on_vectors(device: str, samples: int = 2_000, features: int = 20) -> tuple[Task, Recipe]:
    random = np.random.default_rng(0)
    y = np.arange(samples) % 5
    x = (random.normal(size=(5, features))[y] + random.normal(size=(samples, features))).astype(np.float32)
    source, target = domain(x, y, name="source"), domain(x + 0.5, name="target")
    task = make_task(source, target, target_test=domain(x + 0.5, y, name="test"))
    return task, as_trained(task, own_recipe(task, device=device), device)


def on_pictures(device: str, net: str, iterations: int, side: int = 32, tests: int = 3_000) -> tuple[Task, Recipe]:
    """Pictures of noise: the time does not depend on what they show."""
    random = np.random.default_rng(0)

    def pictures(count: int) -> np.ndarray:
        return random.integers(0, 256, (count, 3, side, side), dtype=np.uint8)

    y = np.arange(1_000) % 10
    source, target = domain(pictures(1_000), y, name="source"), domain(pictures(1_000), name="target")
    test = domain(pictures(tests), np.arange(tests) % 10, name="test")
    task = make_task(source, target, target_test=test)
    recipe = own_recipe(task, device=device, iterations=iterations)
    return task, as_trained(task, replace(recipe, net=net), device)


def as_trained(task: Task, recipe: Recipe, device: str) -> Recipe:
    every = evaluations_for(recipe.settings["iterations"])
    return replace(recipe, config=Config(device=device, evaluate_every=every, checkpoint_every=every))


CASES: dict[str, Callable[[str], tuple[Task, Recipe]]] = {
    "digits, VMT": partial(on_digits, "vmt"),
    "digits, VMT and DIRT-T": partial(on_digits, "vmt", dirt_t=True),
    "digits, source only": partial(on_digits, "source_only", iterations=750),
    "vectors": on_vectors,
    "pictures, thin network": partial(on_pictures, net="tiny", iterations=120),
    "pictures, small network": partial(on_pictures, net="small", iterations=40),
}
# On a GPU the small network is the default, and the step is compiled if the run is long enough.
GPU_CASES: dict[str, Callable[[str], tuple[Task, Recipe]]] = {
    **CASES,
    "pictures, small network": partial(on_pictures, net="small", iterations=1_500),
    "pictures, small network, compiled": partial(on_pictures, net="small", iterations=5_000),
}


@dataclass(frozen=True)
class Row:
    case: str
    estimate: float
    actual: float

    @property
    def ratio(self) -> float:
        return self.estimate / self.actual


def measure(case: str, make: Callable[[str], tuple[Task, Recipe]], device: str) -> Row:
    task, recipe = make(device)
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        summary = carry_out(Run.of(RunSpec(DataSpec(), recipe), task), Path(folder) / "run", progress=watch).summary
    if not summary["finished"]:
        raise SystemExit(f"{case} was interrupted")
    assert watch.estimate is not None
    return Row(case, watch.estimate, watch.ended - watch.at)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cpu-seconds", action="store_true", help="count the CPU time of this process")
    arguments = parser.parse_args()
    if arguments.cpu_seconds:
        time.monotonic = time.perf_counter = time.process_time
    cases = CASES if arguments.device == "cpu" else GPU_CASES
    rows = []
    for case, make in cases.items():
        if arguments.only in case:
            rows.append(measure(case, make, arguments.device))
            row = rows[-1]
            print(f"{case:<36} estimate {row.estimate:7.1f} s   actual {row.actual:7.1f} s   ratio {row.ratio:.2f}")
    if arguments.json:
        print(json.dumps([{"case": row.case, "estimate": row.estimate, "actual": row.actual} for row in rows]))
    return 0 if all(abs(row.ratio - 1) <= TOLERANCE for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
