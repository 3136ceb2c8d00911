"""Writing to the disk: a whole file or none, and a sentence where the system refuses."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmt.errors import InputError


def write_atomically(path: Path, content: bytes) -> None:
    """All of the content under this name, or what was there before."""
    # A name of its own: threads have one process number, and so may processes on machines that share a disk.
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with writing(path):
        try:
            with aside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a full disk, a forbidden folder or one that is not there into a sentence."""
    try:
        yield
    except OSError as error:
        check_folder(path)
        raise InputError(
            f"{path} cannot be written ({error.strerror}): free space or choose another folder; what was saved before "
            "is still there."
        ) from error


def check_folder(path: Path) -> None:
    """Refuses a file whose folder is not there."""
    folder = path.parent
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{path} cannot be written, as {folder} is a file: choose a folder.")
    if not folder.exists():
        raise InputError(
            f"{path} cannot be written, as the folder {folder} does not exist: make it, or choose another."
        )


def flush(path: Path) -> None:
    """To the disk, for a loss of power. Windows does so by itself and refuses folders, as some file systems do."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
