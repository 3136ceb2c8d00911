"""Pictures of every size and mode become upright bytes of one size; unreadable ones are named; all are cached."""

import os
import resource
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.own_pictures import CLASSES, class_folders, giant_png, picture, save, unlabelled_folder
from vmt.data import read_own
from vmt.data.files import pictures as module
from vmt.data.files.pictures import TooLarge, UnknownRange, decode, read_header
from vmt.data.framing import Framing
from vmt.disk import DAY
from vmt.errors import InputError

RAMP = np.linspace(0, 255, 16, dtype=np.uint8)[None].repeat(8, 0)  # 8×16, dark on the left


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_shows_the_same_picture(tmp_path: Path, mode: str, channels: int) -> None:
    grey = Image.fromarray(RAMP)
    path = tmp_path / ("x.tif" if mode in ("CMYK", "F", "1") else "x.png")
    if mode == "I;16":
        grey = Image.fromarray(RAMP.astype(np.uint16) * 257)
    elif mode == "F":
        grey = Image.fromarray(RAMP.astype(np.float32) / 255)
    else:
        grey = grey.convert(mode)
    grey.save(path)
    pixels = decode(path, Framing((8, 16), channels))
    assert pixels.dtype == np.uint8
    assert pixels.shape == (channels, 8, 16)
    if mode == "1":
        assert set(np.unique(pixels)) == {0, 255}
    else:
        np.testing.assert_allclose(pixels[0].astype(int), RAMP, atol=2)
    assert read_header(path).size == (8, 16)
    assert read_header(path).grey == (mode in ("1", "L", "LA", "P", "I;16", "F"))


def test_a_rule_for_deep_pictures_does_not_depend_on_their_values(tmp_path: Path) -> None:
    """The same value must be the same brightness in every file of a folder, and in files that are predicted on."""
    for kind, dtype, white in (("png", np.uint16, 65535), ("tif", np.uint16, 65535), ("tif", np.float32, 1)):
        bright, dim = (np.full((8, 8), white * share, dtype) for share in (0.8, 0.004))
        dim[0, 0] = white * 0.8
        for name, values in (("bright", bright), ("dim", dim)):
            Image.fromarray(values).save(tmp_path / f"{name}.{kind}")
        pixels = {name: decode(tmp_path / f"{name}.{kind}", Framing((8, 8), 1))[0] for name in ("bright", "dim")}
        assert (pixels["bright"] == 204).all()
        assert pixels["dim"][0, 0] == 204
        assert pixels["dim"][1, 1] == 1
    (tmp_path / "12 bits.pgm").write_bytes(b"P5 8 8 4095\n" + np.full((8, 8), 3276, ">u2").tobytes())
    assert (decode(tmp_path / "12 bits.pgm", Framing((8, 8), 1)) == 204).all()


@pytest.mark.parametrize(
    "values",
    [
        np.full((8, 8), 1000, np.int32),
        np.full((8, 8), 2**31 - 1, np.int32),
        np.full((8, 8), 200, np.float32),
        np.full((8, 8), -0.5, np.float32),
        np.full((8, 8), np.nan, np.float32),
    ],
)
def test_pictures_of_unknown_range_are_refused_and_not_black(tmp_path: Path, values: np.ndarray) -> None:
    root = tmp_path / "in"
    root.mkdir()
    for i in range(3):
        Image.fromarray(values).save(root / f"{i}.tif")
    with pytest.raises(InputError, match=r"0\.tif .*(8 or 16 bits|0–1)"):
        read_own(root)
    with pytest.raises(UnknownRange):
        decode(root / "0.tif", Framing((8, 8), 1))


def test_a_note_names_pictures_that_are_nearly_black(tmp_path: Path) -> None:
    """Here values of 12 bits are in files of 16 bits."""
    for i in range(3):
        save(tmp_path / "dark" / f"{i}.png", np.full((8, 8), 4095, np.uint16))
        save(tmp_path / "bright" / f"{i}.png", np.full((8, 8), 65535, np.uint16))
    assert "16 of 255" in "".join(read_own(tmp_path / "dark").notes)
    assert "of 255" not in "".join(read_own(tmp_path / "bright").notes)


def test_transparency_becomes_white(tmp_path: Path) -> None:
    pixels = np.zeros((8, 8, 4), np.uint8)
    pixels[:4, :, 3] = 255
    save(tmp_path / "rgba.png", pixels)
    palette = Image.fromarray(np.tile(np.uint8([0, 1]), (8, 4)))
    palette = palette.convert("P")
    palette.putpalette([0, 0, 0, 0, 0, 0])
    palette.save(tmp_path / "palette.png", transparency=1)
    seen = decode(tmp_path / "rgba.png", Framing((8, 8), 3))
    assert (seen[:, :4] == 0).all()
    assert (seen[:, 4:] == 255).all()
    assert (decode(tmp_path / "palette.png", Framing((8, 8), 1))[0] == np.tile([0, 255], (8, 4))).all()


@pytest.mark.parametrize("kind", ["jpg", "png", "tif", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path: Path, orientation: int, kind: str) -> None:
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    how = {"exif": exif} if kind == "tif" else {"exif": exif.tobytes(), "quality": 95}
    path = save(tmp_path / f"photo.{kind}", picture(1, size=(16, 24)), **how)
    with Image.open(path) as image:
        upright = np.asarray(ImageOps.exif_transpose(image)).transpose(2, 0, 1)
    assert read_header(path).size == upright.shape[1:]
    np.testing.assert_array_equal(decode(path, Framing(read_header(path).size, 3)), upright)


def test_resizing_is_that_of_the_preprocessing(tmp_path: Path) -> None:
    import torch

    from vmt.data import Preprocess

    pixels = picture(2, size=(40, 30))
    path = save(tmp_path / "x.png", pixels)
    later = Preprocess(3, (12, 8), (1.0,), (0.0,)).fit(torch.from_numpy(pixels.transpose(2, 0, 1)[None].copy()))
    np.testing.assert_allclose(decode(path, Framing((12, 8), 3)), later[0], atol=1)


def test_a_giant_png_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = giant_png(tmp_path / "giant.png")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TooLarge):
        decode(path, Framing((32, 32), 1))
    large = giant_png(tmp_path / "large.png", 9_000)  # below Pillow's own limit
    with pytest.raises(TooLarge):
        decode(large, Framing((32, 32), 1))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def test_a_giant_jpeg_is_read_at_a_fraction_of_its_size(tmp_path: Path) -> None:
    path = tmp_path / "giant.jpg"
    Image.new("L", (14_000, 14_000), 200).save(path)  # beyond Pillow's own limit
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_header(path).size == (14_000, 14_000)
    np.testing.assert_array_equal(decode(path, Framing((32, 32), 1)), np.full((1, 32, 32), 200))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_mixed_sizes_and_modes(tmp_path: Path) -> None:
    for number, name in enumerate(CLASSES):
        grey = picture(number, 1, (16, 20), 1)
        save(tmp_path / "a" / name / "grey.png", grey)
        save(tmp_path / "a" / name / "16 bit.png", grey[..., 0].astype(np.uint16) * 257)
    grey_only = read_own(tmp_path / "a")
    assert grey_only.domain.x.shape[1] == 1
    for number, name in enumerate(CLASSES):
        save(tmp_path / "a" / name / "rgba.png", picture(number, 2, (12, 12), 4))
        save(tmp_path / "a" / name / "photo.jpg", picture(number, 3, (40, 30)))
        palette = Image.fromarray(picture(number, 4, (16, 20))).convert("P", palette=Image.Palette.ADAPTIVE)
        palette.save(tmp_path / "a" / name / "with a palette.gif")
    mixed = read_own(tmp_path / "a")
    assert tuple(mixed.domain.x.shape) == (15, 3, 16, 20)
    assert mixed.classes == CLASSES
    np.testing.assert_allclose(mixed.domain.x[0].float(), mixed.domain.x[1].float(), atol=1)


def test_one_unreadable_picture_and_a_giant_among_many(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "a", 66)
    save(root / "鳥" / "cut.png", picture(2)).write_bytes((root / "鳥" / "0.png").read_bytes()[:200])
    giant_png(root / "鳥" / "giant.png")
    own = read_own(root)
    assert len(own.domain) == 198
    assert own.domain.y is not None
    assert np.bincount(own.domain.y).tolist() == [66, 66, 66]
    output = "".join(own.notes)
    assert "2 of the 200" in output
    assert "cut.png (damaged)" in output
    assert "giant.png (too large)" in output


def test_too_many_unreadable_pictures(tmp_path: Path) -> None:
    root = unlabelled_folder(tmp_path / "a", 30)
    for i in range(11):
        (root / f"{i:03}.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"11 of the 30 pictures .* 000.png \(damaged\).* 8 more"):
        read_own(root)


def test_the_second_reading_uses_the_cache(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = class_folders(tmp_path / "a", 4)
    save(root / "кошка" / "bad.png", picture(0)).write_bytes(b"no picture")
    calls: list[Path] = []
    monkeypatch.setattr(module, "decode", lambda path, *rest: calls.append(path) or decode(path, *rest))
    first = read_own(root)
    assert len(calls) == 12
    again = read_own(root)
    assert len(calls) == 12
    np.testing.assert_array_equal(again.domain.x, first.domain.x)
    assert (again.classes, again.notes) == (first.classes, first.notes)
    # Another picture under the same name, with a time one second later.
    path = save(root / "кошка" / "0.png", picture(2, 9))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))
    changed = read_own(root)
    assert len(calls) == 24
    assert not np.array_equal(changed.domain.x, first.domain.x)
    for file in own_cache.rglob("*.npz"):
        file.write_bytes(b"damaged")
    np.testing.assert_array_equal(read_own(root).domain.x, changed.domain.x)
    before = {file: file.read_bytes() for file in own_cache.rglob("*.npz")}
    read_own(root, cache=False)
    read_own(root, image_size=(8, 8), cache=False)
    assert {file: file.read_bytes() for file in own_cache.rglob("*.npz")} == before


def test_a_user_without_a_home_has_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    assert len(read_own(unlabelled_folder(tmp_path / "a", 3)).domain) == 3


def test_a_repaired_picture_is_read_again(tmp_path: Path) -> None:
    """It is noticed although it has the size and the time of the damaged file, as from a backup."""
    root = unlabelled_folder(tmp_path / "a", 3)
    path = next(root.rglob("*.png"))
    whole, status = path.read_bytes(), path.stat()
    for content, count in ((whole[:20] + bytes(len(whole) - 20), 2), (whole, 3)):
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert len(read_own(root).domain) == count


def test_the_cache_removes_the_least_recently_used(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = unlabelled_folder(tmp_path / "a", 3)
    kept = own_cache / "vmt" / "pictures"
    read_own(root, image_size=(8, 8))
    old = set(kept.iterdir())
    for path in old:
        os.utime(path, (0, 0))
    read_own(root, image_size=(9, 9))
    assert len(old & set(kept.iterdir())) == 1, "the sizes were used again, the pixels were not"
    monkeypatch.setattr("vmt.cache.CACHE_BYTES", 1)
    for path in kept.iterdir():
        os.utime(path, (time.time() - 2 * DAY,) * 2)
    read_own(root, image_size=(8, 9))
    assert len(set(kept.iterdir())) == 2, "those of this run, which are used now, are kept"


def test_a_progress_bar_only_when_reading_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vmt.progress.SECONDS_BETWEEN_LINES", 0.0)
    root = unlabelled_folder(tmp_path / "a", 40)
    read_own(root, cache=False, progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(module, "PATIENCE", 0)
    read_own(root, cache=False, progress=True)
    assert f"reading {root}" in capsys.readouterr().err


def test_temporary_files_of_killed_processes_are_removed_from_the_cache(tmp_path: Path, own_cache: Path) -> None:
    folder = own_cache / "vmt" / "pictures"
    folder.mkdir(parents=True)
    abandoned, being_written = folder / ".abc.npz.00004711", folder / ".abc.npz.00004712"
    for path in (abandoned, being_written):
        path.write_bytes(b"half")
    os.utime(abandoned, (0, 0))
    read_own(unlabelled_folder(tmp_path / "a", 3))
    assert [path for path in (abandoned, being_written) if path.exists()] == [being_written]


def test_a_cache_that_cannot_be_written_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(read_own(unlabelled_folder(tmp_path / "a", 3)).domain) == 3
