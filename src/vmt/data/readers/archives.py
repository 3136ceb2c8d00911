"""Archives unpacked so that nothing lands outside the folder and nothing fills the disk.

Only the contents of regular files are written, into a fresh folder beside the destination and by this module's own
hand: no links, no devices, no owners or modes out of the archive. What is complete then moves into place.
"""

import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from vmt.data.files.paths import existing_file
from vmt.errors import InputError

PIECE = 2**20


@dataclass(frozen=True)
class Limits:
    """What an archive may unpack to. Photographs hardly shrink, so that much out of little means a bomb."""

    size: int = 8 * 2**30  # the largest official archive holds 3.4 GB
    ratio: int = 50
    harmless: int = 64 * 2**20  # below this the ratio does not matter: a small archive of anything may shrink well
    entries: int = 100_000


@dataclass(frozen=True)
class Member:
    """One entry of an archive."""

    name: str
    kind: str  # "file", "folder" or, for what is refused, a word for it
    open: Callable[[], IO[bytes]]


def unpack(
    archive: Path, into: Path, wanted: Collection[str] | None = None, limits: Limits | None = None
) -> list[Path]:
    """The files of a tar or zip archive, written under `into`; with `wanted`, only those.

    An entry of `wanted` that ends in a slash stands for every file in that folder. The whole archive is refused, and
    nothing written, at the first entry that points out of the archive, or that would be written and is neither a file
    nor a folder.
    """
    existing_file(archive, "give the path of the archive as it was published")
    limits = limits or Limits()
    try:
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=into) as aside:
            names = _unpack_aside(archive, Path(aside), wanted, limits)
            missing = [name for name in wanted or () if not any(_is_wanted(held, [name]) for held in names)]
            if missing:
                raise InputError(f"{archive} does not hold {missing[0]}: fetch the archive again.")
            for name in names:
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(aside) / name).replace(into / name)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{archive} is truncated or not an archive: fetch it again.") from error
    except OSError as error:
        # Damaged bzip2 and gzip data come as an OSError without a number.
        if error.errno is None:
            raise InputError(f"{archive} is damaged: fetch it again.") from error
        raise InputError(
            f"{archive} cannot be unpacked into {into} ({error.strerror}): free space or check the permissions."
        ) from error
    return [into / name for name in names]


def _unpack_aside(archive: Path, aside: Path, wanted: Collection[str] | None, limits: Limits) -> list[str]:
    allowed = min(limits.size, max(limits.harmless, limits.ratio * archive.stat().st_size))
    names: list[str] = []
    with _members(archive) as members:
        for count, member in enumerate(members, 1):
            if count > limits.entries:
                raise InputError(
                    f"{archive} holds more than {limits.entries} entries: it is not the published archive."
                )
            name = _inner_name(archive, member)
            if member.kind == "folder" or not _is_wanted(name, wanted):
                continue
            if member.kind != "file":
                raise InputError(
                    f"{archive} is refused, because its entry {member.name!r} is a {member.kind}: "
                    "fetch it from its publisher."
                )
            path = aside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with member.open() as content, path.open("wb") as file:
                while piece := content.read(PIECE):
                    allowed -= len(piece)
                    if allowed < 0:
                        raise InputError(
                            f"{archive} unpacks to far more than its size suggests: it is not the published archive."
                        )
                    file.write(piece)
            names.append(name)
    return names


def _is_wanted(name: str, wanted: Collection[str] | None) -> bool:
    return wanted is None or name in wanted or f"{PurePosixPath(name).parent}/" in wanted


def _inner_name(archive: Path, member: Member) -> str:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or ":" in member.name or "\0" in member.name:
        raise InputError(
            f"{archive} is refused, because its entry {member.name!r} points out of the archive: "
            "fetch it from its publisher."
        )
    return str(path)


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[Member]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            yield (_zip_member(file, info) for info in file.infolist())
    else:
        with tarfile.open(archive) as tar:
            yield (_tar_member(tar, info) for info in tar)
            # The checksum of gzip comes after all else, where tarfile does not look.
            while tar.fileobj is not None and tar.fileobj.read(PIECE):
                pass


def _zip_member(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    mode = info.external_attr >> 16
    # Unix keeps the type of an entry in the four highest bits of its mode: 4 is a folder, 8 a file, 0 unsaid.
    kind = "folder" if info.is_dir() else "file" if mode >> 12 in (0, 8) else "link or device"
    return Member(info.filename, kind, lambda: file.open(info))


def _tar_member(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
    kind = "folder" if info.isdir() else "file" if info.isreg() and not info.issparse() else "link or device"

    def open_member() -> IO[bytes]:
        content = tar.extractfile(info)
        assert content is not None  # so for every regular file
        return content

    return Member(info.name, kind, open_member)
