"""``vmt paper``: rebuild the tables and figures of the paper."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmt.cli.options import add_device, add_place
from vmt.errors import InputError, as_flag, counted
from vmt.paper.experiment import Job, Table, jobs_for
from vmt.paper.tables import M2S, TABLES, find_table
from vmt.progress import to_stderr

if TYPE_CHECKING:
    from vmt.data.task import Task

EXAMPLES = """examples:
  vmt paper list                                        list the tables; with a table, its runs and their state
  vmt paper run evaluation --data DATA --budget 30      fill the table for half an hour; the same command continues
  vmt paper run priority --data DATA --phases 1         the most important runs of all tables, without DIRT-T
  vmt paper run all --only '*vada*' --seeds 2,3 --data DATA
  vmt paper run choices --data DATA                     compare candidates on 1,000 target images that are held apart
  vmt paper run ten-runs --data DATA --at-once 3        three runs at a time on one GPU, under NVIDIA's MPS
  vmt paper run ten-runs --data DATA --on ray:auto      on the machines of a Ray cluster, which share these folders
  vmt paper show evaluation                             our numbers beside the paper's
  vmt paper figure tsne --data DATA                     draw a figure from the models of these runs

A finished run is never repeated; an interrupted run is resumed with the settings that it was started with. Results are
small files with the recipe, seed, commit, hardware, curve and accuracy of a run.
"""

GET_DATA = "vmt data download mnist svhn --data DATA fetches the sets of most of them"
TITLE = "MNIST → SVHN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    names = ", ".join([*TABLES, "all"])

    listing = actions.add_parser("list", help="list the tables, or the runs of a table and their state")
    listing.add_argument("table", nargs="?", help=f"one of {names}")
    add_places(listing)
    listing.set_defaults(run=list_tables, needs_torch=False)

    running = actions.add_parser("run", help="run what a table needs")
    running.add_argument("table", nargs="?", help=f"one of {names}")
    running.add_argument("--data", help="folder of the official files")
    running.add_argument(
        "--budget", type=float, metavar="MINUTES", help="stop after this many minutes; the same command continues"
    )
    running.add_argument(
        "--only",
        nargs="+",
        metavar="PATTERN",
        help="only rows or runs whose name matches, for example '*vada*'; with several patterns, in their order",
    )
    running.add_argument("--seeds", type=numbers, metavar="0,1,2", help="seeds to use instead of the table's")
    running.add_argument("--phases", type=int, metavar="N", help="only the first N phases: 1 leaves DIRT-T for later")
    add_choose_on(running)
    add_device(running)
    running.add_argument(
        "--evaluate-every", type=int, default=2500, help="iterations between evaluations (default: 2500)"
    )
    running.add_argument(
        "--checkpoint-every", type=int, default=5000, help="iterations between checkpoints (default: 5000)"
    )
    running.add_argument(
        "--at-once",
        type=int,
        metavar="N",
        help="runs at a time; on one GPU this is faster under NVIDIA's MPS (default: 1, and on Ray as many as there is "
        "room for)",
    )
    add_place(running)
    running.add_argument("--json", action="store_true", help="print the table as JSON")
    add_places(running)
    running.set_defaults(run=run_table)

    showing = actions.add_parser("show", help="show our numbers beside the paper's")
    showing.add_argument("table", nargs="?", help=f"one of {names}")
    showing.add_argument("--json", action="store_true", help="print as JSON")
    add_choose_on(showing)
    add_places(showing)
    showing.set_defaults(run=show_table)

    add_places(add_figure(actions))

    paging = actions.add_parser("pages", help="write a page of documentation per table")
    paging.add_argument("--out", type=Path, default=Path("docs/paper"), help="folder to write to (default: docs/paper)")
    paging.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    add_places(paging)
    paging.set_defaults(run=write_pages)


def add_choose_on(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--choose-on",
        type=int,
        metavar="N",
        help="use the runs that hold N labelled images of the target's training set apart and report the accuracy on "
        "them, to choose settings",
    )


def add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder of the result files (default: results)"
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/paper"), help="folder of the runs (default: runs/paper)"
    )


def numbers(text: str) -> list[int]:
    """A list of whole numbers, separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers such as 0,1,2") from error


def add_figure(actions: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        "figure",
        help="draw a figure of the paper",
        description="Draw the last hidden layer of five systems (tsne), the gradient norms of VADA and VMT between "
        "samples, or the accuracy of VAT and VMT over time. The first two need the models of the runs and --data, the "
        "third needs their results.",
    )
    parser.add_argument("figure", choices=tuple(FIGURES), help="the figure")
    parser.add_argument("--data", help="folder of the official files")
    parser.add_argument(
        "--out",
        type=Path,
        help="file to write, a .svg or .pdf; a .png is written beside it (default: figures/FIGURE.svg)",
    )
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="number of test samples of a domain, or of pairs; 0 takes all (default: as many as take a few minutes)",
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed of the runs (default: 0)")
    parser.add_argument(
        "--seeds", type=numbers, metavar="0,1,2", help="gradient-norms: the mean over these seeds instead of one"
    )
    parser.add_argument(
        "--instance-norm",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="use the runs with instance norm (default: no for tsne, as in the paper, and yes for gradient-norms)",
    )
    add_device(parser)
    parser.set_defaults(run=draw_figure)
    return parser


def chosen_table(arguments: argparse.Namespace) -> Table:
    if arguments.table is None:
        raise InputError(f"name a table: {', '.join(TABLES)}, or all.")
    return find_table(arguments.table).choosing_on(getattr(arguments, "choose_on", None))


def list_tables(arguments: argparse.Namespace) -> int:
    if arguments.table is None:
        for name, table in TABLES.items():
            print(f"{name:<18} {table.title}: {size_of(table)}")
        return 0
    for job in jobs_for(chosen_table(arguments).cells):
        print(f"{state_of(job, arguments):<12} {job.run:<58} {job.phase}")
    return 0


def size_of(table: Table) -> str:
    """How many of the paper's numbers a table has, how many of ours beside them, and how many jobs they take."""
    papers = sum(not cell.is_own for cell in table.cells)
    sizes = [counted(papers, "number") + " of the paper"] if papers else []
    if own := len(table.cells) - papers:
        sizes.append(counted(own, "number") + " of ours")
    if without := sum(cell.experiment is None for cell in table.cells):
        sizes.append(f"{without} of them without a method here")
    return ", ".join([*sizes, counted(len(jobs_for(table.cells)), "job")])


def state_of(job: Job, arguments: argparse.Namespace) -> str:
    from vmt.paper.results import is_done
    from vmt.runs.folder import RUN

    if is_done(arguments.results, job):
        return "done"
    return "started" if (arguments.runs / job.run / RUN).exists() else "missing"


def run_table(arguments: argparse.Namespace) -> int:
    from vmt.device import torch_device
    from vmt.many.executors import run_here, run_on_ray
    from vmt.paper.queue import PaperQueue, Workspace
    from vmt.runs.ray_tasks import where_to_run

    table = chosen_table(arguments)
    for name in ("phases", "at_once", "choose_on"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise InputError(f"{as_flag(name)} must be 1 or more, but got {value}.")
    jobs = jobs_for(table.cells, arguments.seeds, arguments.only, arguments.phases)
    if arguments.data is None:
        raise InputError(f"the paper's runs need the official files: give their folder with --data ({GET_DATA}).")
    place = where_to_run(arguments.on, arguments.gpus_per_run)
    if place is None:
        torch_device(arguments.device)
    overrides = {
        "device": arguments.device,
        "log_every": 1000,
        "evaluate_every": arguments.evaluate_every,
        "checkpoint_every": arguments.checkpoint_every,
    }
    budget = None if arguments.budget is None else 60 * arguments.budget
    folders = [Path(arguments.data), arguments.results, arguments.runs]
    if place is not None:  # tasks have other working directories
        folders = [folder.absolute() for folder in folders]
    data, results, runs = folders
    queue = PaperQueue(jobs, Workspace(str(data), results, runs, arguments.at_once or 1), overrides)
    if place is None:
        outcome = run_here(queue, budget, to_stderr)
    else:
        outcome = run_on_ray(queue, place, budget, to_stderr, arguments.at_once)
    problems = list(dict.fromkeys(outcome.problems.values()))
    if problems and not outcome.done:
        raise InputError(problems[0])
    print_table(table, arguments)
    for problem in problems:
        to_stderr(f"vmt: {problem}")
    return 2 if problems else 0


def show_table(arguments: argparse.Namespace) -> int:
    table = chosen_table(arguments)
    if not any(arguments.results.glob("*.json")):
        to_stderr(
            f"vmt: there are no results in {arguments.results}: make some with vmt paper run {table.name} --data DATA."
        )
    print_table(table, arguments)
    return 0


def write_pages(arguments: argparse.Namespace) -> int:
    from vmt.disk import explain_write_errors, write_atomically
    from vmt.paper.pages import pages

    out: Path = arguments.out
    link = os.path.relpath(arguments.results, out)
    made = pages(arguments.results, out, Path(link).as_posix())
    stale = {
        name: text for name, text in made.items() if not (out / name).is_file() or (out / name).read_text() != text
    }
    if arguments.check and stale:
        raise InputError(f"{', '.join(stale)} in {out} differ from the results: write them again with vmt paper pages.")
    with explain_write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    for name, text in stale.items():
        write_atomically(out / name, text.encode())
        print(out / name)
    return 0


def print_table(table: Table, arguments: argparse.Namespace) -> None:
    """Print a table; in JSON, one table is a list of rows, and all tables map their names to their rows."""
    from vmt.paper.pages import markdown, rows_of

    count = getattr(arguments, "choose_on", None)
    tables = [each.choosing_on(count) for each in TABLES.values()] if table.name == "all" else [table]
    if arguments.json:
        rows = {each.name: rows_of(each, arguments.results) for each in tables}
        print(json.dumps(rows if table.name == "all" else rows[table.name]))
    else:
        print("\n\n".join(markdown(each, arguments.results) for each in tables))


def draw_figure(arguments: argparse.Namespace) -> int:
    from vmt.paper.drawing import targets

    out = arguments.out or Path("figures") / f"{arguments.figure}.svg"
    targets(out)  # refuses a file name before anything is computed
    draw, _ = FIGURES[arguments.figure]
    for path in draw(arguments, out):
        print(path)
    return 0


def tsne(arguments: argparse.Namespace, out: Path) -> list[Path]:
    from vmt.paper.drawing import draw_embeddings
    from vmt.paper.figures import embed_samples, find_models, systems_of_tsne

    with_norm = bool(arguments.instance_norm)
    systems = systems_of_tsne(with_norm)
    found = find_models(systems, arguments.runs, arguments.seed, arguments.device)
    task = samples_of(arguments)
    say_missing(found.missing)
    embeddings = embed_samples(found.models, task, samples(arguments), arguments.seed, to_stderr)
    title = f"Last hidden layer on {TITLE} {norm_words(with_norm)} (t-SNE, test sets, seed {arguments.seed})"
    drawn = {system.label: embeddings.get(system.label) for system in systems}
    return draw_embeddings(drawn, task.classes, title, out)


def gradient_norms(arguments: argparse.Namespace, out: Path) -> list[Path]:
    from vmt.disk import write_atomically
    from vmt.paper.drawing import draw_norms
    from vmt.paper.figures import find_models, mean_over_seeds, norms_by_model, systems_of_norms
    from vmt.runs.folder import environment

    with_norm = arguments.instance_norm is not False
    systems, seeds = systems_of_norms(with_norm), arguments.seeds or [arguments.seed]
    found = {seed: find_models(systems, arguments.runs, seed, arguments.device) for seed in seeds}
    task = samples_of(arguments)
    by_seed = {}
    for seed, models in found.items():
        say_missing(models.missing)
        by_seed[seed] = norms_by_model(models.models, task, samples(arguments), to_stderr)
    values = mean_over_seeds(by_seed)
    for label, each in values.items():
        print(f"{label}: mean gradient norm {each['mean'][5]:.4g} at λ = 0.5, {each['mean'][-1]:.4g} at the samples")
    title = f"Gradient norms in between samples\n{TITLE} {norm_words(with_norm)}, {seed_words(seeds)}"
    paths = draw_norms({system.label: values.get(system.label) for system in systems}, title, out)
    about = {"figure": arguments.figure, "seed": seeds[0], "instance_norm": with_norm, "norms": values}
    if len(seeds) > 1:
        about["by_seed"] = by_seed
    beside = out.with_suffix(".json")
    write_atomically(beside, json.dumps({**about, "environment": environment()}).encode())
    return [*paths, beside]


def accuracy_over_time(arguments: argparse.Namespace, out: Path) -> list[Path]:
    from vmt.paper.drawing import draw_over_time
    from vmt.paper.figures import SYSTEMS_OVER_TIME, accuracy_curves

    if arguments.instance_norm is False:
        raise InputError("accuracy-over-time shows runs with instance norm: leave out --no-instance-norm.")
    found, missing = accuracy_curves(SYSTEMS_OVER_TIME, arguments.results)
    say_missing(missing)
    return draw_over_time(found, f"Accuracy over time, {TITLE} {norm_words(True)}", out)


def samples_of(arguments: argparse.Namespace) -> Task:
    from vmt.runs.spec import DataSpec, load_data

    if arguments.data is None:
        raise InputError(
            f"the figure {arguments.figure} needs MNIST and SVHN: give their folder with --data (vmt data download "
            "mnist svhn --data DATA fetches them)."
        )
    return load_data(DataSpec(M2S, arguments.data))


def samples(arguments: argparse.Namespace) -> int:
    from vmt.device import torch_device

    if arguments.samples is None:
        _, (on_cpu, on_gpu) = FIGURES[arguments.figure]
        return on_cpu if torch_device(arguments.device).type == "cpu" else on_gpu
    if arguments.samples < 0:
        raise InputError(f"--samples must be a number of samples, or 0 for all, but got {arguments.samples}.")
    return int(arguments.samples)


def norm_words(instance_norm: bool) -> str:
    return "with instance norm" if instance_norm else "without instance norm"


def seed_words(seeds: list[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"mean of seeds {', '.join(map(str, seeds))}"


def say_missing(missing: dict[str, str]) -> None:
    for sentence in missing.values():
        to_stderr(f"missing: {sentence}")


# For each figure, the function that draws it, and the number of samples of each test set, or of pairs, that take a few
# minutes on a CPU and on a GPU.
FIGURES = {
    "tsne": (tsne, (500, 500)),
    "gradient-norms": (gradient_norms, (50, 2000)),
    "accuracy-over-time": (accuracy_over_time, (0, 0)),
}
