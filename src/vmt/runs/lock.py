"""A folder that one process at a time writes to."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from vmt.data.files.paths import is_utf8
from vmt.disk import explain_write_errors
from vmt.errors import InputError, shown

LOCK = ".lock"
held: dict[Path, int] = {}
"""The folders of this process, and the thread that holds each."""


class InUse(InputError):
    """Another process is at work in a folder."""


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a folder, made if need be, for this thread of this process alone; what it calls may claim it again.

    The system takes the claim back when the process ends, however it ends, so nothing is ever left locked; the file
    that is locked stays.
    """
    if not is_utf8(folder):  # checkpoints would be written there, but safetensors could not open them again
        raise InputError(f"the folder {shown(folder)} has a name that is not UTF-8: give --out another.")
    if folder.parts[:1] == ("~",):  # a folder of that name is a trap for whoever removes it again
        raise InputError(f"the folder {folder} begins with ~, which no shell has replaced: write your home folder out.")
    key = folder.resolve()
    if key in held:
        if held[key] != threading.get_ident():
            raise InUse(
                f"{folder} is being written to by another thread of this process: choose another folder for each."
            )
        yield
        return
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: give --out a folder.")
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+")
    with file:
        lock(file, folder)
        held[key] = threading.get_ident()
        try:
            yield
        finally:
            del held[key]


def lock(file: IO[str], folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows, where a folder is trusted to be one's own
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        raise InUse(
            f"{folder} is being written to by {file.read().strip() or 'another process'}: wait for its end, or choose "
            "another folder with --out."
        ) from error
    except OSError:  # a file system without locks
        return
    with contextlib.suppress(OSError):  # a full disk: the lock holds without a name in it
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
