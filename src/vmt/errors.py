"""The exception for bad input, messages for errors that others raise, and small parts of messages."""

import operator
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from textwrap import shorten
from typing import Any

# Characters that a terminal obeys instead of showing them: control characters other than tabs and line breaks, and
# those that change the direction of the text around them.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class InputError(ValueError):
    """Bad input from the user: a file, an argument or a value.

    The message is one sentence that names the offender and the remedy. The command line prints it alone, without
    a traceback, and exits with code 2. Python prints it with the traceback, so control characters and line breaks are
    escaped here.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message).replace("\n", "\\n"))  # a name may contain one


class Diverged(InputError):
    """The losses, weights or predictions of a run have become infinite or not a number."""


@contextmanager
def parsing(path: Path | str, kind: str, remedy: str) -> Iterator[None]:
    """Turn any failure to parse a given file into an :class:`InputError` that names the file and the remedy.

    This is the one boundary around every parser. Depending on where a file is damaged, a parser may raise almost any
    exception, also a MemoryError or a RecursionError. An :class:`InputError` from inside keeps its sentence, because it
    says more. Only the parsing belongs in the block: what is wrong elsewhere must keep its traceback.

    >>> with parsing("run.json", "a record", "start again"):
    ...     {}["method"]
    Traceback (most recent call last):
      ...
    vmt.errors.InputError: run.json is truncated, damaged or not a record (KeyError: 'method'): start again.
    """
    try:
        yield
    except InputError as error:
        if shown(path) in str(error):
            raise
        raise InputError(f"{shown(path)}: {error}") from error
    except Exception as error:
        # Damaged compressed data raise an OSError without a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(
                f"{shown(path)} cannot be read ({error.strerror or error}): check the file and its permissions."
            ) from error
        raise InputError(f"{shown(path)} is truncated, damaged or not {kind} ({_reason(error)}): {remedy}.") from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if the message is empty.

    >>> first_line(ValueError("out of range\\nlong advice")), first_line(KeyboardInterrupt())
    ('out of range', 'KeyboardInterrupt')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _reason(error: Exception) -> str:
    """The type and the message of an error, in one short line without control characters."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(error))
    return shorten(f"{type(error).__name__}: {text}" if text.strip() else type(error).__name__, 160, placeholder=" …")


def message_of_os_error(error: OSError) -> str:
    """The message for an error of the operating system, such as a missing permission or a full disk."""
    what = error.filename if error.filename is not None else "a file or stream"
    return f"{what} cannot be used ({error.strerror or error}): check the path, its permissions and the disk."


def message_of_gpu_error(error: RuntimeError) -> str | None:
    """The message for a GPU that is out of memory or has failed; None for any other error.

    The notes of the error say how to continue, where that is known.
    """
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        what = f"the GPU is out of memory ({first_line(error).split('. ')[0].rstrip('.')})"
        remedy = "use a smaller batch size or network, end other programs that use it, or choose another device"
    elif isinstance(error, torch.AcceleratorError):
        what, remedy = f"the GPU has failed ({first_line(error)})", "the same command may work in a new process"
    else:
        return None
    return f"{what}: {'; '.join([remedy, *getattr(error, '__notes__', [])])}."


def whole(value: Any, name: str) -> int:
    """A whole number as a Python int; NumPy's integers are accepted."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise InputError(f"{name} is {value!r}: give a whole number.") from error


SIZES = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


def bytes_in(size: str, name: str) -> int:
    """The number of bytes in a size such as 2GiB.

    >>> bytes_in("2GiB", "memory"), bytes_in("1.5 MiB", "memory")
    (2147483648, 1572864)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", size)
    units = {unit.lower().removesuffix(ending): power for unit, power in SIZES.items() for ending in ("", "ib", "b")}
    if not found or found[2].lower() not in units or float(found[1]) == 0:
        raise InputError(f"{name} is {size!r}: give a size such as 512MiB or 2GiB.")
    return int(float(found[1]) * 2 ** units[found[2].lower()])


def size_of(count: int) -> str:
    """A number of bytes with its unit.

    >>> size_of(900), size_of(2 * 2**30), size_of(1_234_567)
    ('900 B', '2 GiB', '1.18 MiB')
    """
    unit, power = next(((u, p) for u, p in reversed(SIZES.items()) if count >= 2**p), ("B", 0))
    return f"{count / 2**power:.3g} {unit}" if count < 1000 * 2**power else f"{count / 2**power:.0f} {unit}"


def counted(count: int, what: str) -> str:
    """A count with its noun.

    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


def as_flag(name: str) -> str:
    """A setting as the command line writes it.

    >>> as_flag("lambda_t")
    '--lambda-t'
    """
    return "--" + name.replace("_", "-")


def perhaps(name: str, known: Iterable[str]) -> str:
    """A suggestion for an unknown name.

    >>> perhaps("vadda", ["vada", "vmt"]), perhaps("other", ["vada", "vmt"])
    (' (perhaps vada?)', '')
    """
    near = get_close_matches(name, list(known), n=1)
    return f" (perhaps {near[0]}?)" if near else ""


def shown(text: Path | str) -> str:
    """A file name that can be printed and saved: bytes that are not UTF-8 are escaped, so names stay distinct."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def printable(text: str) -> str:
    """Text whose control characters are escaped as in JSON, so that a name from a file cannot command a terminal.

    >>> print(printable("a name that clears the screen: \x1b[2J"))
    a name that clears the screen: \\u001b[2J
    """
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def few(names: list[str], most: int = 3) -> str:
    """The first names of a list, and how many more there are.

    >>> few(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
