"""Archives as an attacker would make them, and as publishers do."""

import io
import stat
import tarfile
import zipfile
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


def write_zip(path: Path, name: str, mode: int = 0, content: bytes = b"x") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("good.txt", "x")
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return path


def refused(archive: Path, says: str, limits: Limits | None = None) -> None:
    into = archive.parent / "into"
    with pytest.raises(InputError) as caught:
        unpack(archive, into, limits=limits)
    assert str(archive) in str(caught.value)
    assert says in str(caught.value)
    assert not list(into.iterdir()), "nothing may be left behind"
    assert {path.name for path in archive.parent.iterdir()} == {archive.name, "into"}


OUTSIDE = ["../escaped", "a/../../escaped", "/tmp/escaped-by-test", "a\\..\\escaped", "C:/escaped"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_entries_that_point_out_of_the_archive(tmp_path, name):
    (tmp_path / "tar").mkdir()
    refused(write_tar(tmp_path / "tar" / "a.tar.gz", tar_entry(name)), "points out of the archive")
    (tmp_path / "zip").mkdir()
    refused(write_zip(tmp_path / "zip" / "a.zip", name), "points out of the archive")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices(tmp_path, kind):
    refused(
        write_tar(tmp_path / "a.tar", tar_entry("inner", kind=kind, link="/etc/passwd"), mode="w"), "link or device"
    )


def test_a_link_that_later_entries_would_be_written_through(tmp_path):
    link = tar_entry("folder", kind=tarfile.SYMTYPE, link="..")
    refused(write_tar(tmp_path / "a.tar.gz", link, tar_entry("folder/escaped")), "link or device")


def test_a_link_in_a_zip(tmp_path):
    refused(write_zip(tmp_path / "a.zip", "inner", stat.S_IFLNK | 0o777, b"/etc/passwd"), "link or device")


def test_bombs(tmp_path):
    small = Limits(harmless=2**16)
    for kind in ("zip", "tar", "many"):
        (tmp_path / kind).mkdir()
    bomb = write_zip(tmp_path / "zip" / "a.zip", "zeros", content=bytes(2**24))
    refused(bomb, "far more than its size", small)
    assert len(unpack(bomb, tmp_path / "zip" / "allowed")) == 2
    refused(write_tar(tmp_path / "tar" / "a.tgz", tar_entry("zeros", bytes(2**24))), "far more than its size", small)
    many = write_tar(tmp_path / "many" / "a.tgz", *(tar_entry(str(i)) for i in range(9)))
    refused(many, "more than 5 entries", Limits(entries=5))


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\x1f\x8b\x08\x00damaged", b"BZh91AY&SYdamaged"])
def test_what_is_no_archive(tmp_path, content):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(content)
    refused(path, "fetch it again")


def test_a_truncated_archive(tmp_path):
    path = write_tar(tmp_path / "a.tar.gz", *(tar_entry(f"{i}.bin", bytes(i)) for i in range(50)))
    path.write_bytes(path.read_bytes()[:-100])
    refused(path, "fetch it again")


def test_one_wrong_byte_in_a_compressed_archive(tmp_path):
    noise = np.random.default_rng(0).bytes(5000)  # it is stored as it is, so that only the checksum can tell
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tar_entry("noise", noise), io.BytesIO(noise))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    refused(path, "fetch it again")


def test_whole_archives_and_wanted_files_alone(tmp_path):
    tar = write_tar(tmp_path / "a.tgz", tar_entry("folder/inner"), tar_entry("folder/more"))
    assert [path.read_bytes() for path in unpack(tar, tmp_path / "tar")] == [b"x"] * 3
    unpack(tar, tmp_path / "some", ["folder/inner"])
    assert [path.name for path in (tmp_path / "some").rglob("*")] == ["folder", "inner"]
    unpack(tar, tmp_path / "all", ["folder/"])
    assert sorted(path.name for path in (tmp_path / "all").rglob("*")) == ["folder", "inner", "more"]
    with pytest.raises(InputError, match="does not hold absent"):
        unpack(tar, tmp_path / "none", ["absent"])
    assert unpack(write_zip(tmp_path / "a.zip", "folder/inner"), tmp_path / "zip")[1].read_bytes() == b"x"


def test_neither_owner_nor_mode_comes_out_of_the_archive(tmp_path):
    entry = tar_entry("program")
    entry.mode = 0o6777
    unpack(write_tar(tmp_path / "a.tgz", entry), tmp_path / "out")
    assert not (tmp_path / "out" / "program").stat().st_mode & 0o6111
