"""Download published files: from the first mirror that works, resumed after an interruption, and checked."""

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
