"""Data out of pickle files without running any of the code that a pickle can carry.

A pickle is a program: it may name any function of any module and have it called. Here every name that the files of
plain arrays need stands for an inert class or function of this module, and every other name ends the reading.
"""

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.files.paths import existing_file, explain_read_errors
from vmt.errors import InputError

# Several times the largest file of this kind that is published: a sparse giant is not read into memory.
MAX_BYTES = 256 * 2**20
# The element types that an array may have: whole numbers and floats of fixed size, no objects.
ELEMENTS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"f4", "f8", "b1"}


class _Refused(Exception):
    """The pickle asks for more than plain data."""


def read_plain_pickle(path: Path, remedy: str) -> Any:
    """Containers, strings (as bytes), numbers and NumPy arrays of a pickle file of any Python version."""
    existing_file(path, remedy)
    with explain_read_errors(path):
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} is larger than {MAX_BYTES >> 20} MiB, so it is not what its name says: {remedy}.")
        content = path.read_bytes()
    try:
        _check_memory(content)
        return _finished(_Reader(io.BytesIO(content), encoding="bytes").load())
    except _Refused as refusal:
        raise InputError(f"{path} is not read, because its pickle {refusal}: {remedy}.") from refusal
    except Exception as error:
        # Damaged bytes are met as opcodes, so that almost any exception may come of them.
        raise InputError(f"{path} is truncated or not a pickle of plain arrays: {remedy}.") from error


def _check_memory(content: bytes) -> None:
    """A pickle numbers what it wants to use again; a huge number would have a table of that length made."""
    for operation, number, _ in pickletools.genops(content):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(number or 0) > len(content):
            raise _Refused("asks for more memory than its size can need")


class _Array:
    """An array as a pickle describes it: made empty, then given its state."""

    array: NDArray[Any] | None = None

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _Refused("describes an array in an unknown way")
        _, shape, element, column_major, content = state
        whole = isinstance(shape, tuple) and all(isinstance(side, int) and side >= 0 for side in shape)
        if not whole or not isinstance(element, _Element) or not isinstance(content, bytes):
            raise _Refused("holds an array of objects")
        dtype = np.dtype(element.order + element.code)
        if math.prod(shape) * dtype.itemsize != len(content):
            raise _Refused("announces an array of another size than it holds")
        self.array = np.frombuffer(content, dtype).reshape(shape, order="F" if column_major else "C")


class _Element:
    """The element type of an array."""

    order = "|"

    def __init__(self, code: Any, align: Any = 0, copy: Any = 1) -> None:
        self.code = code.decode("ascii") if isinstance(code, bytes) else code
        if self.code not in ELEMENTS:
            raise _Refused(f"holds elements of type {self.code!r}")

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "|", "="):
            raise _Refused(f"has the byte order {order!r}")
        self.order = order


class _Name:
    """A name that a pickle may call, and do nothing else with: a plain function could be given other attributes."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise _Refused("changes what it names")


def _no_array(*_: Any) -> None:
    raise _Refused("makes arrays in an unknown way")


def _reconstruct(kind: Any, shape: Any, element: Any) -> _Array:
    if kind is not NDARRAY:
        raise _Refused("makes something that is no array")
    return _Array()


def _encode(text: Any, encoding: Any = b"latin1") -> bytes:
    """How Python 3 writes bytes in the older protocols."""
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise _Refused(f"wants the encoding {encoding!r}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


NDARRAY = _Name(_no_array)  # only ever named, as the type that is to be reconstructed
INERT = {
    ("numpy.core.multiarray", "_reconstruct"): _Name(_reconstruct),
    ("numpy._core.multiarray", "_reconstruct"): _Name(_reconstruct),
    ("numpy", "ndarray"): NDARRAY,
    ("numpy", "dtype"): _Name(_Element),
    ("_codecs", "encode"): _Name(_encode),
    ("__builtin__", "bytes"): _Name(_no_bytes),
    ("builtins", "bytes"): _Name(_no_bytes),
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in INERT:
            raise _Refused(f"names {module}.{name}, which no file of plain arrays needs")
        return INERT[module, name]


def _finished(value: Any) -> Any:
    """The value with every described array turned into one."""
    if isinstance(value, _Array):
        return value.array
    if isinstance(value, dict):
        return {key: _finished(item) for key, item in value.items()}
    return value
