"""The pages of documentation about the paper: one for each table and one for the figures, from the result files."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from vmt.paper.experiment import Cell, Experiment, Table
from vmt.paper.results import had_collapsed, results_of, runs_at_once
from vmt.paper.tables import TABLES

Row = Mapping[str, Any]

EARLIER = "earlier"
GENERATED = "<!-- Written by `vmt paper pages`; a test compares it with the result files. -->"
# By the name of its file: a title, what it shows, and the arguments of `vmt paper figure`.
FIGURES: dict[str, tuple[str, str, str]] = {
    "tsne": (
        "The last hidden layer",
        "t-SNE of the input of the last dense layer, MNIST → SVHN without instance norm, for 500 samples of each test "
        "set. The upper row is coloured by domain (source red, target blue, as in the paper), the lower row by class. "
        "The paper has a fifth panel, VADA + DIRT-T.",
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
        r"$\lambda x_i + (1 - \lambda) x_j$, for 1,000 random pairs of the SVHN test set: mean, median and middle "
        "half. The paper does not say which norm it uses for a classifier with ten outputs, nor whether its runs have "
        "instance norm; this norm is our choice, and these runs have instance norm, VMT with a warm-up. In the paper "
        "the norms of VMT are much smaller than those of VADA. Here that is so at the samples and near them, and in "
        "the middle they are alike. A few pairs dominate the mean.",
        "gradient-norms --data DATA --samples 1000",
    ),
    "gradient-norms-no-instance-norm": (
        "Gradient norms in between samples, without instance norm",
        "The same for the runs without instance norm, where VADA and VMT have the same λ_t. Here the norms of VMT are "
        "smaller, as in the paper: 1.67 against 2.75 in the middle, 1.06 against 1.64 at the samples.",
        "gradient-norms --no-instance-norm --data DATA --samples 1000",
    ),
    "accuracy-over-time": (
        "Accuracy over time",
        "VAT against VMT, MNIST → SVHN with instance norm: a line for each run, over iterations and over minutes. "
        "The time includes evaluation but not compiling; runs that shared the GPU with others are missing on the "
        "right. VAT (VADA) has its own λ_t of 0.01, the others have the 0.06 of VMT.",
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
        "Every table of the paper is a command. It runs the jobs that are missing, the most important first, and "
        "continues where it was stopped. Each run leaves a small file with recipe, seed, commit, hardware, curve and "
        "accuracy.",
        "",
        "```console",
        "$ vmt data download mnist svhn --data DATA",
        "$ vmt paper run evaluation --data DATA --budget 60      # for an hour; the same command continues",
        "$ vmt paper show evaluation",
        "```",
        "",
        "| table | | numbers |",
        "|---|---|---|",
    ]
    for table in TABLES.values():
        filled = sum(row["runs"] > 0 for row in rows_of(table, results))
        lines.append(f"| [{table.name}]({table.name}.md) | {table.title} | {filled} of {len(table.cells)} |")
    lines += [
        "",
        "The [figures](figures.md) have a page of their own. A number counts as soon as it has one run; the pages say "
        "how many it has.",
    ]
    return "\n".join(lines) + "\n"


def table_page(table: Table, results: Path, link: str) -> str:
    """Our numbers beside the paper's, notes about them, and the runs behind them."""
    several_tasks = len({cell.column for cell in table.cells}) > 1 and table.name != "priority"
    experiments = {cell.experiment.name: cell.experiment for cell in table.cells}.values()
    parts = [
        GENERATED,
        f"# {table.title}",
        f"```console\n$ vmt paper run {table.name} --data DATA\n$ vmt paper show {table.name}\n```",
        "Accuracy on the target test set in percent: mean ± standard deviation over the runs, with their number in "
        "brackets.",
        rows_and_tasks(table, results) if several_tasks else one_line_per_cell(table, results),
        "\n".join(f"- {note}" for note in table.notes),
        "## The runs",
        list_of_runs(experiments, results, link) or "None has been run yet.",
    ]
    if earlier := list_of_runs(experiments, results / EARLIER, f"{link}/{EARLIER}"):
        parts += ["## Earlier runs, not counted above", earlier]
    return "\n\n".join(parts) + "\n"


def figures_page(out: Path) -> str:
    parts = [GENERATED, "# The paper's figures"]
    for name, (title, text, figure) in FIGURES.items():
        command = f"$ vmt paper figure {figure} --out docs/paper/figures/{name}.svg"
        parts += [f"## {title}", text, f"```console\n{command}\n```"]
        drawn = [file for file in (f"figures/{name}.svg", f"figures/{name}.png") if (out / file).exists()]
        parts.append(f"![{title}]({drawn[0]})" if drawn else "Not drawn yet: the runs that it needs are missing.")
    return "\n\n".join(parts) + "\n"


# --- Tables ---


def markdown(table: Table, results: Path) -> str:
    """The table as ``vmt paper show`` prints it."""
    lines = ["| | task | paper | ours | runs | collapsed |", "|---|---|---|---|---|---|"]
    for row in rows_of(table, results):
        runs = f"{row['runs']} of {row['wanted']}"
        lines.append(f"| {row['row']} | {task_of(row)} | {papers(row)} | {ours(row)} | {runs} | {row['collapsed']} |")
    return f"**{table.title}** (accuracy on the target test set, %)\n\n" + "\n".join(lines)


def one_line_per_cell(table: Table, results: Path) -> str:
    lines = ["| | task | paper | ours | runs wanted | collapsed |", "|---|---|---|---|---|---|"]
    for row in rows_of(table, results):
        lines.append(
            f"| {row['row']} | {task_of(row)} | {papers(row)} | {ours_with_count(row)} | {row['wanted']} | "
            f"{row['collapsed'] if row['runs'] else ''} |"
        )
    return "\n".join(lines)


def rows_and_tasks(table: Table, results: Path) -> str:
    """A line for each row and a column for each task, with our number above the paper's."""
    columns = list(dict.fromkeys(cell.column for cell in table.cells))
    texts: dict[str, dict[str, str]] = {}
    for cell in table.cells:
        row = row_of(cell, results)
        collapsed = f", {row['collapsed']} collapsed" if row["collapsed"] else ""
        text = f"{ours_with_count(row)}{collapsed}{other_sets(row)}<br>paper {papers(row)}"
        texts.setdefault(cell.row, {})[cell.column] = text
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {row} | " + " | ".join(cells.get(c, "") for c in columns) + " |" for row, cells in texts.items()]
    return "\n".join(lines)


def rows_of(table: Table, results: Path) -> list[dict[str, Any]]:
    """The numbers of every cell; ``vmt paper show --json`` prints them."""
    return [row_of(cell, results) for cell in table.cells]


def row_of(cell: Cell, results: Path) -> dict[str, Any]:
    """Mean, spread and number of the runs whose phase has ended, finished or not. Collapsed runs count like others."""
    ended = [r for r in results_of(results, cell.experiment) if r["accuracy"].get(cell.phase) is not None]
    values = [100 * r["accuracy"][cell.phase] for r in ended]
    seconds = [s for r in ended if (s := r.get("phase_seconds", {}).get(cell.phase)) is not None]
    return {
        "row": cell.row,
        "column": cell.column,
        "paper": cell.paper,
        "paper_std": cell.paper_std,
        "ours": mean(values) if values else None,
        "std": stdev(values) if len(values) > 1 else None,
        "runs": len(values),
        "wanted": cell.seeds,
        "collapsed": sum(had_collapsed(r, cell.phase) for r in ended),
        "seeds": [r["seed"] for r in ended],
        "values": [round(value, 2) for value in values],
        "seconds": round(mean(seconds)) if seconds else None,
        "experiment": cell.experiment.name,
        "phase": cell.phase,
        "caveats": sorted({name for r in ended for name in r.get("domains", []) if "(" in name}),
    }


def ours(row: Row) -> str:
    return with_spread(row["ours"], row["std"])


def ours_with_count(row: Row) -> str:
    return f"**{ours(row)}** ({row['runs']})" if row["runs"] else "not run yet"


def papers(row: Row) -> str:
    return with_spread(row["paper"], row["paper_std"])


def with_spread(value: float | None, std: float | None) -> str:
    """Mean ± standard deviation; a dash if there is no number."""
    return "–" if value is None else f"{value:.1f}" + (f" ± {std:.1f}" if std is not None else "")


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
        f"{phase} {100 * accuracy:.1f}" + (" (collapsed)" if had_collapsed(result, phase) else "")
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
    later = [point for point in result.get("curve", []) if ended and point[0] > ended and point[1] is not None]
    return f"not finished: {100 * later[-1][1]:.1f} after {later[-1][0]:,} iterations" if later else "not finished"


def commits(environment: Mapping[str, Any]) -> str:
    """The commit that a run was started with and, if it is another, the one that it ended with."""
    ended = environment.get("ended_on", {}).get("commit")
    started = environment.get("commit")
    return f"{started}" if ended in (None, started) else f"{started}, then {ended}"
