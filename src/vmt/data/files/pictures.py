"""Reading pictures: their headers first, then their pixels, in threads, and cached for the next time.

The headers give the sizes and colours, from which one size for all pictures is chosen. Pictures that cannot be read are
left out and named; too many of them are an error.
"""

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

from vmt.data.files.folders import PictureList
from vmt.data.files.numpy_files import open_npz
from vmt.data.files.paths import FEW_UNREADABLE, UNREADABLE_SHARE
from vmt.device import usable_cores
from vmt.disk import DAY, atomic_path, remove_abandoned, temporary_files
from vmt.errors import InputError, few, shown
from vmt.progress import Bar

MAX_PIXELS = 2**26  # 8192×8192; a decoded picture of this size takes a few hundred megabytes
# Pictures with more pixels are decoded one at a time, so that several threads do not run out of memory.
LARGE = 2**22
PICTURES_AHEAD = 256  # the threads may decode this many pictures before they are needed
PATIENCE = 2.0  # seconds of reading before a progress bar is shown

JPEG_START = b"\xff\xd8\xff"
# The decoders that the suffixes in PICTURES stand for. By itself, Pillow chooses among all of its decoders by the
# content of a file, and gives PostScript, which is a program, to Ghostscript.
DECODERS = ("PNG", "JPEG", "BMP", "DIB", "GIF", "TIFF", "WEBP", "PPM", "TGA", "JPEG2000", "ICO", "AVIF")
ORIENTATION = 0x0112  # the EXIF tag
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange height and width
GREY_MODES = {"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"}
BITS_PER_SAMPLE = 258  # the TIFF tag
DARK = 32  # the brightest value of all pictures below which a note asks whether their range is right

DECODER_VERSION = 3  # part of the cache's keys; increase it when pictures are decoded differently
# Cached files are removed when unused for this many days, and the least recently used when they exceed this size.
CACHE_DAYS, CACHE_BYTES = 30, 8 * 2**30

T = TypeVar("T")
Size = tuple[int, int]  # height, width
Arrays = dict[str, NDArray[Any]]
Stamp = tuple[str, int, int, int]


class TooLarge(ValueError):
    """A picture that would need too much memory."""


class UnknownRange(ValueError):
    """A picture in whose values black and white are not known; the message says what to do."""


@dataclass(frozen=True)
class PictureHeader:
    """The contents of a picture's header."""

    size: Size  # the right way up
    grey: bool


@dataclass(frozen=True, eq=False)
class PictureHeaders:
    """Pictures that are not decoded yet, with the contents of their headers."""

    pictures: PictureList
    stamps: tuple[Stamp, ...]
    sizes: NDArray[np.int64]  # (N, 2), height and width; 0 where the header cannot be read
    grey: NDArray[np.bool_]
    faults: NDArray[np.str_]  # "" where the header can be read

    @property
    def readable(self) -> NDArray[np.bool_]:
        return np.equal(self.faults, "")


def read_headers(pictures: PictureList, cache: bool = True, progress: bool = True) -> PictureHeaders:
    """The sizes and colours of all pictures of a list."""

    def compute() -> Arrays:
        results = list(_read_each(read_header, pictures, progress))
        return {
            "sizes": np.array([(0, 0) if isinstance(r, str) else r.size for r in results], np.int64),
            "grey": np.array([not isinstance(r, str) and r.grey for r in results]),
            "faults": np.array([r if isinstance(r, str) else "" for r in results]),
        }

    stamps = tuple(_stamp(path) for path in pictures.files)
    arrays = _cached(["headers", DECODER_VERSION, PIL.__version__, stamps], compute, cache)
    headers = PictureHeaders(pictures, stamps, arrays["sizes"], arrays["grey"], arrays["faults"])
    _refuse_too_many_faults(pictures, headers.faults)
    return headers


def read_pictures(
    headers: PictureHeaders, size: Size, channels: int, cache: bool = True, progress: bool = True
) -> tuple[NDArray[np.uint8], NDArray[np.bool_], tuple[str, ...]]:
    """The pixels (N, C, H, W) of the readable pictures, a mask of these among all pictures, and notes on the others."""
    pictures = headers.pictures

    def compute() -> Arrays:
        x = np.empty((len(pictures.files), channels, *size), np.uint8)
        faults = list(headers.faults)
        to_read = np.flatnonzero(headers.readable)
        files = tuple(pictures.files[i] for i in to_read)
        results = _read_each(lambda path: decode(path, size, channels), replace(pictures, files=files), progress)
        for i, result in zip(to_read, results, strict=True):
            if isinstance(result, str):
                faults[i] = result
            else:
                x[i] = result
        decoded = np.array(faults) == ""
        return {"x": x if decoded.all() else x[decoded], "faults": np.array(faults)}

    arrays = _cached(["pixels", DECODER_VERSION, PIL.__version__, headers.stamps, size, channels], compute, cache)
    faults: NDArray[np.str_] = arrays["faults"]
    _refuse_too_many_faults(pictures, faults)
    notes = _fault_notes(pictures, faults) + _dark_note(pictures, arrays["x"])
    return arrays["x"], faults == "", notes


def _refuse_too_many_faults(pictures: PictureList, faults: NDArray[np.str_]) -> None:
    bad = int((faults != "").sum())
    if bad > max(FEW_UNREADABLE, UNREADABLE_SHARE * len(faults)) or bad == len(faults):
        all_missing = not pictures.by_folder and (faults == "missing").sum() == bad
        remedy = "correct their paths, which are relative to the list" if all_missing else "repair or remove them"
        raise InputError(
            f"{bad} of the {len(faults)} pictures of {pictures.name} cannot be read: "
            f"{_examples(pictures, faults)}; {remedy}."
        )


def _fault_notes(pictures: PictureList, faults: NDArray[np.str_]) -> tuple[str, ...]:
    bad = int((faults != "").sum())
    if not bad:
        return ()
    examples = _examples(pictures, faults)
    return (f"{bad} of the {len(faults)} pictures of {pictures.name} cannot be read and are left out: {examples}",)


def _dark_note(pictures: PictureList, x: NDArray[np.uint8]) -> tuple[str, ...]:
    """Cameras with 10 or 12 bits often fill a small part of the range of a 16-bit file."""
    if not x.size or (brightest := int(x.max())) >= DARK:
        return ()
    return (
        f"the pictures of {pictures.name} are nearly black: their brightest value is {brightest} of 255; if their "
        "files have 16 bits and use only a part of the range, rescale them to 0–65535",
    )


def _examples(pictures: PictureList, faults: NDArray[np.str_]) -> str:
    named = zip(pictures.files, faults, strict=True)
    return few([f"{shown(path.name)} ({fault})" for path, fault in named if fault])


def _read_each(read: Callable[[Path], T], pictures: PictureList, progress: bool) -> Iterator[T | str]:
    """The result of `read` for every picture in order, or a description of its fault."""
    bar = Bar(f"reading {pictures.name}", "pictures", len(pictures.files), show=progress, delay=PATIENCE, leave=False)
    # Pillow warns about sizes and damage that are handled here.
    with bar, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, result in read_in_threads(read, pictures.files):
            yield result
            bar.update()


def read_in_threads(read: Callable[[Path], T], paths: Iterable[Path]) -> Iterator[tuple[Path, T | str]]:
    """Every path in order with the result of `read`, or with a description of its fault."""
    waiting: deque[tuple[Path, Future[T | str]]] = deque()
    pool = ThreadPoolExecutor(min(8, usable_cores()))
    try:
        for path in paths:
            waiting.append((path, pool.submit(_result_or_fault, read, path)))
            if len(waiting) > PICTURES_AHEAD:
                done, future = waiting.popleft()
                yield done, future.result()
        for done, future in waiting:
            yield done, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _result_or_fault(read: Callable[[Path], T], path: Path) -> T | str:
    try:
        return read(path)
    except TooLarge:
        return "too large"
    except UnknownRange as error:
        return str(error)
    except FileNotFoundError:
        return "missing"
    except PermissionError:
        return "no permission"
    except Exception:
        # Depending on where the damage is, Pillow's decoders raise almost any exception type.
        return "damaged"


def read_header(path: Path) -> PictureHeader:
    """The size and colour of a picture, without decoding it."""
    with _open(path) as image:
        width, height = image.size
        sideways = _orientation(image) in SIDEWAYS
        return PictureHeader((width, height) if sideways else (height, width), _is_grey(image))


_one_large_at_a_time = threading.Lock()


def decode(path: Path, size: Size, channels: int) -> NDArray[np.uint8]:
    """A picture as (channels, height, width) in 8 bits: upright, and with white in place of transparency."""
    with _open(path) as image:
        orientation = _orientation(image)
        height, width = size[::-1] if orientation in SIDEWAYS else size
        # A JPEG can be decoded at a fraction of its size; twice the final size keeps the resizing smooth.
        image.draft("L" if channels == 1 else "RGB", (2 * width, 2 * height))
        pixels = image.size[0] * image.size[1]
        if pixels > MAX_PIXELS:
            raise TooLarge(f"{image.size[0]}×{image.size[1]} pixels")
        with _one_large_at_a_time if pixels > LARGE else contextlib.nullcontext():
            small = _resized(image, channels, (width, height))
    if orientation in TURNS:
        small = small.transpose(TURNS[orientation])
    values = np.asarray(small)
    return values[None] if channels == 1 else values.transpose(2, 0, 1)


def _open(path: Path) -> Image.Image:
    with path.open("rb") as file:
        is_jpeg = file.read(3) == JPEG_START
    try:
        # Image.open refuses by the full size, although a JPEG need never be decoded at that size.
        return JpegImageFile(path) if is_jpeg else Image.open(path, formats=DECODERS)
    except Image.DecompressionBombError as error:
        raise TooLarge("too many pixels") from error


def _resized(image: Image.Image, channels: int, size: tuple[int, int]) -> Image.Image:
    image = _eight_bits(image)
    if image.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("L" if channels == 1 else "RGB")
    # Bilinear like Preprocess.fit, which resizes arrays that are predicted on.
    return image if image.size == size else image.resize(size, Image.Resampling.BILINEAR)


def _eight_bits(image: Image.Image) -> Image.Image:
    """A picture of more than 8 bits in 8 bits, by a rule that does not depend on the values of this one picture.

    Otherwise the pictures of a folder could not be compared with each other, or with those that are predicted on later.
    """
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):  # Pillow scales PPM to 16 bits
        tags: Any = getattr(image, "tag_v2", {})
        white = 4095 if tags.get(BITS_PER_SAMPLE) == (12,) else 65535
        values: NDArray[Any] = np.asarray(image).clip(0, white).astype(np.uint32)
        return Image.fromarray(((values * 255 + white // 2) // white).astype(np.uint8))
    if image.mode.startswith("I"):
        raise UnknownRange("32-bit or signed integers, whose range is unknown: save it with 8 or 16 bits")
    if image.mode == "F":
        values = np.asarray(image)
        low, high = float(values.min()), float(values.max())
        if not (low >= 0 and high <= 1):  # also if one is NaN
            raise UnknownRange(f"floating-point values from {low:g} to {high:g}: rescale them to 0–1")
        return Image.fromarray((values * 255).round().astype(np.uint8))
    return image


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, by which a picture must still be rotated; Pillow rotates a TIFF while it decodes it."""
    if image.format == "TIFF":
        return 1
    try:
        # Not image.getexif(), which decodes all pixels of a PNG to read what follows them.
        return int(Image.Image.getexif(image).get(ORIENTATION, 1))
    except Exception:  # a picture with damaged EXIF data is still a picture
        return 1


def _is_grey(image: Image.Image) -> bool:
    if image.mode in ("P", "PA"):
        colours = np.array(image.getpalette("RGB") or [0, 0, 1]).reshape(-1, 3)
        return bool((colours == colours[:, :1]).all())
    return image.mode in GREY_MODES


def _cached(about: Any, compute: Callable[[], Arrays], use_cache: bool) -> Arrays:
    """The result of `compute`, or its earlier result for the same description `about`, a JSON value."""
    folder = _cache_folder() if use_cache else None
    if folder is None:
        return compute()
    path = folder / (hashlib.sha256(json.dumps(about).encode()).hexdigest()[:40] + ".npz")
    arrays = _read_cache(path)
    if arrays is None:
        arrays = compute()
        _write_cache(path, arrays)
    return arrays


def _cache_folder() -> Path | None:
    """None for a user without a home folder, as in some containers."""
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(home) / "vmt" / "pictures"


def _stamp(path: Path) -> Stamp:
    """A value that changes whenever a file or its permissions change."""
    name = os.fsencode(path.absolute()).hex()
    try:
        status = path.stat()
    except (OSError, ValueError):  # a name with a NUL, which no file has
        return name, -1, -1, -1
    # The modification time alone misses new permissions, and a copy that keeps the time of its original.
    return name, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read_cache(path: Path) -> Arrays | None:
    try:
        with open_npz(path) as archive:
            arrays = {name: archive[name] for name in archive.members}
        os.utime(path)  # records the time of the last use
    except (InputError, OSError):
        return None
    return arrays


def _write_cache(path: Path, arrays: Arrays) -> None:
    if sum(array.nbytes for array in arrays.values()) > CACHE_BYTES:
        return
    # A cache that cannot be written costs time at the next start, and nothing else.
    with contextlib.suppress(InputError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        _remove_old_files(path.parent)


def _remove_old_files(folder: Path) -> None:
    remove_abandoned(temporary_files(folder, "*.npz"))
    total = 0
    for path in sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_mtime, reverse=True):
        total += path.stat().st_size
        if total > CACHE_BYTES or time.time() - path.stat().st_mtime > CACHE_DAYS * DAY:
            path.unlink(missing_ok=True)
