"""A person's own data as they lie: folders and lists of pictures, tables, NumPy files.

Files of pictures are decoded only when all parts of the data are known, because they must agree in size and channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmt.data.convert import MIN_SIDE, domain
from vmt.data.files import existing_file, kind_of, read_npz, shown
from vmt.data.folders import Listing, list_folder
from vmt.data.pictures import Size
from vmt.data.reading import Looked, look_at, read_pictures
from vmt.data.tables import TABLES, read_csv, read_parquet
from vmt.errors import InputError
from vmt.names import KINDS

LARGEST_SIDE, SMALLEST_SIDE = 64, 8  # of what is chosen; other sizes can be asked for


@dataclass(frozen=True)
class Reading:
    """How to read: what is None is chosen from the data."""

    image_size: Size | None = None
    channels: int | None = None
    label: str | None = None
    cache: bool = True
    progress: bool = True
    strict: bool = False  # refuse a size or channels that have nothing to do

    def __post_init__(self) -> None:
        if self.image_size is not None and (len(self.image_size) != 2 or min(self.image_size) < MIN_SIDE):
            raise InputError(
                f"the image size {self.image_size} is no height and width of {MIN_SIDE} pixels or more: correct it."
            )
        if self.channels not in (None, 1, 3):
            raise InputError(f"pictures cannot have {self.channels} channels: choose 1 for grey or 3 for colour.")


@dataclass(frozen=True, eq=False)
class Part:
    """Samples as they were found: the source, the target or the test set."""

    name: str
    x: NDArray[Any]
    y: NDArray[Any] | None  # numbers, or names with "" for a label that is not known
    features: tuple[str, ...] = ()
    by_folder: bool = False  # the labels are names of subfolders, which need not be classes


def read_parts(paths: Sequence[Path], how: Reading, features: Sequence[str] = ()) -> tuple[list[Part], tuple[str, ...]]:
    """Every part, the first of which decides the size of pictures, and the columns of tables if `features` does not;
    and what a person should know."""
    first = _open(paths[0], how, features)
    features = features or (first.features if isinstance(first, Part) else ())
    opened = [first, *(_open(path, how, features) for path in paths[1:])]
    looked = [part for part in opened if isinstance(part, Looked)]
    notes = [note for part in looked for note in part.listing.notes]
    if not looked:
        arrays = [part for part in opened if isinstance(part, Part)]
        if how.strict:
            _refuse_flags_of_pictures(arrays[0], how)
        return arrays, ()
    size = how.image_size or _size_of(opened[0])
    channels = how.channels or max(_channels_of(part) for part in opened)
    height, width = size
    why = "as asked for" if how.image_size else f"by the sizes in {shown(paths[0])}"
    colour = "grey" if channels == 1 else "colour"
    if how.strict or how.image_size is None or how.channels is None:
        notes.append(f"pictures: brought to {height}×{width} pixels, {why}; in {colour} (--image-size, --channels)")
    parts = []
    for part in opened:
        if isinstance(part, Looked):
            x, whole, said = read_pictures(part, size, channels, how.cache, how.progress)
            labels = part.listing.labels
            y = None if labels is None else np.array(labels)[whole]
            part = Part(part.listing.name, x, y, by_folder=part.listing.by_folder)
            notes += said
        parts.append(part)
    return parts, tuple(notes)


def _refuse_flags_of_pictures(first: Part, how: Reading) -> None:
    if how.channels is not None:
        raise InputError(f"--channels is for files of pictures, and {first.name} holds arrays: leave it out.")
    if how.image_size is not None and first.x.ndim == 2:
        raise InputError(f"--image-size is for pictures, and {first.name} holds vectors: leave it out.")


def _open(path: Path, how: Reading, features: Sequence[str]) -> Part | Looked:
    if path.is_dir():
        return look_at(list_folder(path), how.cache, how.progress)
    existing_file(path, f"give {KINDS}")
    suffix = kind_of(path)
    if suffix == ".npz":
        x, y = read_npz(path)
        return _arrays(path, x, y)
    if suffix == ".npy":
        return _arrays(path, _read_npy(path), None)
    if suffix in TABLES:
        table = (read_parquet if suffix == ".parquet" else read_csv)(path, how.label, features)
        if isinstance(table, Listing):
            return look_at(table, how.cache, how.progress)
        return Part(table.name, table.x, None if table.labels is None else np.array(table.labels), table.features)
    raise InputError(f"{shown(path)} is of a kind that is not known here: give {KINDS}.")


def _arrays(path: Path, x: NDArray[Any], y: NDArray[Any] | None) -> Part:
    if y is not None and y.dtype.kind == "S":
        y = np.char.decode(y, "utf-8", "replace")
    if y is not None and y.dtype.kind == "U" and y.shape != x.shape[:1]:
        raise InputError(f"{path} has x of shape {x.shape} and y of shape {y.shape}: give y one name per sample.")
    # Checked at once: an odd shape must be complained of before it decides the size of pictures.
    checked = domain(x, name=shown(path)).x.numpy()
    return Part(shown(path), x if x.ndim == 2 else checked, y)


def _read_npy(path: Path) -> NDArray[Any]:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{path} is not a readable .npy file: save it again with numpy.save.") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} is an .npz archive by its content: give it that ending.")
    return array


def _size_of(first: Part | Looked) -> Size:
    """The median size of pictures in multiples of 4, which two poolings divide, and no larger than a small network
    can look at in good time; the size itself of arrays."""
    if isinstance(first, Part):
        if first.x.ndim != 4:
            raise InputError(f"{first.name} holds vectors and another part pictures: give the same kind for both.")
        return first.x.shape[2], first.x.shape[3]
    height, width = np.median(first.sizes[first.whole], axis=0)
    shrink = min(1.0, LARGEST_SIDE / max(height, width))
    return _multiple_of_4(height * shrink), _multiple_of_4(width * shrink)


def _multiple_of_4(side: float) -> int:
    return max(SMALLEST_SIDE, 4 * int(side / 4 + 0.5))


def _channels_of(part: Part | Looked) -> int:
    if isinstance(part, Part):
        return 1 if part.x.shape[1] == 1 else 3
    return 1 if part.grey[part.whole].all() else 3
