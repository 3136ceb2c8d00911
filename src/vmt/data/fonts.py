"""The text fonts that ship with matplotlib, to draw digits with."""

from pathlib import Path

from PIL import ImageFont

from vmt.errors import InputError

# Its symbol and display fonts have no usable digits.
FONTS = (
    *(f"DejaVuSans{style}.ttf" for style in ("", "-Bold", "-BoldOblique", "-Oblique")),
    *(f"DejaVuSansMono{style}.ttf" for style in ("", "-Bold", "-BoldOblique", "-Oblique")),
    *(f"DejaVuSerif{style}.ttf" for style in ("", "-Bold", "-BoldItalic", "-Italic")),
    *(f"STIXGeneral{style}.ttf" for style in ("", "Bol", "BolIta", "Italic")),
    *(f"{name}.ttf" for name in ("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10")),
)


def shipped_fonts() -> list[Path]:
    """Their files, in the order of ``FONTS``."""
    import matplotlib  # slow to import, and needed here only

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    paths = [folder / name for name in FONTS if (folder / name).is_file()]
    if not paths:
        raise InputError(f"{folder} holds none of the fonts that ship with matplotlib: reinstall matplotlib.")
    return paths


def sized(path: Path, size: int) -> ImageFont.FreeTypeFont:
    """A font, to be drawn with in one size."""
    # The basic layout engine is part of every Pillow, so the picture does not depend on how it was built.
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)
