"""A user's own files. Every failure is one sentence that names the file."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from vmt.errors import InputError, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = "a folder of pictures, or a .csv, .tsv, .csv.gz, .tsv.gz, .parquet, .npz or .npy file"
# Reading stops when more samples than this number, and than this share of all samples, cannot be read.
FEW_UNREADABLE, UNREADABLE_SHARE = 10, 0.01

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
GZ = ".gz"
# What a packed table may unpack to: so much, or so many times its own size if that is more.
HARMLESS, RATIO = 64 * 2**20, 100


def read_npz(path: Path | str) -> "tuple[NDArray[Any], NDArray[Any] | None]":
    """Samples ``x`` and, where there are any, labels ``y`` of a NumPy archive.

    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/target.npz", x=np.zeros((4, 8, 8)))
    ...     x, y = read_npz(f"{folder}/target.npz")
    >>> x.shape, y
    ((4, 8, 8), None)
    """
    import numpy as np  # here: the command line shows the constants above in its help, which needs no NumPy

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


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """A sentence where the system refuses to read a file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror
        raise InputError(f"{shown(path)} cannot be read ({reason}): check the file and its permissions.") from error


def is_text(path: Path) -> bool:
    """Whether a name can be given to libraries that know only text."""
    return shown(path) == str(path)


def kind_of(path: Path) -> str:
    """The ending of a file's name in small letters; that of a packed file says also what is in it, as .csv.gz does."""
    inner = Path(path.stem).suffix if path.suffix.lower() == GZ else ""
    return (inner + path.suffix).lower()


def open_text(path: Path) -> TextIO:
    """A file of text in UTF-8, which may be packed with gzip."""
    if path.suffix.lower() != GZ:
        return path.open(newline="", encoding="utf-8-sig")
    return io.TextIOWrapper(io.BufferedReader(Unpacked(path)), newline="", encoding="utf-8-sig")


class Unpacked(io.RawIOBase):
    """What a gzip file holds, read as it is asked for. Damage, and more content than its size can mean, are refused."""

    def __init__(self, path: Path) -> None:
        self.path, self.left = path, max(HARMLESS, RATIO * path.stat().st_size)
        self.file = gzip.open(path, "rb")  # noqa: SIM115  (closed with this)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count = self.file.readinto(buffer)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{self.path} is truncated, damaged or no gzip file: pack it again.") from error
        self.left -= count
        if self.left < 0:
            raise InputError(
                f"{self.path} unpacks to more than {RATIO} times its size: if that is right, unpack it yourself and "
                "give the table."
            )
        return count

    def close(self) -> None:
        self.file.close()
        super().close()
