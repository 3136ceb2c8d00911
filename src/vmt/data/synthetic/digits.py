"""The embedded task, which needs no download: from digits drawn with text fonts to scanned handwriting."""

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor
from torch.nn import functional as F

from vmt.data.domains import Domain, domain
from vmt.data.synthetic.glyphs import load_font, shipped_fonts
from vmt.data.task import Task, make_task
from vmt.errors import InputError

SOURCE_COUNT, SOURCE_TEST_COUNT = 4000, 500
SIDE = 16
CANVAS, DIGIT_HEIGHT = 64, 48  # digits are drawn this large, then rotated and shrunk
SUPERSAMPLING = 3

TARGET_COUNT, VALIDATION_COUNT, TEST_COUNT = 1000, 300, 497
# Fixed: the samples on which settings are chosen with one seed must not be those that another seed reports on.
TARGET_SPLIT_SEED = 0

TestPart = Literal["test", "validation"]


def digits_task(seed: int = 0, evaluate_on: TestPart = "test", *, judge: TestPart | None = None) -> Task:
    """Rendered fonts to scanned handwriting, in grey at 16×16; `seed` draws the source.

    The handwriting is split into three disjoint parts, the same for every seed: one for training, one for choosing
    settings (``evaluate_on="validation"``) and one for reported numbers (``evaluate_on="test"``). `judge` is the
    earlier name of `evaluate_on`.
    """
    if judge is not None:
        warnings.warn("digits_task(judge=…) is now digits_task(evaluate_on=…)", DeprecationWarning, stacklevel=2)
        evaluate_on = judge
    generator = torch.Generator().manual_seed(seed)
    glyphs = _glyphs()
    target, validation, test = _handwriting_parts()
    parts = {"validation": validation, "test": test}
    if evaluate_on not in parts:
        raise InputError(f"evaluate_on must be 'test' or 'validation', but got {evaluate_on!r}.")
    return make_task(
        _render(glyphs, SOURCE_COUNT, generator, "rendered digits"),
        target,
        source_test=_render(glyphs, SOURCE_TEST_COUNT, generator, "rendered digits test"),
        target_test=parts[evaluate_on],
        classes=tuple("0123456789"),
        name="digits",
    )


def _handwriting_parts() -> tuple[Domain, Domain, Domain]:
    from sklearn.datasets import load_digits  # slow to import, and needed here only

    scans = load_digits()
    x = torch.from_numpy(scans.images).to(torch.float32).unsqueeze(1) * (255 / 16)
    x = F.interpolate(x, (SIDE, SIDE), mode="bilinear", align_corners=False)
    everything = domain(x.round().to(torch.uint8), scans.target, name="handwritten digits")
    held_out = (VALIDATION_COUNT + TEST_COUNT) / (TARGET_COUNT + VALIDATION_COUNT + TEST_COUNT)
    target, rest = everything.split(held_out, TARGET_SPLIT_SEED)
    validation, test = rest.split(TEST_COUNT / (VALIDATION_COUNT + TEST_COUNT), TARGET_SPLIT_SEED)
    return (
        target,
        replace(validation, name="handwritten digits validation"),
        replace(test, name="handwritten digits test"),
    )


def _render(glyphs: Tensor, count: int, generator: torch.Generator, name: str) -> Domain:
    """`count` digits, the classes in turn, each with random font, pose, contrast and noise."""

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
    """Large glyphs (N, H, W) stretched, rotated and shifted, then shrunk to the final size."""
    cos, sin = angle.cos(), angle.sin()
    # grid_sample needs the position that each output pixel comes from, hence the inverse of the stretch.
    rows = [
        torch.stack([cos / width, sin / width, shift[:, 0]], dim=1),
        torch.stack([-sin / height, cos / height, shift[:, 1]], dim=1),
    ]
    fine = SIDE * SUPERSAMPLING
    grid = F.affine_grid(torch.stack(rows, dim=1), [len(ink), 1, fine, fine], align_corners=False)
    return F.avg_pool2d(F.grid_sample(ink.unsqueeze(1), grid, align_corners=False), SUPERSAMPLING)


def _glyphs() -> Tensor:
    """The ink of every font's ten digits: (fonts, 10, CANVAS, CANVAS) in [0, 1]."""
    return torch.stack([torch.stack([_glyph(path, digit) for digit in "0123456789"]) for path in shipped_fonts()])


def _glyph(path: Path, digit: str) -> Tensor:
    font = load_font(path, 2 * DIGIT_HEIGHT)
    left, top, right, bottom = (int(edge) for edge in font.getbbox(digit))
    drawn = Image.new("L", (right - left, bottom - top))
    ImageDraw.Draw(drawn).text((-left, -top), digit, font=font, fill=255)
    width = round(drawn.width * DIGIT_HEIGHT / drawn.height)
    drawn = drawn.resize((width, DIGIT_HEIGHT), Image.Resampling.BILINEAR)
    canvas = Image.new("L", (CANVAS, CANVAS))
    canvas.paste(drawn, ((CANVAS - width) // 2, (CANVAS - DIGIT_HEIGHT) // 2))
    return torch.from_numpy(np.array(canvas)).to(torch.float32) / 255
