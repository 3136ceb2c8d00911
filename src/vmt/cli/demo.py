"""``vmt demo``: the method at work on a small real task, in a few minutes on a CPU."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmt.cli.options import add_device, add_json

if TYPE_CHECKING:
    from vmt.runs.recipes import Recipe

EXAMPLES = """examples:
  vmt demo
  vmt demo --seed 1 --out runs/demo-1
  vmt demo --json | tail -1 | python -m json.tool

The source is digits drawn with fonts, with labels; the target is scanned handwriting, without. Four systems learn to
read the handwriting, with the same network and the same number of iterations. The accuracies printed at the end are
for handwriting that none of them was trained on.
"""
PAGE = "report.html"
OPENING = "four systems learn to read handwriting, which takes a few minutes on a CPU. Loading PyTorch …"
LABELS = {"source_only": "source only", "vmt": "VMT, then DIRT-T", "target_only": "trained on target labels"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder to write to (default: runs/demo)")
    parser.add_argument(
        "--seed", type=int, default=0, help="determines the initial weights and every random draw (default: 0)"
    )
    add_device(parser)
    parser.add_argument("--iterations", type=int, help="iterations of VMT (default: those of the task's recipe)")
    add_json(parser)
    parser.set_defaults(run=run, opening=OPENING)


def run(arguments: argparse.Namespace) -> int:
    from vmt.disk import write_atomically
    from vmt.figures import draw_comparison
    from vmt.progress import Progress
    from vmt.report.page import write_report
    from vmt.runs.folder import CURVES, SUMMARY, RunSpec
    from vmt.runs.recipes import DIGITS_DIRT_T_ITERATIONS, DIGITS_ITERATIONS, digits
    from vmt.runs.run import Run, carry_out
    from vmt.runs.spec import DataSpec, load_data
    from vmt.train.log import LOG, read_log
    from vmt.train.loop import interruptible

    out = free_folder(arguments.out)
    first = DIGITS_ITERATIONS if arguments.iterations is None else arguments.iterations
    refine = max(1, first * DIGITS_DIRT_T_ITERATIONS // DIGITS_ITERATIONS)
    data = DataSpec("digits")
    task = load_data(data)
    summaries = {}
    printed: set[str] = set()
    with interruptible() as interrupted:
        for i, (name, label) in enumerate(LABELS.items(), 1):
            recipe = with_lengths(digits(name, dirt_t=name == "vmt"), first, refine, arguments)
            with closing(Progress(f"{label} ({i} of {len(LABELS)})", printed=printed)) as progress:
                summaries[name] = carry_out(Run.of(RunSpec(data, recipe), task), out / name, progress=progress).summary
            if interrupted() or not summaries[name]["finished"]:
                print(f"Interrupted; the runs so far are in {out}.")
                return 130
    table = {
        "source only": summaries["source_only"]["target_accuracy"],
        "VMT": summaries["vmt"]["phases"]["vmt"],
        "VMT + DIRT-T": summaries["vmt"]["target_accuracy"],
        "trained on target labels": summaries["target_only"]["target_accuracy"],
    }
    result = {
        "task": "digits",
        "seed": arguments.seed,
        "iterations": first + refine,
        "accuracy": table,
        "gap_closed": gap_closed(table),
        "seconds": round(sum(summary["seconds"] for summary in summaries.values()), 1),
        "collapsed": summaries["vmt"]["collapsed"],
        "run": str(out),
    }
    runs = {label: read_log(out / name / LOG) for name, label in LABELS.items()}
    draw_comparison(runs, table, out / CURVES, title="Fonts → handwriting: accuracy on handwriting never seen")
    write_atomically(out / SUMMARY, json.dumps(result, indent=1).encode())
    write_report([out], out / PAGE)
    print(report(result))
    if arguments.json:
        print(json.dumps(result))
    return 0


def with_lengths(recipe: Recipe, first: int, refine: int, arguments: argparse.Namespace) -> Recipe:
    """The same number of iterations for every system: the bounds get as many as VMT and DIRT-T together."""
    dirt_t = None if recipe.dirt_t is None else {**recipe.dirt_t, "iterations": refine}
    iterations = first if dirt_t is not None else first + refine
    config = replace(recipe.config, seed=arguments.seed, device=arguments.device)
    return replace(recipe, settings={**recipe.settings, "iterations": iterations}, dirt_t=dirt_t, config=config)


def gap_closed(table: dict[str, float]) -> float:
    """The share of the gap between the lower and the upper bound that VMT + DIRT-T closes."""
    low, high = table["source only"], table["trained on target labels"]
    return (table["VMT + DIRT-T"] - low) / (high - low) if high > low else 0.0


def comparison(table: dict[str, float], iterations: int) -> str:
    """How VMT + DIRT-T compares with the bounds, whose order may be reversed after few iterations."""
    low, ours, high = table["source only"], table["VMT + DIRT-T"], table["trained on target labels"]
    unlabelled = "without a single label from the handwriting"
    if ours < low:
        return "VMT + DIRT-T is worse than source only: it closed none of the gap."
    if high <= low:
        return f"There is no gap to close: {iterations} iterations with target labels are no better than without."
    if ours > high:
        return f"VMT + DIRT-T is better than {iterations} iterations on target labels, {unlabelled}."
    return f"VMT + DIRT-T closed {gap_closed(table):.0%} of the gap, {unlabelled}."


def report(result: dict[str, Any]) -> str:
    from vmt.runs.folder import CURVES, MODEL
    from vmt.train.log import LOG

    rows = [f"  {name:<26}{100 * value:6.1f} %" for name, value in result["accuracy"].items()]
    out = result["run"]
    return "\n".join(
        [
            "",
            f"Accuracy on held-out handwriting (seed {result['seed']}, {result['iterations']} iterations each):",
            *rows,
            comparison(result["accuracy"], result["iterations"]),
            *([f"Warning: {result['collapsed']}"] if result["collapsed"] else []),
            "",
            f"See whether it worked: open {out}/{PAGE} in a browser (made by vmt report {out} -o {out}/{PAGE}).",
            f"Curves: {out}/{CURVES}    model: {out}/vmt/{MODEL}    log: {out}/vmt/{LOG}",
            f"Use the model: vmt predict {out}/vmt PICTURE.png",
        ]
    )


def free_folder(out: Path) -> Path:
    """The requested folder, or the next free one beside it, so that no run is overwritten."""
    folder, n = out, 2
    while folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        folder, n = out.with_name(f"{out.name}-{n}"), n + 1
    return folder
