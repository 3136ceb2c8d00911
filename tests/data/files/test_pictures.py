"""Pictures of every size and mode become bytes of one size, the right way up."""

import resource
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.own_pictures import giant_png, picture, save
from vmt.data.files.pictures import TooLarge, decode, look

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
    pixels = decode(path, (8, 16), channels)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (channels, 8, 16)
    if mode == "1":
        assert set(np.unique(pixels)) == {0, 255}
    else:
        np.testing.assert_allclose(pixels[0].astype(int), RAMP, atol=2)
    assert look(path).size == (8, 16)
    assert look(path).grey == (mode in ("1", "L", "LA", "P", "I;16", "F"))


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    pixels = np.zeros((8, 8, 4), np.uint8)
    pixels[:4, :, 3] = 255
    save(tmp_path / "rgba.png", pixels)
    palette = Image.fromarray(np.tile(np.uint8([0, 1]), (8, 4)))
    palette = palette.convert("P")
    palette.putpalette([0, 0, 0, 0, 0, 0])
    palette.save(tmp_path / "palette.png", transparency=1)
    seen = decode(tmp_path / "rgba.png", (8, 8), 3)
    assert (seen[:, :4] == 0).all()
    assert (seen[:, 4:] == 255).all()
    assert (decode(tmp_path / "palette.png", (8, 8), 1)[0] == np.tile([0, 255], (8, 4))).all()


@pytest.mark.parametrize("kind", ["jpg", "png", "tif", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_camera_held_sideways(tmp_path: Path, orientation: int, kind: str) -> None:
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    how = {"exif": exif} if kind == "tif" else {"exif": exif.tobytes(), "quality": 95}
    path = save(tmp_path / f"photo.{kind}", picture(1, size=(16, 24)), **how)
    with Image.open(path) as image:
        upright = np.asarray(ImageOps.exif_transpose(image)).transpose(2, 0, 1)
    assert look(path).size == upright.shape[1:]
    np.testing.assert_array_equal(decode(path, look(path).size, 3), upright)


def test_resizing_is_that_of_the_preprocessing(tmp_path: Path) -> None:
    import torch

    from vmt.data import Preprocess

    pixels = picture(2, size=(40, 30))
    path = save(tmp_path / "x.png", pixels)
    later = Preprocess(3, (12, 8), (1.0,), (0.0,)).fit(torch.from_numpy(pixels.transpose(2, 0, 1)[None].copy()))
    np.testing.assert_allclose(decode(path, (12, 8), 3), later[0], atol=1)


def test_a_giant_png_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = giant_png(tmp_path / "giant.png")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TooLarge):
        decode(path, (32, 32), 1)
    large = giant_png(tmp_path / "large.png", 9_000)  # below Pillow's own limit
    with pytest.raises(TooLarge):
        decode(large, (32, 32), 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def test_a_giant_jpeg_is_read_at_a_fraction_of_its_size(tmp_path: Path) -> None:
    path = tmp_path / "giant.jpg"
    Image.new("L", (14_000, 14_000), 200).save(path)  # beyond Pillow's own limit
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert look(path).size == (14_000, 14_000)
    np.testing.assert_array_equal(decode(path, (32, 32), 1), np.full((1, 32, 32), 200))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
