"""Samples that stay on the disk: a tensor whose rows are read when they are asked for.

:class:`RowFile` is a file of decoded pictures with a checksum for each, and :class:`StoredSamples` is what a
:class:`vmt.data.Domain` has as ``x`` in place of a tensor in memory. Its memory does not grow with the number of
samples, except for a dozen bytes each.
"""

import math
import os
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vmt.errors import InputError, parsing, shown

BYTES_AT_ONCE = 2**22  # what is read at a time where all samples are needed
REMEDY = "remove it with vmt cache --remove pictures, and the pictures are decoded again"


class RowFile:
    """A file of uint8 rows of one shape, one after the other, with what is known of each row.

    It stays open, so that a run can finish that reads it while the cache is emptied.
    """

    def __init__(
        self,
        path: Path,
        shape: tuple[int, ...],
        checksums: NDArray[np.uint32],
        lowest: NDArray[np.uint8],
        highest: NDArray[np.uint8],
    ) -> None:
        self.path, self.shape = path, shape
        self.checksums = checksums  # (N,): CRC-32 of each row
        self.lowest, self.highest = lowest, highest  # (N,): the smallest and the largest value of each row
        self.row_bytes = math.prod(shape)
        self.lock = threading.Lock()
        self.file = path.open("rb", buffering=0)

    def __len__(self) -> int:
        return len(self.checksums)

    def read_into(self, rows: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
        """Read rows into ``out`` (n, …), and check each of them. Several threads may read at once."""
        assert out.flags.c_contiguous
        flat = out.reshape(len(rows), self.row_bytes)
        # Neighbours in the file are read together.
        ends = [*(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)] if len(rows) else []
        start = 0
        for end in ends:
            with parsing(self.path, "a store of decoded pictures", REMEDY):
                self._fill(flat[start:end].data.cast("B"), int(rows[start]) * self.row_bytes)
            start = end
        for row, content in zip(rows.tolist(), flat, strict=True):
            if zlib.crc32(content.data) != self.checksums[row]:
                raise InputError(f"row {row} of {shown(self.path)} is damaged: {REMEDY}.")

    def _fill(self, left: memoryview, place: int) -> None:
        """Fill memory with the bytes from a place in the file."""
        while left:
            if hasattr(os, "preadv"):
                count = os.preadv(self.file.fileno(), [left], place)
            else:  # as on Windows, where threads must take turns
                with self.lock:
                    self.file.seek(place)
                    count = self.file.readinto(left)
            if not count:
                raise EOFError("the file ends before its last row")
            left, place = left[count:], place + count


class Extremes(NamedTuple):
    """The smallest and the largest value, as ``torch.aminmax`` returns them."""

    min: Tensor
    max: Tensor


class StoredSamples(Tensor):
    """Samples (N, C, H, W) in a :class:`RowFile`: indexing with a slice or with row numbers reads them.

    It has the shape, type and device of the tensor that it stands for. Everything that would read all samples into
    memory is refused; :meth:`portions` reads them bit by bit.
    """

    file: RowFile
    rows: NDArray[np.int64]  # (N,): the row of the file for each sample

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, file: RowFile, rows: NDArray[np.int64] | None = None) -> "StoredSamples":
        rows = np.arange(len(file), dtype=np.int64) if rows is None else rows
        made: StoredSamples = Tensor._make_wrapper_subclass(
            cls, (len(rows), *file.shape), dtype=torch.uint8, device=torch.device("cpu")
        )
        made.file, made.rows = file, rows
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:  # type: ignore[override]
        raise NotImplementedError(
            f"{func} would read all of the stored samples into memory: index them, or read them in portions."
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"<{len(self.rows)} samples of shape {self.file.shape}, stored in {self.file.path}>"

    def __getitem__(self, index: Any) -> Tensor:
        """Some of the samples, in memory."""
        if not isinstance(index, slice | Tensor):
            raise NotImplementedError(f"stored samples are indexed by a slice or by row numbers, not by {index!r}.")
        chosen = self.rows[index if isinstance(index, slice) else index.cpu().numpy()]
        out = torch.empty((len(chosen), *self.file.shape), dtype=torch.uint8)
        self.file.read_into(chosen, out.numpy())
        return out

    def read_into(self, index: Tensor, out: Tensor) -> None:
        """Read the samples with these numbers (n,) into ``out`` (n, …), which is in the memory of the host."""
        self.file.read_into(self.rows[index.numpy()], out.numpy())

    def subset(self, index: Tensor) -> "StoredSamples":
        """Some of the samples, which are not read."""
        return StoredSamples(self.file, self.rows[index.cpu().numpy()])

    def portions(self) -> Iterator[Tensor]:
        """All samples in order, a portion at a time."""
        count = max(1, BYTES_AT_ONCE // self.file.row_bytes)
        for start in range(0, len(self.rows), count):
            yield self[start : start + count]

    def loaded(self, device: torch.device | str = "cpu") -> Tensor:
        """All samples, in the memory of a device."""
        out = torch.empty(self.shape, dtype=self.dtype, device=device)
        start = 0
        for portion in self.portions():
            out[start : start + len(portion)] = portion
            start += len(portion)
        return out

    def aminmax(self, **_: Any) -> Extremes:  # type: ignore[override]
        lowest, highest = self.file.lowest[self.rows].min(), self.file.highest[self.rows].max()
        return Extremes(torch.tensor(lowest), torch.tensor(highest))


def same_samples(one: Tensor, other: Tensor) -> bool:
    """Whether samples are the same, in memory or in the same rows of a store."""
    if isinstance(one, StoredSamples) and isinstance(other, StoredSamples):
        return one.file.path == other.file.path and np.array_equal(one.rows, other.rows)
    if isinstance(one, StoredSamples) or isinstance(other, StoredSamples):
        return False
    return one.shape == other.shape and torch.equal(one, other)
