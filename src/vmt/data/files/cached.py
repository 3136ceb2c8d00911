"""Arrays that are computed once and kept in the cache of the user."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.cache import CACHE_BYTES, cache_folder, mark_used, trim
from vmt.data.files.numpy_files import open_npz
from vmt.disk import atomic_path
from vmt.errors import InputError

Arrays = dict[str, NDArray[Any]]


def cache_key(about: Any) -> str:
    """A short name for a description, a JSON value."""
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:40]


def cached_arrays(kind: str, about: Any, compute: Callable[[], Arrays], use_cache: bool = True) -> Arrays:
    """The result of `compute`, or its earlier result for the same description `about`, a JSON value."""
    folder = cache_folder(kind) if use_cache else None
    if folder is None:
        return compute()
    path = folder / f"{cache_key(about)}.npz"
    arrays = _read(path)
    if arrays is None:
        arrays = compute()
        _write(path, arrays)
        trim(kind)
    return arrays


def _read(path: Path) -> Arrays | None:
    try:
        with open_npz(path) as archive:
            arrays = {name: archive[name] for name in archive.members}
    except (InputError, OSError):
        return None
    mark_used(path)
    return arrays


def _write(path: Path, arrays: Arrays) -> None:
    if sum(array.nbytes for array in arrays.values()) > CACHE_BYTES:
        return
    # A cache that cannot be written costs time at the next start, and nothing else.
    with suppress(InputError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
