"""The page docs/own-data-bench.md and the printed summary, from the records of benchmarks/own_data.py."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from own_data_peers import PEERS
from own_data_tasks import CHOOSING, REPORTING, REVISION, TASKS, side
from scipy.stats import rankdata

from vmt.disk import write_atomically
from vmt.methods.settings import AUTO
from vmt.validators.registry import VALIDATORS
from vmt.validators.together import AVERAGE

Record = Mapping[str, Any]
BASELINE = "source_only"
TIE = 0.01  # a difference of accuracy that the page does not call a win


class Results:
    """The newest record of each contender on each task with each seed, and means over the seeds.

    A contender counts on a task if it has a result for every seed that any contender has there.
    """

    def __init__(self, records: Iterable[Record], settings: Mapping[str, Any] | None = None) -> None:
        self.records: dict[tuple[str, str, int], Record] = {}
        for record in records:
            name = record["contender"]
            if record["revision"] == REVISION and (
                settings is None or (name in settings and same(settings[name], record["settings"]))
            ):
                self.records[record["task"], name, record["seed"]] = record
        self.tasks = [name for name in TASKS if any(task == name for task, _, _ in self.records)]
        self.contenders = list(dict.fromkeys(contender for _, contender, _ in self.records))
        self.seeds = {task: sorted({seed for other, _, seed in self.records if other == task}) for task in self.tasks}

    def accuracies(self, task: str, contender: str) -> list[float]:
        """One accuracy for each seed, or an empty list if one is missing or failed."""
        found = [self.records.get((task, contender, seed), {}).get("accuracy") for seed in self.seeds[task]]
        return [] if None in found else found  # type: ignore[return-value]

    def mean(self, task: str, contender: str) -> float:
        """The mean accuracy over the seeds; NaN if it is incomplete."""
        found = self.accuracies(task, contender)
        return float(np.mean(found)) if found else float("nan")

    def means(self, tasks: Sequence[str], contenders: Sequence[str]) -> np.ndarray[Any, Any]:
        """Mean accuracies, one row per task and one column per contender."""
        rows = [[self.mean(task, contender) for contender in contenders] for task in tasks]
        return np.array(rows).reshape(len(tasks), len(contenders))

    def seconds(self, tasks: Sequence[str], contender: str) -> float:
        """Mean CPU seconds of a run."""
        found = [r["cpu_s"] for (task, name, _), r in self.records.items() if name == contender and task in tasks]
        return float(np.mean(found)) if found else float("nan")

    def failures(self, tasks: Sequence[str], contender: str) -> int:
        """The number of runs that failed."""
        chosen = (r for (task, name, _), r in self.records.items() if name == contender and task in tasks)
        return sum("failed" in record for record in chosen)


def same(a: Any, b: Any) -> bool:
    return json.dumps(a, sort_keys=True, default=dict) == json.dumps(b, sort_keys=True, default=dict)


def ranks(means: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The rank of each contender on each task, 1 for the best; one without a result shares the last rank.

    Means that are equal share a rank, also if their last bits differ because they were added up in another order.
    """
    filled = np.where(np.isnan(means), -1, means).round(10)
    return np.array([rankdata(-row) for row in filled]).reshape(means.shape)


# --- Printed after a run ---


def summary(records: Iterable[Record], tasks: Sequence[str], settings: Mapping[str, Any], seeds: Sequence[int]) -> str:
    """A table in plain text: each contender that never failed, over the tasks that all of them have results for."""
    wanted = (r for r in records if r["task"] in tasks and r["seed"] in seeds)
    results = Results(wanted, settings)
    failed = {name: count for name in results.contenders if (count := results.failures(results.tasks, name))}
    names = [name for name in results.contenders if name not in failed]
    means = results.means(results.tasks, names)
    whole = ~np.isnan(means).any(axis=1)
    kept = [task for task, here in zip(results.tasks, whole, strict=True) if here]
    means = means[whole]
    lines = [f"{name}: {count} runs failed." for name, count in failed.items()]
    lines.append(f"{len(kept)} of {len(tasks)} tasks have results of all other contenders.")
    if not kept or not names:
        return "\n".join(lines)
    width = max(map(len, ["contender", *names]))
    place = ranks(means).mean(axis=0)
    baseline = means[:, names.index(BASELINE)] if BASELINE in names else None
    lines.append(f"{'contender':{width}}  mean %  rank  CPU s  worst against {BASELINE}")
    for column in np.argsort(-means.mean(axis=0)):
        name = names[column]
        line = f"{name:{width}}  {100 * means[:, column].mean():6.2f}  {place[column]:4.1f}  "
        line += f"{results.seconds(kept, name):5.1f}"
        if baseline is not None:
            worst = int((means[:, column] - baseline).argmin())
            line += f"  {100 * (means[worst, column] - baseline[worst]):+5.1f} ({kept[worst]})"
        lines.append(line)
    return "\n".join(lines)


# --- The page ---


def write_page(records: Sequence[Record], path: Path) -> None:
    """Write the page, without the variants that someone tried."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page(records).encode())


def page(records: Sequence[Record]) -> str:
    """The whole page."""
    published = [r for r in records if r["settings"] is None or r["settings"] == {"method": r["contender"]}]
    results = Results(published)
    parts = [HEAD]
    for which, title in ((REPORTING, "Tasks for reporting"), (CHOOSING, "Tasks for choosing")):
        tasks = [task for task in results.tasks if side(task) == which]
        run = {contender for task, contender, _ in results.records if task in tasks}
        ours = [name for name in results.contenders if name in run and name not in PEERS]
        peers = [name for name in PEERS if name in run]
        if tasks:
            parts += [f"## {title}", overall(results, tasks, [*ours, *peers], peers)]
            if AUTO in ours and peers:
                parts += [
                    f"### Where others win against the default, `{AUTO}`",
                    wins(results, tasks, AUTO, peers),
                ]
            if chosen_by := study(results, tasks):
                parts += ["### Which score chooses best", STUDY, chosen_by]
            parts += ["### Each task", *([each(results, tasks, ours)] if ours else []), *grouped(results, tasks, peers)]
    return "\n\n".join([*parts, "## The tasks", described(results), made(published)]) + "\n"


HEAD = f"""# Own data: the defaults against others

<!-- written by benchmarks/own_data.py -->

This page compares the defaults of `vmt.adapt` with those of other libraries on small tasks that can be made without a
download. One command measures what is missing and writes the page:

```console
$ pip install -e ".[bench]"
$ python benchmarks/own_data.py --jobs 2
```

No contender sees a label of the target, and each runs with its own defaults on one CPU thread. The accuracy is that of
the last model on a test part of the target that nobody trains on. The tasks were split once, before any method was run
on them: settings were chosen on one half, and the other half is for reporting. The rule is the parity of the first byte
of the SHA-256 of a task's name (`benchmarks/own_data_tasks.py`). Tasks of both halves come from the same few sets of
samples, so the halves differ in their shifts more than in their data.

In the tables, *regret* is the mean over the tasks of the best competitor's accuracy on the task minus the contender's;
the best competitor differs from task to task. *Least gain* is the smallest difference to `source_only`, the library's
own network without adaptation, on any task. *Rank* is the mean over the tasks among all contenders of the table.
A dash stands for a contender that has no result for at least one seed, mostly because it failed; it then has the last
rank on the task, and no means over the tasks. `svc`, `hgb` and `mlp` are scikit-learn's SVC,
HistGradientBoostingClassifier and MLPClassifier behind a StandardScaler; with `-per-domain`, each domain is
standardised by itself. `skada-…` are the methods of skada: its own pipelines behind a StandardScaler, most of which end
with an SVC, and with `skada-deep-…` a small network with batch norm, trained by Adam for about 600 iterations. A
difference of up to {100 * TIE:.0f} point is not called a win."""


STUDY = """The candidates of [`auto`](auto.md) on these tasks, each with the [scores](choosing.md) that need no labels.
If one of them is chosen by the highest score, and candidates with an alarm last, how accurate is it? *Points lost* is
the mean difference to the best candidate of the run, *within 2 points* the share of the runs in which the choice loses
no more. The rows without a score always take the same candidate, or the answer of `auto`, which averages several."""
WITHIN = 0.02


def study(results: Results, tasks: Sequence[str]) -> str | None:
    """What each validator would have chosen among the candidates of ``auto``; None if no record has their scores."""
    records = [r for (task, name, _), r in results.records.items() if name == AUTO and task in tasks and "scores" in r]
    if not records:
        return None
    candidates = [[name for name in record["scores"] if name != AVERAGE] for record in records]
    everywhere = [name for name in candidates[0] if all(name in each for each in candidates)]
    answers: dict[str, list[float]] = {}
    for validator in VALIDATORS:
        found = [by_score(record, names, validator) for record, names in zip(records, candidates, strict=True)]
        if None not in found:
            answers[f"`{validator}`"] = [value for value in found if value is not None]
    for name in everywhere:
        answers[f"always `{name}`"] = [record["candidates"][name] for record in records]
    answers[f"the answer of `{AUTO}`"] = [record["accuracy"] for record in records]
    best = np.array(
        [max(record["candidates"][name] for name in names) for record, names in zip(records, candidates, strict=True)]
    )
    lost = {name: best - np.array(found) for name, found in answers.items()}
    rows = [
        [name, percent(float(np.mean(answers[name]))), percent(float(lost[name].mean())), within(lost[name])]
        for name in sorted(answers, key=lambda name: lost[name].mean())
    ]
    return markdown(["chosen by", "mean accuracy, %", "points lost", "within 2 points, %"], rows)


def within(lost: np.ndarray[Any, Any]) -> str:
    return f"{100 * float((lost <= WITHIN + 1e-9).mean()):.0f}"


def by_score(record: Record, names: Sequence[str], validator: str) -> float | None:
    """The accuracy of the candidate with the highest score; None if no candidate has this score."""
    scored = [name for name in names if record["scores"][name].get(validator) is not None]
    if not scored:
        return None
    best = max(scored, key=lambda name: (name not in record["alarms"], record["scores"][name][validator]))
    return float(record["candidates"][best])


def overall(results: Results, tasks: Sequence[str], names: Sequence[str], peers: Sequence[str]) -> str:
    """Each contender over all tasks, the best mean first."""
    means = results.means(tasks, names)
    place = ranks(means).mean(axis=0)
    columns = [names.index(name) for name in peers]
    best = np.nanmax(means[:, columns], axis=1) if columns else np.full(len(tasks), np.nan)
    baseline = means[:, names.index(BASELINE)] if BASELINE in names else np.full(len(tasks), np.nan)
    rows = []
    for column in np.argsort(-np.nan_to_num(means.mean(axis=0)), kind="stable"):
        name, own = names[column], means[:, column]
        failed = results.failures(tasks, name)
        rows.append(
            [
                f"`{name}`",
                percent(float(own.mean())),
                f"{place[column]:.1f}",
                signed(float((best - own).mean())),
                signed(float((own - baseline).min())),
                f"{results.seconds(tasks, name):.1f}",
                str(failed) if failed else "",
            ]
        )
    head = ["contender", "mean accuracy, %", "rank", "regret", "least gain", "CPU seconds", "failed runs"]
    return markdown(head, rows)


def wins(results: Results, tasks: Sequence[str], default: str, peers: Sequence[str]) -> str:
    """The tasks on which a competitor is better than the default, the largest difference first."""
    rows = []
    means = results.means(tasks, peers)
    for task, row in zip(tasks, means, strict=True):
        best = int(np.nanargmax(row))
        difference = float(row[best]) - results.mean(task, default)
        if difference > TIE:
            winner = peers[best]
            rows.append((difference, [task, spread(results, task, default), f"`{winner}`"], winner))
    if not rows:
        return f"No competitor is more than {100 * TIE:.0f} point better than `{default}` on any of these tasks."
    ordered = sorted(rows, key=lambda row: -row[0])
    return markdown(
        ["task", f"`{default}`", "best competitor", "its accuracy, %", "difference"],
        [[*cells, spread(results, cells[0], winner), f"{100 * d:.1f}"] for d, cells, winner in ordered],
    )


def grouped(results: Results, tasks: Sequence[str], peers: Sequence[str]) -> list[str]:
    """Tables of the competitors, a few columns each."""
    groups: dict[str, list[str]] = {}
    for name in peers:
        groups.setdefault("skada" if "skada" in PEERS[name].packages else PEERS[name].packages[0], []).append(name)
    return [each(results, tasks, names) for names in groups.values()]


def each(results: Results, tasks: Sequence[str], names: Sequence[str]) -> str:
    """Mean ± standard deviation of each contender on each task."""
    rows = [[task, *(spread(results, task, name) for name in names)] for task in tasks]
    return markdown(["task", *(f"`{name}`" for name in names)], rows)


def described(results: Results) -> str:
    rows = [[name, TASKS[name].family, side(name), TASKS[name].description] for name in results.tasks]
    return markdown(["task", "family", "for", "description"], rows)


def made(records: Sequence[Record]) -> str:
    """How many runs there are, and what they were made with."""
    versions = sorted({r["version"] for r in records if r["settings"] is None})
    commits = sorted({r.get("commit") or "an export" for r in records if r["settings"] is not None})
    torch = sorted({r["torch"] for r in records if r["settings"] is not None})
    hours = sum(r["cpu_s"] for r in records) / 3600
    seeds = sorted({r["seed"] for r in records})
    text = f"{len(records)} runs with the seeds {', '.join(map(str, seeds))}, {hours:.1f} CPU hours."
    text += f" Competitors: {'; '.join(versions)}." if versions else ""
    return text + (f" Ours: commit {', '.join(commits)}, torch {', '.join(torch)}." if commits else "")


def spread(results: Results, task: str, contender: str) -> str:
    """Mean ± standard deviation in percent, or a dash."""
    found = results.accuracies(task, contender)
    if not found:
        return "–"
    deviation = f" ± {100 * np.std(found, ddof=1):.1f}" if len(found) > 1 else ""
    return percent(float(np.mean(found))) + deviation


def signed(value: float) -> str:
    """A difference in points, or a dash."""
    return "–" if np.isnan(value) else f"{100 * value:+.1f}"


def percent(value: float) -> str:
    return "–" if np.isnan(value) else f"{100 * value:.1f}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
