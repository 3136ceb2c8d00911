"""A table, ours beside the paper's."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

from vmt.paper.runner import read_result, result_path
from vmt.paper.tables import Cell, Table


def rows_of(table: Table, results: Path) -> list[dict[str, Any]]:
    """One row per cell: our mean, spread and number of runs. Collapsed runs count like any other, and are counted."""
    return [row_of(cell, results) for cell in table.cells]


def row_of(cell: Cell, results: Path) -> dict[str, Any]:
    paths = sorted(results.glob(result_path(Path(), cell.experiment, 0).name.replace("_0.json", "_[0-9]*.json")))
    found = [read_result(path) for path in paths]
    values = [100 * r["accuracy"][cell.phase] for r in found if r["accuracy"].get(cell.phase) is not None]
    return {
        "row": cell.row,
        "column": cell.column,
        "paper": cell.paper,
        "ours": round(mean(values), 2) if values else None,
        "std": round(stdev(values), 2) if len(values) > 1 else None,
        "runs": len(values),
        "wanted": cell.seeds,
        "collapsed": sum(r["collapsed"] is not None for r in found),
        "hours": round(sum(r["seconds"] for r in found) / 3600, 2),
        "experiment": cell.experiment.name,
    }


def markdown(table: Table, results: Path) -> str:
    """The table as Markdown."""
    lines = ["| | task | paper | ours | runs | collapsed |", "|---|---|---|---|---|---|"]
    for row in rows_of(table, results):
        spread = f" ± {row['std']:.1f}" if row["std"] is not None else ""
        ours = "–" if row["ours"] is None else f"{row['ours']:.1f}{spread}"
        paper = "–" if row["paper"] is None else f"{row['paper']:.1f}"
        runs = f"{row['runs']} of {row['wanted']}"
        lines.append(f"| {row['row']} | {row['column']} | {paper} | {ours} | {runs} | {row['collapsed']} |")
    return f"**{table.title}** (accuracy on the target test set, %)\n\n" + "\n".join(lines)
