"""Pictures as a pretrained network expects them: cropped with their aspect ratio kept, and normalised."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vmt
from vmt.data import Preprocess, domain, make_task
from vmt.data.files.pictures import decode
from vmt.data.framing import Framing, PictureFormat, format_from
from vmt.data.preprocess import image_preprocess
from vmt.errors import InputError
from vmt.nets.factory import NetSpec

ROOT = Path(__file__).parents[2]
IMAGENET = PictureFormat((8, 8), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bicubic", 1.0)


def smooth(height: int, width: int, channels: int = 3) -> np.ndarray:
    """A picture without sharp edges, which survives JPEG."""
    down, across = np.mgrid[:height, :width]
    waves = [128 + 100 * np.sin(down / 9 + k) * np.cos(across / (11 + k)) for k in range(channels)]
    return np.stack(waves, -1).astype(np.uint8)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Pictures of the kinds that people have: other sizes, turned by EXIF, grey, CMYK, with an alpha channel."""
    folder = tmp_path_factory.mktemp("photographs")
    turned = Image.Exif()
    turned[0x0112] = 6
    pictures = {
        "wide.jpg": (Image.fromarray(smooth(60, 150)), {}),
        "large.jpg": (Image.fromarray(smooth(700, 500)), {}),
        "turned.jpg": (Image.fromarray(smooth(90, 61)), {"exif": turned}),
        "grey.png": (Image.fromarray(smooth(40, 33, 1)[:, :, 0]), {}),
        "cmyk.jpg": (Image.fromarray(smooth(50, 70)).convert("CMYK"), {}),
        "alpha.png": (Image.fromarray(smooth(45, 64, 4), "RGBA"), {}),
        "palette.gif": (Image.fromarray(smooth(30, 30)).quantize(16), {}),
    }
    for name, (picture, options) in pictures.items():
        picture.save(folder / name, **options)
    more = ("turned.png", "turned-late.png")
    for name in more:
        pictures["wide.jpg"][0].save(folder / name, exif=turned)
    exif_behind_the_pixels(folder / "turned-late.png")
    return [folder / name for name in (*pictures, *more)]


def exif_behind_the_pixels(path: Path) -> None:
    """Move the EXIF data of a PNG file to its end, where the format allows it, too."""
    data = path.read_bytes()
    start = data.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(data[start : start + 4], "big")
    last = data.rindex(b"IEND") - 4
    assert start < data.index(b"IDAT")
    path.write_bytes(data[:start] + data[end:last] + data[start:end] + data[last:])


@pytest.mark.parametrize("framing", [Framing((24, 24), 3, 1.0, "bicubic"), Framing((20, 28), 3, 0.875)])
def test_the_documented_lines_decode_pictures_as_vmt_does(photographs: list[Path], framing: Framing) -> None:
    decoded = runpy.run_path(str(ROOT / "examples" / "onnx_only.py"))["decoded"]
    expects = {
        "resized_to": list(framing.size),
        "channels": 3,
        "crop": framing.crop,
        "interpolation": framing.interpolation,
    }
    for path in photographs:
        np.testing.assert_array_equal(decode(path, framing), decoded(str(path), expects).transpose(2, 0, 1), path.name)


def test_a_crop_keeps_the_aspect_ratio(tmp_path: Path) -> None:
    pixels = np.zeros((40, 120, 3), np.uint8)
    pixels[:, 40:80] = 255  # a white square in the middle of a wide black picture
    Image.fromarray(pixels).save(tmp_path / "square.png")
    assert (decode(tmp_path / "square.png", Framing((40, 40), 3, 1.0)) == 255).all()
    assert (decode(tmp_path / "square.png", Framing((40, 40), 3)) == 0).any()
    arrays = image_preprocess((40, 40), 3, PictureFormat(crop=1.0)).fit(torch.from_numpy(pixels).permute(2, 0, 1)[None])
    assert (arrays == 255).all()


def test_images_are_normalised_with_the_mean_and_std_of_the_weights() -> None:
    x = torch.arange(192, dtype=torch.uint8).view(1, 3, 8, 8) + 32
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET.mean, IMAGENET.std))
    for stored in (x, x / 255, x / 127.5 - 1):
        images = domain(torch.cat([stored, stored]), name="photographs")
        task = make_task(
            domain(images.x, torch.arange(2), name="source"),
            images,
            source_test=domain(images.x, torch.arange(2), name="held out"),
            format=IMAGENET,
        )
        torch.testing.assert_close(task.preprocess(images.x)[:1], (x / 255 - mean) / std)
        assert Preprocess.from_dict(task.preprocess.to_dict()) == task.preprocess


def test_a_saved_model_keeps_the_format(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (24, 8, 8, 3), dtype=np.uint8), np.arange(24) % 2
    images = domain(x, y, name="photographs")
    task = make_task(images, images, format=IMAGENET)
    network = NetSpec("tiny", task.sample_shape, 2)
    model = vmt.Model(network.build(), network, task.preprocess, task.classes)
    model.save(tmp_path / "model.safetensors")
    again = vmt.load(tmp_path / "model.safetensors", device="cpu")
    assert again.preprocess == task.preprocess
    np.testing.assert_allclose(again.predict_proba(x), model.predict_proba(x), atol=1e-5)


@pytest.mark.parametrize(
    ("values", "offender"),
    [
        ({"mean": [0.5]}, "std"),
        ({"mean": [0.5], "std": [0.0]}, "std"),
        ({"mean": [0.5, 0.5], "std": [1, 1]}, "mean"),
        ({"interpolation": "bicubik"}, "bicubik"),
        ({"crop": 1.5}, "crop"),
        ({"size": "wide"}, "wide"),
    ],
)
def test_formats_that_no_network_has_are_refused(values: dict[str, object], offender: str) -> None:
    with pytest.raises(InputError, match=offender):
        format_from(**values)  # type: ignore[arg-type]
