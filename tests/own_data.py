"""Small files that tests train on, and the command line as a user runs it."""

import csv
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np


def write_blobs(folder: Path, n: int = 240, classes: int = 3) -> tuple[Path, Path]:
    """A labelled source and an unlabelled target: the same clusters in eight dimensions, the target's moved."""
    random = np.random.default_rng(0)
    centres = 3 * random.standard_normal((classes, 8))
    y = np.arange(n) % classes
    x = centres[y] + random.standard_normal((n, 8))
    moved = centres[y] + random.standard_normal((n, 8)) + 0.7
    source, target = folder / "source.npz", folder / "target.npz"
    np.savez(source, x=x.astype(np.float32), y=y)
    np.savez(target, x=moved.astype(np.float32))
    np.savez(folder / "test.npz", x=moved.astype(np.float32), y=y)
    return source, target


def write_csv(path: Path, rows: Iterable[Iterable[object]], delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return path


def vmt(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process."""
    return subprocess.run(command(*arguments), capture_output=True, text=True, cwd=cwd, check=False, timeout=300)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "vmt.cli.main", *map(str, arguments)]


def start(*arguments: object) -> subprocess.Popen[bytes]:
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command(*arguments), stdout=nowhere, stderr=nowhere, env=os.environ)
