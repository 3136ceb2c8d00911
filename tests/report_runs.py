"""Run folders to report on: short real runs, and fabricated runs with the numbers that a test needs."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from vmt.cli.main import main
from vmt.runs.folder import RunSpec
from vmt.runs.recipes import Recipe
from vmt.runs.spec import DataSpec
from vmt.validators.registry import DEFAULT

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
    *,
    samples: int = 500,
    share: tuple[float, ...] = (0.4, 0.3, 0.3),
    summary: dict[str, Any] | None = None,
    finished: bool = True,
    seed: int = 0,
    dirt_t: bool = False,
    source_accuracy: float = 0.95,
    **log: Any,
) -> Path:
    """Write the folder of a run whose data are gone, with a log that ends in these numbers.

    ``source_before``, ``scores`` and ``alarm`` are for the log, see :func:`write_log`; the rest are settings.
    """
    folder.mkdir(parents=True)
    settings = {name: log.pop(name) for name in list(log) if name not in ("source_before", "scores", "alarm")}
    recipe = Recipe(method, {"iterations": 100 if dirt_t else 200, **settings}, {"iterations": 100} if dirt_t else None)
    spec = RunSpec(DataSpec(source="gone.npz", target="gone-too.npz"), recipe).to_dict()
    spec["recipe"]["config"]["seed"] = seed
    (folder / "run.json").write_text(json.dumps({**spec, "fingerprint": "same", "environment": {"torch": "2"}}))
    phases = (method, "dirt_t" if dirt_t else method)
    write_log(folder, phases, accuracy, samples, share, source_accuracy, **log)
    if finished:
        done = {"finished": True, "collapsed": None, "seconds": 3.0, **(summary or {})}
        (folder / "summary.json").write_text(json.dumps(done))
    return folder


def write_log(
    folder: Path,
    phases: tuple[str, str],
    accuracy: float | None = None,
    samples: int = 500,
    share: tuple[float, ...] = (0.4, 0.3, 0.3),
    source_accuracy: float = 0.95,
    source_before: float = 0.95,
    scores: tuple[float, float] | None = None,
    alarm: str | None = None,
) -> None:
    """Write a log with evaluations at iterations 100 and 200, the second with these numbers.

    The evaluations have label-free scores if ``scores`` gives those of both; ``alarm`` is that of the second.
    """
    records = []
    for i, step in enumerate((100, 200)):
        known = None if accuracy is None else accuracy - (0.05 if i == 0 else 0)
        target = {"samples": samples, "accuracy": known, "per_class": None, "predicted_share": share}
        target |= {"entropy": 100 / step}
        source = {**target, "accuracy": (source_before, source_accuracy)[i], "entropy": 0.1}
        records.append({"step": step, "phase": phases[i], "classifier/L_y": 1 / step, "discriminator/accuracy": 0.7})
        records.append({"step": step, "phase": phases[i], "target": target, "source": source})
        if scores is not None:
            scored = {"validators": {DEFAULT: scores[i]}, "alarm": alarm if i else None, "validated": 300}
            records[-1] |= scored
    (folder / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def rewrite(
    run: Path, out: Path, summary: dict[str, Any] | None = None, settings: dict[str, Any] | None = None, **log: Any
) -> Path:
    """Copy a real run without target labels, and give the copy other settings and numbers."""
    shutil.copytree(run, out)
    record = json.loads((out / "run.json").read_text())
    record["recipe"]["settings"] |= settings or {}
    (out / "run.json").write_text(json.dumps(record))
    done = json.loads((out / "summary.json").read_text())
    (out / "summary.json").write_text(json.dumps({**done, **(summary or {})}))
    method = record["recipe"]["method"]
    write_log(out, (method, method), **log)
    return out


def three_runs(run: Path, folder: Path) -> Path:
    """From a real run on three classes without target labels: one good run, one too short, one collapsed."""
    rewrite(run, folder / "good", settings={"lambda_d": 0.1}, scores=(0.80, 0.82))
    short = {"scores": (0.1, 0.3), "source_before": 0.3, "source_accuracy": 0.6}
    rewrite(run, folder / "short", settings={"lambda_d": 0.1, "iterations": 200}, **short)
    collapsed = {"collapsed": "at iteration 200 collapsed: 98% of the target is predicted as class 0."}
    piled = {"share": (0.98, 0.01, 0.01), "scores": (0.7, 0.9), "alarm": "2 of 3 classes are never predicted"}
    rewrite(run, folder / "collapsed", collapsed, settings={"lambda_d": 50.0}, **piled)
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
