"""Archives as an attacker would make them, and as publishers do."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from vmt.data.readers.archives import Limits, unpack
from vmt.errors import InputError


def tar_entry(name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    entry.size = len(content) if kind == tarfile.REGTYPE else 0
    return entry


def write_tar(path: Path, *entries: tarfile.TarInfo, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for entry in (tar_entry("good.txt"), *entries):
            archive.addfile(entry, io.BytesIO(b"x" * entry.size))
    return path


def refused(archive: Path, offender: str = "", limits: Limits | None = None) -> None:
    """The archive is refused with an error that names it and the offender, and nothing is written."""
    into = archive.parent / "into"
    with pytest.raises(InputError) as caught:
        unpack(archive, into, limits=limits)
    assert str(archive) in str(caught.value)
    assert offender in str(caught.value)
    assert not list(into.iterdir()), "nothing may be left behind"
    assert {path.name for path in archive.parent.iterdir()} == {archive.name, "into"}


@pytest.mark.parametrize(
    "name", ["../escaped", "a/../../escaped", "/tmp/escaped-by-test", "a\\..\\escaped", "C:/escaped"]
)
def test_entries_that_point_out_of_the_archive(tmp_path, name):
    refused(write_tar(tmp_path / "a.tar.gz", tar_entry(name)), repr(name))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_out_of_the_archive_and_devices(tmp_path, kind):
    refused(write_tar(tmp_path / "a.tar", tar_entry("inner", kind=kind, link="/etc/passwd"), mode="w"), "inner")


def test_a_link_that_later_entries_would_be_written_through(tmp_path):
    link = tar_entry("folder", kind=tarfile.SYMTYPE, link="..")
    refused(write_tar(tmp_path / "a.tar.gz", link, tar_entry("folder/escaped")), "folder")


def test_a_bomb(tmp_path):
    bomb = write_tar(tmp_path / "a.tgz", tar_entry("zeros", bytes(2**24)))
    refused(bomb, limits=Limits(harmless=2**16))
    assert len(unpack(bomb, tmp_path / "allowed")) == 2


def test_too_many_entries(tmp_path):
    many = write_tar(tmp_path / "a.tgz", *(tar_entry(str(i)) for i in range(9)))
    refused(many, "5 entries", Limits(entries=5))


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\x1f\x8b\x08\x00damaged", b"BZh91AY&SYdamaged"])
def test_files_that_are_not_archives(tmp_path, content):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(content)
    refused(path)


def test_a_truncated_archive(tmp_path):
    path = write_tar(tmp_path / "a.tar.gz", *(tar_entry(f"{i}.bin", bytes(i)) for i in range(50)))
    path.write_bytes(path.read_bytes()[:-100])
    refused(path)


def test_one_wrong_byte_in_a_compressed_archive(tmp_path):
    noise = np.random.default_rng(0).bytes(5000)  # gzip stores it uncompressed, so only the checksum can tell
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tar_entry("noise", noise), io.BytesIO(noise))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    refused(path)


def test_whole_archives_and_wanted_files_alone(tmp_path):
    tar = write_tar(tmp_path / "a.tgz", tar_entry("folder/inner"), tar_entry("folder/more"))
    assert [path.read_bytes() for path in unpack(tar, tmp_path / "tar")] == [b"x"] * 3
    unpack(tar, tmp_path / "some", ["folder/inner"])
    assert [path.name for path in (tmp_path / "some").rglob("*")] == ["folder", "inner"]
    unpack(tar, tmp_path / "all", ["folder/"])
    assert sorted(path.name for path in (tmp_path / "all").rglob("*")) == ["folder", "inner", "more"]
    with pytest.raises(InputError, match="absent"):
        unpack(tar, tmp_path / "none", ["absent"])


def test_neither_owner_nor_mode_comes_out_of_the_archive(tmp_path):
    entry = tar_entry("program")
    entry.mode = 0o6777
    unpack(write_tar(tmp_path / "a.tgz", entry), tmp_path / "out")
    assert not (tmp_path / "out" / "program").stat().st_mode & 0o6111
