"""Small files that tests train on, and the words of the command line."""

import csv
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


def command(*arguments: object) -> list[str]:
    """The words of the command line for a process that begins at the beginning (see ``tests/processes.py``)."""
    return [sys.executable, "-m", "vmt.cli.main", *map(str, arguments)]
