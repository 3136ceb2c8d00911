"""Writing to the disk: complete files or none, and clear errors when the operating system refuses."""

import errno
import glob
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vmt.errors import InputError

DAY = 24 * 3600


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file; if writing fails or is interrupted, what `path` held before remains."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which is renamed to `path` when the block ends without an error."""
    # The name is random because threads share a process number, and so may processes on machines that share a disk.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    remove_abandoned(temporary_files(path.parent, glob.escape(path.name)))
    with explain_write_errors(path):
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def temporary_files(folder: Path, pattern: str) -> list[Path]:
    """The temporary files of :func:`atomic_path` for the files in a folder whose names match a pattern."""
    return list(folder.glob(f".{pattern}.{'[0-9a-f]' * 8}"))


def remove_abandoned(paths: Iterable[Path], unused_for: float = DAY) -> None:
    """Remove temporary files and folders that have not changed for this many seconds: a killed process left them."""
    for path in paths:
        with suppress(OSError):  # another process may remove them, too, and what stays does no harm
            if time.time() - path.stat().st_mtime < unused_for:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn an operating-system error, such as a full disk, into an :class:`InputError` that names the path."""
    try:
        yield
    except OSError as error:
        check_parent_folder(path)
        raise InputError(
            f"{path} cannot be written ({error.strerror or error}): free space or choose another folder; what was "
            "saved before is still there."
        ) from error


def check_parent_folder(path: Path) -> None:
    """Refuse a path whose parent folder does not exist or is a file."""
    folder = path.parent
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{path} cannot be written because {folder} is a file: choose a folder.")
    if not folder.exists():
        raise InputError(
            f"{path} cannot be written because the folder {folder} does not exist: create it, or choose another."
        )


def flush_to_disk(path: Path) -> None:
    """Make a file or folder survive a power failure.

    Windows and some file systems cannot do so for a folder, and that is not an error.
    """
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


@contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made if needed; if another process holds it, wait until it has ended.

    The system releases the lock when a process ends, however it ends. Where there are no locks, nothing waits.
    """
    with path.open("a") as file:
        with suppress(ImportError, OSError):  # Windows has no such locks, nor have some file systems
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
