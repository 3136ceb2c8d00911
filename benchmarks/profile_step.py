"""Where the time of one iteration goes, kernel by kernel.

python benchmarks/profile_step.py --engine captured --precision bfloat16
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._inductor
from torch.profiler import ProfilerActivity, profile

from vmt.engine import compile as compile_module
from vmt.engine.bench import streams_from, workload


def timed(what: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def running(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        result = run(*arguments, **options)
        print(f"{what} in {time.perf_counter() - began:.1f} s")
        return result

    return running


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="captured")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--net", choices=("small", "large"), default="small")
    parser.add_argument("--phase", choices=("vmt", "dirt_t"), default="vmt")
    parser.add_argument("--iterations", type=int, help="the length of the run that the engine is chosen for")
    parser.add_argument("--data", type=Path, help="MNIST → SVHN from this folder, not random images")
    parser.add_argument("--rows", type=int, default=40)
    arguments = parser.parse_args()
    cuda = torch.device("cuda")
    streams = streams_from(arguments.data, cuda)
    work = workload(arguments.net, arguments.precision == "bfloat16", cuda, streams=streams)
    phase = work.method.phases[arguments.phase == "dirt_t"]
    began = time.perf_counter()
    compile_module.traced = timed("traced", compile_module.traced)
    torch._inductor.compile = timed("compiled", torch._inductor.compile)
    engine = work.engine(arguments.engine, arguments.iterations)
    engine.run(phase, 0, 10, 0)
    torch.cuda.synchronize()
    print(f"{engine.name}: ready after {time.perf_counter() - began:.1f} s. {engine.why}")
    for _ in range(3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        engine.run(phase, 10, 100, 10)
        end.record()
        end.synchronize()
        print(f"{start.elapsed_time(end) / 100:.3f} ms per iteration")
    steps = 10
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        engine.run(phase, 10, steps, 10)
        torch.cuda.synchronize()
    kernels: dict[str, list[float]] = defaultdict(list)
    for event in recorded.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels[event.name].append(event.device_time)
    rows = sorted(kernels.items(), key=lambda item: -sum(item[1]))
    total = sum(map(sum, kernels.values())) / steps
    count = sum(map(len, kernels.values())) / steps
    print(f"{total / 1e3:.3f} ms in {count:.0f} kernels per iteration")
    for name, times in rows[: arguments.rows]:
        print(f"{sum(times) / steps:8.1f} µs {len(times) / steps:6.1f} × {name[:110]}")


if __name__ == "__main__":
    main()
