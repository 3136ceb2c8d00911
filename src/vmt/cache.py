"""The cache: one folder per user for what can be computed again, with a part for each kind of content.

It is ``$VMT_CACHE``, or else ``vmt`` in ``$XDG_CACHE_HOME`` or in ``~/.cache``. An entry of a part is a file or a
folder, and the time of its last change is that of its last use. ``vmt cache`` lists and removes the entries.
"""

import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vmt.disk import DAY, remove_abandoned, temporary_files
from vmt.errors import InputError, perhaps

KINDS = {
    "pictures": "decoded pictures and what their headers say",
    "features": "features that a network has computed",
    "inductor": "compiled kernels",
    "runs": "copies of runs that are kept in a storage with a URL",
}
# Entries that were not used for this many days are removed. If the entries of a part exceed this size, those that were
# used least recently are removed, but none that was used in the last day: a run may be reading it.
CACHE_DAYS, CACHE_BYTES = 30, 8 * 2**30


@dataclass(frozen=True)
class Entry:
    """A file or a folder in the cache."""

    path: Path
    size: int
    """Bytes on the disk."""
    used: float
    """When it was last used, in seconds as :func:`time.time` counts them."""


def cache_folder(kind: str) -> Path | None:
    """The folder of a kind of content, which need not exist; None for a user without a home folder."""
    assert kind in KINDS, kind
    if named := os.environ.get("VMT_CACHE"):
        return Path(named) / kind
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # as in some containers
        return None
    return Path(home) / "vmt" / kind


def entries(kind: str) -> list[Entry]:
    """The entries of a kind, the one that was used last first."""
    folder = cache_folder(kind)
    found = []
    with suppress(OSError):  # there is no such folder, or it cannot be read
        for path in folder.iterdir() if folder is not None else ():
            with suppress(OSError):  # another process may remove it at this moment
                found.append(Entry(path, _size(path), path.stat().st_mtime))
    return sorted(found, key=lambda entry: entry.used, reverse=True)


def mark_used(path: Path) -> None:
    """Record the time of this use of an entry."""
    with suppress(OSError):  # a cache that cannot be written to can still be read
        os.utime(path)


def trim(kind: str) -> None:
    """Remove entries that were not used for long, and temporary files of processes that were killed."""
    folder = cache_folder(kind)
    if folder is None:
        return
    remove_abandoned(temporary_files(folder, "*"))
    total = 0
    for entry in entries(kind):
        total += entry.size
        unused = time.time() - entry.used
        if unused > CACHE_DAYS * DAY or (total > CACHE_BYTES and unused > DAY):
            with suppress(OSError):  # it may be another user's, and what stays does no harm
                remove_entry(entry.path)


def remove(kinds: Iterable[str]) -> list[Entry]:
    """Remove every entry of these kinds, and return them."""
    wanted = list(kinds)
    for kind in wanted:
        if kind not in KINDS:
            raise InputError(f"there is no part {kind!r} of the cache{perhaps(kind, KINDS)}: give {', '.join(KINDS)}.")
    removed = [entry for kind in wanted for entry in entries(kind)]
    for entry in removed:
        remove_entry(entry.path)
    return removed


def remove_entry(path: Path) -> None:
    """Remove a file or a folder of the cache, if it is still there."""
    with suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _size(path: Path) -> int:
    """The bytes that a file, or everything in a folder, takes on the disk."""
    if not path.is_dir():
        return path.stat().st_size
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
