"""Many pictures at once: in threads, with progress, the damaged ones left out, and kept for the next time."""

import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import PIL
from numpy.typing import NDArray
from tqdm import tqdm

from vmt.data.cache import Arrays, Stamp, cached, stamp
from vmt.data.cores import usable_cores
from vmt.data.files import few, shown
from vmt.data.folders import Listing
from vmt.data.pictures import Size, TooLarge, decode, look
from vmt.errors import InputError
from vmt.names import FEW, PART

T = TypeVar("T")

AHEAD = 256  # pictures
PATIENCE = 2.0  # seconds of reading before a bar is shown
VERSION = 2  # of how pictures are decoded; another one makes what was kept useless


@dataclass(frozen=True, eq=False)
class Looked:
    """Pictures with the sizes that their files announce."""

    listing: Listing
    stamps: tuple[Stamp, ...]
    sizes: NDArray[np.int64]  # (N, 2), height and width; 0 where there is none
    grey: NDArray[np.bool_]
    faults: NDArray[np.str_]  # "" where the picture can be read

    @property
    def whole(self) -> NDArray[np.bool_]:
        return np.equal(self.faults, "")


def look_at(listing: Listing, cache: bool = True, progress: bool = True) -> Looked:
    """The sizes and colours of all the pictures of a listing."""

    def compute() -> Arrays:
        results = list(_each(look, listing, progress))
        return {
            "sizes": np.array([(0, 0) if isinstance(r, str) else r.size for r in results], np.int64),
            "grey": np.array([not isinstance(r, str) and r.grey for r in results]),
            "faults": np.array([r if isinstance(r, str) else "" for r in results]),
        }

    stamps = tuple(stamp(path) for path in listing.files)
    arrays = cached(["look", VERSION, PIL.__version__, stamps], compute, cache)
    looked = Looked(listing, stamps, arrays["sizes"], arrays["grey"], arrays["faults"])
    _refuse_too_many(listing, looked.faults)
    return looked


def read_pictures(
    looked: Looked, size: Size, channels: int, cache: bool = True, progress: bool = True
) -> tuple[NDArray[np.uint8], NDArray[np.bool_], tuple[str, ...]]:
    """Pixels (N, C, H, W) of the pictures that can be read, which of all these are, and what to say of the others."""
    listing = looked.listing

    def compute() -> Arrays:
        x = np.empty((len(listing.files), channels, *size), np.uint8)
        faults = list(looked.faults)
        to_read = np.flatnonzero(looked.whole)
        files = [listing.files[i] for i in to_read]
        results = _each(lambda path: decode(path, size, channels), replace(listing, files=tuple(files)), progress)
        for i, result in zip(to_read, results, strict=True):
            if isinstance(result, str):
                faults[i] = result
            else:
                x[i] = result
        whole = np.array(faults) == ""
        return {"x": x if whole.all() else x[whole], "faults": np.array(faults)}

    arrays = cached(["pixels", VERSION, PIL.__version__, looked.stamps, size, channels], compute, cache)
    faults: NDArray[np.str_] = arrays["faults"]
    _refuse_too_many(listing, faults)
    return arrays["x"], faults == "", _notes(listing, faults)


def _each(work: Callable[[Path], T], listing: Listing, progress: bool) -> Iterator[T | str]:
    """What `work` makes of every picture, in order; a word for its fault where it makes nothing."""
    bar = progress_bar(len(listing.files), f"reading {listing.name}", "pictures", progress)
    # Pillow warns of sizes and oddities that are dealt with here.
    with bar, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, result in in_threads(work, listing.files):
            yield result
            bar.update()


def progress_bar(total: int | None, what: str, unit: str, wanted: bool) -> Any:
    """On stderr, for what takes longer than PATIENCE; where that is no terminal, with a line now and then."""
    return tqdm(
        total=total,
        desc=what,
        unit=unit,
        delay=PATIENCE,
        mininterval=0.1 if sys.stderr.isatty() else 15.0,
        leave=False,
        disable=not wanted,
    )


def in_threads(work: Callable[[Path], T], paths: Iterable[Path]) -> Iterator[tuple[Path, T | str]]:
    """Every picture, and what `work` makes of it or a word for its fault. Threads work no more than AHEAD of what is
    asked for."""
    waiting: deque[tuple[Path, Future[T | str]]] = deque()
    pool = ThreadPoolExecutor(min(8, usable_cores()))
    try:
        for path in paths:
            waiting.append((path, pool.submit(_attempt, work, path)))
            if len(waiting) > AHEAD:
                done, future = waiting.popleft()
                yield done, future.result()
        for done, future in waiting:
            yield done, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _attempt(work: Callable[[Path], T], path: Path) -> T | str:
    try:
        return work(path)
    except TooLarge:
        return "too large"
    except FileNotFoundError:
        return "missing"
    except PermissionError:
        return "no permission"
    except Exception:
        # Pillow's decoders answer damaged bytes with almost any exception type, by where the damage lies.
        return "damaged"


def _refuse_too_many(listing: Listing, faults: NDArray[np.str_]) -> None:
    bad = int((faults != "").sum())
    if bad > max(FEW, PART * len(faults)) or bad == len(faults):
        lost = not listing.by_folder and (faults == "missing").sum() == bad
        remedy = (
            "their paths are taken from the folder of the list, so correct them" if lost else "repair or remove them"
        )
        raise InputError(
            f"{bad} of the {len(faults)} pictures of {listing.name} cannot be read: "
            f"{_examples(listing, faults)}; {remedy}."
        )


def _notes(listing: Listing, faults: NDArray[np.str_]) -> tuple[str, ...]:
    bad = int((faults != "").sum())
    if not bad:
        return ()
    said = _examples(listing, faults)
    return (f"{bad} of the {len(faults)} pictures of {listing.name} cannot be read and are left out: {said}",)


def _examples(listing: Listing, faults: NDArray[np.str_]) -> str:
    named = zip(listing.files, faults, strict=True)
    return few([f"{shown(path.name)} ({fault})" for path, fault in named if fault])
