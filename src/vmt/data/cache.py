"""Results that are slow to compute, kept in the user's cache folder."""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.files import DAMAGED_NPZ
from vmt.data.stored import aside
from vmt.errors import InputError

Arrays = dict[str, NDArray[Any]]
Stamp = tuple[str, int, int, int]

# What was not used for so long goes, and what was used longest ago once all of it takes more room than this.
KEPT_DAYS, KEPT_BYTES = 30, 8 * 2**30
DAY = 24 * 3600


def cache_folder() -> Path | None:
    """None for a user without a home, as in some containers."""
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(home) / "vmt" / "pictures"


def cached(about: Any, compute: Callable[[], Arrays], use: bool = True) -> Arrays:
    """What `compute` returns, or what it returned before for the same description `about`, a JSON value."""
    folder = cache_folder() if use else None
    if folder is None:
        return compute()
    path = folder / (hashlib.sha256(json.dumps(about).encode()).hexdigest()[:40] + ".npz")
    arrays = _read(path)
    if arrays is None:
        arrays = compute()
        _write(path, arrays)
    return arrays


def stamp(path: Path) -> Stamp:
    """Changes whenever a file does, or whether it may be read."""
    name = os.fsencode(path.absolute()).hex()
    try:
        status = path.stat()
    except OSError:
        return name, -1, -1, -1
    # The time of modification alone misses new permissions, and a copy that brings its own time with it.
    return name, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read(path: Path) -> Arrays | None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        os.utime(path)  # used today, and so kept
    except DAMAGED_NPZ:
        return None
    return arrays


def _write(path: Path, arrays: Arrays) -> None:
    if sum(array.nbytes for array in arrays.values()) > KEPT_BYTES:
        return
    # A cache that is full or forbidden costs time at the next start, and nothing else.
    with contextlib.suppress(InputError, OSError):
        with aside(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        _tidy(path.parent)


def _tidy(folder: Path) -> None:
    for left in folder.glob(".*.npz.*"):  # by a process that was killed while it wrote, unless it still does
        if time.time() - left.stat().st_mtime > DAY:
            left.unlink(missing_ok=True)
    kept = 0
    for path in sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_mtime, reverse=True):
        kept += path.stat().st_size
        if kept > KEPT_BYTES or time.time() - path.stat().st_mtime > KEPT_DAYS * DAY:
            path.unlink(missing_ok=True)
