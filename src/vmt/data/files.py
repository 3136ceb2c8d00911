"""A user's own files. Every failure is one sentence that names the file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.errors import InputError

# What a damaged archive raises, by where the damage lies. AttributeError: it is a bare .npy. RuntimeError: a flipped
# bit says that it is encrypted, or compressed in some new way.
DAMAGED_NPZ = (
    OSError,
    ValueError,
    EOFError,
    TypeError,
    KeyError,
    AttributeError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_npz(path: Path | str) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Samples ``x`` and, where there are any, labels ``y`` of a NumPy archive.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/target.npz", x=np.zeros((4, 8, 8)))
    ...     x, y = read_npz(f"{folder}/target.npz")
    >>> x.shape, y
    ((4, 8, 8), None)
    """
    path = existing_file(Path(path), "give the path of an .npz file with an array 'x' and, for labels, 'y'")
    try:
        with np.load(path, allow_pickle=False) as archive:
            keys = list(archive.files)
            arrays = {key: archive[key] for key in ("x", "y") if key in keys}
    except DAMAGED_NPZ as error:
        if "Object arrays" in str(error):  # as pandas and lists of unequal length give them; loading would run code
            raise InputError(
                f"{path} holds Python objects: save names as y=names.astype(str), numbers as such."
            ) from error
        raise InputError(
            f"{path} is not a readable .npz archive of plain arrays: save it with numpy.savez(path, x=…, y=…)."
        ) from error
    if "x" not in arrays:
        found = ", ".join(keys) or "nothing"
        raise InputError(f"{path} has no array 'x' (it holds: {found}): save it with numpy.savez(path, x=…, y=…).")
    return arrays["x"], arrays.get("y")


def existing_file(path: Path, remedy: str) -> Path:
    """The path itself, or a sentence that ends in the remedy."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a file: {remedy}.")
    if not path.exists():
        raise InputError(f"{path} does not exist: {remedy}.")
    return path
