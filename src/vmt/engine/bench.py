"""``vmt bench``: what an iteration costs, plainly written and with each engine, in one process."""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from vmt import methods
from vmt.data.domains import Domain
from vmt.data.preprocess import Preprocess
from vmt.data.tasks import load_task
from vmt.device import bfloat16_helps, torch_device
from vmt.engine.engine import Engine, Say, make_engine
from vmt.engine.plain_port import plain_steps
from vmt.errors import counted
from vmt.methods.nouns import Method
from vmt.nets.networks import cnn
from vmt.step.draws import SeededDraws
from vmt.step.state import State, build_state
from vmt.step.step import Setting

WIDTHS = {"small": (64, 64, 64), "large": (96, 192, 192)}
XI = 1e-6


@dataclass(frozen=True)
class Workload:
    """A method with everything it needs to run."""

    method: Method
    state: State
    setting: Setting
    seed: int

    def engine(self, choice: str, iterations: int | None = None, say: Say = print) -> Engine:
        return make_engine(choice, self.state, self.setting, self.seed, iterations, say)


def random_domains(device: torch.device, samples: int, side: int) -> dict[str, Domain]:
    """Grey floats and coloured bytes, as resized MNIST and SVHN are stored."""
    random = torch.Generator(device).manual_seed(0)

    def domain(name: str, channels: int, dtype: torch.dtype) -> Domain:
        x = torch.randint(0, 256, (samples, channels, side, side), generator=random, device=device, dtype=torch.uint8)
        y = torch.randint(0, 10, (samples,), generator=random, device=device)
        return Domain(x.to(dtype), y, name)

    return {"source": domain("source", 1, torch.float32), "target": domain("target", 3, torch.uint8)}


def workload(
    net: str | tuple[int, int, int],
    bfloat16: bool,
    device: torch.device,
    batch_size: int = 64,
    samples: int = 20_000,
    side: int = 32,
    dropout: float = 0.5,
    noise: float = 1.0,
    xi: float = XI,
    seed: int = 0,
    streams: dict[str, Domain] | None = None,
    method: Method | None = None,
) -> Workload:
    """The paper's MNIST→SVHN with instance norm: VMT with λ_d 0.01, λ_s 1, λ_t 0.06, then DIRT-T, or another method."""
    method = method or methods.dirt_t(methods.vmt(lambda_t=0.06), lambda_t=0.06)
    widths = WIDTHS[net] if isinstance(net, str) else net
    shape = (3, side, side)
    state = build_state(method, lambda: cnn(shape, 10, widths, True, dropout, noise), shape, seed, device)
    setting = Setting(
        streams=streams or random_domains(device, samples, side),
        preprocess=Preprocess(3, (side, side), (2 / 255,), (-1.0,)),
        batch_size={"source": batch_size, "target": batch_size},
        draws=SeededDraws(seed, state.step),
        xi=dict.fromkeys(state.roles, xi),
        scalars={},
        bfloat16=bfloat16,
    )
    return Workload(method, state, setting, seed)


BLOCKS, BLOCKS_ON_CPU = 15, 5
# Seconds in a block on a GPU: long enough that the host's way to the first launch does not show, as in training.
BLOCK = 0.25
PIXELS = (1024, 256, 64)  # of the three blocks, for images of 32 × 32


@dataclass(frozen=True)
class Timing:
    """Milliseconds per iteration: the median over blocks of iterations, the middle half of the blocks, the fastest."""

    ms: float
    low: float
    high: float
    fastest: float

    def __str__(self) -> str:
        return f"{self.ms:9.3f} ms ({self.low:.3f}–{self.high:.3f}, fastest {self.fastest:.3f})"


def timed(runs: dict[str, Callable[[int], None]], device: torch.device, iterations: int | None) -> dict[str, Timing]:
    """Time each run, taking turns, so that whatever else the machine does falls on all of them alike. Without
    ``iterations``, a block is one of them on a CPU, and as many as fill it on a GPU."""
    lengths = {}
    for name, run in runs.items():
        run(2)
        fill = 1 if device.type != "cuda" else max(2, round(1e3 * BLOCK / milliseconds(run, device, 5)))
        lengths[name] = iterations or fill
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(BLOCKS if device.type == "cuda" else BLOCKS_ON_CPU):
        for name, run in runs.items():
            found[name].append(milliseconds(run, device, lengths[name]))
    return {name: summary(times) for name, times in found.items()}


def milliseconds(run: Callable[[int], None], device: torch.device, iterations: int) -> float:
    if device.type != "cuda":
        began = time.perf_counter()
        run(iterations)
        return (time.perf_counter() - began) * 1e3 / iterations
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    run(iterations)
    end.record()
    end.synchronize()
    elapsed: float = start.elapsed_time(end)
    return elapsed / iterations


def summary(times: list[float]) -> Timing:
    low, _, high = statistics.quantiles(times, n=4)
    return Timing(statistics.median(times), low, high, min(times))


def gigaflop(widths: tuple[int, int, int], batch_size: int) -> float:
    """Multiplications and additions in the convolutions of one VMT iteration: discriminator's pass, clean and mixed
    passes with both gradients, direction passes with the input's, adversarial passes with both."""
    first, second, third = widths
    per_pixel = (3 * first + 2 * first**2, first * second + 2 * second**2, second * third + 2 * third**2)
    blocks = [18 * pixels * products for pixels, products in zip(PIXELS, per_pixel, strict=True)]
    encoder, network = sum(blocks[:2]), sum(blocks)
    return batch_size * (2 * encoder + (4 * 3 + 2 * 2 + 2 * 3) * network) / 1e9


def gigabytes(widths: tuple[int, int, int], batch_size: int) -> float:
    """What the layers read and write at least, in bfloat16: each convolution's result five times forward (written,
    summed, mapped to another, read) and nine times backward."""
    values = [3 * pixels * width for pixels, width in zip(PIXELS, widths, strict=True)]
    encoder, network = sum(values[:2]), sum(values)
    return batch_size * 2 * (2 * 5 * encoder + (8 * 5 + 8 * 9) * network) / 1e9


def run(arguments: argparse.Namespace) -> int:
    device = torch_device(arguments.device)
    if device.index is not None:
        torch.cuda.set_device(device)  # whose events and streams the clock reads
    widths, size = WIDTHS[arguments.net], arguments.batch_size
    bfloat16, sentence = bfloat16_helps(device)
    if arguments.precision != "auto":
        bfloat16, sentence = arguments.precision == "bfloat16", f"{arguments.precision}, as asked for."
    streams = streams_from(arguments.data, device)
    print(f"{device_name(device)}, torch {torch.__version__}, {arguments.net} net, {size}+{size}. {sentence}")

    engines = arguments.engines or (["eager", "captured"] if device.type == "cuda" else ["eager"])
    runs: dict[str, Callable[[int], None]] = {}
    plain, plain_dirt_t = plain_steps(streams, widths, size, device)
    if not arguments.no_baseline:
        runs["plain port"] = lambda count: repeat(plain, count)
        runs["plain port, DIRT-T"] = lambda count: repeat(plain_dirt_t, count)
    startup: dict[str, float] = {}
    peak: dict[str, float] = {}
    for choice in engines:
        work = workload(arguments.net, bfloat16, device, size, streams=streams)
        for phase, name in enumerate((choice, f"{choice}, DIRT-T")):
            runs[name] = stepping(work, choice, phase)
            startup[name], peak[name] = started(runs[name], device)
            print(f"{name}: ready after {startup[name]:.1f} s")
    found = timed(runs, device, arguments.iterations)
    work_done, moved = gigaflop(widths, size), gigabytes(widths, size)
    for name, timing in found.items():
        line = f"{name:22} {timing}"
        if "DIRT-T" not in name:
            line += f"  {work_done / timing.ms:6.1f} TFLOP/s  {moved / timing.ms * 1e3:7.1f} GB/s"
        print(line + (f"  peak {peak[name]:.2f} GiB" if peak.get(name) else ""))
    best = min(engines, key=lambda choice: found[choice].ms)
    baseline = found.get("plain port")
    report = {
        "device": device_name(device),
        "baseline_ms": baseline and baseline.ms,
        "ms": found[best].ms,
        "ratio": baseline and baseline.ms / found[best].ms,
        "dirt_t_ms": found[f"{best}, DIRT-T"].ms,
        "peak_gib": peak[best],
        "startup_s": startup[best],
        "engine": best,
        "fastest_ratio": baseline and baseline.fastest / found[best].fastest,
        "bfloat16": bfloat16,
        "torch": torch.__version__,
        "all_ms": {name: [timing.ms, timing.low, timing.high, timing.fastest] for name, timing in found.items()},
        "all_startup_s": startup,
    }
    if baseline:
        print(f"{best}: {baseline.ms / found[best].ms:.1f} times as fast as the plain port")
    if arguments.plot:
        plot(arguments.plot, arguments.net, bfloat16, device, best, arguments.iterations, streams)
    if arguments.json:
        print(json.dumps(report))
    return 0


def repeat(step: Callable[[], None], count: int) -> None:
    for _ in range(count):
        step()


def stepping(work: Workload, choice: str, phase: int) -> Callable[[int], None]:
    engine = work.engine(choice, say=lambda message: print(f"  {message}"))
    done = 0

    def run(count: int) -> None:
        nonlocal done
        engine.run(work.method.phases[phase], done, count, done)
        done += count

    return run


def started(run: Callable[[int], None], device: torch.device) -> tuple[float, float]:
    """Seconds until the first iteration is done, and the most memory held while running, in GiB."""
    began = time.perf_counter()
    run(1)
    if device.type != "cuda":
        return time.perf_counter() - began, 0.0
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    return seconds, torch.cuda.max_memory_allocated(device) / 2**30


def streams_from(data: Path | None, device: torch.device) -> dict[str, Domain]:
    if data is None:
        return random_domains(device, samples=20_000 if device.type == "cuda" else 2_000, side=32)
    task = load_task("mnist-svhn", data).to(device)
    return {"source": task.source, "target": task.target}


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {counted(torch.get_num_threads(), 'thread')}"


def plot(
    path: Path,
    net: str,
    bfloat16: bool,
    device: torch.device,
    choice: str,
    iterations: int | None,
    streams: dict[str, Domain],
) -> None:
    """Milliseconds per sample against the batch size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sizes = (16, 32, 64, 128, 256)
    costs = []
    for size in sizes:
        run = stepping(workload(net, bfloat16, device, size, streams=streams), choice, 0)
        costs.append(timed({choice: run}, device, iterations)[choice].ms)
        print(f"{size}+{size}: {costs[-1]:.3f} ms")
    figure, axes = pyplot.subplots(figsize=(5, 3.5), layout="constrained")
    axes.plot(sizes, [cost / size for cost, size in zip(costs, sizes, strict=True)], marker="o")
    axes.set(xscale="log", xlabel="samples of each domain in a batch", ylabel="ms per sample of each domain", ylim=0)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_title(f"one VMT iteration, {net} net, {choice} engine, {device_name(device)}", fontsize=9)
    figure.savefig(path, dpi=150)
    print(f"wrote {path}")
