"""Figures have the palette of the report, and follow the reader's light or dark page."""

import re
from pathlib import Path

import pytest

import vmt.report
from vmt.figures import COLOURS, IN_THE_DARK, INK, PAPER, draw_comparison, new_figure, picture_bytes, plain_axes

CSS = Path(vmt.report.__file__).parent / "assets" / "report.css"


def test_figures_and_the_report_have_the_same_colours() -> None:
    pairs = re.findall(r"light-dark\((#\w{6}), (#\w{6})\)", CSS.read_text())
    assert set(IN_THE_DARK.items()) <= set(pairs)


def test_every_colour_of_a_drawing_has_one_for_the_dark(tmp_path: Path) -> None:
    """Black text, which matplotlib writes without a colour, would vanish on a dark page."""
    log = [{"step": 10 * i, "phase": "ab"[i > 2], "target": {"accuracy": i / 6}} for i in range(6)]
    draw_comparison({"a": log, "b": log}, {"a": 0.5, "b": 0.7}, tmp_path / "it.svg", "A title")
    svg = (tmp_path / "it.svg").read_text()
    drawing, style = svg.partition("</style>")[2], svg.partition("</style>")[0]
    used = set(re.findall(r"#[0-9a-f]{6}\b", drawing))
    assert {PAPER, INK, COLOURS[1]} <= used <= IN_THE_DARK.keys()
    assert "prefers-color-scheme: dark" in style
    assert all(IN_THE_DARK[colour] in style for colour in used)
    texts = re.findall(r'<g id="text_\d+">\s*<!--.*?-->\s*<g ([^>]*)>', drawing, re.DOTALL)
    assert len(texts) > 10
    assert all("fill: #" in text for text in texts)


@pytest.mark.parametrize("count", [3, 200])
def test_markers_change_their_colour_however_many_there_are(count: int) -> None:
    figure = new_figure((4, 3))
    axes = figure.subplots()
    plain_axes(axes)
    axes.plot(range(count), range(count), "o", color=COLOURS[2])
    svg = picture_bytes(figure, ".svg").decode()
    assert svg.count("<use") >= count
    assert len(svg) < 30_000 + 60 * count
    dark = svg.partition("prefers-color-scheme: dark")[2].partition("</style>")[0]
    marker = re.findall(r'<use xlink:href="#m\d+" x="[^"]*" y="[^"]*" (style|class)="([^"]*)"/>', svg)[-1]
    selector = f".{marker[1]}" if marker[0] == "class" else f'[style*="fill: {COLOURS[2]}"]'
    assert marker[0] == ("class" if count > 50 else "style")
    assert re.search(re.escape(selector) + r"\{fill:" + IN_THE_DARK[COLOURS[2]], dark)
