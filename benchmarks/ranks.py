"""The cost of exchanging gradients between ranks: an iteration with the exchange, one without, and the exchange alone.

    torchrun --standalone --nproc-per-node 2 benchmarks/ranks.py --net small --steps 20 --out results/ranks.json

VMT on random images of 32×32 with a batch of 64 per domain and rank. Rank 0 prints the medians over all steps, with
the shortest and the longest. The exchange alone takes so little time that ten times as many are timed. The load is the
mean number of processes that wanted to compute in the minute before the start.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from vmt.device import bfloat16_helps, torch_device
from vmt.engine.bench import Workload, workload
from vmt.engine.engine import make_engine
from vmt.ranks.group import ALONE, Ranks, join_ranks
from vmt.runs.folder import commit
from vmt.step.iteration import running_statistics
from vmt.step.plan import plan


def seconds_of(advance: Callable[[], object], steps: int, device: torch.device) -> list[float]:
    """The time of each call."""
    times = []
    for _ in range(steps):
        started = time.perf_counter()
        advance()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started)
    return times


def milliseconds(times: list[float]) -> list[float]:
    """The median, the shortest and the longest."""
    return [round(1000 * value, 3) for value in (median(times), min(times), max(times))]


def iteration(work: Workload, ranks: Ranks, engine: str, steps: int) -> tuple[str, list[float]]:
    """The engine and the times of iterations of VMT."""
    context = replace(work.context, ranks=ranks)
    runs = make_engine(engine, work.state, context, work.seed, None, print if ranks.is_first else lambda message: None)
    phase, device = work.method.phases[0], work.state.step.device
    runs.run(phase, 0, 3, 0)
    return runs.name, seconds_of(lambda: runs.run(phase, 0, 1, 0), steps, device)


def exchanged(work: Workload) -> list[list[torch.Tensor]]:
    """What each update exchanges."""
    taps = {name: module.taps for name, module in work.state.roles.items()}
    return [
        [*work.state.parameters(update.optimises), *running_statistics(plan(update, taps), work.state)]
        for update in work.method.phases[0].updates
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="small", help="small or large, the paper's networks (default: small)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--engine", default="auto", help="auto, eager, compiled or captured")
    parser.add_argument("--steps", type=int, default=20, help="how many iterations to time (default: 20)")
    parser.add_argument("--out", type=Path, help="also write what is printed to this file")
    arguments = parser.parse_args()
    load = round(os.getloadavg()[0], 1)
    with join_ranks(arguments.device) as ranks:
        device = torch_device(arguments.device)
        bfloat16, _ = bfloat16_helps(device)

        def fresh() -> Workload:
            return workload(arguments.net, bfloat16, device, samples=2_000)

        name, alone = iteration(fresh(), ALONE, arguments.engine, arguments.steps)
        _, together = iteration(fresh(), ranks, arguments.engine, arguments.steps)
        with torch.no_grad():
            sent = exchanged(fresh())
            exchange = seconds_of(lambda: [ranks.mean(each) for each in sent], 10 * arguments.steps, device)
        if ranks.is_first:
            values = sum(tensor.numel() for each in sent for tensor in each)
            text = json.dumps(
                {
                    "command": f"benchmarks/ranks.py --net {arguments.net} --steps {arguments.steps}",
                    "ranks": ranks.count,
                    "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
                    "cores": os.cpu_count(),
                    "load": load,
                    "net": arguments.net,
                    "engine": name,
                    "torch": torch.__version__,
                    "commit": commit(),
                    "exchanged MB": round(4 * values / 1e6, 2),
                    "ms: median, shortest, longest": {
                        "iteration without exchange": milliseconds(alone),
                        "iteration with exchange": milliseconds(together),
                        "the exchange alone": milliseconds(exchange),
                    },
                },
                indent=1,
            )
            print(text)
            if arguments.out is not None:
                arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
