"""Figures of runs: their curves, and a comparison of several runs. One palette, for light and dark pages."""

import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from vmt.disk import write_atomically

LogRecord = Mapping[str, Any]
PHASES = {"dirt_t": "DIRT-T"}
PAPER, INK, MUTED, GRID = "#ffffff", "#1c2330", "#515b6d", "#d5dae2"
SOURCE, TARGET = "#b3261e", "#1d4ed8"  # red and blue, as in the paper
# Grey, blue, green, orange, pink, violet, dark red, cyan, lime, brown: dark enough to be read on white.
COLOURS = (
    "#475569", "#2563eb", "#047857", "#b45309", "#be185d", "#6d28d9", "#7f1d1d", "#0e7490", "#4d7c0f", "#7a4a21",
)  # fmt: skip
# What the colours become on a dark page. The report has the same pairs.
IN_THE_DARK = {
    PAPER: "#12151b", INK: "#e8ebf0", MUTED: "#aab3c2", GRID: "#3a4250", SOURCE: "#ff9e94", TARGET: "#7fb0ff",
    **dict(zip(COLOURS, (
        "#b8c2d0", "#7fb0ff", "#5fd3a4", "#f5b453", "#ff8fc0", "#c0a2ff", "#ff9e9e", "#5fd0e6", "#b3da5e", "#d8a878",
    ), strict=True)),
}  # fmt: skip


def draw_curves(records: Sequence[LogRecord], path: Path, title: str = "") -> None:
    """Draw accuracy and terms of the loss over iterations, with a line where a phase begins."""
    # Fixed margins: those that fit themselves take as long as the drawing, at the end of every run.
    figure = new_figure((7.5, 6), title, layout=None)
    figure.subplots_adjust(left=0.11, right=0.98, bottom=0.08, top=0.93, hspace=0.06)
    top, bottom = figure.subplots(2, 1, sharex=True)
    evaluations = [r for r in records if "target" in r]
    for name, colour in (("target", COLOURS[1]), ("source", COLOURS[3])):
        known = [r for r in evaluations if r[name] and r[name]["accuracy"] is not None]
        points = [(r["step"], 100 * r[name]["accuracy"]) for r in known]
        if points:
            top.plot(*zip(*points, strict=True), color=colour, label=f"{name} test")
    top.set_ylabel("accuracy (%)")
    top.set_ylim(0, 101)
    logged = [r for r in records if "target" not in r]
    names = [n for n in dict.fromkeys(n for r in logged for n in r) if n.startswith("classifier/L_") or "teacher" in n]
    for name, colour in zip(names, COLOURS, strict=False):
        points = [(r["step"], r[name]) for r in logged if name in r]
        bottom.plot(*zip(*points, strict=True), color=colour, label=as_maths(name.removeprefix("classifier/")))
    bottom.set_ylabel("terms of the loss")
    bottom.set_xlabel("iteration")
    for step, phase in phase_changes(records):
        for axes in (top, bottom):
            axes.axvline(step, color=MUTED, linestyle=":", linewidth=1)
        top.text(step, 3, f" {PHASES.get(phase, phase)}", color=MUTED, fontsize=8)
    for axes in (top, bottom):
        plain_axes(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8, ncols=2)
    _save(figure, path)


def draw_comparison(runs: Mapping[str, Sequence[LogRecord]], bars: Mapping[str, float], path: Path, title: str) -> None:
    """Draw the target accuracy of several runs over iterations, and a bar for the end of each phase."""
    figure = new_figure((9, 3.6), title)
    left, right = figure.subplots(1, 2)
    colour_of = dict(zip(bars, COLOURS, strict=False))
    for name, records in runs.items():
        # A run with two phases has the colour of its first bar.
        colour = next(colour for bar, colour in colour_of.items() if name.startswith(bar))
        points = [(r["step"], 100 * r["target"]["accuracy"]) for r in records if "target" in r]
        left.plot(*zip(*points, strict=True), color=colour, label=name)
        for step, phase in phase_changes(records):
            left.axvline(step, color=MUTED, linestyle=":", linewidth=1)
            left.text(step, 45, f" {PHASES.get(phase, phase)}", color=MUTED, fontsize=8)
    left.set_xlabel("iteration")
    left.set_ylabel("target test accuracy (%)")
    left.set_ylim(0, 101)
    left.legend(frameon=False, fontsize=8, loc="lower right")
    places = range(len(bars))
    right.barh(list(places), [100 * v for v in bars.values()], color=list(colour_of.values()), height=0.6)
    right.set_yticks(list(places), list(bars))
    right.invert_yaxis()
    right.set_xlim(0, 110)
    right.set_xlabel("target test accuracy (%)")
    for place, value in zip(places, bars.values(), strict=True):
        right.text(100 * value + 1.5, place, f"{100 * value:.1f}", va="center", color=INK, fontsize=9)
    for axes in (left, right):
        plain_axes(axes)
    _save(figure, path)


def phase_changes(records: Sequence[LogRecord]) -> list[tuple[int, str]]:
    """The iterations at which a phase ended, and the name of the next phase."""
    return [(int(a["step"]), str(b.get("phase"))) for a, b in pairwise(records) if a.get("phase") != b.get("phase")]


def new_figure(
    size: tuple[float, float], title: str = "", layout: Literal["constrained"] | None = "constrained"
) -> Any:
    # Without pyplot, which has global state, may need a display and is not safe in threads.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout=layout, facecolor=PAPER)
    FigureCanvasAgg(figure)
    figure.suptitle(title, color=INK, fontsize=11)
    return figure


def plain_axes(axes: Any, labelsize: int = 8) -> None:
    """A pale grid behind the data, and no lines above and to the right."""
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_facecolor(PAPER)
    axes.tick_params(colors=MUTED, labelsize=labelsize)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(MUTED)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GRID)


def as_maths(name: str) -> str:
    """The logged name of a term with its symbols typeset.

    >>> as_maths("L_m(target)")
    '$\\\\mathcal{L}_{m}$ (target)'
    """
    return re.sub(r"\bL_(\w+)", r"$\\mathcal{L}_{\1}$", name).replace("$(", "$ (")


def _save(figure: Any, path: Path) -> None:
    write_atomically(path, picture_bytes(figure, path.suffix, dpi=130))


def picture_bytes(figure: Any, suffix: str, dpi: int = 120, description: str | None = None) -> bytes:
    """The file of a figure. Equal figures are equal files, and an SVG follows the reader's light or dark page."""
    import matplotlib
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if text.get_color() == "black":
            text.set_color(INK)
    content = io.BytesIO()
    dated = {".svg": {"Date": None, "Description": description}, ".pdf": {"CreationDate": None}}.get(suffix)
    with matplotlib.rc_context({"svg.hashsalt": "vmt"}):
        figure.savefig(content, format=suffix[1:], dpi=dpi, metadata=dated, facecolor=figure.get_facecolor())
    return for_dark_pages(content.getvalue().decode()).encode() if suffix == ".svg" else content.getvalue()


def for_dark_pages(svg: str) -> str:
    """An SVG of matplotlib with a style sheet that exchanges the palette's colours on a dark screen, but not in print.

    Styles that many elements share, such as those of markers, become classes, and names of markers become short. A
    figure with thousands of markers is then half as large.
    """
    svg = re.sub(r"\n\s+", "\n", svg)
    svg = re.sub(r'(?<= [xy]=")(-?\d+\.\d)\d+(?=")', r"\1", svg)
    for i, marker in enumerate(dict.fromkeys(re.findall(r'id="(m[0-9a-f]{10})"', svg))):
        svg = svg.replace(marker, f"m{i}")
    shared = [style for style, count in Counter(re.findall(r'style="([^"]*)"', svg)).items() if count > 50]
    for i, style in enumerate(shared):
        svg = svg.replace(f'style="{style}"', f'class="s{i}"')
    plain = "".join(f".s{i}{{{style}}}" for i, style in enumerate(shared))
    dark = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{colour}!important}}'
        for light, colour in IN_THE_DARK.items()
        for kind in ("fill", "stroke")
        if f"{kind}: {light}" in svg
    )
    for i, style in enumerate(shared):
        found = re.findall(r"(fill|stroke): (#\w+)", style)
        dark += "".join(f".s{i}{{{kind}:{IN_THE_DARK[light]}}}" for kind, light in found if light in IN_THE_DARK)
    return svg.replace("</style>", f"{plain}@media screen and (prefers-color-scheme: dark){{{dark}}}</style>", 1)
