"""Pictures in four styles, made from CIFAR-10, to choose what is done with pretrained networks, frozen or trained.

    python benchmarks/styled_pictures.py --data DATA --file styled.npz --backbone pacs_network:features
    python benchmarks/styled_pictures.py --data DATA --pictures styled/
    python benchmarks/styled_pictures.py --data DATA --file styled_even.npz --even --backbone pacs_network:features

Results on PACS are reported, so nothing may be chosen there. These tasks have a similar shift, a similar size and other
pictures: each style has its own quarter of the first 14,000 pictures of CIFAR-10's training set, as they are, painted
(smoothed, with other colours), as a cartoon (few colours, dark outlines) or as a sketch (dark edges on white). Seven of
the ten classes remain, in other proportions in each style. The file of features is like that of pacs.py. --pictures
keeps the pictures instead, as small JPEG files in the layout of PACS, which pacs_finetune.py reads. --even leaves no
picture of the seven classes out, so that class_shares.py can draw targets in proportions of its own.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pacs import write_domains
from PIL import Image
from scipy.ndimage import gaussian_filter, maximum_filter, median_filter, sobel

from vmt.data.readers.photographs import read_cifar10

Array = NDArray[np.float64]
CLASSES = 7
SIDE, DRAWN = 224, 112
PICTURES = 14_000
# The shares of the classes in each style; like those of PACS, they differ up to tenfold.
SHARES = {"natural": 1.0, "painted": 1.5, "cartoon": 2.0, "sketch": 1.0}


def grey(x: Array) -> Array:
    return x @ np.array([0.299, 0.587, 0.114])


def edges(x: Array) -> Array:
    """The strength of the edges of a picture, in 0–1."""
    smooth = gaussian_filter(grey(x), 0.8)
    strength = np.hypot(sobel(smooth, 0), sobel(smooth, 1))
    strength = strength / (np.quantile(strength, 0.98) + 1e-6)
    return np.asarray(np.clip(strength, 0, 1))


def natural(x: Array, random: Generator) -> Array:
    return x


def painted(x: Array, random: Generator) -> Array:
    """Strokes without details, in colours that are mixed anew for each picture, on a coarse canvas."""
    smooth = np.stack([median_filter(x[..., channel], 5) for channel in range(3)], -1)
    mixed = smooth @ (0.6 * np.eye(3) + 0.4 * random.dirichlet(np.ones(3), 3).T)
    canvas = gaussian_filter(random.normal(size=x.shape[:2]), 0.7)
    return np.asarray(np.clip(mixed ** random.uniform(0.6, 1.5) + 0.15 * canvas[..., None], 0, 1))


def cartoon(x: Array, random: Generator) -> Array:
    """Areas of few strong colours, with dark outlines."""
    flat = np.stack([median_filter(x[..., channel], 5) for channel in range(3)], -1)
    strong = grey(flat)[..., None] + 1.8 * (flat - grey(flat)[..., None])
    levels = np.round(np.clip(strong, 0, 1) * 4) / 4
    outline = maximum_filter(edges(flat) > 0.6, 2)
    return np.asarray(levels * (1 - outline[..., None]))


def sketch(x: Array, random: Generator) -> Array:
    """Dark lines on white where the picture has edges."""
    lines = np.clip(1.3 * edges(x) - 0.25, 0, 1)
    return np.asarray(np.repeat((1 - lines)[..., None], 3, axis=-1))


STYLES: dict[str, Callable[[Array, Generator], Array]] = {
    "natural": natural,
    "painted": painted,
    "cartoon": cartoon,
    "sketch": sketch,
}


def draw(data: Path, folder: Path, style: str, small: bool = False, even: bool = False) -> None:
    """Write the pictures of a style as STYLE/CLASS/NUMBER.png, or as small JPEG files; ``even`` leaves none out."""
    pictures, labels = read_cifar10(data / "cifar10", "train")
    number = list(STYLES).index(style)
    random = np.random.default_rng(number + 1)
    rows = np.arange(number, PICTURES, len(STYLES))
    rows = rows[labels[rows] < CLASSES]
    weights = random.permutation(np.exp(-SHARES[style] * np.arange(CLASSES) / (CLASSES - 1)))
    if not even:
        rows = rows[random.random(len(rows)) < weights[labels[rows]]]
    for row in rows:
        pixels = np.asarray(pictures[row], dtype=np.uint8).transpose(1, 2, 0)
        large = Image.fromarray(pixels).resize((DRAWN, DRAWN), Image.Resampling.BICUBIC)
        drawn = STYLES[style](np.asarray(large, dtype=np.float64) / 255, random)
        place = folder / style / str(int(labels[row]))
        place.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray((255 * drawn).round().astype(np.uint8))
        if small:
            picture.save(place / f"{row}.jpg", quality=95)
        else:
            picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(place / f"{row}.png")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the data folder with CIFAR-10")
    parser.add_argument("--backbone", help="the network that computes the features")
    parser.add_argument("--file", type=Path, help="where to write the features")
    parser.add_argument("--pictures", type=Path, help="write the pictures to this folder, and no features")
    parser.add_argument("--even", action="store_true", help="leave out no picture of the seven classes")
    asked = parser.parse_args(arguments)
    if asked.pictures is not None:
        for style in STYLES:
            draw(asked.data, asked.pictures, style, small=True, even=asked.even)
        return
    if asked.backbone is None or asked.file is None:
        parser.error("give --pictures, or --backbone and --file.")
    with TemporaryDirectory() as folder:
        for style in STYLES:
            draw(asked.data, Path(folder), style, even=asked.even)
        classes = [str(each) for each in range(CLASSES)]
        write_domains({name: Path(folder) / name for name in STYLES}, classes, asked.backbone, asked.file)


if __name__ == "__main__":
    main()
