"""MNIST-M, built by its published definition: digits of MNIST inverted into crops of the photographs of BSDS500.

Every pixel is |crop − 255·[digit > 0]|: the photograph is unchanged beside the digit and inverted inside it. The set is
the same for everyone, because the arithmetic is in integers and the random words come from the bit stream of PCG64,
which NumPy guarantees never to change. The stream of a split starts from ``SeedSequence([seed, k])``, where k is 0 for
train and 1 for test, and gives three words per digit, in the order of the digits: photograph, top row and left column
of the crop. The upper 32 bits ``u`` of a word choose among n as ``u·n >> 32``. Photographs are sorted by file name.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vmt.data.fetch import PHOTOGRAPHS_ARCHIVE
from vmt.data.readers.archives import unpack
from vmt.data.readers.digits import Samples, Split, known_split, read_mnist
from vmt.data.synthetic.built_sets import Built, LabelledImages, Tick, no_tick, read_digits, write_set
from vmt.errors import InputError, parsing

SIDE = 28
CHUNK = 10_000
SPLITS: tuple[Split, Split] = ("train", "test")
PHOTOGRAPHS_INSIDE = "BSR/BSDS500/data/images/train"
# The 200 training photographs, as decoded by libjpeg-turbo. Another decoder may round a few pixels differently.
PUBLISHED_PHOTOGRAPHS = "e16c7ae6217fea505f754ce85c072972c2fd01eb845573d579d2bbdb1fc50a6e"
REMEDY = "build MNIST-M with: vmt data build mnistm --data DIR"
Photograph = NDArray[np.uint8]


def build_mnistm(data: Path, out: Path | None = None, seed: int = 0, tick: Tick = no_tick) -> Built:
    """Write train.npz and test.npz from the subfolders mnist and bsds500 of `data`."""
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
    # 255 minus a byte is the byte with its bits flipped.
    ink = np.where(digits > 0, np.uint8(255), np.uint8(0))
    return backgrounds ^ ink[:, None]


def crops(photographs: Sequence[Photograph], count: int, seed: int, split: Split) -> NDArray[np.int64]:
    """(count, 3): for each crop, the index of its photograph, its top row and its left column."""
    if seed < 0:
        raise InputError(f"seed must be 0 or more, but got {seed}.")
    stream = np.random.PCG64(np.random.SeedSequence([seed, SPLITS.index(split)]))
    words = (np.asarray(stream.random_raw(3 * count)) >> np.uint64(32)).reshape(count, 3)
    rooms = np.array([[p.shape[0] - SIDE + 1, p.shape[1] - SIDE + 1] for p in photographs], np.uint64)
    chosen = words[:, 0] * np.uint64(len(photographs)) >> np.uint64(32)
    corners = words[:, 1:] * rooms[chosen.astype(np.int64)] >> np.uint64(32)
    return np.concatenate([chosen[:, None], corners], axis=1).astype(np.int64)


def read_photographs(folder: Path) -> list[Photograph]:
    """The training photographs of BSDS500, sorted by file name; unpacked from the archive if needed."""
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
    """The SHA-256 of the shapes and pixels of all photographs."""
    digest = hashlib.sha256()
    for photograph in photographs:
        digest.update(np.array(photograph.shape, "<u4").tobytes())
        digest.update(photograph.data)
    return digest.hexdigest()


def _blended(
    images: NDArray[np.uint8], labels: NDArray[Any], photographs: Sequence[Photograph], places: NDArray[np.int64]
) -> Iterator[LabelledImages]:
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
        # Archives made on a Mac hold additional files named ._*.jpg, which are not pictures.
        paths = [path for path in place.glob("*.jpg") if not path.name.startswith(".")]
        if paths:
            return sorted(paths)
    return []


def _read_photograph(path: Path) -> Photograph:
    with parsing(path, "a readable photograph", "download it again"), Image.open(path, formats=["JPEG"]) as image:
        pixels = np.array(image.convert("RGB"))
    if min(pixels.shape[:2]) < SIDE:
        raise InputError(f"{path} is smaller than {SIDE}×{SIDE} pixels: download the photographs of BSDS500 again.")
    return pixels


def _sha(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _warning(folder: Path, count: int) -> str:
    return (
        f"the pixels of the {count} photographs in {folder} differ from those of the 200 training photographs of "
        "BSDS500, so this MNIST-M is not identical to the usual one: compare the files, or the version of libjpeg in "
        "Pillow."
    )
