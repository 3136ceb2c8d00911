"""The ten digits of many fonts as pictures, from which numbers are drawn."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from vmt.errors import InputError

# The text fonts that ship with matplotlib; its symbol and display fonts have no usable digits.
FONTS = (
    *(f"DejaVuSans{style}.ttf" for style in ("", "-Bold", "-BoldOblique", "-Oblique")),
    *(f"DejaVuSansMono{style}.ttf" for style in ("", "-Bold", "-BoldOblique", "-Oblique")),
    *(f"DejaVuSerif{style}.ttf" for style in ("", "-Bold", "-BoldItalic", "-Italic")),
    *(f"STIXGeneral{style}.ttf" for style in ("", "Bol", "BolIta", "Italic")),
    *(f"{name}.ttf" for name in ("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10")),
)
CELL = 64  # side of the picture of a digit
INK_HEIGHT = 40  # height of a font's digits in that picture
FONT_SUFFIXES = (".ttf", ".otf", ".ttc")
# A lower level at which blurred ink counts as ink gives heavier strokes: as drawn, heavier, heaviest.
LEVELS = (0.5, 0.3, 0.15)
LEVEL_BLUR, LEVEL_GAIN = 1.5, 4.0
# How many of a font's ten digits must resemble the same digit of matplotlib's fonts most: symbol fonts have something
# else in the place of digits, and fonts of other scripts have their own digits.
MIN_SIMILAR = 8
OUTLINE_BLUR = 2.0

Digits = tuple[NDArray[np.uint8], NDArray[np.float32]]  # (10, CELL, CELL) ink, and ten advance widths


def shipped_fonts() -> list[Path]:
    """The files of matplotlib's text fonts, in the order of ``FONTS``."""
    import matplotlib  # slow to import, and needed here only

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    paths = [folder / name for name in FONTS if (folder / name).is_file()]
    if not paths:
        raise InputError(f"{folder} holds none of matplotlib's fonts: reinstall matplotlib.")
    return paths


def load_font(path: Path, size: int) -> ImageFont.FreeTypeFont:
    """Load a font in one size."""
    # Every build of Pillow has the basic layout engine, so the pictures do not depend on the build.
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)


@dataclass(frozen=True, eq=False)
class Atlas:
    """The digits of several faces; a face is a font in one of three weights."""

    ink: NDArray[np.uint8]  # (faces, 10, CELL, CELL), with the digit's advance box in the middle
    advance: NDArray[np.float32]  # (faces, 10), the width of a digit in a line of text, in pixels of a cell
    fonts: tuple[str, ...]

    @property
    def checksum(self) -> str:
        digest = hashlib.sha256(self.ink.data)
        digest.update(self.advance.data)
        return digest.hexdigest()


def make_atlas(folder: Path | None = None) -> Atlas:
    """The atlas of matplotlib's text fonts and of every usable font below `folder`."""
    drawn = _drawn(shipped_fonts())
    if not drawn:
        raise InputError("none of matplotlib's fonts can be read: reinstall matplotlib.")
    if folder is not None:
        average = np.mean([_outline(cells) for _, (cells, _) in drawn], axis=0)
        drawn += [font for font in _drawn(_fonts_under(folder)) if _similar_digits(font[1][0], average) >= MIN_SIMILAR]
    ink = np.stack([_heavier(cells, level) for _, (cells, _) in drawn for level in LEVELS])
    advance = np.stack([widths for _, (_, widths) in drawn for _ in LEVELS])
    return Atlas(ink, advance, tuple(name for name, _ in drawn))


def _fonts_under(folder: Path) -> Sequence[Path]:
    if not folder.is_dir():
        raise InputError(f"the fonts folder {folder} does not exist: give a folder with .ttf or .otf files.")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in FONT_SUFFIXES)
    if not paths:
        raise InputError(f"{folder} holds no .ttf, .otf or .ttc file: choose another folder with --fonts.")
    return paths


def _drawn(paths: Sequence[Path]) -> list[tuple[str, Digits]]:
    return [(path.name, digits) for path in paths if (digits := _draw_digits(path)) is not None]


def _similar_digits(cells: NDArray[np.uint8], average: NDArray[np.float64]) -> int:
    """How many of the ten digits correlate best with the average picture of the same digit."""
    return int(((_outline(cells) @ average.T).argmax(axis=1) == np.arange(10)).sum())


def _outline(cells: NDArray[np.uint8]) -> NDArray[np.float64]:
    """(10, pixels): the digits blurred and centred, with zero mean and unit length."""
    rows = []
    for cell in cells:
        soft = np.array(Image.fromarray(cell).filter(ImageFilter.GaussianBlur(OUTLINE_BLUR)), np.float64)
        weight = max(soft.sum(), 1.0)
        middle = [round((soft.sum(axis=1 - axis) @ np.arange(CELL)) / weight) for axis in (0, 1)]
        row = np.roll(soft, [CELL // 2 - place for place in middle], axis=(0, 1)).reshape(-1)
        row = row - row.mean()
        rows.append(row / max(float(np.linalg.norm(row)), 1.0))
    return np.stack(rows)


def _draw_digits(path: Path) -> Digits | None:
    """The digits of a font; None if the font cannot be used."""
    try:
        rough = load_font(path, 100)
        top, bottom = _extent(rough)
        if bottom <= top:
            return None
        font = load_font(path, max(1, round(100 * INK_HEIGHT / (bottom - top))))
        top, bottom = _extent(font)
        cells = np.stack([_cell(font, digit, (CELL - top - bottom) // 2) for digit in "0123456789"])
    except (OSError, ValueError):
        return None  # a damaged or unscalable font among many is skipped
    return cells, np.array([font.getlength(digit) for digit in "0123456789"], np.float32)


def _extent(font: ImageFont.FreeTypeFont) -> tuple[int, int]:
    """The median top and bottom of the digits, measured downwards from the baseline; some fonts have deeper digits."""
    boxes = [font.getbbox(digit, anchor="ms") for digit in "0123456789"]
    return round(np.median([box[1] for box in boxes])), round(np.median([box[3] for box in boxes]))


def _cell(font: ImageFont.FreeTypeFont, digit: str, baseline: int) -> NDArray[np.uint8]:
    canvas = Image.new("L", (CELL, CELL))
    ImageDraw.Draw(canvas).text((CELL // 2, baseline), digit, font=font, fill=255, anchor="ms")
    return np.array(canvas)


def _heavier(cells: NDArray[np.uint8], level: float) -> NDArray[np.uint8]:
    if level == LEVELS[0]:
        return cells
    blur = ImageFilter.GaussianBlur(LEVEL_BLUR)
    soft = np.stack([np.array(Image.fromarray(cell).filter(blur)) for cell in cells]) / np.float32(255)
    ink: NDArray[np.float32] = ((soft - level) * LEVEL_GAIN + 0.5).clip(0, 1)
    return np.rint(ink * 255).astype(np.uint8)
