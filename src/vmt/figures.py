"""Figures of runs: their curves, and a comparison of several runs."""

import io
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from vmt.disk import write_atomically

LogRecord = Mapping[str, Any]
INK, MUTED, GRID = "#1f2430", "#6b7280", "#e5e7eb"
COLOURS = ("#64748b", "#2563eb", "#059669", "#d97706", "#db2777", "#7c3aed", "#b91c1c", "#0891b2", "#84cc16")


def draw_curves(records: Sequence[LogRecord], path: Path, title: str = "") -> None:
    """Draw accuracy and terms of the loss over iterations, with a line where a phase begins."""
    figure = new_figure((7.5, 6), title)
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
        bottom.plot(*zip(*points, strict=True), color=colour, label=name.removeprefix("classifier/"))
    bottom.set_ylabel("terms of the loss")
    bottom.set_xlabel("iteration")
    for step, phase in phase_changes(records):
        for axes in (top, bottom):
            axes.axvline(step, color=MUTED, linestyle=":", linewidth=1)
        top.text(step, 3, f" {phase}", color=MUTED, fontsize=8)
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
            left.text(step, 45, f" {phase}", color=MUTED, fontsize=8)
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


def new_figure(size: tuple[float, float], title: str) -> Any:
    # Without pyplot, which has global state, may need a display and is not safe in threads.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(title, color=INK, fontsize=11)
    return figure


def plain_axes(axes: Any, labelsize: int = 8) -> None:
    """A pale grid behind the data, and no lines above and to the right."""
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, labelsize=labelsize)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GRID)


def _save(figure: Any, path: Path) -> None:
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=130)
    write_atomically(path, content.getvalue())
