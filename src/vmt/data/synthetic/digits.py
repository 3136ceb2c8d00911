"""The default task, which needs no download: digits drawn with text fonts, and real scanned handwriting."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor
from torch.nn import functional as F

from vmt.data.arrays import domain
from vmt.data.domains import Domain
from vmt.data.synthetic.glyphs import shipped_fonts, sized
from vmt.data.task import Task, make_task
from vmt.errors import InputError

SOURCE_COUNT, SOURCE_TEST_COUNT = 4000, 500
SIDE = 16
CANVAS, INK_HEIGHT = 64, 48  # glyphs are drawn this large, then turned and shrunk
SUPERSAMPLING = 3

TARGET_COUNT, VALIDATION_COUNT, TEST_COUNT = 1000, 300, 497
# Not the task's seed: what one seed chooses settings on must not be what another seed reports on.
TARGET_SPLIT_SEED = 0

Judge = Literal["test", "validation"]


def digits_task(seed: int = 0, judge: Judge = "test") -> Task:
    """Rendered fonts to scanned handwriting, grey 16×16; `seed` draws the source.

    The handwriting falls into three disjoint parts, the same for every seed: one to train on, one to choose
    settings with (``judge="validation"``) and one for reported numbers (``judge="test"``).
    """
    generator = torch.Generator().manual_seed(seed)
    glyphs = _glyphs()
    target, validation, test = _handwriting_parts()
    parts = {"validation": validation, "test": test}
    if judge not in parts:
        raise InputError(f"judge={judge!r} is not a part of the handwriting: choose test or validation.")
    return make_task(
        _render(glyphs, SOURCE_COUNT, generator, "rendered digits"),
        target,
        source_test=_render(glyphs, SOURCE_TEST_COUNT, generator, "rendered digits test"),
        target_test=parts[judge],
        classes=tuple("0123456789"),
        name="digits",
    )


def _handwriting_parts() -> tuple[Domain, Domain, Domain]:
    from sklearn.datasets import load_digits  # slow to import, and needed here only

    scans = load_digits()
    x = torch.from_numpy(scans.images).to(torch.float32).unsqueeze(1) * (255 / 16)
    x = F.interpolate(x, (SIDE, SIDE), mode="bilinear", align_corners=False)
    everything = domain(x.round().to(torch.uint8), scans.target, name="handwritten digits")
    judged = (VALIDATION_COUNT + TEST_COUNT) / (TARGET_COUNT + VALIDATION_COUNT + TEST_COUNT)
    target, rest = everything.split(judged, TARGET_SPLIT_SEED)
    validation, test = rest.split(TEST_COUNT / (VALIDATION_COUNT + TEST_COUNT), TARGET_SPLIT_SEED)
    return (
        target,
        replace(validation, name="handwritten digits validation"),
        replace(test, name="handwritten digits test"),
    )


def _render(glyphs: Tensor, count: int, generator: torch.Generator, name: str) -> Domain:
    """`count` digits, classes in turn, each with a font, pose, contrast and noise of its own."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=generator)

    y = torch.arange(count) % 10
    fonts = torch.randint(glyphs.shape[0], (count,), generator=generator)
    ink = _pose(
        glyphs[fonts, y],
        angle=uniform(-20, 20) * (math.pi / 180),
        width=uniform(0.95, 1.35),
        height=uniform(1.05, 1.35),
        shift=torch.stack([uniform(-0.1, 0.1), uniform(-0.1, 0.1)], dim=1),
    )
    per_image = (count, 1, 1, 1)
    dark = uniform(0, 50).view(per_image)
    light = uniform(150, 255).view(per_image)
    noise = torch.randn(ink.shape, generator=generator) * uniform(2, 18).view(per_image)
    x = (dark + (light - dark) * ink + noise).clamp(0, 255).round().to(torch.uint8)
    return domain(x, y, name=name)


def _pose(ink: Tensor, *, angle: Tensor, width: Tensor, height: Tensor, shift: Tensor) -> Tensor:
    """Large glyphs (N, H, W) stretched, turned and moved, then shrunk to the final size."""
    cos, sin = angle.cos(), angle.sin()
    # grid_sample asks where each output pixel comes from, hence the inverse of the stretch.
    rows = [
        torch.stack([cos / width, sin / width, shift[:, 0]], dim=1),
        torch.stack([-sin / height, cos / height, shift[:, 1]], dim=1),
    ]
    fine = SIDE * SUPERSAMPLING
    grid = F.affine_grid(torch.stack(rows, dim=1), [len(ink), 1, fine, fine], align_corners=False)
    return F.avg_pool2d(F.grid_sample(ink.unsqueeze(1), grid, align_corners=False), SUPERSAMPLING)


def _glyphs() -> Tensor:
    """Ink of every font's ten digits: (fonts, 10, CANVAS, CANVAS) in [0, 1]."""
    return torch.stack([torch.stack([_glyph(path, digit) for digit in "0123456789"]) for path in shipped_fonts()])


def _glyph(path: Path, digit: str) -> Tensor:
    font = sized(path, 2 * INK_HEIGHT)
    left, top, right, bottom = (int(edge) for edge in font.getbbox(digit))
    drawn = Image.new("L", (right - left, bottom - top))
    ImageDraw.Draw(drawn).text((-left, -top), digit, font=font, fill=255)
    width = round(drawn.width * INK_HEIGHT / drawn.height)
    drawn = drawn.resize((width, INK_HEIGHT), Image.Resampling.BILINEAR)
    canvas = Image.new("L", (CANVAS, CANVAS))
    canvas.paste(drawn, ((CANVAS - width) // 2, (CANVAS - INK_HEIGHT) // 2))
    return torch.from_numpy(np.array(canvas)).to(torch.float32) / 255
