"""One VMT iteration of ResNet-50 at 224×224, 32 + 32: the captured engine beside a plain port, in one process.

    python benchmarks/resnet50.py --json results/resnet50.json

The plain port does the same arithmetic as a first version in PyTorch would, in float32 with TF32 and, as another row,
in bfloat16 with channels_last weights. Ours is compiled and captured, in bfloat16. Runs are timed in turns, in
blocks of a quarter of a second, by CUDA events; the median over the blocks is printed. Weights are random, which does
not change the time. --small is for a look on a CPU.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from vmt import methods
from vmt.data.domains import Domain
from vmt.data.preprocess import Preprocess
from vmt.device import torch_device
from vmt.disk import write_atomically
from vmt.engine.bench import Run, Workload, device_name, first_iteration, repeat, run_of, timed
from vmt.engine.plain_port import Parts, plain_steps
from vmt.nets.adapter import from_module
from vmt.runs.folder import commit
from vmt.step.draws import SeededDraws
from vmt.step.iteration import StepContext
from vmt.step.state import build_state

CLASSES = 7
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        shortcut = (nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Sequential(*shortcut) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet50(Parts):
    """He et al., 2016, with the stride in the 3×3 convolution; the encoder ends with the global average."""

    def __init__(self, stages: Sequence[tuple[int, int, int]] = STAGES, classes: int = CLASSES) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(3, 2, 1)]
        inputs = 64
        for width, blocks, stride in stages:
            for i in range(blocks):
                layers += [Bottleneck(inputs, width, 1 if i else stride)]
                inputs = 4 * width
        self.features = inputs
        self.encoder = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Identity()
        self.logits = nn.Linear(inputs, classes)


def network(classes: int) -> nn.Module:
    """ResNet-50 with random weights, for --net resnet50:network of other benchmarks."""
    return ResNet50(classes=classes)


def streams(device: torch.device, samples: int, side: int) -> dict[str, Domain]:
    """Random photographs, as bytes."""
    random = torch.Generator(device).manual_seed(0)

    def domain(name: str) -> Domain:
        shape = (samples, 3, side, side)
        x = torch.randint(0, 256, shape, generator=random, device=device, dtype=torch.uint8)
        return Domain(x, torch.randint(0, CLASSES, (samples,), generator=random, device=device), name)

    return {name: domain(name) for name in ("source", "target")}


def workload(
    make: Callable[[], Parts],
    domains: dict[str, Domain],
    batch_size: int,
    side: int,
    bfloat16: bool,
    place: torch.device,
) -> Workload:
    method = methods.vmt(lambda_t=0.06)
    shape = (3, side, side)
    state = build_state(method, lambda: from_module(make(), CLASSES, normalise_logits=False), shape, 0, place)
    context = StepContext(
        streams=domains,
        preprocess=Preprocess(3, (side, side), (1 / 127.5,), (-1.0,)),
        batch_size={"source": batch_size, "target": batch_size},
        draws=SeededDraws(0, state.step),
        xi=dict.fromkeys(state.roles, 0.5),
        scalars={},
        bfloat16=bfloat16,
    )
    return Workload(method, state, context, 0)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--batch-size", type=int, default=32, help="samples of each domain (default: 32)")
    parser.add_argument("--tf32", action="store_true", help="also our step in float32 with TF32")
    parser.add_argument("--small", action="store_true", help="a small network at 32 pixels, to try the script")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    asked = parser.parse_args(arguments)
    place = torch_device(asked.device)
    side, stages = (32, ((4, 1, 1), (8, 1, 2))) if asked.small else (224, STAGES)

    def make() -> Parts:
        return ResNet50(stages)

    torch.set_float32_matmul_precision("high")  # TF32 in matrix products, too, as cuDNN's convolutions have it
    print(f"{device_name(place)}, torch {torch.__version__}, {asked.batch_size}+{asked.batch_size} at {side} pixels")
    domains = streams(place, samples=40 if asked.small else 4_000, side=side)
    features = ResNet50(stages).features
    runs: dict[str, Run] = {}
    startup: dict[str, float] = {}
    peak: dict[str, float] = {}

    def add(name: str, run: Run) -> None:
        """Do the first iteration of a run, so that it is ready to be timed."""
        if place.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(place)
        runs[name] = run
        startup[name], peak[name] = first_iteration(run, place)
        print(f"{name}: ready after {startup[name]:.1f} s", flush=True)

    def plain(bfloat16: bool) -> Run:
        step, _ = plain_steps(domains, make, features, asked.batch_size, place, bfloat16)
        return lambda count: repeat(step, count)

    add("plain port, TF32", plain(False))
    add("plain port, bfloat16, channels_last", plain(True))
    engine = "captured" if place.type == "cuda" else "eager"
    for name, bfloat16 in (
        ("captured and compiled, bfloat16", True),
        *((("captured and compiled, TF32", False),) if asked.tf32 else ()),
    ):
        add(name, run_of(workload(make, domains, asked.batch_size, side, bfloat16, place), engine, 0, print))
    found = timed(runs, place, None)
    for name, timing in found.items():
        print(f"{name:38} {timing}" + (f"  peak {peak[name]:.1f} GiB" if peak[name] else ""))
    ours = found["captured and compiled, bfloat16"]
    for name in ("plain port, TF32", "plain port, bfloat16, channels_last"):
        print(f"captured and compiled, bfloat16: {found[name].ms / ours.ms:.2f} times as fast as the {name}")
    if asked.json is not None:
        report = {name: [t.ms, t.low, t.high, t.fastest] for name, t in found.items()}
        about = {"device": device_name(place), "torch": torch.__version__, "commit": commit()}
        about |= {"ms": report, "startup_s": startup, "peak_gib": peak}
        write_atomically(asked.json, json.dumps(about, indent=1).encode())


if __name__ == "__main__":
    main()
