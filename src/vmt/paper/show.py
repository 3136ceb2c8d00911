"""A table, ours beside the paper's."""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from vmt.paper.experiment import Cell, Table
from vmt.paper.results import collapsed, results_of

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
