"""Features of pictures are computed once, and found again by the content of the pictures and of the network."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.own_pictures import class_folders, picture, save
from vmt.cache import cache_folder
from vmt.data.domains import domain
from vmt.data.files import features as module
from vmt.data.files.features import features_of_arrays, read_features
from vmt.data.files.folders import list_pictures
from vmt.data.files.pictures import read_headers
from vmt.data.framing import PictureFormat
from vmt.data.preprocess import Preprocess, image_preprocess


@dataclass
class Means:
    """The mean of each channel, and a count of the pictures that it was computed of."""

    fingerprint: str = "means"
    width: int = 3
    preprocess: Preprocess = field(default_factory=lambda: image_preprocess((12, 12), 3, PictureFormat(crop=1.0)))
    seen: int = 0

    def features(self, x: NDArray[np.uint8]) -> NDArray[np.float32]:
        self.seen += len(x)
        return x.mean((2, 3)).astype(np.float32)


def read(folder: Path, extractor: Means) -> tuple[np.ndarray, tuple[str, ...]]:
    x, _, notes = read_features(read_headers(list_pictures(folder)), extractor, progress=False)
    return x, notes


def computed(folder: Path, **options: Any) -> int:
    """How many pictures a network sees until all features of a folder are known."""
    extractor = Means(**options)
    read(folder, extractor)
    return extractor.seen


def test_features_are_computed_once(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "source", each=3)
    first, _ = read(folder, Means())
    files = sorted(folder.rglob("*.png"))
    np.testing.assert_allclose(first[0], np.asarray(Image.open(files[0])).mean((0, 1)), atol=1e-3)
    assert computed(folder) == 0
    files[0].rename(files[0].with_name("renamed.png"))
    assert computed(folder) == 0
    again, _ = read(folder, Means())
    assert {tuple(row) for row in first} == {tuple(row) for row in again}
    assert computed(folder, fingerprint="other weights") == 9
    assert computed(folder, preprocess=image_preprocess((12, 12), 3, PictureFormat(crop=0.5))) == 9


def test_a_changed_picture_is_computed_again_and_most_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENTRY", 2)
    folder = class_folders(tmp_path / "source", each=8)
    assert computed(folder) == 24
    save(next(folder.rglob("0.png")), picture(0, 999))
    assert 1 <= computed(folder) < 12


def test_a_damaged_entry_of_the_cache_is_computed_again(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "source", each=2)
    before, _ = read(folder, Means())
    kept = cache_folder("features")
    assert kept is not None
    for path in kept.glob("*.npz"):
        content = bytearray(path.read_bytes())
        content[content.index(b"\x93NUMPY") + 128 + 5] ^= 255  # in the second of the numbers, behind their header
        path.write_bytes(content)
    extractor = Means()
    again, _ = read(folder, extractor)
    assert extractor.seen == 6
    np.testing.assert_array_equal(before, again)


def test_pictures_that_cannot_be_decoded_are_left_out_and_named(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "source", each=4)
    whole = (folder / "кошка" / "1.png").read_bytes()
    (folder / "кошка" / "1.png").write_bytes(whole[: len(whole) // 2])
    for _ in range(2):  # the second time from the cache
        x, notes = read(folder, Means())
        assert len(x) == 11
        assert any("1.png" in note for note in notes)


def test_arrays_have_the_features_of_their_pictures(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "source", each=2)
    pixels = np.stack([picture(number, i) for number in range(3) for i in range(2)])
    expected = sorted(map(tuple, read(folder, Means())[0].tolist()))
    for stored in (pixels, (pixels / 255).astype(np.float32)):
        found = features_of_arrays(domain(stored, name="arrays"), Means(), progress=False)
        np.testing.assert_allclose(sorted(map(tuple, found.tolist())), expected, atol=0.01)
