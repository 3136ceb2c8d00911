"""The cost of one iteration, of a plain port and of each engine, timed in one process.

:func:`bench` is the work of ``vmt bench``. :func:`workload` builds the task that it times: the paper's MNIST → SVHN
with instance norm, on random images unless real ones are given.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vmt import methods
from vmt.data.domains import Domain
from vmt.data.preprocess import Preprocess
from vmt.data.tasks import load_task
from vmt.device import bfloat16_helps, torch_device
from vmt.engine.engine import Engine, make_engine
from vmt.engine.plain_port import Classifier, plain_steps
from vmt.errors import counted
from vmt.methods.nouns import Method
from vmt.nets.networks import cnn
from vmt.nets.registry import NETS
from vmt.progress import Notify
from vmt.step.draws import SeededDraws
from vmt.step.iteration import StepContext, schedules_of
from vmt.step.state import State, build_state

Widths = tuple[int, int, int]
Run = Callable[[int], None]
"""Does that many iterations."""

WIDTHS: dict[str, Widths] = {name: NETS[name][1]["widths"] for name in ("small", "large")}
XI = 1e-6
BLOCKS, BLOCKS_ON_CPU = 15, 5
# Seconds in a block on a GPU. Blocks are so long that the time until the first launch does not matter, as in training.
BLOCK = 0.25
PIXELS = (1024, 256, 64)  # in the maps of the three blocks, for images of 32 × 32


def bench(
    net: str = "small",
    *,
    batch_size: int = 64,
    engines: Sequence[str] | None = None,
    device: str = "auto",
    precision: str = "auto",
    iterations: int | None = None,
    data: Path | None = None,
    baseline: bool = True,
    plot: Path | None = None,
    write: Notify = print,
) -> dict[str, Any]:
    """Time an iteration of VMT and of DIRT-T with each engine, ``write`` the results and return them as a report.

    ``net`` is the paper's small or large network and ``batch_size`` the number of samples of each domain.
    ``iterations`` is the number of iterations in a block; by default 1 on a CPU, and as many as fill a quarter of a
    second on a GPU. ``data`` is a folder with MNIST and SVHN, in place of random images. Without ``baseline``, the
    plain port is not timed. With ``plot``, other batch sizes are timed too, and the cost per sample is drawn to that
    file.
    """
    place = torch_device(device)
    if place.index is not None:
        torch.cuda.set_device(place)  # CUDA events, which measure the time, belong to the current device
    widths = WIDTHS[net]
    bfloat16, reason = bfloat16_helps(place)
    if precision != "auto":
        bfloat16, reason = precision == "bfloat16", f"{precision}, as requested."
    streams = streams_from(data, place)
    write(f"{device_name(place)}, torch {torch.__version__}, {net} net, {batch_size}+{batch_size}. {reason}")

    engines = engines or (["eager", "captured"] if place.type == "cuda" else ["eager"])
    runs: dict[str, Run] = {}
    plain, plain_dirt_t = plain_steps(streams, lambda: Classifier(widths), 64 * widths[1], batch_size, place)
    if baseline:
        runs["plain port"] = lambda count: repeat(plain, count)
        runs["plain port, DIRT-T"] = lambda count: repeat(plain_dirt_t, count)
    startup: dict[str, float] = {}
    peak: dict[str, float] = {}
    for choice in engines:
        work = workload(net, bfloat16, place, batch_size, streams=streams)
        for phase, name in enumerate((choice, f"{choice}, DIRT-T")):
            runs[name] = run_of(work, choice, phase, write)
            startup[name], peak[name] = first_iteration(runs[name], place)
            write(f"{name}: ready after {startup[name]:.1f} s")
    found = timed(runs, place, iterations)
    operations, moved = gigaflop(widths, batch_size), gigabytes(widths, batch_size)
    for name, timing in found.items():
        line = f"{name:22} {timing}"
        if "DIRT-T" not in name:
            line += f"  {operations / timing.ms:6.1f} TFLOP/s  {moved / timing.ms * 1e3:7.1f} GB/s"
        write(line + (f"  peak {peak[name]:.2f} GiB" if peak.get(name) else ""))
    best = min(engines, key=lambda choice: found[choice].ms)
    port = found.get("plain port")
    if port:
        write(f"{best}: {port.ms / found[best].ms:.1f} times as fast as the plain port")
    if plot:
        plot_batch_sizes(plot, net, bfloat16, place, best, iterations, streams, write)
    return {
        "device": device_name(place),
        "baseline_ms": port and port.ms,
        "ms": found[best].ms,
        "ratio": port and port.ms / found[best].ms,
        "dirt_t_ms": found[f"{best}, DIRT-T"].ms,
        "peak_gib": peak[best],
        "startup_s": startup[best],
        "engine": best,
        "fastest_ratio": port and port.fastest / found[best].fastest,
        "bfloat16": bfloat16,
        "torch": torch.__version__,
        "all_ms": {name: [timing.ms, timing.low, timing.high, timing.fastest] for name, timing in found.items()},
        "all_startup_s": startup,
    }


# --- The task that is timed ---


@dataclass(frozen=True)
class Workload:
    """A method with everything that it needs to run."""

    method: Method
    state: State
    context: StepContext
    seed: int

    def engine(self, choice: str, iterations: int | None = None, say: Notify = print) -> Engine:
        return make_engine(choice, self.state, self.context, self.seed, iterations, say)


def workload(
    net: str | Widths,
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
    """VMT with λ_d 0.01, λ_s 1 and λ_t 0.06, then DIRT-T, or another method, with a CNN of the paper."""
    method = method or methods.dirt_t(methods.vmt(lambda_t=0.06), lambda_t=0.06)
    widths = WIDTHS[net] if isinstance(net, str) else net
    shape = (3, side, side)
    state = build_state(method, lambda: cnn(shape, 10, widths, True, dropout, noise), shape, seed, device)
    context = StepContext(
        streams=streams or random_domains(device, samples, side),
        preprocess=Preprocess(3, (side, side), (2 / 255,), (-1.0,)),
        batch_size={"source": batch_size, "target": batch_size},
        draws=SeededDraws(seed, state.step),
        xi=dict.fromkeys(state.roles, xi),
        scalars={schedule: torch.zeros((), device=device) for schedule in schedules_of(method)},
        limits=(0.0, 255.0),
        bfloat16=bfloat16,
    )
    return Workload(method, state, context, seed)


def streams_from(data: Path | None, device: torch.device) -> dict[str, Domain]:
    if data is None:
        return random_domains(device, samples=20_000 if device.type == "cuda" else 2_000, side=32)
    task = load_task("mnist-svhn", data).to(device)
    return {"source": task.source, "target": task.target}


def random_domains(device: torch.device, samples: int, side: int) -> dict[str, Domain]:
    """Grey floats and coloured bytes, as resized MNIST and SVHN are stored."""
    random = torch.Generator(device).manual_seed(0)

    def domain(name: str, channels: int, dtype: torch.dtype) -> Domain:
        x = torch.randint(0, 256, (samples, channels, side, side), generator=random, device=device, dtype=torch.uint8)
        y = torch.randint(0, 10, (samples,), generator=random, device=device)
        return Domain(x.to(dtype), y, name)

    return {"source": domain("source", 1, torch.float32), "target": domain("target", 3, torch.uint8)}


def run_of(work: Workload, choice: str, phase: int, write: Notify) -> Run:
    """Iterations of a phase with an engine; each call continues where the last one ended."""
    engine = work.engine(choice, say=lambda message: write(f"  {message}"))
    done = 0

    def run(count: int) -> None:
        nonlocal done
        engine.run(work.method.phases[phase], done, count, done)
        done += count

    return run


def repeat(step: Callable[[], None], count: int) -> None:
    for _ in range(count):
        step()


# --- The clock ---


@dataclass(frozen=True)
class Timing:
    """Milliseconds per iteration: the median over blocks of iterations, the middle half of the blocks, the fastest."""

    ms: float
    low: float
    high: float
    fastest: float

    def __str__(self) -> str:
        return f"{self.ms:9.3f} ms ({self.low:.3f}–{self.high:.3f}, fastest {self.fastest:.3f})"


def first_iteration(run: Run, device: torch.device) -> tuple[float, float]:
    """Seconds until the first iteration is done, and the most memory in use until then, in GiB."""
    start = time.perf_counter()
    run(1)
    if device.type != "cuda":
        return time.perf_counter() - start, 0.0
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return seconds, torch.cuda.max_memory_allocated(device) / 2**30


def timed(runs: dict[str, Run], device: torch.device, iterations: int | None) -> dict[str, Timing]:
    """Time the runs in turns, so that other work on the machine slows all of them down alike.

    Without ``iterations``, a block is one iteration on a CPU, and as many as fill it on a GPU.
    """
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


def milliseconds(run: Run, device: torch.device, iterations: int) -> float:
    if device.type != "cuda":
        started = time.perf_counter()
        run(iterations)
        return (time.perf_counter() - started) * 1e3 / iterations
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


# --- The work of one iteration ---


def gigaflop(widths: Widths, batch_size: int) -> float:
    """Multiplications and additions in the convolutions of one VMT iteration.

    The discriminator's pass has no gradient, the clean, mixed and adversarial passes have the gradients by input and by
    weight, and the direction passes the gradient by input alone.
    """
    first, second, third = widths
    per_pixel = (3 * first + 2 * first**2, first * second + 2 * second**2, second * third + 2 * third**2)
    blocks = [18 * pixels * products for pixels, products in zip(PIXELS, per_pixel, strict=True)]
    encoder, network = sum(blocks[:2]), sum(blocks)
    return batch_size * (2 * encoder + (4 * 3 + 2 * 2 + 2 * 3) * network) / 1e9


def gigabytes(widths: Widths, batch_size: int) -> float:
    """The least that the layers read and write in bfloat16.

    The result of each convolution moves five times forward (it is written, summed and normalised to another map,
    which is read) and nine times backward.
    """
    values = [3 * pixels * width for pixels, width in zip(PIXELS, widths, strict=True)]
    encoder, network = sum(values[:2]), sum(values)
    return batch_size * 2 * (2 * 5 * encoder + (8 * 5 + 8 * 9) * network) / 1e9


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {counted(torch.get_num_threads(), 'thread')}"


def plot_batch_sizes(
    path: Path,
    net: str,
    bfloat16: bool,
    device: torch.device,
    choice: str,
    iterations: int | None,
    streams: dict[str, Domain],
    write: Notify,
) -> None:
    """Draw milliseconds per sample against the batch size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sizes = (16, 32, 64, 128, 256)
    costs = []
    for size in sizes:
        run = run_of(workload(net, bfloat16, device, size, streams=streams), choice, 0, write)
        costs.append(timed({choice: run}, device, iterations)[choice].ms)
        write(f"{size}+{size}: {costs[-1]:.3f} ms")
    figure, axes = pyplot.subplots(figsize=(5, 3.5), layout="constrained")
    axes.plot(sizes, [cost / size for cost, size in zip(costs, sizes, strict=True)], marker="o")
    axes.set(xscale="log", xlabel="samples of each domain in a batch", ylabel="ms per sample of each domain", ylim=0)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_title(f"one VMT iteration, {net} net, {choice} engine, {device_name(device)}", fontsize=9)
    figure.savefig(path, dpi=150)
    write(f"wrote {path}")
