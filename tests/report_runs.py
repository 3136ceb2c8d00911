"""Run folders to report on: short real runs, and fabricated runs with the numbers that a test needs."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from vmt.cli.main import main
from vmt.runs.folder import RunSpec
from vmt.runs.recipes import Recipe
from vmt.runs.spec import DataSpec

# Class names as an attacker would choose them.
NAMES = ("<script>window.hit=1</script>", '"><img src=x onerror="window.hit=2">', "plain & simple")
FLAGS = [
    "--iterations",
    "8",
    "--batch-size",
    "16",
    "--log-every",
    "2",
    "--evaluate-every",
    "4",
    "--checkpoint-every",
    "4",
]


def write_pictures(folder: Path, target: int = 90, size: int = 12, names: tuple[str, ...] = NAMES) -> list[str]:
    """Write source and target with named classes to .npz files, and return the flags that name them."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)

    def save(name: str, count: int, noise: int) -> str:
        y = np.arange(count) % len(names)
        x = random.integers(0, noise, (count, size, size, 3), dtype=np.uint8)
        for i, k in enumerate(y):
            x[i, k * size // len(names), :] = 250
        np.savez(folder / name, x=x, y=np.array(names)[y])
        return str(folder / name)

    source, other = save("source.npz", 90, 60), save("target.npz", target, 200)
    return ["--source", source, "--target", other]


def train(out: Path, data: list[str], *flags: str) -> Path:
    assert main(["train", *data, "--out", str(out), *FLAGS, *flags]) == 0
    return out


def fabricate(
    folder: Path,
    method: str = "vmt",
    accuracy: float | None = 0.9,
    samples: int = 500,
    share: tuple[float, ...] = (0.4, 0.3, 0.3),
    summary: dict[str, Any] | None = None,
    finished: bool = True,
    seed: int = 0,
    dirt_t: bool = False,
    source_accuracy: float = 0.95,
    **settings: Any,
) -> Path:
    """Write the folder of a run whose data are gone, with a log that ends in these numbers."""
    folder.mkdir(parents=True)
    recipe = Recipe(method, {"iterations": 100 if dirt_t else 200, **settings}, {"iterations": 100} if dirt_t else None)
    spec = RunSpec(DataSpec(source="gone.npz", target="gone-too.npz"), recipe).to_dict()
    spec["recipe"]["config"]["seed"] = seed
    (folder / "run.json").write_text(json.dumps({**spec, "fingerprint": "same", "environment": {"torch": "2"}}))
    records = []
    for step, a in ((100, None if accuracy is None else accuracy - 0.05), (200, accuracy)):
        target = {"samples": samples, "accuracy": a, "per_class": None, "predicted_share": share, "entropy": 100 / step}
        source = {**target, "accuracy": 0.95 if step == 100 else source_accuracy, "entropy": 0.1}
        phase = "dirt_t" if dirt_t and step == 200 else method
        records.append({"step": step, "phase": phase, "classifier/L_y": 1 / step, "discriminator/accuracy": 0.7})
        records.append({"step": step, "phase": phase, "target": target, "source": source})
    (folder / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if finished:
        done = {"finished": True, "collapsed": None, "seconds": 3.0, **(summary or {})}
        (folder / "summary.json").write_text(json.dumps(done))
    return folder


def report(out: Path, *arguments: object) -> tuple[str, dict[str, Any]]:
    """The page that the command writes, and the data in it."""
    assert main(["report", *map(str, arguments), "-o", str(out)]) == 0
    page = out.read_text()
    return page, data_of(page)


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data
