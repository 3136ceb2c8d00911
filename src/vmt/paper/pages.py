"""A page of documentation per table, and one for the figures, from the result files alone."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from vmt.paper.experiment import Cell, Experiment, Table
from vmt.paper.results import at_once, collapsed, results_of
from vmt.paper.tables import TABLES

Row = Mapping[str, Any]


def rows_of(table: Table, results: Path) -> list[dict[str, Any]]:
    """One row per cell: our mean, spread and number of runs. Collapsed runs count like any other, and are counted."""
    return [row_of(cell, results) for cell in table.cells]


def row_of(cell: Cell, results: Path) -> dict[str, Any]:
    """A phase that has ended counts, whether or not its run went on to the end."""
    found = [r for r in results_of(results, cell.experiment) if r["accuracy"].get(cell.phase) is not None]
    values = [100 * r["accuracy"][cell.phase] for r in found]
    seconds = [s for r in found if (s := r.get("phase_seconds", {}).get(cell.phase)) is not None]
    return {
        "row": cell.row,
        "column": cell.column,
        "paper": cell.paper,
        "paper_std": cell.paper_std,
        "ours": round(mean(values), 2) if values else None,
        "std": round(stdev(values), 2) if len(values) > 1 else None,
        "runs": len(values),
        "wanted": cell.seeds,
        "collapsed": sum(collapsed(r, cell.phase) for r in found),
        "seeds": [r["seed"] for r in found],
        "values": [round(value, 2) for value in values],
        "seconds": round(mean(seconds)) if seconds else None,
        "experiment": cell.experiment.name,
        "phase": cell.phase,
        "caveats": sorted({name for r in found for name in r.get("domains", []) if "(" in name}),
    }


def ours(row: Row) -> str:
    return with_spread(row["ours"], row["std"])


def papers(row: Row) -> str:
    return with_spread(row["paper"], row["paper_std"])


def with_spread(value: float | None, std: float | None) -> str:
    """Mean ± standard deviation; a dash where there is no number."""
    return "–" if value is None else f"{value:.1f}" + (f" ± {std:.1f}" if std is not None else "")


def task_of(row: Row) -> str:
    return f"{row['column']}{aside(row)}"


def aside(row: Row) -> str:
    """Which of the sets behind a number are not those of the paper; their names say so in brackets."""
    return f", with {', '.join(row['caveats'])}" if row["caveats"] else ""


def markdown(table: Table, results: Path) -> str:
    """The table as Markdown."""
    lines = ["| | task | paper | ours | runs | collapsed |", "|---|---|---|---|---|---|"]
    for row in rows_of(table, results):
        runs = f"{row['runs']} of {row['wanted']}"
        lines.append(f"| {row['row']} | {task_of(row)} | {papers(row)} | {ours(row)} | {runs} | {row['collapsed']} |")
    return f"**{table.title}** (accuracy on the target test set, %)\n\n" + "\n".join(lines)


EARLIER = "earlier"
GENERATED = "<!-- Written by `vmt paper pages`; a test compares it with the result files. -->"
# By the name of its file: a title, what it shows, and the figure of `vmt paper figure` with its options.
FIGURES: dict[str, tuple[str, str, str]] = {
    "tsne": (
        "The last hidden layer",
        "t-SNE of what the last dense layer sees, MNIST → SVHN without instance norm: 500 samples of each test set. "
        "Above by domain (source red, target blue, as in the paper), below by class. The paper has a fifth panel, "
        "VADA + DIRT-T.",
        "tsne --data DATA",
    ),
    "tsne-instance-norm": (
        "The last hidden layer, with instance norm",
        "The same of the runs with instance norm, VMT with warm-up.",
        "tsne --instance-norm --data DATA",
    ),
    "gradient-norms": (
        "Gradient norms in between samples",
        "The Frobenius norm of the gradient of the class probabilities with respect to the input at λ x_i + (1 − λ) "
        "x_j, for 1,000 random pairs of the SVHN test set: mean, median and middle half. The paper does not say which "
        "norm it took of a classifier of ten outputs, nor whether with instance norm; this norm is ours, and these are "
        "the runs with it, VMT with warm-up. The paper sees much smaller norms with VMT than with VADA. Here that is "
        "so at the samples and near them, and in the middle they are alike. Few pairs dominate the mean.",
        "gradient-norms --data DATA --samples 1000",
    ),
    "gradient-norms-no-instance-norm": (
        "Gradient norms in between samples, without instance norm",
        "The same of the runs without instance norm, where VADA and VMT have the same λ_t. Here VMT's norms are "
        "the smaller ones, as in the paper: 1.67 against 2.75 in the middle, 1.06 against 1.64 at the samples.",
        "gradient-norms --no-instance-norm --data DATA --samples 1000",
    ),
    "accuracy-over-time": (
        "Accuracy over time",
        "VAT against VMT, MNIST → SVHN with instance norm: every run a line, over iterations and over minutes. "
        "Compiling is left out of the time and evaluation is in it; runs that shared the GPU with others are not on "
        "the right. VAT (VADA) has its own λ_t of 0.01, the others VMT's 0.06.",
        "accuracy-over-time",
    ),
}


def pages(results: Path, out: Path, link: str = "../../results") -> dict[str, str]:
    """Every page by its file name. ``out`` is where they go: pictures that lie there are shown; ``link`` is the way
    from there to the results."""
    made = {f"{table.name}.md": page(table, results, link) for table in TABLES.values()}
    return {"index.md": index(results), **made, "figures.md": figures(out)}


def index(results: Path) -> str:
    lines = [GENERATED, "", "# The paper, rebuilt", ""]
    lines += [
        "Every table of the paper is a command. It runs what is missing, the most valuable runs first, and goes on "
        "where it was stopped; each run leaves a small file with recipe, seed, commit, hardware, curve and accuracy.",
        "",
        "```",
        "vmt data download mnist svhn --data DATA",
        "vmt paper run evaluation --data DATA --budget 60      # for an hour; the same command goes on",
        "vmt paper show evaluation",
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
        "And the [figures](figures.md). A number counts as filled from its first run on; the pages say how many.",
    ]
    return "\n".join(lines) + "\n"


def page(table: Table, results: Path, link: str) -> str:
    """Ours beside the paper's, what to know of it, and every run behind it."""
    several = len({cell.column for cell in table.cells}) > 1 and table.name != "priority"
    experiments = {cell.experiment.name: cell.experiment for cell in table.cells}.values()
    parts = [
        GENERATED,
        f"# {table.title}",
        f"```\nvmt paper run {table.name} --data DATA\nvmt paper show {table.name}\n```",
        "Accuracy on the target test set in percent, mean ± standard deviation over the runs, whose number is in "
        "brackets.",
        matrix(table, results) if several else listing(table, results),
        "\n".join(f"- {note}" for note in table.notes),
        "## The runs",
        runs_of(experiments, results, link) or "None has been run yet.",
    ]
    if earlier := runs_of(experiments, results / EARLIER, f"{link}/{EARLIER}"):
        parts += ["## Earlier runs, not counted above", earlier]
    return "\n\n".join(parts) + "\n"


def listing(table: Table, results: Path) -> str:
    """One line per number."""
    lines = ["| | task | paper | ours | runs wanted | collapsed |", "|---|---|---|---|---|---|"]
    for row in rows_of(table, results):
        lines.append(
            f"| {row['row']} | {task_of(row)} | {papers(row)} | {counted(row)} | {row['wanted']} | "
            f"{row['collapsed'] if row['runs'] else ''} |"
        )
    return "\n".join(lines)


def matrix(table: Table, results: Path) -> str:
    """Rows against tasks, ours above the paper's."""
    columns = list(dict.fromkeys(cell.column for cell in table.cells))
    found: dict[str, dict[str, str]] = {}
    for cell in table.cells:
        found.setdefault(cell.row, {})[cell.column] = both(cell, results)
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {row} | " + " | ".join(cells.get(c, "") for c in columns) + " |" for row, cells in found.items()]
    return "\n".join(lines)


def both(cell: Cell, results: Path) -> str:
    row = row_of(cell, results)
    warning = f", {row['collapsed']} collapsed" if row["collapsed"] else ""
    return f"{counted(row)}{warning}{aside(row)}<br>paper {papers(row)}"


def counted(row: Row) -> str:
    return f"**{ours(row)}** ({row['runs']})" if row["runs"] else "not run yet"


def runs_of(experiments: Iterable[Experiment], results: Path, link: str) -> str:
    """Every run of some experiments: what it reached, how long it took, on what."""
    head = ["| run | accuracy | minutes | on | commit |", "|---|---|---|---|---|"]
    lines = [
        run_line(record, experiment, link) for experiment in experiments for record in results_of(results, experiment)
    ]
    return "\n".join([*head, *lines]) if lines else ""


def run_line(record: Mapping[str, Any], experiment: Experiment, link: str) -> str:
    name = f"{experiment.name}_{record['seed']}"
    reached = [
        f"{phase} {100 * accuracy:.1f}" + (" (collapsed)" if collapsed(dict(record), phase) else "")
        for phase, accuracy in record["accuracy"].items()
        if accuracy is not None
    ]
    if not record["finished"]:
        reached.append(so_far(record))
    spent = record.get("phase_seconds") or {"all": record["seconds"]}
    minutes = " + ".join(f"{seconds / 60:.1f}" for seconds in spent.values())
    if (runs := at_once(record)) > 1:
        minutes += f", {runs} runs at once"
    environment = record["environment"]
    hardware = environment.get("gpu") or f"CPU, {environment.get('cpu_threads')} threads"
    return (
        f"| [{name}]({link}/{name}.json) | {', '.join(reached)} | {minutes} | {hardware}, torch "
        f"{environment.get('torch')} | {commits(environment)} |"
    )


def so_far(record: Mapping[str, Any]) -> str:
    """How far a run has come that is not finished, where that is beyond the end of a phase."""
    ended = sum(record.get("phase_iterations", {}).get(phase, 0) for phase in record["accuracy"])
    beyond = [point for point in record.get("curve", []) if ended and point[0] > ended and point[1] is not None]
    return f"not finished: {100 * beyond[-1][1]:.1f} after {beyond[-1][0]:,} iterations" if beyond else "not finished"


def commits(environment: Mapping[str, Any]) -> str:
    """What a run began with and, where that was another, what it ended with."""
    ended = environment.get("ended_on", {}).get("commit")
    began = environment.get("commit")
    return f"{began}" if ended in (None, began) else f"{began}, then {ended}"


def figures(out: Path) -> str:
    parts = [GENERATED, "# The paper's figures"]
    for name, (title, text, figure) in FIGURES.items():
        parts += [f"## {title}", text, f"```\nvmt paper figure {figure} --out docs/paper/figures/{name}.svg\n```"]
        drawn = (out / "figures" / f"{name}.png").exists()
        parts.append(f"![{title}](figures/{name}.png)" if drawn else "Not drawn yet: the runs it needs are missing.")
    return "\n\n".join(parts) + "\n"
