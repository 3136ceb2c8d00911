"""Tables and figure of docs/validators-study.md, from the records of benchmarks/validators.py."""

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

Evaluation = dict[str, Any]
"""An evaluation of a run: step, accuracy, alarm and the score of each validator."""
BEGIN, END = "<!-- study: written by benchmarks/validators.py -->", "<!-- end of study -->"
AMONG, DRAWS = 10, 4000
RESAMPLES = 1000
FIRST = 180  # the runs that suggested ami_source; the later ones test it
WRONG = 0.6  # with a lower accuracy on held-out source samples, a run has lost even the source


def write_tables(records: Sequence[dict[str, Any]], docs: Path) -> None:
    """Write the tables between their marks in validators-study.md, and the figure beside it."""
    path = docs / "validators-study.md"
    text = path.read_text() if path.exists() else f"{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    write_atomically(path, f"{before}{BEGIN}\n\n{study(records)}\n\n{END}{after}".encode())
    draw([complete(record) for record in records if record["looks"]], docs / "validators-study.svg")


def study(records: Sequence[dict[str, Any]]) -> str:
    """The tables, with a line above each."""
    runs = [complete(record) for record in records if record["looks"]]
    first, later = ([run for run in runs if (run["number"] >= FIRST) == fresh] for fresh in (False, True))
    parts = [summary(records), f"The first {len(first)} runs:", table(first)]
    if later:
        parts += [f"The {len(later)} runs after them:", table(later)]
    return "\n\n".join([*parts, f"The best evaluation of each of the {len(runs)} runs:", checkpoints(runs)])


def complete(run: dict[str, Any]) -> dict[str, Any]:
    """A run with ami_source, which the first runs did not compute."""
    evaluations = [
        {**evaluation, "ami_source": evaluation["class_ami"] * evaluation["source_accuracy"]}
        for evaluation in run["looks"]
    ]
    return {**run, "looks": evaluations}


def scored(runs: Sequence[dict[str, Any]]) -> list[str]:
    """The validators that the runs have a score of; later ones were not there when they were made."""
    return [name for name in VALIDATORS if name in runs[0]["looks"][-1]]


def summary(records: Sequence[dict[str, Any]]) -> str:
    """The number of runs, how many of them are bad, and where they were made."""
    runs = [record for record in records if record["looks"]]
    last = [record["looks"][-1] for record in runs]
    accuracy = [evaluation["accuracy"] for evaluation in last]
    made = sorted({(r["made"]["torch"], r["made"]["machine"], r["made"]["commit"] or "an export") for r in runs})
    where = "; ".join(f"torch {torch} on {machine}, commit {commit}" for torch, machine, commit in made)
    alarms = sum(evaluation["alarm"] is not None for evaluation in last)
    wrong = sum(evaluation["source_accuracy"] < WRONG for evaluation in last)
    failed = len(records) - len(runs)
    lines = [
        f"{len(runs)} runs with an accuracy of {min(accuracy):.0%} to {max(accuracy):.0%} on the target, median "
        f"{np.median(accuracy):.0%}. {alarms} end with the collapse alarm; {wrong} have lost even the source, with an "
        f"accuracy below {WRONG:.0%} on it."
    ]
    if failed:
        lines.append(f"{failed} more stopped because a loss was not finite.")
    lines.append(f"{sum(r['seconds'] for r in runs) / 60:.0f} minutes on one CPU thread; {where}.")
    return " ".join(lines)


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Rank correlations with the accuracy, and what choosing by a validator costs."""
    tasks = list(dict.fromkeys(run["task"] for run in runs))
    ends = {task: [run["looks"][-1] for run in runs if run["task"] == task] for task in tasks}
    head = ["validator", *tasks, *(f"{task}, no alarm" for task in tasks), "points lost", "without the alarm"]
    rows = []
    for name in scored(runs):
        cells = [correlation(ends[task], name) for task in tasks]
        cells += [
            correlation([evaluation for evaluation in ends[task] if evaluation["alarm"] is None], name)
            for task in tasks
        ]
        with_rule, without = (np.mean([lost(ends[task], key(name, rule)) for task in tasks]) for rule in (True, False))
        rows.append((with_rule, [f"`{name}`", *cells, f"{with_rule:.1f}", f"{without:.1f}"]))
    rows.sort(key=lambda row: row[0])
    blind = np.mean([lost(ends[task], None) for task in tasks])
    rows.append((0.0, ["a random run", *[""] * (2 * len(tasks)), "", f"{blind:.1f}"]))
    return markdown(head, [cells for _, cells in rows])


def checkpoints(runs: Sequence[dict[str, Any]]) -> str:
    """What is gained by keeping the best model of a run instead of its last."""
    head = ["kept by", "points above the last model, mean", "worst run", "best run"]
    rows = []
    for name in scored(runs):
        rank = key(name, rule=True)
        gains = [100 * (max(run["looks"], key=rank)["accuracy"] - run["looks"][-1]["accuracy"]) for run in runs]
        rows.append((float(np.mean(gains)), [f"`{name}`", *(signed(f(gains)) for f in (np.mean, min, max))]))
    rows.sort(key=lambda row: -row[0])
    labels = [
        100 * (max(evaluation["accuracy"] for evaluation in run["looks"]) - run["looks"][-1]["accuracy"])
        for run in runs
    ]
    rows.append((0.0, ["target labels", *(signed(f(labels)) for f in (np.mean, min, max))]))
    return markdown(head, [cells for _, cells in rows])


def signed(points: float) -> str:
    return f"{round(points, 1) + 0.0:+.1f}"  # −0.0 is 0.0


def key(name: str, rule: bool) -> Callable[[Evaluation], tuple[bool, float]]:
    """How evaluations are ranked by a validator, with or without the rule that those with an alarm come last."""

    def compared(evaluation: Evaluation) -> tuple[bool, float]:
        score = float("-inf") if evaluation.get(name) is None else evaluation[name]
        return ranking_key(evaluation["alarm"] if rule else None, score)

    return compared


def correlation(evaluations: Sequence[Evaluation], name: str) -> str:
    """Spearman's correlation, with a 95 % interval over resampled runs."""
    known = [
        (evaluation[name], evaluation["accuracy"]) for evaluation in evaluations if evaluation.get(name) is not None
    ]
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


def lost(evaluations: Sequence[Evaluation], rank: Callable[[Evaluation], tuple[bool, float]] | None) -> float:
    """Points between the best of ten random runs and the one that is chosen, on average over many draws."""
    accuracy: NDArray[np.float64] = np.array([evaluation["accuracy"] for evaluation in evaluations])
    drawn = np.random.default_rng(0).random((DRAWS, len(evaluations))).argsort(1)[:, :AMONG]
    among = accuracy[drawn]
    if rank is None:
        return float(100 * np.mean(among.max(1) - among.mean(1)))
    place = np.zeros(len(evaluations))
    place[sorted(range(len(evaluations)), key=lambda i: rank(evaluations[i]))] = np.arange(len(evaluations))
    chosen = place[drawn].argmax(1)
    return float(100 * np.mean(among.max(1) - among[np.arange(DRAWS), chosen]))


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel for each validator: its score against the accuracy of the last model of each run."""
    from vmt.figures import COLOURS, INK, new_figure, picture_bytes, plain_axes

    tasks = list(dict.fromkeys(run["task"] for run in runs))
    figure = new_figure((9, 7.4))
    panels = figure.subplots(3, 4, sharey=True).flatten()
    for axes, name in zip(panels, scored(runs), strict=False):
        for task, colour in zip(tasks, (COLOURS[1], COLOURS[3]), strict=True):
            for alarm, marker in ((False, "o"), (True, "x")):
                of_task = [run["looks"][-1] for run in runs if run["task"] == task]
                shown = [k for k in of_task if (k["alarm"] is not None) == alarm and k.get(name) is not None]
                label = task + (", alarm" if alarm else "")
                x, y = (
                    [evaluation[name] for evaluation in shown],
                    [100 * evaluation["accuracy"] for evaluation in shown],
                )
                axes.plot(x, y, marker, color=colour, fillstyle="none", ms=3.7, mew=0.9, label=label)
        axes.set_title(name, fontsize=9, color=INK)
    for axes in panels:
        plain_axes(axes, labelsize=7)
    for axes in panels[::4]:
        axes.set_ylabel("target accuracy (%)", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    path.write_bytes(picture_bytes(figure, path.suffix))
