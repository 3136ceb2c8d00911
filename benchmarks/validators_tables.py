"""Table and figure of docs/choosing.md, from the records of benchmarks/validators.py."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from vmt.disk import write_atomically
from vmt.evaluate.probe import ranking_key
from vmt.runs.ranking import spearman
from vmt.validators import VALIDATORS

Look = dict[str, Any]
BEGIN, END = "<!-- study: written by benchmarks/validators.py -->", "<!-- end of study -->"
AMONG, DRAWS = 10, 4000
RESAMPLES = 1000
FIRST = 180  # the runs that suggested ami_source; what later ones say of it is not fitted to them
WRONG = 0.6  # of held-out source samples right: below this, a run has lost even what it was taught


def write_tables(records: Sequence[dict[str, Any]], docs: Path) -> None:
    """Put the tables between their marks in choosing.md, and the figure beside it."""
    path = docs / "choosing.md"
    text = path.read_text() if path.exists() else f"{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    write_atomically(path, f"{before}{BEGIN}\n\n{study(records)}\n\n{END}{after}".encode())
    draw([complete(record) for record in records if record["looks"]], docs / "choosing.png")


def study(records: Sequence[dict[str, Any]]) -> str:
    """The tables, with a line before each."""
    runs = [complete(record) for record in records if record["looks"]]
    first, later = ([run for run in runs if (run["number"] >= FIRST) == fresh] for fresh in (False, True))
    parts = [summary(records), f"The first {len(first)} runs:", table(first)]
    if later:
        parts += [f"The {len(later)} runs after them:", table(later)]
    return "\n\n".join([*parts, f"Moments of all {len(runs)} runs:", checkpoints(runs)])


def complete(run: dict[str, Any]) -> dict[str, Any]:
    """A run with the product that the first of them were made without."""
    looks = [{**look, "ami_source": look["class_ami"] * look["source_accuracy"]} for look in run["looks"]]
    return {**run, "looks": looks}


def summary(records: Sequence[dict[str, Any]]) -> str:
    """How many runs, on what, and how many of them are bad."""
    runs = [record for record in records if record["looks"]]
    last = [record["looks"][-1] for record in runs]
    accuracy = [look["accuracy"] for look in last]
    made = sorted({(r["made"]["torch"], r["made"]["machine"], r["made"]["commit"] or "an export") for r in runs})
    where = "; ".join(f"torch {torch} on {machine}, commit {commit}" for torch, machine, commit in made)
    alarms = sum(look["alarm"] is not None for look in last)
    wrong = sum(look["source_accuracy"] < WRONG for look in last)
    failed = len(records) - len(runs)
    lines = [
        f"{len(runs)} runs, from {min(accuracy):.0%} to {max(accuracy):.0%} of the target right, median "
        f"{np.median(accuracy):.0%}. {alarms} end with the collapse alarm; {wrong} have lost even the source, less "
        f"than {WRONG:.0%} of it being right."
    ]
    if failed:
        lines.append(f"{failed} more ended because a loss was not a number.")
    lines.append(f"{sum(r['seconds'] for r in runs) / 60:.0f} minutes on one CPU thread; {where}.")
    return " ".join(lines)


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Rank correlations with the accuracy, and what choosing by a validator costs."""
    tasks = list(dict.fromkeys(run["task"] for run in runs))
    ends = {task: [run["looks"][-1] for run in runs if run["task"] == task] for task in tasks}
    head = ["validator", *tasks, *(f"{task}, no alarm" for task in tasks), "points lost", "without the alarm's rule"]
    rows = []
    for name in VALIDATORS:
        cells = [correlation(ends[task], name) for task in tasks]
        cells += [correlation([look for look in ends[task] if look["alarm"] is None], name) for task in tasks]
        with_rule, without = (np.mean([lost(ends[task], key(name, rule)) for task in tasks]) for rule in (True, False))
        rows.append((with_rule, [f"`{name}`", *cells, f"{with_rule:.1f}", f"{without:.1f}"]))
    rows.sort(key=lambda row: row[0])
    blind = np.mean([lost(ends[task], None) for task in tasks])
    rows.append((0.0, ["any of them, blindly", *[""] * (2 * len(tasks)), "", f"{blind:.1f}"]))
    return markdown(head, [cells for _, cells in rows])


def checkpoints(runs: Sequence[dict[str, Any]]) -> str:
    """What is gained by keeping the best look of a run instead of its last."""
    head = ["kept by", "points above the last model, mean", "worst run", "best run"]
    rows = []
    for name in VALIDATORS:
        rank = key(name, rule=True)
        gains = [100 * (max(run["looks"], key=rank)["accuracy"] - run["looks"][-1]["accuracy"]) for run in runs]
        rows.append((float(np.mean(gains)), [f"`{name}`", *(signed(f(gains)) for f in (np.mean, min, max))]))
    rows.sort(key=lambda row: -row[0])
    labels = [100 * (max(look["accuracy"] for look in run["looks"]) - run["looks"][-1]["accuracy"]) for run in runs]
    rows.append((0.0, ["target labels", *(signed(f(labels)) for f in (np.mean, min, max))]))
    return markdown(head, [cells for _, cells in rows])


def signed(points: float) -> str:
    return f"{round(points, 1) + 0.0:+.1f}"  # −0.0 is 0.0


def key(name: str, rule: bool) -> Callable[[Look], tuple[bool, float]]:
    """How looks compare by a validator, with the rule that those with an alarm come last, or without it."""

    def compared(look: Look) -> tuple[bool, float]:
        score = float("-inf") if look.get(name) is None else look[name]
        return ranking_key(look["alarm"] if rule else None, score)

    return compared


def correlation(looks: Sequence[Look], name: str) -> str:
    """Spearman's, with a 95 % interval over resampled runs."""
    known = [(look[name], look["accuracy"]) for look in looks if look.get(name) is not None]
    if len(known) < 3:
        return "–"
    pairs = np.array(known)
    value = spearman(*pairs.T)
    drawn = np.random.default_rng(0).integers(len(pairs), size=(RESAMPLES, len(pairs)))
    x, y = (centred(rankdata(column[drawn], axis=1)) for column in pairs.T)
    with np.errstate(invalid="ignore"):
        again = (x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1))
    low, high = np.nanpercentile(again, [2.5, 97.5])
    return "–" if value is None else f"{value:.2f} ({low:.2f} to {high:.2f})"


def centred(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return rows - rows.mean(1, keepdims=True)


def lost(looks: Sequence[Look], rank: Callable[[Look], tuple[bool, float]] | None) -> float:
    """Points between the best of ten random runs and the one that is chosen of them, mean over many draws."""
    accuracy: NDArray[np.float64] = np.array([look["accuracy"] for look in looks])
    drawn = np.random.default_rng(0).random((DRAWS, len(looks))).argsort(1)[:, :AMONG]
    among = accuracy[drawn]
    if rank is None:
        return float(100 * np.mean(among.max(1) - among.mean(1)))
    place = np.zeros(len(looks))
    place[sorted(range(len(looks)), key=lambda i: rank(looks[i]))] = np.arange(len(looks))
    chosen = place[drawn].argmax(1)
    return float(100 * np.mean(among.max(1) - among[np.arange(DRAWS), chosen]))


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel for each validator: its score and the accuracy of the last model of every run."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from vmt.figures import COLOURS, INK, plain_axes

    tasks = list(dict.fromkeys(run["task"] for run in runs))
    figure = Figure(figsize=(9, 7.4), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = figure.subplots(3, 4, sharey=True).flatten()
    for axes, name in zip(panels, VALIDATORS, strict=False):
        for task, colour in zip(tasks, (COLOURS[1], COLOURS[3]), strict=True):
            for alarm, marker in ((False, "o"), (True, "x")):
                of_task = [run["looks"][-1] for run in runs if run["task"] == task]
                shown = [k for k in of_task if (k["alarm"] is not None) == alarm and k.get(name) is not None]
                style = {"facecolors": "none", "edgecolors": colour} if not alarm else {"color": colour}
                label = task + (", alarm" if alarm else "")
                x, y = [look[name] for look in shown], [100 * look["accuracy"] for look in shown]
                axes.scatter(x, y, s=14, marker=marker, linewidths=0.9, label=label, **style)
        axes.set_title(name, fontsize=9, color=INK)
    for axes in panels:
        plain_axes(axes, labelsize=7)
    for axes in panels[::4]:
        axes.set_ylabel("target accuracy (%)", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
