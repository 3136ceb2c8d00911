"""MNIST-M, built as it was published: digits of MNIST, inverted into crops of the photographs of BSDS500.

Every pixel is |crop − 255·[digit > 0]|, so a photograph shows through unchanged beside the digit and inverted on it.
The set is the same for everyone: whole numbers only, and random words straight from the bit stream of PCG64, which
NumPy guarantees never to change. The stream of a split starts from ``SeedSequence([seed, k])``, k being 0 for train and
1 for test, and gives three words per digit, in the order of the digits: photograph, top row and left column of the
crop. The upper 32 bits ``u`` of a word choose among n as ``u·n >> 32``. Photographs are sorted by file name.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from vmt.data.published import PHOTOGRAPHS_ARCHIVE
from vmt.data.readers.archives import unpack
from vmt.data.readers.digits import Samples, Split, known_split, read_mnist
from vmt.data.synthetic.built_sets import Built, Chunk, Tick, no_tick, read_digits, write_set
from vmt.errors import InputError

SIDE = 28
CHUNK = 10_000
SPLITS: tuple[Split, Split] = ("train", "test")
PHOTOGRAPHS_INSIDE = "BSR/BSDS500/data/images/train"
# The 200 training photographs, as decoded by libjpeg-turbo. Another decoder may round a few pixels differently.
PUBLISHED_PHOTOGRAPHS = "e16c7ae6217fea505f754ce85c072972c2fd01eb845573d579d2bbdb1fc50a6e"
REMEDY = "build MNIST-M with: vmt data build mnistm --data DIR"
Photograph = NDArray[np.uint8]


def build_mnistm(data: Path, out: Path | None = None, seed: int = 0, tick: Tick = no_tick) -> Built:
    """Writes train.npz and test.npz from the folders mnist and bsds500 of `data`."""
    out = data / "mnistm" if out is None else out
    digits = {split: read_mnist(data / "mnist", split) for split in SPLITS}
    photographs = read_photographs(data / "bsds500")
    checksum = photographs_checksum(photographs)
    files = {split: out / f"{split}.npz" for split in SPLITS}
    made: dict[Split, dict[str, Any]] = {}
    for split in SPLITS:
        images, labels = digits[split]
        settings = {"set": "MNIST-M", "split": split, "seed": seed, "photographs": checksum, "digits": _sha(images)}
        chunks = _blended(images, labels, photographs, crops(photographs, len(images), seed, split))
        made[split] = write_set(files[split], (len(images), 3, SIDE, SIDE), chunks, settings, tick)
    same = checksum == PUBLISHED_PHOTOGRAPHS
    return Built(files, made, "" if same else _warning(data / "bsds500", len(photographs)))


def read_mnistm(folder: Path, split: Split) -> Samples:
    """Images (N, 3, 28, 28) uint8 and labels of the set that ``vmt data build mnistm`` wrote."""
    return read_digits(folder / f"{known_split(split)}.npz", SIDE, REMEDY)


def blend(digits: NDArray[np.uint8], backgrounds: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """|background − 255·[digit > 0]| for digits (N, H, W) and backgrounds (N, 3, H, W)."""
    # Subtracting a byte from 255 flips its bits.
    ink = np.where(digits > 0, np.uint8(255), np.uint8(0))
    return backgrounds ^ ink[:, None]


def crops(photographs: Sequence[Photograph], count: int, seed: int, split: Split) -> NDArray[np.int64]:
    """(count, 3): which photograph, and the top row and left column of a crop that lies inside it."""
    if seed < 0:
        raise InputError(f"the seed {seed} is negative: give 0 or more.")
    stream = np.random.PCG64(np.random.SeedSequence([seed, SPLITS.index(split)]))
    words = (np.asarray(stream.random_raw(3 * count)) >> np.uint64(32)).reshape(count, 3)
    rooms = np.array([[p.shape[0] - SIDE + 1, p.shape[1] - SIDE + 1] for p in photographs], np.uint64)
    chosen = words[:, 0] * np.uint64(len(photographs)) >> np.uint64(32)
    corners = words[:, 1:] * rooms[chosen.astype(np.int64)] >> np.uint64(32)
    return np.concatenate([chosen[:, None], corners], axis=1).astype(np.int64)


def read_photographs(folder: Path) -> list[Photograph]:
    """The training photographs of BSDS500, by file name; those of its archive if it is all there is."""
    paths = _photograph_files(folder)
    if not paths and (folder / PHOTOGRAPHS_ARCHIVE).exists():
        unpack(folder / PHOTOGRAPHS_ARCHIVE, folder, [f"{PHOTOGRAPHS_INSIDE}/"])
        paths = _photograph_files(folder)
    if not paths:
        raise InputError(
            f"{folder} holds no photographs: put BSDS500's training photographs (*.jpg) or {PHOTOGRAPHS_ARCHIVE} "
            "there (vmt data download bsds500)."
        )
    return [_read_photograph(path) for path in paths]


def photographs_checksum(photographs: Sequence[Photograph]) -> str:
    """SHA-256 over the shapes and pixels."""
    digest = hashlib.sha256()
    for photograph in photographs:
        digest.update(np.array(photograph.shape, "<u4").tobytes())
        digest.update(photograph.data)
    return digest.hexdigest()


def _blended(
    images: NDArray[np.uint8], labels: NDArray[Any], photographs: Sequence[Photograph], places: NDArray[np.int64]
) -> Iterator[Chunk]:
    windows = [np.lib.stride_tricks.sliding_window_view(p, (SIDE, SIDE), axis=(0, 1)) for p in photographs]
    for start in range(0, len(images), CHUNK):
        part = slice(start, start + CHUNK)
        chosen, tops, lefts = places[part].T
        backgrounds = np.empty((len(chosen), 3, SIDE, SIDE), np.uint8)
        for k in np.unique(chosen):
            here = chosen == k
            backgrounds[here] = windows[k][tops[here], lefts[here]]
        yield blend(images[part], backgrounds), labels[part].astype(np.int64)


def _photograph_files(folder: Path) -> list[Path]:
    for place in (folder, folder / "train", folder / PHOTOGRAPHS_INSIDE):
        # Archives that passed through a Mac hold companions named ._*.jpg, which are no pictures.
        found = [path for path in place.glob("*.jpg") if not path.name.startswith(".")]
        if found:
            return sorted(found)
    return []


def _read_photograph(path: Path) -> Photograph:
    try:
        with Image.open(path) as image:
            pixels = np.array(image.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"{path} is not a readable photograph: fetch it again.") from error
    if min(pixels.shape[:2]) < SIDE:
        raise InputError(f"{path} is smaller than {SIDE}×{SIDE} pixels: fetch the photographs of BSDS500 again.")
    return pixels


def _sha(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _warning(folder: Path, count: int) -> str:
    return (
        f"the {count} photographs of {folder} decode to other pixels than the 200 of BSDS500 do elsewhere, so this "
        "MNIST-M is not bit for bit the usual one: compare the files, or the version of libjpeg in Pillow."
    )
