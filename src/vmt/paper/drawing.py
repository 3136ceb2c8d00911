"""The paper's figures on paper: a vector file and a PNG beside it."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vmt.disk import explain_write_errors, write_atomically
from vmt.errors import InputError
from vmt.figures import COLOURS, GRID, INK, MUTED, new_figure, plain_axes
from vmt.paper.figures import Cloud, Curve

VECTORS = (".svg", ".pdf")
SOURCE, TARGET = "#dc2626", "#2563eb"  # red and blue, as in the paper
NOT_RUN = "not run yet"


def draw_clouds(clouds: Mapping[str, Cloud | None], classes: Sequence[str], title: str, out: Path) -> list[Path]:
    """One column per system: above by domain, below by class. None draws an empty panel that says so."""
    figure = new_figure((2.9 * len(clouds), 6.4), title)
    axes = figure.subplots(2, len(clouds), squeeze=False)
    for column, (label, cloud) in enumerate(clouds.items()):
        known = "" if cloud is None else f": {cloud.accuracy:.0%} of target right"
        axes[0][column].set_title(label + known, fontsize=9, color=INK)
        for row in (0, 1):
            frame(axes[row][column], cloud is None)
        if cloud is not None:
            by_domain(axes[0][column], cloud)
            by_class(axes[1][column], cloud)
    axes[0][0].set_ylabel("by domain", fontsize=9, color=MUTED)
    axes[1][0].set_ylabel("by class", fontsize=9, color=MUTED)
    handles = [dot(SOURCE, "o", "source"), dot(TARGET, "x", "target")]
    handles += [dot(class_colour(k), "s", name) for k, name in enumerate(classes)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    return save(figure, out)


def by_domain(axes: Any, cloud: Cloud) -> None:
    for part, colour, marker in parts(cloud):
        axes.scatter(*part[0].T, s=7, c=colour, marker=marker, linewidths=0.6, alpha=0.6, rasterized=True)


def by_class(axes: Any, cloud: Cloud) -> None:
    for (places, classes), _, marker in parts(cloud):
        colours = [class_colour(k) for k in classes]
        axes.scatter(*places.T, s=7, c=colours, marker=marker, linewidths=0.6, alpha=0.7, rasterized=True)


def parts(cloud: Cloud) -> list[tuple[tuple[Any, Any], str, str]]:
    """Source and target, each with its places and classes, colour and marker."""
    n = cloud.source
    of_source, of_target = (cloud.places[:n], cloud.classes[:n]), (cloud.places[n:], cloud.classes[n:])
    return [(of_source, SOURCE, "o"), (of_target, TARGET, "x")]


def class_colour(k: int) -> Any:
    import matplotlib

    return matplotlib.colormaps["tab10"](k % 10)


def dot(colour: Any, marker: str, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="", color=colour, marker=marker, markersize=5, label=label)


def draw_norms(norms: Mapping[str, Mapping[str, Any] | None], title: str, out: Path) -> list[Path]:
    """Mean and median over pairs, with the middle half shaded, against λ."""
    figure = new_figure((5.2, 3.9), title)
    axes = figure.subplots()
    plain_axes(axes)
    for colour, (label, values) in zip((COLOURS[3], COLOURS[1]), norms.items(), strict=False):
        if values is None:
            axes.plot([], [], color=colour, label=f"{label} ({NOT_RUN})")
            continue
        axes.plot(values["lambda"], values["mean"], color=colour, label=f"{label}, mean")
        axes.plot(values["lambda"], values["median"], color=colour, linestyle="--", label=f"{label}, median")
        axes.fill_between(
            values["lambda"], values["lower_quartile"], values["upper_quartile"], color=colour, alpha=0.15, linewidth=0
        )
    axes.set_xlabel("λ in λ x_i + (1 − λ) x_j")
    axes.set_ylabel("gradient norm of the probabilities")
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return save(figure, out)


def draw_over_time(curves: Mapping[str, Sequence[Curve]], title: str, out: Path) -> list[Path]:
    """Every run a line: over iterations on the left, over minutes on the right."""
    figure = new_figure((9, 3.9), title)
    left, right = figure.subplots(1, 2, sharey=True)
    # Blue for VAT and red for VMT, as in the paper.
    for colour, (label, runs) in zip((TARGET, SOURCE, COLOURS[5], COLOURS[2]), curves.items(), strict=True):
        name = f"{label} (n={len(runs)})"
        if not runs:
            left.plot([], [], color=colour, linestyle=":", label=f"{label} ({NOT_RUN})")
        for i, run in enumerate(runs):
            left.plot(
                run.iterations, run.accuracy, color=colour, marker=".", linewidth=1.2, label=name if i == 0 else None
            )
            if run.seconds_per_iteration is not None:
                minutes = [step * run.seconds_per_iteration / 60 for step in run.iterations]
                right.plot(minutes, run.accuracy, color=colour, marker=".", linewidth=1.2)
    hardware = sorted({run.hardware for runs in curves.values() for run in runs})
    left.set_xlabel("iteration")
    left.set_ylabel("target test accuracy (%)")
    right.set_xlabel(f"minutes of training on {', '.join(hardware)}, without compiling")
    for axes in (left, right):
        plain_axes(axes)
    left.legend(frameon=False, fontsize=8, loc="lower right")
    return save(figure, out)


def frame(axes: Any, empty: bool) -> None:
    """A panel whose coordinates mean nothing."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(GRID)
    if empty:
        axes.text(0.5, 0.5, NOT_RUN, transform=axes.transAxes, ha="center", va="center", color=MUTED, fontsize=9)


def targets(out: Path) -> list[Path]:
    """The files that a name stands for: what it says, and always a vector file and a PNG."""
    if out.suffix not in ("", ".png", *VECTORS):
        raise InputError(f"--out {out} is neither .svg, .pdf nor .png: give one of them, or a name without an ending.")
    vector = out.suffix if out.suffix in VECTORS else ".svg"
    return [out.with_suffix(vector), out.with_suffix(".png")]


def save(figure: Any, out: Path) -> list[Path]:
    import matplotlib

    with explain_write_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    for path in targets(out):
        content = io.BytesIO()
        # The same picture is the same file: no date, no random names in it.
        dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
        with matplotlib.rc_context({"svg.hashsalt": "vmt"}):
            figure.savefig(content, format=path.suffix[1:], dpi=120, metadata=dated)
        write_atomically(path, content.getvalue())
    return targets(out)
