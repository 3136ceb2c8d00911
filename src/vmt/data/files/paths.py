"""Paths that a user gives: which kinds of files are read, and clear errors for files that cannot be read.

The help of the command line shows some of these constants, so this module imports neither NumPy nor torch.
"""

import gzip
import io
from pathlib import Path
from typing import Any, TextIO

from vmt.errors import InputError, parsing, shown

INPUT_FORMATS = "a folder of pictures, or a .csv, .tsv, .csv.gz, .tsv.gz, .parquet, .npz or .npy file"
# Formats of exported models, which are also the suffixes of their files.
ONNX, PT2 = "onnx", "pt2"
FORMATS = (ONNX, PT2)
# An export is compared with its model on at most this many samples.
MOST_CHECKED = 1000
PICTURES = "png jpg jpeg jpe jfif bmp dib gif tif tiff webp ppm pgm pbm pnm tga jp2 ico avif"
PICTURE_SUFFIXES = frozenset(f".{kind}" for kind in PICTURES.split())
TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet"})
ARRAY_SUFFIXES = frozenset({".npy", ".npz"})

# Reading stops when more samples than FEW_UNREADABLE, and more than this share of all samples, cannot be read.
FEW_UNREADABLE, UNREADABLE_SHARE = 10, 0.01

# A compressed table or array may unpack to MAX_UNPACKED bytes, or to MAX_RATIO times its own size if that is more.
MAX_UNPACKED, MAX_RATIO = 64 * 2**20, 100


def file_suffix(path: Path) -> str:
    """The suffix of a file in lower case; ``.csv.gz`` rather than ``.gz`` for a gzipped file.

    >>> file_suffix(Path("Table.CSV.gz")), file_suffix(Path("v1.2.png"))
    ('.csv.gz', '.png')
    """
    inner = Path(path.stem).suffix if path.suffix.lower() == ".gz" else ""
    return (inner + path.suffix).lower()


def is_utf8(path: Path) -> bool:
    """Whether the name of a file is valid UTF-8, as some libraries require."""
    return shown(path) == str(path)


def existing_file(path: Path, remedy: str) -> Path:
    """The path itself; an error that ends in the remedy if there is no such file."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a file: {remedy}.")
    if not path.exists():
        raise InputError(f"{path} does not exist: {remedy}.")
    return path


def most_unpacked(path: Path) -> int:
    """How many bytes a compressed file may unpack to; more is a sign of a decompression bomb."""
    return max(MAX_UNPACKED, MAX_RATIO * path.stat().st_size)


def open_text(path: Path) -> TextIO:
    """Open a text file in UTF-8, which may be gzipped."""
    if path.suffix.lower() != ".gz":
        return path.open(newline="", encoding="utf-8-sig")
    return io.TextIOWrapper(io.BufferedReader(_Gunzipped(path)), newline="", encoding="utf-8-sig")


class _Gunzipped(io.RawIOBase):
    """The content of a gzip file, unpacked while it is read; damaged files and decompression bombs are refused."""

    def __init__(self, path: Path) -> None:
        self.path, self.left = path, most_unpacked(path)
        self.file = gzip.open(path, "rb")  # noqa: SIM115  (closed by close())

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with parsing(self.path, "a gzip file", "compress it again"):
            count = self.file.readinto(buffer)
        self.left -= count
        if self.left < 0:
            raise InputError(
                f"{self.path} unpacks to more than {MAX_RATIO} times its size: if that is intended, unpack it yourself "
                "and pass the unpacked table."
            )
        return count

    def close(self) -> None:
        self.file.close()
        super().close()
