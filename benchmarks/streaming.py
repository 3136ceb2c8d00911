"""The time of an iteration on samples in the memory of the device, and on samples that are streamed from a store.

    python benchmarks/streaming.py --net resnet50:network --side 224 --samples 8000 --memory 1GiB

Both runs train VMT in one process, in turns, so that a change of the machine's speed affects both. The engine is that
of a run of this length: on a GPU, the plain step as one CUDA graph. The store is made of random pictures, half of them
the source. With ``--cold``, the system forgets the store before each turn, so that it is
read from the disk itself.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vmt import methods
from vmt.data import Domain, Task, make_task
from vmt.data.files.store import ROWS, Picture, pack
from vmt.data.stored import StoredSamples
from vmt.device import torch_device
from vmt.engine import ENGINES
from vmt.engine.engine import Engine, make_engine
from vmt.errors import InputError, bytes_in, size_of
from vmt.nets.factory import network_of
from vmt.runs.folder import commit
from vmt.step.iteration import make_context
from vmt.step.state import build_state
from vmt.train.loop import place

CLASSES = 10
METHOD = methods.vmt()


def made_task(folder: Path, samples: int, side: int) -> Task:
    """Random pictures in a store, the first half of them labelled."""

    def read(numbers: Sequence[int], done: int) -> Iterator[Picture | str]:
        for number in numbers:
            yield np.random.default_rng(number).integers(0, 256, (3, side, side), dtype=np.uint8)

    store = pack(folder, samples, (3, side, side), read)
    half = samples // 2
    rows = np.arange(samples)
    source = Domain(StoredSamples(store.rows, rows[:half]), torch.arange(half) % CLASSES, "source")
    return make_task(source, Domain(StoredSamples(store.rows, rows[half:]), None, "target"), classes=CLASSES)


def make(task: Task, arguments: argparse.Namespace) -> Engine:
    """An engine that is ready to train VMT on a task."""
    device = torch_device(arguments.device)
    _, build = network_of(arguments.net, task.sample_shape, CLASSES, None)
    state = build_state(METHOD, build, task.sample_shape, 0, device)
    bfloat16 = arguments.precision == "bfloat16"
    context = make_context(task, METHOD, state, seed=0, batch_size=arguments.batch_size, bfloat16=bfloat16)
    length = arguments.warm_up + arguments.turns * arguments.iterations
    engine = make_engine(arguments.engine, state, context, 0, length)
    engine.run(METHOD.phases[0], 0, arguments.warm_up, 0)
    wait(device)
    return engine


def seconds_of(engine: Engine, done: int, iterations: int) -> float:
    """The time of so many iterations, after ``done``."""
    device = engine.state.step.device
    started = time.perf_counter()
    engine.run(METHOD.phases[0], done, iterations, done)
    wait(device)
    return time.perf_counter() - started


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def forget(path: Path) -> None:
    """Make the system forget what it knows of a file, so that it is read from the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    task, device = made_task(folder, arguments.samples, arguments.side), torch_device(arguments.device)
    resident, (streamed, how) = task.to(device), place(task, device, arguments.memory)
    print(how, file=sys.stderr)
    if task.bytes <= bytes_in(arguments.memory, "--memory"):
        raise InputError(f"the samples take {size_of(task.bytes)}: give less --memory, so that they are streamed.")
    engines = {"resident": make(resident, arguments), "streamed": make(streamed, arguments)}
    times: dict[str, list[float]] = {name: [] for name in engines}
    done = arguments.warm_up
    for _ in range(arguments.turns):
        for name, engine in engines.items():
            if arguments.cold and name == "streamed":
                forget(folder / ROWS)
            times[name].append(seconds_of(engine, done, arguments.iterations) / arguments.iterations)
        done += arguments.iterations
    medians = {name: statistics.median(each) for name, each in times.items()}
    return {
        "ms": {name: round(1000 * value, 3) for name, value in medians.items()},
        "spread_ms": {name: [round(1000 * min(each), 3), round(1000 * max(each), 3)] for name, each in times.items()},
        "streamed_speed": round(medians["resident"] / medians["streamed"], 4),
        "bytes": task.bytes,
        "engine": engines["streamed"].name,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "commit": commit(),
        "arguments": {name: str(value) for name, value in vars(arguments).items()},
    }


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="tiny")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--memory", default="1MiB")
    parser.add_argument("--engine", choices=ENGINES, default="auto")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--iterations", type=int, default=50, help="iterations of a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--cold", action="store_true", help="read from the disk itself, not from the system's memory")
    parser.add_argument("--folder", type=Path, help="where the store is made, and kept (default: a temporary folder)")
    arguments = parser.parse_args(given)
    with tempfile.TemporaryDirectory() as temporary:
        print(json.dumps(measure(arguments, arguments.folder or Path(temporary))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
