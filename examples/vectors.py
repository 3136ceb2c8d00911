"""Measure how much adaptation gains over training on the source alone, on vectors, with the scikit-learn estimator.

    python examples/vectors.py                  # four tasks, three seeds, a few minutes on one core
    python examples/vectors.py --tasks moons --seeds 1

The tasks are two moons whose target is rotated by 30°, or rotated and moved, and two tables of scikit-learn (breast
cancer, and handwritten digits as 64 numbers) whose target was measured by another instrument: each column has its own
gain and offset. Labels of the target are used only to print the accuracy, on samples that were not trained on.
"""

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, make_moons
from sklearn.exceptions import ConvergenceWarning

from vmt import VMTClassifier

Samples = tuple[NDArray[Any], NDArray[Any]]
Task = tuple[Samples, NDArray[Any], Samples]
"""The source with labels, the target without labels, and labelled target samples to measure the accuracy on."""


def moons(seed: int, moved: tuple[float, float] = (0.0, 0.0)) -> Task:
    def rotated(degrees: float, part: int) -> Samples:
        x, y = make_moons(300, noise=0.08, random_state=10 * seed + part)
        c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
        return (x - [0.5, 0.25]) @ np.array([[c, s], [-s, c]]) + (moved if degrees else (0.0, 0.0)), y

    return rotated(0, 0), rotated(30, 1)[0], rotated(30, 2)


def moved_moons(seed: int) -> Task:
    return moons(seed, (1.0, 0.5))


def breast_cancer(seed: int) -> Task:
    return other_instrument(load_breast_cancer(), seed)


def digits(seed: int) -> Task:
    return other_instrument(load_digits(), seed)


def other_instrument(table: Any, seed: int) -> Task:
    """Half of the rows are the source; the others are measured by an instrument with other gains and offsets."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(table.data))
    x, y = table.data[order], table.target[order]
    gain, offset = random.uniform(0.7, 1.3, x.shape[1]), random.uniform(-1, 1, x.shape[1]) * x.std(0)
    half, rest = len(x) // 2, 3 * len(x) // 4
    measured = gain * x + offset
    return (x[:half], y[:half]), measured[half:rest], (measured[rest:], y[rest:])


TASKS: dict[str, Callable[[int], Task]] = {
    "moons": moons,
    "moved_moons": moved_moons,
    "breast_cancer": breast_cancer,
    "digits": digits,
}


def accuracies(task: Task, seed: int, **settings: Any) -> dict[str, float]:
    """The accuracy of source only and of VMT on the target's test samples, trained with the same settings."""
    (xs, ys), xt, (x_test, y_test) = task
    found = {}
    for method in ("source_only", "vmt"):
        model = VMTClassifier(method, random_state=seed, **settings).fit(xs, ys, X_target=xt)
        found[method] = float(model.score(x_test, y_test))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--iterations", type=int, help="default: the estimator's")
    parser.add_argument("--warm-up", type=float, help="default: the estimator's")
    arguments = parser.parse_args()
    settings = {name: value for name in ("iterations", "warm_up") if (value := getattr(arguments, name)) is not None}
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in arguments.tasks:
        rows = [accuracies(TASKS[name](seed), seed, **settings) for seed in seeds]
        for seed, row in zip(seeds, rows, strict=True):
            print(f"{name:<14} seed {seed}   source only {row['source_only']:6.1%}   VMT {row['vmt']:6.1%}", flush=True)
        alone, adapted = (np.array([row[method] for row in rows]) for method in ("source_only", "vmt"))
        gain = 100 * (adapted - alone)
        print(
            f"{name:<14} mean     source only {alone.mean():6.1%}   VMT {adapted.mean():6.1%}   "
            f"gain {gain.mean():+.1f} ± {gain.std():.1f} points",
            flush=True,
        )


if __name__ == "__main__":
    main()
