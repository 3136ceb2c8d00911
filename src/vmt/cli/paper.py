"""``vmt paper``: rebuild the tables and figures of the paper."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from vmt.device import torch_device
from vmt.disk import explain_write_errors, write_atomically
from vmt.errors import InputError, counted
from vmt.paper.experiment import Job, Table, jobs_for
from vmt.paper.pages import markdown, pages, rows_of
from vmt.paper.queue import QueueOutcome, Workspace, run_queue, run_queue_in_workers, side_by_side
from vmt.paper.results import is_done
from vmt.paper.tables import TABLES, find_table
from vmt.runs.folder import RUN
from vmt.runs.spec import load_data
from vmt.train.progress import STDERR

GET_DATA = "vmt data download mnist svhn --data DATA fetches the sets of most of them"


def chosen(arguments: argparse.Namespace) -> Table:
    if arguments.table is None:
        raise InputError(f"name a table: {', '.join(TABLES)}, or all.")
    return find_table(arguments.table)


def list_tables(arguments: argparse.Namespace) -> int:
    if arguments.table is None:
        for name, table in TABLES.items():
            size = f"{counted(len(table.cells), 'number')}, {counted(len(jobs_for(table.cells)), 'job')} of runs"
            print(f"{name:<18} {table.title}: {size}")
        return 0
    for job in jobs_for(chosen(arguments).cells):
        print(f"{stands(job, arguments):<12} {job.run:<58} {job.phase}")
    return 0


def stands(job: Job, arguments: argparse.Namespace) -> str:
    if is_done(arguments.results, job):
        return "done"
    return "begun" if (arguments.runs / job.run / RUN).exists() else "missing"


def run_table(arguments: argparse.Namespace) -> int:
    table = chosen(arguments)
    for name in ("phases", "at_once"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} {value}: give 1 or more.")
    queue = jobs_for(table.cells, arguments.seeds, arguments.only, arguments.phases)
    if arguments.data is None:
        raise InputError(f"the paper's runs need the official files: give their folder with --data ({GET_DATA}).")
    torch_device(arguments.device)
    changes = {
        "device": arguments.device,
        "log_every": 1000,
        "evaluate_every": arguments.evaluate_every,
        "checkpoint_every": arguments.checkpoint_every,
    }
    budget = None if arguments.budget is None else 60 * arguments.budget
    workspace = Workspace(arguments.data, arguments.results, arguments.runs, arguments.at_once)
    filled = fill_queue(queue, workspace, budget, changes)
    if filled.problems and not filled.done:
        raise InputError(filled.problems[0])
    print_table(table, arguments)
    for complaint in filled.problems:
        to_stderr(f"vmt: {complaint}")
    return 2 if filled.problems else 0


def fill_queue(queue: list[Job], workspace: Workspace, budget: float | None, changes: dict[str, Any]) -> QueueOutcome:
    device = torch_device(changes["device"])
    on_gpu = device.type == "cuda"
    if workspace.at_once == 1 and not on_gpu:
        return run_queue(queue, load_data, workspace, budget, changes, to_stderr)
    # By name: a worker that finds no GPU, after another has failed there, must not go on with its run on the CPU.
    changes = {**changes, "device": str(device)}
    # A GPU that fails is lost to the process that uses it, so there it is always another one than this.
    if on_gpu and workspace.at_once > 1 and not side_by_side():
        to_stderr("NVIDIA's MPS does not run, so runs on one GPU take turns: nvidia-cuda-mps-control -d starts it.")
    return run_queue_in_workers(queue, load_data, workspace, budget, changes, to_stderr)


def show_table(arguments: argparse.Namespace) -> int:
    table = chosen(arguments)
    if not any(arguments.results.glob("*.json")):
        to_stderr(f"vmt: there is no result in {arguments.results}: vmt paper run {table.name} --data DATA makes them.")
    print_table(table, arguments)
    return 0


def write_pages(arguments: argparse.Namespace) -> int:
    out: Path = arguments.out
    link = os.path.relpath(arguments.results, out)
    made = pages(arguments.results, out, Path(link).as_posix())
    stale = {
        name: text for name, text in made.items() if not (out / name).is_file() or (out / name).read_text() != text
    }
    if arguments.check and stale:
        raise InputError(f"{', '.join(stale)} in {out} differ from the results: vmt paper pages writes them again.")
    with explain_write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    for name, text in stale.items():
        write_atomically(out / name, text.encode())
        print(out / name)
    return 0


def print_table(table: Table, arguments: argparse.Namespace) -> None:
    """One table as a list of rows; all of them as a mapping of names to rows."""
    tables = list(TABLES.values()) if table.name == "all" else [table]
    if arguments.json:
        rows = {each.name: rows_of(each, arguments.results) for each in tables}
        print(json.dumps(rows if table.name == "all" else rows[table.name]))
    else:
        print("\n\n".join(markdown(each, arguments.results) for each in tables))


def to_stderr(sentence: str) -> None:
    print(sentence, file=STDERR, flush=True)
