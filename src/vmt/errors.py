"""The one exception that means: the input is wrong, and this sentence says what to do. And sentences for what others
raise."""

import operator
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any


class InputError(ValueError):
    """Bad input from the user: a file, an argument or a value.

    The message is one sentence that names the offender and the remedy. The command line prints it alone, without
    a traceback, and exits with code 2.
    """


def refused(error: OSError) -> str:
    """The sentence for what the system refused: a path too long, a folder without permission, a disk that is gone."""
    what = error.filename if error.filename is not None else "a file or stream"
    return f"{what} cannot be used ({error.strerror or error}): check the path, its permissions and the disk."


def gave_up(error: RuntimeError) -> str | None:
    """The sentence for a GPU without enough memory, or one that fails; None for any other error. What is known about
    going on is in the error's notes."""
    import torch

    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, torch.OutOfMemoryError):
        what = f"the GPU has too little memory ({lines[0].split('. ')[0].rstrip('.')})"
        remedy = "take a smaller batch size or network, end other programs that use it, or choose another device"
    elif isinstance(error, torch.AcceleratorError):
        what, remedy = f"the GPU has failed ({lines[0]})", "the same command may work in a new process"
    else:
        return None
    return f"{what}: {'; '.join([remedy, *getattr(error, '__notes__', [])])}."


def whole(value: Any, name: str) -> int:
    """A whole number, NumPy's among them, as Python's own."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise InputError(f"{name} is {value!r}: give a whole number.") from error


def counted(count: int, what: str) -> str:
    """
    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


def perhaps(name: str, known: Iterable[str]) -> str:
    """What may have been meant by a name that is not known.

    >>> perhaps("vadda", ["vada", "vmt"]), perhaps("other", ["vada", "vmt"])
    (' (perhaps vada?)', '')
    """
    near = get_close_matches(name, list(known), n=1)
    return f" (perhaps {near[0]}?)" if near else ""


def shown(text: Path | str) -> str:
    """A name that can be printed and saved, even if its bytes are no text: those are written out, or names that differ
    in them would become one."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def few(names: list[str], most: int = 3) -> str:
    """The first few of many."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
