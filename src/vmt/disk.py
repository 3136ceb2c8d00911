"""Writing to the disk: complete files or none, and clear errors when the operating system refuses."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmt.errors import InputError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file; if writing fails or is interrupted, what `path` held before remains."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which is renamed to `path` when the block ends without an error."""
    # The name is random because threads share a process number, and so may processes on machines that share a disk.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with explain_write_errors(path):
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


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
