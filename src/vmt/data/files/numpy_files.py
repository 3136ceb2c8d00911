"""NumPy files: .npz archives with samples ``x`` and labels ``y``, and .npy files with samples alone."""

import math
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.files.paths import existing_file
from vmt.errors import InputError

# The exceptions that a damaged archive raises, depending on where the damage is. AttributeError: the file is a bare
# .npy. RuntimeError: a flipped bit marks an entry as encrypted, or as compressed by an unknown method.
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
# Array files are read in portions of this many rows or bytes, whichever is less.
ROWS_AT_ONCE, BYTES_AT_ONCE = 4096, 2**26
HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: Path | str) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Samples ``x`` and labels ``y`` of a NumPy archive; labels are None if the archive has no ``y``.

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
        # pandas and lists of unequal length produce object arrays; loading them could run code.
        if "Object arrays" in str(error):
            raise InputError(
                f"{path} holds Python objects: save names as y=names.astype(str), and numbers as numeric arrays."
            ) from error
        raise InputError(
            f"{path} is not a readable .npz archive of plain arrays: save it with numpy.savez(path, x=…, y=…)."
        ) from error
    if "x" not in arrays:
        held = ", ".join(keys) or "nothing"
        raise InputError(f"{path} has no array 'x' (it holds: {held}): save it with numpy.savez(path, x=…, y=…).")
    return arrays["x"], arrays.get("y")


def read_npy(path: Path) -> NDArray[Any]:
    """The array of an .npy file."""
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{path} is not a readable .npy file: save it again with numpy.save.") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} holds an .npz archive: rename it so that it ends in .npz.")
    return array


def iterate_rows(path: Path) -> Iterator[NDArray[Any]]:
    """The rows of an .npy file, or of ``x`` in an .npz archive, a portion at a time.

    A damaged file raises one of ``DAMAGED_NPZ``; an archive without ``x`` raises a KeyError.
    """
    if path.suffix.lower() == ".npy":
        with path.open("rb") as file:
            yield from _portions(file)
        return
    with zipfile.ZipFile(path) as archive:
        if "x.npy" not in archive.namelist():
            raise KeyError("x")
        with archive.open("x.npy") as member:
            yield from _portions(member)


def _portions(file: IO[bytes]) -> Iterator[NDArray[Any]]:
    version = np.lib.format.read_magic(file)
    shape, column_major, dtype = HEADER_READERS[version](file)
    if dtype.hasobject:
        raise ValueError("an array of Python objects")
    if column_major or not shape:
        # The rows of a column-major array are spread over the whole file.
        file.seek(0)
        yield np.load(file, allow_pickle=False)
        return
    row = dtype.itemsize * math.prod(shape[1:])
    portion = max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // max(row, 1)))
    for start in range(0, shape[0], portion):
        count = min(portion, shape[0] - start)
        content = file.read(count * row)
        if len(content) < count * row:
            raise EOFError
        yield np.frombuffer(content, dtype).reshape(count, *shape[1:])
