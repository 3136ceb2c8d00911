"""Draw the paper's figures, each as a vector file and as a PNG."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vmt.disk import explain_write_errors, write_atomically
from vmt.errors import InputError
from vmt.figures import (
    COLOURS,
    GRID,
    INK,
    MUTED,
    PAPER,
    SOURCE,
    TARGET,
    as_maths,
    new_figure,
    picture_bytes,
    plain_axes,
)
from vmt.paper.figures import Curve, Embedding

VECTORS = (".svg", ".pdf")
NOT_RUN = "not run yet"
# Points are markers of a line that is not drawn: vectors in which a style sheet can exchange the colours.
DOTS: dict[str, Any] = {"linestyle": "", "markersize": 2.6, "markeredgewidth": 0.6, "alpha": 0.65}


def draw_embeddings(
    embeddings: Mapping[str, Embedding | None], classes: Sequence[str], title: str, out: Path
) -> list[Path]:
    """One column per system, coloured by domain above and by class below. None draws an empty panel."""
    figure = new_figure((2.9 * len(embeddings), 6.4), title)
    axes = figure.subplots(2, len(embeddings), squeeze=False)
    for column, (label, embedding) in enumerate(embeddings.items()):
        known = "" if embedding is None else f": {embedding.accuracy:.0%} of target right"
        axes[0][column].set_title(label + known, fontsize=9, color=INK)
        for row in (0, 1):
            frame(axes[row][column], embedding is None)
        if embedding is not None:
            by_domain(axes[0][column], embedding)
            by_class(axes[1][column], embedding)
    axes[0][0].set_ylabel("by domain", fontsize=9, color=MUTED)
    axes[1][0].set_ylabel("by class", fontsize=9, color=MUTED)
    handles = [dot(SOURCE, "o", "source"), dot(TARGET, "x", "target")]
    handles += [dot(class_colour(k), "s", name) for k, name in enumerate(classes)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    return save(figure, out)


def by_domain(axes: Any, embedding: Embedding) -> None:
    for (points, _), colour, marker in parts(embedding):
        axes.plot(*points.T, color=colour, marker=marker, **DOTS)


def by_class(axes: Any, embedding: Embedding) -> None:
    for (points, classes), _, marker in parts(embedding):
        for k in sorted(set(classes.tolist())):
            axes.plot(*points[classes == k].T, color=class_colour(k), marker=marker, **DOTS)


def parts(embedding: Embedding) -> list[tuple[tuple[Any, Any], str, str]]:
    """Points and classes, colour and marker of source and target."""
    points, classes, n = embedding.points, embedding.classes, embedding.source
    return [((points[:n], classes[:n]), SOURCE, "o"), ((points[n:], classes[n:]), TARGET, "x")]


def class_colour(k: int) -> str:
    return COLOURS[k % len(COLOURS)]


def dot(colour: Any, marker: str, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="", color=colour, marker=marker, markersize=5, label=label)


def draw_norms(norms: Mapping[str, Mapping[str, Any] | None], title: str, out: Path) -> list[Path]:
    """Mean and median over pairs against λ, with the middle half shaded."""
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
    axes.set_xlabel(r"$\lambda$ in $\lambda x_i + (1 - \lambda)\, x_j$")
    axes.set_ylabel("gradient norm of the probabilities")
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return save(figure, out)


def draw_over_time(curves: Mapping[str, Sequence[Curve]], title: str, out: Path) -> list[Path]:
    """A line for each run, over iterations on the left and over minutes on the right."""
    figure = new_figure((9, 3.9), title)
    left, right = figure.subplots(1, 2, sharey=True)
    # Blue for VAT and red for VMT, as in the paper.
    for colour, (label, runs) in zip((TARGET, SOURCE, COLOURS[5], COLOURS[2]), curves.items(), strict=True):
        label = as_maths(label)
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
    """Prepare a panel whose coordinates have no meaning."""
    axes.set_facecolor(PAPER)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(GRID)
    if empty:
        axes.text(0.5, 0.5, NOT_RUN, transform=axes.transAxes, ha="center", va="center", color=MUTED, fontsize=9)


def targets(out: Path) -> list[Path]:
    """The vector file and the PNG that are written for the file name ``out``."""
    if out.suffix not in ("", ".png", *VECTORS):
        raise InputError(f"--out {out} must end in .svg, .pdf or .png, or have no ending.")
    vector = out.suffix if out.suffix in VECTORS else ".svg"
    return [out.with_suffix(vector), out.with_suffix(".png")]


def save(figure: Any, out: Path) -> list[Path]:
    with explain_write_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    for path in targets(out):
        write_atomically(path, picture_bytes(figure, path.suffix))
    return targets(out)
