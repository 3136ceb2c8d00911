"""Downloads from a real server on this machine: complete, interrupted, wrong and missing files."""

import gzip
import hashlib
import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests import benchmark_files as files
from tests.file_server import Behaviour, serving
from vmt.cli.data import download_sets
from vmt.cli.main import main
from vmt.data.fetch import SOURCES, Remote, RetryPolicy, fetch, matches
from vmt.errors import InputError

CONTENT = files.images(700_000).tobytes()
CHECKSUM = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
HASTE = RetryPolicy(timeout=5, attempts=3, pause=0)
PLACE = "set/file.bin"


def remote(*addresses: str, checksum: str = CHECKSUM) -> Remote:
    return Remote(PLACE, tuple(f"{address}/file.bin" for address in addresses), checksum)


def dead_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def left(data: Path) -> list[str]:
    return sorted(str(path.relative_to(data)) for path in data.rglob("*") if path.is_file())


@pytest.mark.parametrize("announce", [True, False])
def test_a_whole_file(tmp_path, announce):
    seen = []
    with serving(Behaviour(CONTENT, announce=announce)) as address:
        path = fetch(remote(address), tmp_path, lambda done, total: seen.append((done, total)), HASTE)
    assert path.read_bytes() == CONTENT
    assert left(tmp_path) == [PLACE]
    assert seen[-1] == (len(CONTENT), len(CONTENT) if announce else None)


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_an_existing_file_is_not_downloaded_again(tmp_path, algorithm):
    (tmp_path / "set").mkdir()
    (tmp_path / PLACE).write_bytes(CONTENT)
    checksum = f"{algorithm}:{hashlib.new(algorithm, CONTENT).hexdigest()}"
    assert fetch(remote(dead_address(), checksum=checksum), tmp_path) == tmp_path / PLACE
    with pytest.raises(InputError, match=r"file.bin .*checksum"):
        fetch(remote(dead_address(), checksum="md5:0"), tmp_path)
    assert (tmp_path / PLACE).read_bytes() == CONTENT


def test_an_interrupted_connection_is_resumed(tmp_path):
    server = Behaviour(CONTENT, breaks_after=[300_000, 100_000, None])
    with serving(server) as address:
        path = fetch(remote(address), tmp_path, retry=HASTE)
    assert server.asked == [None, "bytes=300000-", "bytes=400000-"]
    assert path.read_bytes() == CONTENT


def test_a_killed_download_is_resumed_next_time(tmp_path):
    server = Behaviour(CONTENT)

    def killed(done: int, total: int | None) -> None:
        if done > 400_000:
            raise KeyboardInterrupt

    with serving(server) as address:
        with pytest.raises(KeyboardInterrupt):
            fetch(remote(address), tmp_path, killed, HASTE)
        assert left(tmp_path) == [PLACE + ".part"]
        there = (tmp_path / (PLACE + ".part")).stat().st_size
        assert 0 < there < len(CONTENT)
        fetch(remote(address), tmp_path, retry=HASTE)
    assert server.asked == [None, f"bytes={there}-"]
    assert left(tmp_path) == [PLACE]
    assert (tmp_path / PLACE).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("server", "begun"),
    [
        (Behaviour(CONTENT, ranges=False), CONTENT[:1000]),
        (Behaviour(CONTENT, shift=5), CONTENT[:1000]),
        (Behaviour(CONTENT), b"another file" * 100),
        (Behaviour(CONTENT), CONTENT + b"too long"),
        (Behaviour(CONTENT), CONTENT),
    ],
    ids=["no ranges", "another range", "another beginning", "too long", "complete"],
)
def test_beginnings_that_cannot_simply_be_resumed(tmp_path, server, begun):
    (tmp_path / "set").mkdir()
    (tmp_path / (PLACE + ".part")).write_bytes(begun)
    with serving(server) as address:
        fetch(remote(address), tmp_path, retry=HASTE)
    assert left(tmp_path) == [PLACE]
    assert (tmp_path / PLACE).read_bytes() == CONTENT


def test_a_wrong_file_is_refused_and_removed(tmp_path):
    with serving(Behaviour(b"<html>please log in</html>")) as address, pytest.raises(InputError) as caught:
        fetch(remote(address), tmp_path, retry=HASTE)
    assert "checksum" in str(caught.value)
    assert str(tmp_path / PLACE) in str(caught.value)
    assert left(tmp_path) == []


@pytest.mark.parametrize("first", [None, Behaviour(b"wrong"), Behaviour(CONTENT, statuses=[404])])
def test_the_second_mirror_is_used_when_the_first_is_dead_or_wrong(tmp_path, first):
    with serving(first or Behaviour(b"")) as address, serving(Behaviour(CONTENT)) as second:
        path = fetch(remote(address if first else dead_address(), second), tmp_path, retry=HASTE)
    assert path.read_bytes() == CONTENT
    assert left(tmp_path) == [PLACE]


def test_a_mirror_continues_where_another_stopped(tmp_path):
    second = Behaviour(CONTENT)
    with serving(Behaviour(CONTENT, breaks_after=[100_000, 0])) as first, serving(second) as address:
        path = fetch(remote(first, address), tmp_path, retry=HASTE)
    assert second.asked == ["bytes=100000-"]
    assert path.read_bytes() == CONTENT


def test_a_busy_server_is_asked_again(tmp_path):
    server = Behaviour(CONTENT, statuses=[503, 429, 200])
    with serving(server) as address:
        fetch(remote(address), tmp_path, retry=HASTE)
    assert len(server.asked) == 3


def test_without_a_network_the_error_names_file_and_address(tmp_path):
    published = remote(dead_address(), "http://nowhere.invalid", "file:///etc/passwd")
    with pytest.raises(InputError) as caught:
        fetch(published, tmp_path, retry=HASTE)
    sentence = str(caught.value)
    assert str(tmp_path / PLACE) in sentence
    assert published.urls[0] in sentence
    assert "Connection refused" in sentence
    assert left(tmp_path) == []


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "set").touch()
    with serving(Behaviour(CONTENT)) as address, pytest.raises(InputError, match=r"file.bin cannot be written"):
        fetch(remote(address), tmp_path, retry=HASTE)


def test_every_published_file_has_an_address_and_a_checksum_of_the_right_length():
    for name, remotes in SOURCES.items():
        for published in remotes:
            assert published.path.startswith(f"{name}/")
            assert all(url.startswith(("http://", "https://")) for url in published.urls)
            algorithm, _, digits = published.checksum.partition(":")
            assert len(digits) == {"md5": 32, "sha256": 64, "": 0}[algorithm]
    assert [name for name, remotes in SOURCES.items() if not all(r.checksum for r in remotes)] == ["bsds500"]


def test_several_files_of_a_set(tmp_path, capsys):
    packed = gzip.compress(files.idx(files.images(5, 28, 28)))
    checksum = f"md5:{hashlib.md5(packed).hexdigest()}"
    with serving(Behaviour(packed)) as address:
        small = tuple(replace(r, urls=(f"{address}/x",), checksum=checksum) for r in SOURCES["mnist"])
        records = download_sets(["mnist", "mnist"], tmp_path, {"mnist": small})
    assert [Path(record["file"]) for record in records] == [tmp_path / r.path for r in small]
    assert all(matches(tmp_path / r.path, checksum) for r in small)
    assert capsys.readouterr().out.count(": checked\n") == 4


def test_the_command_with_a_file_that_is_there(tmp_path, capsys):
    """The only published checksum that a test can meet is the one that is not there."""
    (published,) = SOURCES["bsds500"]
    (tmp_path / "bsds500").mkdir()
    (tmp_path / published.path).write_bytes(b"photographs")
    assert main(["data", "download", "bsds500", "--data", str(tmp_path), "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "no checksum is published" in lines[0]
    assert json.loads(lines[-1])["files"][0]["bytes"] == 11


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mnistm", "vmt: mnistm cannot be downloaded: use vmt data build mnistm.\n"),
        ("imagenet", "vmt: there is no set 'imagenet' to download: choose from mnist, "),
    ],
)
def test_sets_that_cannot_be_downloaded(tmp_path, capsys, name, says):
    assert main(["data", "download", name, "--data", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(says)
