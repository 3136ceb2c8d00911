"""The exception for bad input, messages for errors that others raise, and small parts of messages."""

import operator
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

# Characters that a terminal obeys instead of showing them: control characters other than tabs and line breaks, and
# those that change the direction of the text around them.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class InputError(ValueError):
    """Bad input from the user: a file, an argument or a value.

    The message is one sentence that names the offender and the remedy. The command line prints it alone, without
    a traceback, and exits with code 2. Python prints it with the traceback, so control characters are escaped here.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def message_of_os_error(error: OSError) -> str:
    """The message for an error of the operating system, such as a missing permission or a full disk."""
    what = error.filename if error.filename is not None else "a file or stream"
    return f"{what} cannot be used ({error.strerror or error}): check the path, its permissions and the disk."


def message_of_gpu_error(error: RuntimeError) -> str | None:
    """The message for a GPU that is out of memory or has failed; None for any other error.

    The notes of the error say how to continue, where that is known.
    """
    import torch

    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, torch.OutOfMemoryError):
        what = f"the GPU is out of memory ({lines[0].split('. ')[0].rstrip('.')})"
        remedy = "use a smaller batch size or network, end other programs that use it, or choose another device"
    elif isinstance(error, torch.AcceleratorError):
        what, remedy = f"the GPU has failed ({lines[0]})", "the same command may work in a new process"
    else:
        return None
    return f"{what}: {'; '.join([remedy, *getattr(error, '__notes__', [])])}."


def whole(value: Any, name: str) -> int:
    """A whole number as a Python int; NumPy's integers are accepted."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise InputError(f"{name} is {value!r}: give a whole number.") from error


def counted(count: int, what: str) -> str:
    """A count with its noun.

    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


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
