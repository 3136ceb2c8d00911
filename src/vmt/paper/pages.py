"""The pages of documentation about the paper: one for each table and one for the figures, from the result files."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from vmt.paper.experiment import Cell, Experiment, Table
from vmt.paper.results import had_collapsed, results_of, runs_at_once
from vmt.paper.tables import TABLES, rounded

Row = Mapping[str, Any]

EARLIER = "earlier"
GENERATED = "<!-- Written by `vmt paper pages`; a test compares it with the result files. -->"
# By the name of its file: a title, what it shows, and the arguments of `vmt paper figure`.
FIGURES: dict[str, tuple[str, str, str]] = {
    "tsne": (
        "The last hidden layer",
        "t-SNE of the input of the last dense layer, MNIST → SVHN without instance norm, for 500 samples of each test "
        "set. The upper row is coloured by domain (source red, target blue, as in the paper), the lower row by class. "
        "The command also draws the paper's fifth panel, VADA + DIRT-T; this picture is older and lacks it.",
        "tsne --data DATA",
    ),
    "tsne-instance-norm": (
        "The last hidden layer, with instance norm",
        "The same for the runs with instance norm; VMT has a warm-up.",
        "tsne --instance-norm --data DATA",
    ),
    "gradient-norms": (
        "Gradient norms in between samples",
        "The Frobenius norm of the gradient of the class probabilities with respect to the input at "
        r"$\lambda x_i + (1 - \lambda) x_j$, for random pairs of the SVHN test set: mean, median and middle half. This "
        "picture has seed 0 and 1,000 pairs; the command takes the whole test set, as in the paper, and three seeds. "
        "The paper does not say which norm it uses for a classifier with ten outputs, nor whether its runs have "
        "instance norm. This norm is our choice, and these runs have instance norm, VMT with a warm-up. In the paper, "
        "the norms of VMT are much smaller than those of VADA. Here they are smaller at the samples and near them, "
        "and alike in the middle. A few pairs dominate the mean.",
        "gradient-norms --data DATA --samples 0 --seeds 0,1,2",
    ),
    "gradient-norms-no-instance-norm": (
        "Gradient norms in between samples, without instance norm",
        "The same for the runs without instance norm, where VADA and VMT have the same λ_t. Here the norms of VMT are "
        "smaller, as in the paper: 1.67 against 2.75 in the middle, 1.06 against 1.64 at the samples. These numbers "
        "are in the picture alone.",
        "gradient-norms --no-instance-norm --data DATA --samples 0 --seeds 0,1,2",
    ),
    "accuracy-over-time": (
        "Accuracy over time",
        "VAT against VMT, MNIST → SVHN with instance norm: a line for each run, over iterations and over minutes. "
        "The time includes evaluation but not compiling. Runs that shared the GPU with others are missing on the "
        "right. So VMT without VAT (L_c, L_m) is missing there until a run of it has been timed alone: "
        "`vmt paper run all --only mnist-svhn_vmt_in_vat=False --seeds 1 --data DATA`. VAT (VADA) has its own λ_t of "
        "0.01, the others have the 0.06 of VMT.",
        "accuracy-over-time",
    ),
}


def pages(results: Path, out: Path, link: str = "../../results") -> dict[str, str]:
    """Every page by its file name.

    ``out`` is the folder of the pages: figures in it are shown. ``link`` is the path from there to the results.
    """
    tables = {f"{table.name}.md": table_page(table, results, link) for table in TABLES.values()}
    return {"index.md": index(results), **tables, "figures.md": figures_page(out)}


def index(results: Path) -> str:
    lines = [GENERATED, "", "# The paper, rebuilt", ""]
    lines += [
        "These pages repeat the tables and figures of the paper on [VMT](../methods/vmt.md). One "
        "command fills a table: it carries out the runs that are missing, the most important first, and continues "
        "where it was stopped. Each run leaves a small file with recipe, seed, commit, hardware, curve and accuracy.",
        "",
        "```console",
        "$ vmt data download mnist svhn --data DATA",
        "$ vmt paper run evaluation --data DATA --budget 60      # for an hour; the same command continues",
        "$ vmt paper show evaluation",
        "```",
        "",
        "| table | | the paper's numbers | rows of ours |",
        "|---|---|---|---|",
    ]
    for table in TABLES.values():
        papers, own = coverage(table, results)
        lines.append(f"| [{table.name}]({table.name}.md) | {table.title} | {papers} | {own} |")
    lines += [
        "",
        "The third column says how many of the paper's numbers have at least one run here, and the fourth how many of "
        "the rows that we add. Table 1 has 105 numbers, in three parts. The [figures](figures.md) have a page of their "
        "own. The paper's Table 5 lists its hyperparameters; here they are [the "
        "recipes](../../src/vmt/runs/recipes.py).",
    ]
    return "\n".join(lines) + "\n"


def coverage(table: Table, results: Path) -> tuple[str, str]:
    """How many of the paper's numbers have a run, and how many of the numbers that we add."""

    def count(own: bool) -> str:
        runs = [row_of(cell, results)["runs"] for cell in table.cells if cell.is_own == own]
        return f"{sum(n > 0 for n in runs)} of {len(runs)}" if runs else ""

    return count(own=False), count(own=True)


def table_page(table: Table, results: Path, link: str) -> str:
    """Our numbers beside the paper's, notes about them, and the runs behind them."""
    several_tasks = len({cell.column for cell in table.cells}) > 1 and table.name != "priority"
    experiments = experiments_of(table)
    parts = [
        GENERATED,
        f"# {table.title}",
        f"```console\n$ vmt paper run {table.name} --data DATA\n$ vmt paper show {table.name}\n```",
        "Accuracy on the target test set in percent: mean ± standard deviation over the runs, with their number in "
        "brackets." + (" A dash stands for a number that has no run yet." if several_tasks else ""),
        keep_together(rows_and_tasks(table, results) if several_tasks else one_line_per_cell(table, results)),
        "\n".join(f"- {note}" for note in table.notes),
        "## The runs",
        list_of_runs(experiments, results, link) or "None has been run yet.",
    ]
    if missing := systems_without_method(table):
        parts.insert(-2, f"There is no method here for {missing}.")
    if earlier := list_of_runs(experiments, results / EARLIER, f"{link}/{EARLIER}"):
        parts += ["## Earlier runs, not counted above", earlier]
    return "\n\n".join(parts) + "\n"


def keep_together(table: str) -> str:
    """The table without line breaks beside ± and inside short cells."""
    return re.sub(r" (±|of) (?=\d)|(?<=paper) (?=[\d–])", lambda m: m[0].replace(" ", "\u00a0"), table)


def figures_page(out: Path) -> str:
    parts = [GENERATED, "# The paper's figures"]
    for name, (title, text, figure) in FIGURES.items():
        command = f"$ vmt paper figure {figure} --out docs/paper/figures/{name}.svg"
        parts += [f"## {title}", text, f"```console\n{command}\n```"]
        drawn = [file for file in (f"figures/{name}.svg", f"figures/{name}.png") if (out / file).exists()]
        parts.append(f"![{title}]({drawn[0]})" if drawn else "Not drawn yet: the runs that it needs are missing.")
    return "\n\n".join(parts) + "\n"


def experiments_of(table: Table) -> list[Experiment]:
    """Every experiment whose runs a table may show, each once."""
    several = {
        each.name: each for cell in table.cells for each in (cell.experiment, *(e for e, _ in cell.passing)) if each
    }
    return list(several.values())


def systems_without_method(table: Table) -> str:
    return ", ".join(dict.fromkeys(cell.row for cell in table.cells if cell.experiment is None))


# --- Tables ---


def markdown(table: Table, results: Path) -> str:
    """The table as ``vmt paper show`` prints it."""
    return f"**{table.title}** (accuracy on the target test set, %)\n\n" + one_line_per_cell(table, results)


def one_line_per_cell(table: Table, results: Path) -> str:
    rows = rows_of(table, results)
    chosen = any(row["choose_on"] for row in rows)
    titles = ["", "task", "paper", "ours", *(["held apart"] if chosen else []), "runs", "collapsed"]
    lines = ["| " + " | ".join(titles).strip() + " |", "|---" * len(titles) + "|"]
    for row in rows:
        held = [with_spread(row["choice"], None)] if chosen else []
        collapsed = str(row["collapsed"]) if row["runs"] else ""
        values = [row["row"], task_of(row), papers(row), ours_or_partial(row), *held]
        lines.append("| " + " | ".join([*values, f"{row['runs']} of {row['wanted']}", collapsed]) + " |")
    return "\n".join(lines)


def rows_and_tasks(table: Table, results: Path) -> str:
    """A line for each row and a column for each task, with our number, or a dash, above the paper's."""
    columns = list(dict.fromkeys(cell.column for cell in table.cells))
    texts: dict[str, dict[str, str]] = {}
    for cell in table.cells:
        row = row_of(cell, results)
        count = f" ({row['runs']})" if row["runs"] else ""
        collapsed = f", {row['collapsed']} collapsed" if row["collapsed"] else ""
        shown = ours_or_partial(row) if row["runs"] or row["partial"] else "–"
        paper = f"<br>paper {papers(row)}" if row["paper"] is not None else ""
        text = f"{shown}{count}{collapsed}{other_sets(row)}{paper}"
        texts.setdefault(cell.row, {})[cell.column] = text
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {row} | " + " | ".join(cells.get(c, "") for c in columns) + " |" for row, cells in texts.items()]
    return "\n".join(lines)


def rows_of(table: Table, results: Path) -> list[dict[str, Any]]:
    """The numbers of every cell; ``vmt paper show --json`` prints them."""
    return [row_of(cell, results) for cell in table.cells]


def row_of(cell: Cell, results: Path) -> dict[str, Any]:
    """Mean, spread and number of the runs whose phase has ended, finished or not. Collapsed runs count like others."""
    own = [] if cell.experiment is None else results_of(results, cell.experiment)
    ended = {r["seed"]: (r, value) for r in own if (value := accuracy_of(r, cell.phase, cell.domain)) is not None}
    for experiment, step in cell.passing:
        for r in results_of(results, experiment):
            if r["seed"] not in ended and (value := accuracy_at(r, step, cell.domain)) is not None:
                ended[r["seed"]] = (r, value)
    runs = [ended[seed] for seed in sorted(ended)]
    values = [100 * value for _, value in runs]
    seconds = [s for r, _ in runs if (s := r.get("phase_seconds", {}).get(cell.phase)) is not None]
    choice = [c for r, _ in runs if (c := r.get("choice_accuracy", {}).get(cell.phase)) is not None]
    return {
        "row": cell.row,
        "column": cell.column,
        "paper": cell.paper,
        "paper_std": cell.paper_std,
        "ours": mean(values) if values else None,
        "std": stdev(values) if len(values) > 1 else None,
        "runs": len(values),
        "wanted": cell.seeds,
        "collapsed": sum(had_collapsed(r, cell.phase) for r, _ in runs),
        "seeds": [r["seed"] for r, _ in runs],
        "values": [round(value, 2) for value in values],
        "partial": [part for r in own if r["seed"] not in ended and (part := partial(r, cell.phase, cell.domain))],
        "choose_on": None if cell.experiment is None else cell.experiment.choose_on,
        "choice": 100 * mean(choice) if choice else None,
        "seconds": round(mean(seconds)) if seconds else None,
        "experiment": None if cell.experiment is None else cell.experiment.name,
        "phase": cell.phase,
        "caveats": sorted({name for r, _ in runs for name in r.get("domains", []) if "(" in name}),
    }


DOMAINS = {"target": 1, "source": 2}
"""The column of each domain in the curve of a result."""


def accuracy_of(result: Mapping[str, Any], phase: str, domain: str) -> float | None:
    """The accuracy at the end of a phase; None before that."""
    accuracy: float | None = result["accuracy"].get(phase)
    if accuracy is None or domain == "target":
        return accuracy
    return accuracy_at(result, last_iteration(result, phase), domain)


def accuracy_at(result: Mapping[str, Any], step: int | None, domain: str) -> float | None:
    """The accuracy at an iteration, if the run was evaluated there."""
    found = [point[DOMAINS[domain]] for point in result.get("curve", []) if point[0] == step]
    return found[0] if found else None


def last_iteration(result: Mapping[str, Any], phase: str) -> int | None:
    """The iteration of a run at which a phase ends."""
    lengths: Mapping[str, int] = result.get("phase_iterations", {})
    if phase not in lengths:
        return None
    return sum(list(lengths.values())[: list(lengths).index(phase) + 1])


def partial(result: Mapping[str, Any], phase: str, domain: str) -> str:
    """The last evaluation in a phase that has not ended, in words; empty if there is none."""
    if (end := last_iteration(result, phase)) is None:
        return ""
    length = result["phase_iterations"][phase]
    inside = [p for p in result.get("curve", []) if end - length < p[0] < end and p[DOMAINS[domain]] is not None]
    if not inside:
        return ""
    value, done = inside[-1][DOMAINS[domain]], inside[-1][0] - end + length
    return f"{one_decimal(100 * value)} after {done:,} of {length:,} iterations (seed {result['seed']})"


def ours(row: Row) -> str:
    """Our number, in bold if it is at least the paper's on the same data."""
    text = with_spread(row["ours"], row["std"])
    comparable = row["ours"] is not None and row["paper"] is not None and not row["caveats"]
    return f"**{text}**" if comparable and float(one_decimal(row["ours"])) >= row["paper"] else text


def ours_or_partial(row: Row) -> str:
    """Our number; without one, how far runs have come."""
    if row["runs"]:
        return ours(row)
    if row["partial"]:
        return f"partial: {'; '.join(row['partial'])}"
    return "not run yet" if row["experiment"] else "no such method here"


def papers(row: Row) -> str:
    return with_spread(row["paper"], row["paper_std"])


def with_spread(value: float | None, std: float | None) -> str:
    """Mean ± standard deviation; a dash if there is no number."""
    return "–" if value is None else one_decimal(value) + (f" ± {one_decimal(std)}" if std is not None else "")


def one_decimal(value: float) -> str:
    return f"{rounded(value):.1f}"


def task_of(row: Row) -> str:
    return f"{row['column']}{other_sets(row)}"


def other_sets(row: Row) -> str:
    """The sets behind a number that are not those of the paper; their names have brackets."""
    return f", with {', '.join(row['caveats'])}" if row["caveats"] else ""


# --- Runs ---


def list_of_runs(experiments: Iterable[Experiment], results: Path, link: str) -> str:
    """Every run of the experiments: its accuracy, its time, the hardware and the commit."""
    head = ["| run | accuracy | minutes | on | commit |", "|---|---|---|---|---|"]
    lines = [
        line_of_run(result, experiment, link)
        for experiment in experiments
        for result in results_of(results, experiment)
    ]
    return "\n".join([*head, *lines]) if lines else ""


def line_of_run(result: Mapping[str, Any], experiment: Experiment, link: str) -> str:
    name = f"{experiment.name}_{result['seed']}"
    reached = [
        f"{phase} {one_decimal(100 * accuracy)}" + (" (collapsed)" if had_collapsed(result, phase) else "")
        for phase, accuracy in result["accuracy"].items()
        if accuracy is not None
    ]
    if not result["finished"]:
        reached.append(not_finished(result))
    spent = result.get("phase_seconds") or {"all": result["seconds"]}
    minutes = " + ".join(f"{seconds / 60:.1f}" for seconds in spent.values())
    if (runs := runs_at_once(result)) > 1:
        minutes += f", {runs} runs at once"
    environment = result["environment"]
    hardware = environment.get("gpu") or f"CPU, {environment.get('cpu_threads')} threads"
    return (
        f"| [{name}]({link}/{name}.json) | {', '.join(reached)} | {minutes} | {hardware}, torch "
        f"{environment.get('torch')} | {commits(environment)} |"
    )


def not_finished(result: Mapping[str, Any]) -> str:
    """The last accuracy of an unfinished run, if there is one after the end of its last phase."""
    ended = sum(result.get("phase_iterations", {}).get(phase, 0) for phase in result["accuracy"])
    later = [point for point in result.get("curve", []) if point[0] > ended and point[1] is not None]
    if not later:
        return "not finished"
    return f"partial: {one_decimal(100 * later[-1][1])} after {later[-1][0]:,} iterations in all"


def commits(environment: Mapping[str, Any]) -> str:
    """The commit that a run was started with and, if it is another, the one that it ended with."""
    ended = environment.get("ended_on", {}).get("commit")
    started = environment.get("commit")
    return f"{started}" if ended in (None, started) else f"{started}, then {ended}"
