"""Folders of pictures: one subfolder per class, or one heap without labels."""

import os
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from vmt.data.arrays import class_name
from vmt.data.files.paths import PICTURE_SUFFIXES, file_suffix
from vmt.errors import InputError, few, shown


@dataclass(frozen=True)
class Listing:
    """Pictures that are still files."""

    name: str
    files: tuple[Path, ...]
    labels: tuple[str, ...] | None  # one class name per file, "" where it is not known
    notes: tuple[str, ...] = ()
    by_folder: bool = False  # the labels are names of subfolders, which need not be classes


@dataclass
class Found:
    """What a walk through a folder has come across so far."""

    files: list[Path] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    other: int = 0
    kinds: set[str] = field(default_factory=set)  # the endings of those
    again: int = 0
    broken: int = 0


def list_folder(root: Path) -> Listing:
    """The pictures under a folder, in the order of their names; the class is the uppermost subfolder."""
    found = walk(root)
    tops = {path: path.relative_to(root).parts for path in sorted(found.files)}
    name = shown(root)
    if not tops:
        instead = f", but {few(sorted(found.kinds))} files, which are not read" if found.kinds else ""
        raise InputError(
            f"{name} holds no pictures{instead}: give a folder with pictures in it, or with one subfolder of pictures "
            "per class."
        )
    notes = _notes(name, found)
    loose = [path for path, parts in tops.items() if len(parts) == 1]
    if loose and len(loose) < len(tops):
        notes += (
            f"{name} has {len(loose)} pictures beside its subfolders, so that the subfolders are not taken for classes",
        )
    if loose:
        return Listing(name, tuple(tops), None, notes)
    labels = tuple(class_name(parts[0]) for parts in tops.values())
    empty = sorted({class_name(folder.name) for folder in found.folders if folder.parent == root} - set(labels))
    if empty:
        notes += (f"{name} has subfolders without pictures, which are no classes: {few(empty)}",)
    return Listing(name, tuple(tops), labels, notes, by_folder=True)


def walk(root: Path, suffixes: Collection[str] = PICTURE_SUFFIXES) -> Found:
    """Every folder under a root once, whichever links lead to it, so that links in a circle come to an end."""
    found = Found()
    seen: set[tuple[int, int]] = set()
    # Links wait until all else is read: a class folder must not be taken for a copy of a link to it.
    folders, links = deque([root]), deque[Path]()
    while folders or links:
        folder = folders.popleft() if folders else links.popleft()
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen:
                found.again += 1
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    _sort_out(entry, found, folders, links, suffixes)
        except OSError as error:
            reason = error.strerror
            raise InputError(f"{shown(folder)} cannot be read ({reason}): check its permissions.") from error
    return found


def _sort_out(
    entry: os.DirEntry[str], found: Found, folders: deque[Path], links: deque[Path], suffixes: Collection[str]
) -> None:
    path = Path(entry.path)
    try:
        is_folder, is_file = entry.is_dir(), entry.is_file()
    except OSError:  # a link to itself
        is_folder = is_file = False
    if entry.name.startswith("."):
        found.other += 1
    elif is_folder:
        found.folders.append(path)
        (links if entry.is_symlink() else folders).append(path)
    elif is_file and file_suffix(path) in suffixes:
        found.files.append(path)
    elif entry.is_symlink() and not is_file:
        found.broken += 1
    else:
        found.other += 1
        if path.suffix:
            found.kinds.add(file_suffix(path))


def _notes(name: str, found: Found) -> tuple[str, ...]:
    kinds = f" ({few(sorted(found.kinds))})" if found.kinds else ""
    counts = {
        f"hidden or other files that are no pictures{kinds}": found.other,
        "links to folders that were already read": found.again,
        "links that lead nowhere": found.broken,
    }
    said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return (f"left aside in {name}: {said}",) if said else ()
