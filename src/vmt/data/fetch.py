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

from vmt.data.published import Remote
from vmt.errors import InputError

# Called with the bytes that are there and the bytes that there will be, if the server says so.
Watch = Callable[[int, int | None], None]

PIECE = 2**18
MAX_BYTES = 4 * 2**30  # the largest file has 2.6 GB; a server that never ends must not fill the disk
RETRIED = (408, 425, 429, 500, 502, 503, 504)


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
