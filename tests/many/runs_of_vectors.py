"""Short runs on tiny vectors, and what follows them. Processes of Ray import this module by its name."""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vmt import Callback

ITERATIONS, CHECKPOINT_EVERY = 8, 3


def arguments(**more: Any) -> dict[str, Any]:
    """The arguments of a run of a few iterations."""
    random = np.random.default_rng(0)
    ys = np.arange(30) % 3
    xs = random.normal(size=(30, 4)) + 2 * ys[:, None]
    return {
        "source": (xs, ys),
        "target": xs + 0.5,
        "method": "source_only",
        "iterations": ITERATIONS,
        "checkpoint_every": CHECKPOINT_EVERY,
        "log_every": 1,
        "validate_samples": 8,
        "batch_size": 6,
        "device": "cpu",
        **more,
    }


class Steps(Callback):
    """Writes every iteration that is trained to a file, in a new line for each process that works on the run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_start(self, record: Mapping[str, Any], folder: Path | None) -> None:
        with self.path.open("a") as file:
            file.write("\n")

    def on_log(self, record: Mapping[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(f"{record['step']} ")


def trained(path: Path) -> list[list[int]]:
    """The iterations that each process has trained."""
    return [[int(step) for step in line.split()] for line in path.read_text().splitlines() if line]


class StopsAt(Callback):
    """Raises what Ctrl-C raises at an iteration, once."""

    def __init__(self, step: int, mark: Path) -> None:
        self.step, self.mark = step, mark

    def on_log(self, record: Mapping[str, Any]) -> None:
        if record["step"] == self.step and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGTERM)


class LosesItsNode(Callback):
    """Kills the node of the run, as if the machine were lost, at the first iteration after the first checkpoint.

    Runs on other nodes wait for that before they end, so that it happens in the middle of them.
    """

    def __init__(self, node: str, raylet: int, mark: Path) -> None:
        self.node, self.raylet, self.mark = node, raylet, mark

    def on_log(self, record: Mapping[str, Any]) -> None:
        import ray

        if record["step"] != CHECKPOINT_EVERY + 1:
            return
        if ray.get_runtime_context().get_node_id() == self.node:
            self.mark.touch()
            os.kill(self.raylet, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        while not self.mark.exists():
            time.sleep(0.05)


class StopsItsDriver(Callback):
    """Sends SIGTERM to the process that has started the run, as ``kill`` does, and waits until that reaches the run."""

    def __init__(self, driver: int, mark: Path) -> None:
        self.driver, self.mark = driver, mark

    def on_log(self, record: Mapping[str, Any]) -> None:
        if record["step"] == CHECKPOINT_EVERY + 1 and not self.mark.exists():
            self.mark.touch()
            arrived = signal.getsignal(signal.SIGINT)
            os.kill(self.driver, signal.SIGTERM)
            while not getattr(arrived, "numbers", True):
                time.sleep(0.05)


def broken_network(shape: tuple[int, ...], classes: int) -> Any:
    """A function of a user's that fails."""
    raise KeyError("no such layer")
