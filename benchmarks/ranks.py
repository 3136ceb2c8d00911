"""The cost of exchanging gradients between ranks: an iteration with the exchange, one without, and the exchange alone.

    torchrun --nproc-per-node 2 benchmarks/ranks.py --net small --steps 20

VMT on random images of 32×32 with a batch of 64 per domain and rank. Rank 0 prints the medians over all steps.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import torch

from vmt.device import bfloat16_helps, torch_device
from vmt.engine.bench import Workload, workload
from vmt.engine.engine import make_engine
from vmt.ranks.group import ALONE, Ranks, joined
from vmt.step.iteration import running_statistics
from vmt.step.plan import plan


def seconds_of(advance: Callable[[], object], steps: int, device: torch.device) -> float:
    """The median time of one call."""
    times = []
    for _ in range(steps):
        started = time.perf_counter()
        advance()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started)
    return median(times)


def iteration(work: Workload, ranks: Ranks, engine: str, steps: int) -> tuple[str, float]:
    """The engine and the time of an iteration of VMT."""
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
    arguments = parser.parse_args()
    with joined(arguments.device) as ranks:
        device = torch_device(arguments.device)
        bfloat16, _ = bfloat16_helps(device)

        def fresh() -> Workload:
            return workload(arguments.net, bfloat16, device, samples=2_000)

        name, alone = iteration(fresh(), ALONE, arguments.engine, arguments.steps)
        _, together = iteration(fresh(), ranks, arguments.engine, arguments.steps)
        with torch.no_grad():
            sent = exchanged(fresh())
            exchange = seconds_of(lambda: [ranks.mean(each) for each in sent], arguments.steps, device)
        if ranks.is_first:
            values = sum(tensor.numel() for each in sent for tensor in each)
            print(
                json.dumps(
                    {
                        "ranks": ranks.count,
                        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
                        "net": arguments.net,
                        "engine": name,
                        "torch": torch.__version__,
                        "exchanged MB": round(4 * values / 1e6, 2),
                        "ms without exchange": round(1000 * alone, 3),
                        "ms with exchange": round(1000 * together, 3),
                        "ms of the exchange alone": round(1000 * exchange, 3),
                    }
                )
            )


if __name__ == "__main__":
    main()
