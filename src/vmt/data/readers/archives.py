"""Unpack published tar archives without trusting them.

``tarfile``'s data filter refuses devices, and paths and links that lead out of the folder. This module adds limits on
the size, and unpacks into a temporary folder, so that an archive that is refused leaves nothing behind.
"""

import tarfile
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vmt.data.files.paths import existing_file
from vmt.disk import remove_abandoned
from vmt.errors import InputError, parsing

PIECE = 2**20
TEMPORARY = ".unpack-"


@dataclass(frozen=True)
class Limits:
    """How much an archive may unpack to; photographs hardly shrink, so a high compression ratio is a sign of a bomb."""

    size: int = 8 * 2**30  # bytes; the largest published archive holds 3.4 GB
    ratio: int = 50
    harmless: int = 64 * 2**20  # bytes that are always allowed, because small archives of anything may shrink well
    entries: int = 100_000


def unpack(
    archive: Path, into: Path, wanted: Collection[str] | None = None, limits: Limits | None = None
) -> list[Path]:
    """Write the files of a tar archive below `into`; with `wanted`, only those.

    An entry of `wanted` that ends in a slash stands for all files of that folder.
    """
    existing_file(archive, "give the path of the archive as it was published")
    with parsing(archive, "a whole tar archive", "download it again"), _explained(archive, into):
        into.mkdir(parents=True, exist_ok=True)
        remove_abandoned(into.glob(f"{TEMPORARY}*"))
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=into) as temporary:
            names = _extract(archive, Path(temporary), wanted, limits or Limits())
            missing = [name for name in wanted or () if not any(_is_wanted(held, [name]) for held in names)]
            if missing:
                raise InputError(f"{archive} does not hold {missing[0]}: download the archive again.")
            for name in names:
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(temporary) / name).replace(into / name)
    return [into / name for name in names]


@contextmanager
def _explained(archive: Path, into: Path) -> Iterator[None]:
    """Say why an archive is refused, or why the folder cannot be written to."""
    try:
        yield
    except tarfile.FilterError as error:
        raise InputError(f"{archive} is refused, because {error}: download it from its publisher.") from error
    except OSError as error:
        if error.errno is None:  # damaged bzip2 and gzip data
            raise
        raise InputError(
            f"{archive} cannot be unpacked into {into} ({error.strerror}): free space or check the permissions."
        ) from error


def _extract(archive: Path, folder: Path, wanted: Collection[str] | None, limits: Limits) -> list[str]:
    names = []
    with tarfile.open(archive) as tar:
        for name, member in _checked_members(archive, tar, wanted, limits):
            # Attributes are not set: neither owner nor mode should come from an archive.
            tar.extract(member, folder, set_attrs=False, filter="data")
            names.append(name)
        # gzip's checksum follows the end of the archive, where tarfile stops reading.
        while tar.fileobj is not None and tar.fileobj.read(PIECE):
            pass
    return names


def _checked_members(
    archive: Path, tar: tarfile.TarFile, wanted: Collection[str] | None, limits: Limits
) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """The wanted members other than folders, with their names; entries beyond the limits are refused."""
    left = min(limits.size, max(limits.harmless, limits.ratio * archive.stat().st_size))
    for count, member in enumerate(tar, 1):
        if count > limits.entries:
            raise InputError(f"{archive} holds more than {limits.entries} entries: it is not the published archive.")
        path = PurePosixPath(member.name)
        # The data filter strips a leading slash, and backslashes and drives are only special on Windows.
        if path.is_absolute() or ".." in path.parts or "\\" in member.name or ":" in member.name:
            raise InputError(
                f"{archive} is refused, because its entry {member.name!r} points out of the archive: download it from "
                "its publisher."
            )
        if member.isdir() or not _is_wanted(str(path), wanted):
            continue
        left -= member.size
        if left < 0:
            raise InputError(f"{archive} unpacks to far more than its size suggests: it is not the published archive.")
        yield str(path), member


def _is_wanted(name: str, wanted: Collection[str] | None) -> bool:
    return wanted is None or name in wanted or f"{PurePosixPath(name).parent}/" in wanted
