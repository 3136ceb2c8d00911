"""Where many runs are kept: a folder that every machine reaches, or a URL that fsspec opens.

Runs in a folder are carried out there. A run whose storage has a URL works in a local copy, in the user's cache: it is
fetched before the run starts, what has changed is sent after each checkpoint, and at the end the copy is removed.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vmt.cache import cache_folder, mark_used, trim
from vmt.errors import InputError
from vmt.progress import Notify
from vmt.runs.callbacks import Callback
from vmt.runs.folder import RUN, SUMMARY, folder_lock
from vmt.train.checkpoint import CHECKPOINTS, KEEP, MANIFEST, PREFIX, checkpoints

UNFINISHED = ".part"
"""Ends the name of a file that is being sent."""


@dataclass(frozen=True)
class OpenRun:
    """A run that this process works on."""

    folder: Path
    callbacks: tuple[Callback, ...] = ()
    """What must follow the run, so that its storage has its checkpoints."""


class Storage:
    """A place with a folder for each run."""

    def __init__(self, where: str | Path) -> None:
        self.where = str(where)

    @property
    def folder(self) -> Path | None:
        """The folder with the runs; None if they are kept under a URL."""
        return None if "://" in self.where else Path(self.where)

    @contextmanager
    def opened(self, run: str, notify: Notify) -> Iterator[OpenRun]:
        """The folder of a run, locked. :class:`vmt.runs.folder.InUse` if another process works on it."""
        if self.folder is not None:
            with folder_lock(self.folder / run):
                yield OpenRun(self.folder / run)
            return
        local = self.local_copies() / run
        local.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(local):
            mirror, is_sent = Mirror(self, run, local, notify), False
            try:
                with self._explained():
                    mirror.fetch()
                yield OpenRun(local, (mirror,))
                with self._explained():
                    mirror.send()
                is_sent = True
            finally:
                if is_sent or not (local / RUN).exists():
                    shutil.rmtree(local, ignore_errors=True)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Name the storage in its errors, which may be any."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise InputError(f"{self.where} cannot be used ({what}): check the URL and the permissions.") from error

    def local_copies(self) -> Path:
        """The folder with the local copies of these runs."""
        trim("runs")
        base = cache_folder("runs") or Path(tempfile.gettempdir()) / "vmt-runs"
        return base / hashlib.sha256(self.where.encode()).hexdigest()[:16]

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it is not there."""
        with suppress(FileNotFoundError, NotADirectoryError):
            if self.folder is not None:
                return (self.folder / name).read_bytes()
            with self._explained(), suppress(FileNotFoundError):
                return bytes(self.files.cat_file(self.path_of(name)))
        return None

    def send(self, name: str, source: Path) -> None:
        """Copy a file to a URL. It appears there when it is complete."""
        path = self.path_of(name)
        self.files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self.files.put_file(str(source), path + UNFINISHED)
        self.files.mv(path + UNFINISHED, path)

    def names_of(self, run: str) -> list[str]:
        """The files of a run, by their names in its folder."""
        prefix = self.path_of(run) + "/"
        try:
            found = self.files.find(prefix)
        except FileNotFoundError:
            return []
        return [str(name)[len(prefix) :] for name in found if not str(name).endswith(UNFINISHED)]

    def path_of(self, name: str) -> str:
        return f"{self._opened[1].rstrip('/')}/{name}"

    def check(self) -> None:
        """Refuse a URL that cannot be opened."""
        with self._explained():
            self.files.exists(self.path_of(""))

    @property
    def files(self) -> Any:
        """The file system of the URL."""
        return self._opened[0]

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        import fsspec

        try:
            files, path = fsspec.core.url_to_fs(self.where, use_listings_cache=False)
        except ImportError as error:  # its message names the package to install
            raise InputError(f"{self.where} cannot be opened: {error}.") from error
        except ValueError as error:
            raise InputError(f"{self.where} is not a URL that fsspec can open ({error}): give a folder.") from error
        return files, str(path)

    def __getstate__(self) -> dict[str, Any]:
        return {"where": self.where}  # each process opens it by itself

    def __str__(self) -> str:
        return self.where


class Mirror(Callback):
    """Keeps the copy of a run in its storage up to date."""

    def __init__(self, storage: Storage, run: str, local: Path, notify: Notify) -> None:
        self.storage, self.run, self.local, self.notify = storage, run, local, notify
        self.sent: dict[str, tuple[int, int]] = {}
        """The time of the last change and the size of each file, as it was when it was sent."""

    def fetch(self) -> None:
        """Make the local folder a copy of the run in the storage, unless the local one is further.

        A process that was killed, or that could not reach the storage, leaves such a folder.
        """
        names = self.storage.names_of(self.run)
        # The manifest of a checkpoint is sent at its end.
        kept = sorted((name.split("/")[1] for name in names if name.endswith(f"/{MANIFEST}")), reverse=True)[:KEEP]
        if self._progress_of_local() > (SUMMARY in names, kept[0] if kept else ""):
            return
        for path in list(self.local.iterdir()):
            if path.is_dir():
                shutil.rmtree(path)
            elif not path.name.startswith("."):
                path.unlink()
        for name in names:
            if name.startswith(f"{CHECKPOINTS}/") and name.split("/")[1] not in kept:
                continue
            path = self.local / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self.storage.files.get_file(self.storage.path_of(f"{self.run}/{name}"), str(path))
            self.sent[name] = version_of(path)

    def _progress_of_local(self) -> tuple[bool, str]:
        saved = checkpoints(self.local / CHECKPOINTS)
        return (self.local / SUMMARY).exists(), saved[0].name if saved else ""

    def on_checkpoint(self, step: int, folder: Path) -> None:
        mark_used(self.local.parent)
        try:
            self.send()
        except Exception as error:  # that of a storage may be any
            self.notify(
                f"{self.run}: the checkpoint of iteration {step} could not be sent to {self.storage} ({error}); the "
                "next one is tried again."
            )

    def send(self) -> None:
        """Send the files that have changed, and remove checkpoints that the run has removed."""
        files = {path.relative_to(self.local).as_posix(): path for path in self.local.rglob("*") if path.is_file()}
        shown = {name: path for name, path in files.items() if not any(p.startswith(".") for p in name.split("/"))}
        for name in sorted(shown, key=rank):
            if self.sent.get(name) != (version := version_of(shown[name])):
                self.storage.send(f"{self.run}/{name}", shown[name])
                self.sent[name] = version
        self._remove_old(shown)

    def _remove_old(self, local: Iterable[str]) -> None:
        """Remove checkpoints of the storage that are not in the local folder and not newer than those in it."""
        kept = {name.split("/")[1] for name in local if name.startswith(f"{CHECKPOINTS}/")}
        over = SUMMARY in self.sent
        for name in self.storage.names_of(self.run):
            parts = name.split("/")
            if parts[0] == CHECKPOINTS and parts[1] not in kept and (over or parts[1] < max(kept, default="")):
                self.storage.files.rm_file(self.storage.path_of(f"{self.run}/{name}"))


def rank(name: str) -> tuple[int, str]:
    """The order in which files are sent: checkpoints after the log, and their manifests at the end."""
    in_checkpoint = name.startswith(f"{CHECKPOINTS}/{PREFIX}")
    return int(in_checkpoint) + int(in_checkpoint and name.endswith(MANIFEST)) + int(name == SUMMARY) * 3, name


def version_of(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size
