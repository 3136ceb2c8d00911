"""Read pickle files of plain arrays without running the code that a pickle can carry.

A pickle is a program: it may call any function of any module. Here, the few names that a file of plain arrays needs are
mapped to harmless classes and functions of this module, and a file that uses any other name is refused.
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

from vmt.data.files.paths import existing_file
from vmt.errors import InputError, parsing

# Several times the largest published file of this kind, so that a huge sparse file is not read into memory.
MAX_BYTES = 256 * 2**20
# The element types that an array may have: integers, floats and booleans, but no objects.
ELEMENTS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"f4", "f8", "b1"}


class _Refused(Exception):
    """The pickle needs more than plain data; the message says what it does."""


def read_plain_pickle(path: Path, remedy: str) -> Any:
    """The containers, strings (as bytes), numbers and NumPy arrays of a pickle file from any Python version."""
    existing_file(path, remedy)
    # Damaged bytes are executed as opcodes, which may raise almost any exception.
    with parsing(path, "a pickle of plain arrays", remedy):
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} is larger than {MAX_BYTES >> 20} MiB, so it is not the published file: {remedy}.")
        content = path.read_bytes()
        try:
            _check_memory(content)
            return _finished(_Reader(io.BytesIO(content), encoding="bytes").load())
        except _Refused as refusal:
            raise InputError(f"{path} is refused, because its pickle {refusal}: {remedy}.") from refusal


def _check_memory(content: bytes) -> None:
    """Refuse huge memo indices: the unpickler would allocate a table of that length."""
    for operation, number, _ in pickletools.genops(content):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(number or 0) > len(content):
            raise _Refused("requests more memory than its size can need")


class _Array:
    """An array as a pickle describes it: first created empty, then given its state."""

    array: NDArray[Any] | None = None

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _Refused("describes an array in an unknown form")
        _, shape, element, column_major, content = state
        whole = isinstance(shape, tuple) and all(isinstance(side, int) and side >= 0 for side in shape)
        if not whole or not isinstance(element, _Element) or not isinstance(content, bytes):
            raise _Refused("holds an array of objects")
        dtype = np.dtype(element.order + element.code)
        if math.prod(shape) * dtype.itemsize != len(content):
            raise _Refused("announces an array whose size differs from its content")
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
    """A callable that a pickle cannot modify; it could set the attributes of a plain function."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise _Refused("modifies a function")


def _no_array(*_: Any) -> None:
    raise _Refused("creates arrays in an unknown way")


def _reconstruct(kind: Any, shape: Any, element: Any) -> _Array:
    if kind is not NDARRAY:
        raise _Refused("creates something other than an array")
    return _Array()


def _encode(text: Any, encoding: Any = b"latin1") -> bytes:
    """Python 3 writes bytes as a call of this function in the older protocols."""
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise _Refused(f"uses the encoding {encoding!r}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


NDARRAY = _Name(_no_array)  # the type argument of _reconstruct; never called
ALLOWED = {
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
        if (module, name) not in ALLOWED:
            raise _Refused(f"names {module}.{name}, which a file of plain arrays does not need")
        return ALLOWED[module, name]


def _finished(value: Any) -> Any:
    """The value, or the values of a dict, with each described array replaced by a NumPy array.

    Dicts inside are left alone: a pickle can nest them so that a walk through all of them would never end.
    """
    if isinstance(value, dict):
        return {key: item.array if isinstance(item, _Array) else item for key, item in value.items()}
    return value.array if isinstance(value, _Array) else value
