"""Reading pictures: their headers first, then their pixels, in threads, and cached for the next time.

The headers give the sizes and colours, from which one size for all pictures is chosen. Pictures that cannot be read are
left out and named; too many of them are an error.
"""

import contextlib
import hashlib
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from vmt.cache import cache_folder, remove_entry, trim
from vmt.data.files.cached import Arrays, cache_key, cached_arrays
from vmt.data.files.folders import PictureList
from vmt.data.files.paths import FEW_UNREADABLE, UNREADABLE_SHARE
from vmt.data.files.store import Read, pack
from vmt.data.framing import Framing, Size
from vmt.data.stored import StoredSamples
from vmt.device import usable_cores
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

DECODER_VERSION = 4  # part of the cache's keys; increase it when pictures are decoded differently

K = TypeVar("K")
T = TypeVar("T")
Pixels = NDArray[np.uint8]


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
    stamp: str  # changes whenever a file changes
    sizes: NDArray[np.int64]  # (N, 2), height and width; 0 where the header cannot be read
    grey: NDArray[np.bool_]
    faults: NDArray[np.str_]  # "" where the header can be read

    @property
    def readable(self) -> NDArray[np.bool_]:
        return np.equal(self.faults, "")


def read_headers(pictures: PictureList, cache: bool = True, progress: bool = True) -> PictureHeaders:
    """The sizes and colours of all pictures of a list."""

    def compute() -> Arrays:
        results = list(_read_each(read_header, pictures.files, pictures, progress))
        return {
            "sizes": np.array([(0, 0) if isinstance(r, str) else r.size for r in results], np.int64),
            "grey": np.array([not isinstance(r, str) and r.grey for r in results]),
            "faults": np.array([r if isinstance(r, str) else "" for r in results]),
        }

    stamp = _stamp_of(pictures.files)
    arrays = cached_arrays("pictures", ["headers", DECODER_VERSION, PIL.__version__, stamp], compute, cache)
    headers = PictureHeaders(pictures, stamp, arrays["sizes"], arrays["grey"], arrays["faults"])
    refuse_too_many_faults(pictures, headers.faults)
    return headers


def read_pictures(
    headers: PictureHeaders,
    framing: Framing,
    cache: bool = True,
    progress: bool = True,
    stream: bool = False,
) -> tuple[NDArray[np.uint8] | StoredSamples, NDArray[np.bool_], tuple[str, ...]]:
    """The pixels (N, C, H, W) of the readable pictures, a mask of these among all pictures, and notes on the others.

    With `stream`, the pixels stay on the disk, in the cache.
    """
    pictures, shape = headers.pictures, (framing.channels, *framing.size)

    def read(numbers: Sequence[int], done: int = 0) -> Iterator[Pixels | str]:
        def one(number: int) -> Pixels | str:
            return str(headers.faults[number]) or decode(pictures.files[number], framing)

        return _read_each(one, numbers, pictures, progress, done)

    folder = cache_folder("pictures") if cache else None
    x: Pixels | StoredSamples | None = None
    if folder is not None:
        about = ["pixels", DECODER_VERSION, PIL.__version__, headers.stamp, *framing.described()]
        folder = folder / cache_key(about)
        try:
            x, faults = _stored(folder, len(pictures.files), shape, read, stream)
        except InputError:
            if stream:
                raise
            # A cache that cannot be written costs time at the next start, and nothing else.
        else:
            trim("pictures")
    elif stream:
        why = "they are read without the cache (--no-cache)" if not cache else "there is no folder for a cache"
        raise InputError(
            f"the pictures of {pictures.name} exceed the memory for samples, and {why}: use the cache, or give more "
            "--memory."
        )
    if x is None:
        x, faults = _in_memory(len(pictures.files), shape, read)
    refuse_too_many_faults(pictures, faults)
    notes = fault_notes(pictures, faults) + _dark_note(pictures, x)
    return x, faults == "", notes


def _stored(
    folder: Path, count: int, shape: tuple[int, ...], read: Read, stream: bool
) -> tuple[Pixels | StoredSamples, NDArray[np.str_]]:
    """The readable pictures of a store, which is packed if needed, and the fault of every picture."""
    for attempt in (1, 2):
        store = pack(folder, count, shape, read)
        stored = StoredSamples(store.rows, np.flatnonzero(store.faults == ""))
        try:
            return (stored if stream else stored[:].numpy()), store.faults
        except InputError:  # it is damaged
            if attempt == 2:
                raise
            remove_entry(folder)
    raise AssertionError


def _in_memory(count: int, shape: tuple[int, ...], read: Read) -> tuple[Pixels, NDArray[np.str_]]:
    """The readable pictures, decoded now, and the fault of every picture."""
    x = np.empty((count, *shape), np.uint8)
    faults = [""] * count
    for number, result in enumerate(read(range(count), 0)):
        if isinstance(result, str):
            faults[number] = result
        else:
            x[number] = result
    readable = np.array(faults) == ""
    return x if readable.all() else x[readable], np.array(faults)


def refuse_too_many_faults(pictures: PictureList, faults: NDArray[np.str_]) -> None:
    """Refuse pictures of which too many cannot be read; ``faults`` is empty where one can."""
    bad = int((faults != "").sum())
    if bad > max(FEW_UNREADABLE, UNREADABLE_SHARE * len(faults)) or bad == len(faults):
        all_missing = not pictures.by_folder and (faults == "missing").sum() == bad
        remedy = "correct their paths, which are relative to the list" if all_missing else "repair or remove them"
        raise InputError(
            f"{bad} of the {len(faults)} pictures of {pictures.name} cannot be read: "
            f"{_examples(pictures, faults)}; {remedy}."
        )


def fault_notes(pictures: PictureList, faults: NDArray[np.str_]) -> tuple[str, ...]:
    """A note on the pictures that cannot be read, if there are any."""
    bad = int((faults != "").sum())
    if not bad:
        return ()
    examples = _examples(pictures, faults)
    return (f"{bad} of the {len(faults)} pictures of {pictures.name} cannot be read and are left out: {examples}",)


def _dark_note(pictures: PictureList, x: Pixels | StoredSamples) -> tuple[str, ...]:
    """Cameras with 10 or 12 bits often fill a small part of the range of a 16-bit file."""
    if not len(x) or (brightest := int(x.aminmax().max if isinstance(x, StoredSamples) else x.max())) >= DARK:
        return ()
    return (
        f"the pictures of {pictures.name} are nearly black: their brightest value is {brightest} of 255; if their "
        "files have 16 bits and use only a part of the range, rescale them to 0–65535",
    )


def _examples(pictures: PictureList, faults: NDArray[np.str_]) -> str:
    named = zip(pictures.files, faults, strict=True)
    return few([f"{shown(path.name)} ({fault})" for path, fault in named if fault])


def _read_each(
    read: Callable[[K], T], items: Sequence[K], pictures: PictureList, progress: bool, done: int = 0
) -> Iterator[T | str]:
    """The result of `read` for each of some pictures in order, or a description of its fault.

    `done` pictures were read earlier.
    """
    total = done + len(items)
    bar = Bar(f"reading {pictures.name}", "pictures", total, done, show=progress, delay=PATIENCE, leave=False)
    # Pillow warns about sizes and damage that are handled here.
    with bar, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, result in read_in_threads(read, items):
            yield result
            bar.update()


def read_in_threads(read: Callable[[K], T], items: Iterable[K]) -> Iterator[tuple[K, T | str]]:
    """Every item in order with the result of `read`, or with a description of its fault."""
    waiting: deque[tuple[K, Future[T | str]]] = deque()
    pool = ThreadPoolExecutor(min(8, usable_cores()))
    try:
        for item in items:
            waiting.append((item, pool.submit(_result_or_fault, read, item)))
            if len(waiting) > PICTURES_AHEAD:
                done, future = waiting.popleft()
                yield done, future.result()
        for done, future in waiting:
            yield done, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _result_or_fault(read: Callable[[K], T], item: K) -> T | str:
    try:
        return read(item)
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


def decode(path: Path, framing: Framing) -> NDArray[np.uint8]:
    """A picture as (channels, height, width) in 8 bits: upright, and with white in place of transparency."""
    size, channels = framing.size, framing.channels
    with _open(path) as image:
        if isinstance(image, JpegImageFile):
            # It can be decoded at a fraction of its size; twice the final size keeps the resizing smooth.
            across, down = size if _orientation(image) in SIDEWAYS else size[::-1]
            least = (2 * across, 2 * down) if framing.crop is None else (framing.least_side, framing.least_side)
            image.draft("L" if channels == 1 else "RGB", least)
        pixels = image.size[0] * image.size[1]
        if pixels > MAX_PIXELS:
            raise TooLarge(f"{image.size[0]}×{image.size[1]} pixels")
        with _one_large_at_a_time if pixels > LARGE else contextlib.nullcontext():
            image.load()  # first, because a PNG may have its orientation behind its pixels
            orientation = _orientation(image)
            height, width = size[::-1] if orientation in SIDEWAYS else size
            if framing.crop is None:
                small = _turned(_resized(_in_channels(image, channels), framing, (width, height)), orientation)
            else:  # in the order in which others do it who read the same pictures for an exported model
                small = _resized(_in_channels(_turned(image, orientation), channels), framing, size[::-1])
    values = np.asarray(small)
    return values[None] if channels == 1 else values.transpose(2, 0, 1)


def _turned(image: Image.Image, orientation: int) -> Image.Image:
    return image.transpose(TURNS[orientation]) if orientation in TURNS else image


def _open(path: Path) -> Image.Image:
    with path.open("rb") as file:
        is_jpeg = file.read(3) == JPEG_START
    try:
        # Image.open refuses by the full size, although a JPEG need never be decoded at that size.
        return JpegImageFile(path) if is_jpeg else Image.open(path, formats=DECODERS)
    except Image.DecompressionBombError as error:
        raise TooLarge("too many pixels") from error


def _in_channels(image: Image.Image, channels: int) -> Image.Image:
    image = _eight_bits(image)
    if image.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("L" if channels == 1 else "RGB")


def _resized(image: Image.Image, framing: Framing, size: tuple[int, int]) -> Image.Image:
    # The filters are those of Preprocess.fit, which resizes arrays that are predicted on.
    box = framing.box(*image.size[::-1])
    if image.size == size and (box is None or box == (0, 0, *size)):
        return image
    return image.resize(size, Image.Resampling[framing.interpolation.upper()], box)


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


def _stamp_of(paths: Sequence[Path]) -> str:
    """A value that changes whenever one of these files or its permissions change."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            status = path.stat()
            # The modification time alone misses new permissions, and a copy that keeps the time of its original.
            times: tuple[int, ...] = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        except (OSError, ValueError):  # a name with a NUL, which no file has
            times = ()
        digest.update(repr((os.fsencode(path.absolute()), times)).encode())
    return digest.hexdigest()
