"""Many pictures at once: in threads, with progress, the damaged ones left out, and kept for the next time."""

import contextlib
import hashlib
import json
import os
import threading
import time
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
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from vmt.data.files.folders import Listing
from vmt.data.files.numpy_files import DAMAGED_NPZ
from vmt.data.files.paths import FEW_UNREADABLE, UNREADABLE_SHARE
from vmt.device import usable_cores
from vmt.disk import atomic_path
from vmt.errors import InputError, few, shown
from vmt.progress import Bar

Arrays = dict[str, NDArray[Any]]
Stamp = tuple[str, int, int, int]

# What was not used for so long goes, and what was used longest ago once all of it takes more room than this.
KEPT_DAYS, KEPT_BYTES = 30, 8 * 2**30
DAY = 24 * 3600


def cache_folder() -> Path | None:
    """None for a user without a home, as in some containers."""
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(home) / "vmt" / "pictures"


def cached(about: Any, compute: Callable[[], Arrays], use: bool = True) -> Arrays:
    """What `compute` returns, or what it returned before for the same description `about`, a JSON value."""
    folder = cache_folder() if use else None
    if folder is None:
        return compute()
    path = folder / (hashlib.sha256(json.dumps(about).encode()).hexdigest()[:40] + ".npz")
    arrays = _read_kept(path)
    if arrays is None:
        arrays = compute()
        _keep(path, arrays)
    return arrays


def stamp(path: Path) -> Stamp:
    """Changes whenever a file does, or whether it may be read."""
    name = os.fsencode(path.absolute()).hex()
    try:
        status = path.stat()
    except OSError:
        return name, -1, -1, -1
    # The time of modification alone misses new permissions, and a copy that brings its own time with it.
    return name, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read_kept(path: Path) -> Arrays | None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        os.utime(path)  # used today, and so kept
    except DAMAGED_NPZ:
        return None
    return arrays


def _keep(path: Path, arrays: Arrays) -> None:
    if sum(array.nbytes for array in arrays.values()) > KEPT_BYTES:
        return
    # A cache that is full or forbidden costs time at the next start, and nothing else.
    with contextlib.suppress(InputError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        _tidy(path.parent)


def _tidy(folder: Path) -> None:
    for left in folder.glob(".*.npz.*"):  # by a process that was killed while it wrote, unless it still does
        if time.time() - left.stat().st_mtime > DAY:
            left.unlink(missing_ok=True)
    kept = 0
    for path in sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_mtime, reverse=True):
        kept += path.stat().st_size
        if kept > KEPT_BYTES or time.time() - path.stat().st_mtime > KEPT_DAYS * DAY:
            path.unlink(missing_ok=True)


Size = tuple[int, int]  # height, width

MAX_PIXELS = 2**26  # decoded, 8192×8192: a few hundred megabytes
# Pictures beyond this are decoded one at a time, so that threads together do not take more than a few such pictures.
LARGE = 2**22
JPEG_START = b"\xff\xd8\xff"
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
GREY = {"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"}

_one_large_at_a_time = threading.Lock()


class TooLarge(ValueError):
    """A picture that would need more memory than a picture should."""


@dataclass(frozen=True)
class Look:
    """What the first bytes of a picture tell."""

    size: Size  # the right way up
    grey: bool


def look(path: Path) -> Look:
    """Size and colour of a picture, without decoding it."""
    with _open(path) as image:
        width, height = image.size
        turned = _orientation(image) in (5, 6, 7, 8)
        return Look((width, height) if turned else (height, width), _is_grey(image))


def decode(path: Path, size: Size, channels: int) -> NDArray[np.uint8]:
    """A picture as (channels, height, width): upright, on white where it is transparent, in 8 bits."""
    with _open(path) as image:
        orientation = _orientation(image)
        height, width = size[::-1] if orientation in (5, 6, 7, 8) else size
        # A JPEG can be decoded at a fraction of its size; twice what is needed keeps the resizing smooth.
        image.draft("L" if channels == 1 else "RGB", (2 * width, 2 * height))
        pixels = image.size[0] * image.size[1]
        if pixels > MAX_PIXELS:
            raise TooLarge(f"{image.size[0]}×{image.size[1]} pixels")
        if pixels > LARGE:
            with _one_large_at_a_time:
                small = _resized(image, channels, (width, height))
        else:
            small = _resized(image, channels, (width, height))
    if orientation in TURNS:
        small = small.transpose(TURNS[orientation])
    array = np.asarray(small)
    return array[None] if channels == 1 else array.transpose(2, 0, 1)


def _open(path: Path) -> Image.Image:
    with path.open("rb") as file:
        is_jpeg = file.read(3) == JPEG_START
    try:
        # Image.open refuses by the full size, though a JPEG need never be decoded to it.
        return JpegImageFile(path) if is_jpeg else Image.open(path)
    except Image.DecompressionBombError as error:
        raise TooLarge("too many pixels") from error


def _resized(image: Image.Image, channels: int, size: tuple[int, int]) -> Image.Image:
    image = _eight_bits(image)
    if image.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("L" if channels == 1 else "RGB")
    # Bilinear as in Preprocess.fit, which prepares a picture that is read later.
    return image if image.size == size else image.resize(size, Image.Resampling.BILINEAR)


def _eight_bits(image: Image.Image) -> Image.Image:
    if image.mode == "I" or image.mode.startswith("I;"):
        # Pillow's own conversion clips at 255. Integers of more than 8 bits are 16 bits in every common format.
        values: NDArray[Any] = np.asarray(image).clip(0, 65535)
        return Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))
    if image.mode == "F":
        values = np.asarray(image)
        low, high = float(values.min()), float(values.max())
        if not (low >= 0 and high <= 255):
            raise ValueError(f"values from {low:g} to {high:g}")
        return Image.fromarray((values * (255 if high <= 1 else 1)).round().astype(np.uint8))
    return image


def _orientation(image: Image.Image) -> int:
    """How a picture still has to be turned. Pillow itself turns a TIFF as it decodes it, and gives its upright size."""
    if image.format == "TIFF":
        return 1
    try:
        # Not image.getexif(), which for a PNG decodes all its pixels to look behind them.
        return int(Image.Image.getexif(image).get(ORIENTATION, 1))
    except Exception:  # damaged notes of a camera are no reason to lose its picture
        return 1


def _is_grey(image: Image.Image) -> bool:
    if image.mode in ("P", "PA"):
        colours = np.array(image.getpalette("RGB") or [0, 0, 1]).reshape(-1, 3)
        return bool((colours == colours[:, :1]).all())
    return image.mode in GREY


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
    bar = Bar(f"reading {listing.name}", "pictures", len(listing.files), show=progress, delay=PATIENCE, leave=False)
    # Pillow warns of sizes and oddities that are dealt with here.
    with bar, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, result in in_threads(work, listing.files):
            yield result
            bar.update()


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
    if bad > max(FEW_UNREADABLE, UNREADABLE_SHARE * len(faults)) or bad == len(faults):
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
