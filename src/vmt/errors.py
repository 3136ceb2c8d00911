"""The one exception that means: the input is wrong, and this sentence says what to do. And sentences for what others
raise."""

import operator
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
