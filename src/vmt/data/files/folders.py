"""Folders of pictures: one subfolder per class, or pictures without labels in any subfolders."""

import os
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from vmt.data.domains import class_name
from vmt.data.files.paths import PICTURE_SUFFIXES, file_suffix
from vmt.errors import InputError, few, shown


@dataclass(frozen=True)
class PictureList:
    """The files of pictures that are not read yet, with their labels."""

    name: str
    files: tuple[Path, ...]
    labels: tuple[str, ...] | None  # one class name per file, "" where it is not known
    notes: tuple[str, ...] = ()
    by_folder: bool = False  # the labels are the names of subfolders, which need not be classes


@dataclass
class FolderContents:
    """The files and folders below a folder, and counts of what is ignored."""

    files: list[Path] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    ignored: int = 0  # hidden files and files of other kinds
    ignored_suffixes: set[str] = field(default_factory=set)
    repeated_links: int = 0  # to folders that were already read
    broken_links: int = 0


def list_pictures(root: Path) -> PictureList:
    """The pictures below a folder, in the order of their names; their classes are the topmost subfolders."""
    contents = scan_folder(root)
    parts = {path: path.relative_to(root).parts for path in sorted(contents.files)}
    name = shown(root)
    if not parts:
        ignored = few(sorted(contents.ignored_suffixes))
        instead = f", only {ignored} files, which are not read" if ignored else ""
        raise InputError(
            f"{name} holds no pictures{instead}: give a folder with pictures, or with one subfolder of pictures per "
            "class."
        )
    notes = _ignored_notes(name, contents)
    loose = [path for path, inside in parts.items() if len(inside) == 1]
    if loose and len(loose) < len(parts):
        notes += (f"{name} has {len(loose)} pictures beside its subfolders, so the subfolders are not used as classes",)
    if loose:
        return PictureList(name, tuple(parts), None, notes)
    labels = tuple(class_name(inside[0]) for inside in parts.values())
    empty = sorted({class_name(folder.name) for folder in contents.folders if folder.parent == root} - set(labels))
    if empty:
        notes += (f"{name} has subfolders without pictures, which are not used as classes: {few(empty)}",)
    return PictureList(name, tuple(parts), labels, notes, by_folder=True)


def scan_folder(root: Path, suffixes: Collection[str] = PICTURE_SUFFIXES) -> FolderContents:
    """Everything below a folder. Each folder is read once, however many links lead to it, so circular links end."""
    contents = FolderContents()
    seen: set[tuple[int, int]] = set()
    # Links are followed last: a class folder must not count as the repetition of a link to it.
    folders, links = deque([root]), deque[Path]()
    while folders or links:
        folder = folders.popleft() if folders else links.popleft()
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen:
                contents.repeated_links += 1
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    _sort_entry(entry, contents, folders, links, suffixes)
        except OSError as error:
            raise InputError(f"{shown(folder)} cannot be read ({error.strerror}): check its permissions.") from error
    return contents


def _sort_entry(
    entry: os.DirEntry[str],
    contents: FolderContents,
    folders: deque[Path],
    links: deque[Path],
    suffixes: Collection[str],
) -> None:
    path = Path(entry.path)
    try:
        is_folder, is_file = entry.is_dir(), entry.is_file()
    except OSError:  # a link to itself
        is_folder = is_file = False
    if entry.name.startswith("."):
        contents.ignored += 1
    elif is_folder:
        contents.folders.append(path)
        (links if entry.is_symlink() else folders).append(path)
    elif is_file and file_suffix(path) in suffixes:
        contents.files.append(path)
    elif entry.is_symlink() and not is_file:
        contents.broken_links += 1
    else:
        contents.ignored += 1
        if path.suffix:
            contents.ignored_suffixes.add(file_suffix(path))


def _ignored_notes(name: str, contents: FolderContents) -> tuple[str, ...]:
    suffixes = f" ({few(sorted(contents.ignored_suffixes))})" if contents.ignored_suffixes else ""
    counts = {
        f"hidden files and files that are not pictures{suffixes}": contents.ignored,
        "links to folders that were already read": contents.repeated_links,
        "broken links": contents.broken_links,
    }
    ignored = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return (f"ignored in {name}: {ignored}",) if ignored else ()
