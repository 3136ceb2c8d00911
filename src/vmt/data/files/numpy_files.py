"""NumPy files: .npz archives with samples ``x`` and labels ``y``, and .npy files with samples alone.

A header says how large its array is. It is compared with the size of the file before any memory is allocated.
"""

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.files.paths import MAX_RATIO, existing_file, most_unpacked
from vmt.errors import InputError, parsing, shown

# Array files are read in portions of this many rows or bytes, whichever is less.
ROWS_AT_ONCE, BYTES_AT_ONCE = 4096, 2**26
HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
NPZ_REMEDY = "save it with numpy.savez(path, x=…, y=…)"
NPY_REMEDY = "save it again with numpy.save"
ZIP_START = b"PK"
Header = tuple[tuple[int, ...], bool, np.dtype[Any]]  # shape, column-major, element type


class NpzArchive:
    """The arrays of an .npz archive, read when they are asked for."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, remedy: str) -> None:
        self.path, self.archive, self.remedy, self.left = path, archive, remedy, most_unpacked(path)
        self.members = {
            member.filename.removesuffix(".npy"): member
            for member in archive.infolist()
            if member.filename.endswith(".npy")
        }

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """The bytes of an array file, and how many they are."""
        if name not in self.members:
            held = ", ".join(map(shown, self.members)) or "nothing"
            raise InputError(
                f"{shown(self.path)} has no array {name!r} (it holds: {held}): {self.remedy}."
            ) from KeyError(name)
        with self.archive.open(self.members[name]) as file:
            yield file, self.members[name].file_size

    def take(self, size: int) -> None:
        """Count bytes that are held in memory, and refuse an archive that holds far more than its size suggests."""
        self.left -= size
        if self.left < 0:
            raise InputError(
                f"{shown(self.path)} unpacks to more than {MAX_RATIO} times its size: if that is intended, save it "
                "without compression (numpy.savez)."
            )

    def __getitem__(self, name: str) -> NDArray[Any]:
        with self.open(name) as (file, size):
            self.take(_size(_read_header(self.path, file, size)))
        with self.open(name) as (file, size):
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


@contextmanager
def open_npz(path: Path, remedy: str = NPZ_REMEDY) -> Iterator[NpzArchive]:
    """Open an .npz archive; what fails inside the block is a fault of the file."""
    kind = "a readable .npz archive of plain arrays"
    with parsing(path, kind, remedy), zipfile.ZipFile(path) as archive:
        yield NpzArchive(path, archive, remedy)


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
    with open_npz(path) as archive:
        return archive["x"], archive["y"] if "y" in archive.members else None


def read_npy(path: Path) -> NDArray[Any]:
    """The array of an .npy file."""
    with parsing(path, "a readable .npy file", NPY_REMEDY), path.open("rb") as file:
        if file.read(len(ZIP_START)) == ZIP_START:
            raise InputError(f"{shown(path)} holds an .npz archive: rename it so that it ends in .npz.")
        file.seek(0)
        _read_header(path, file, path.stat().st_size)
        file.seek(0)
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def iterate_rows(path: Path) -> Iterator[NDArray[Any]]:
    """The rows of an .npy file, or of ``x`` in an .npz archive, a portion at a time."""
    if path.suffix.lower() == ".npy":
        with parsing(path, "a readable .npy file", NPY_REMEDY), path.open("rb") as file:
            yield from _portions(path, file, path.stat().st_size)
        return
    with open_npz(path) as archive, archive.open("x") as (member, size):
        yield from _portions(path, member, size, archive)


def _read_header(path: Path, file: IO[bytes], size: int) -> Header:
    """The header of an array file of `size` bytes."""
    header: Header = HEADER_READERS[np.lib.format.read_magic(file)](file)
    shape, _, dtype = header
    # pandas and lists of unequal length produce object arrays; loading them could run code.
    if dtype.hasobject:
        raise InputError(
            f"{shown(path)} holds Python objects: save names as y=names.astype(str), and numbers as numeric arrays."
        )
    if any(side < 0 for side in shape) or _size(header) > size:
        raise ValueError(f"the header announces an array of shape {shape}, but the file has {size} bytes")
    return header


def _size(header: Header) -> int:
    shape, _, dtype = header
    return dtype.itemsize * math.prod(shape)


def _portions(path: Path, file: IO[bytes], size: int, archive: NpzArchive | None = None) -> Iterator[NDArray[Any]]:
    header = _read_header(path, file, size)
    shape, column_major, dtype = header
    if not shape:
        raise ValueError("a single value")
    if column_major:
        # The rows of a column-major array are spread over the whole file.
        if archive is not None:
            archive.take(_size(header))
        file.seek(0)
        yield np.lib.format.read_array(file, allow_pickle=False)
        return
    row = dtype.itemsize * math.prod(shape[1:])
    if shape[0] and not row:
        raise ValueError(f"an array of shape {shape} has no values")
    if archive is not None:
        archive.take(row)
    portion = max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // max(row, 1)))
    for start in range(0, shape[0], portion):
        count = min(portion, shape[0] - start)
        content = file.read(count * row)
        if len(content) < count * row:
            raise EOFError("the file ends inside the array")
        yield np.frombuffer(content, dtype).reshape(count, *shape[1:])
