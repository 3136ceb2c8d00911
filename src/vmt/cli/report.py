"""``vmt report``: one page that shows whether a run worked."""

import argparse
import json
from pathlib import Path

from vmt.cli.options import add_device, add_json
from vmt.errors import InputError

EXAMPLES = """examples:
  vmt report runs/m2s                                 one run, to report.html
  vmt report runs/demo -o demo.html                   all runs in a folder, side by side
  vmt report runs/lower runs/mine-0 runs/mine-1       with a source_only run among them: did adaptation help?
  vmt report runs/mine --test held-out/               with labels that you got after training: the accuracy
  vmt report runs/m2s --data DATA --map pca           with data that have moved, and a faster projection

The page is one file that loads nothing else: open it in any browser, offline, or send it to somebody. It contains small
copies of some of the samples. Nothing in the run folders is changed.
"""
OPENING = "loading PyTorch; then samples are predicted and maps drawn, often half a minute."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's folder, or a folder of runs")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("report.html"), help="the page to write (default: report.html)"
    )
    parser.add_argument(
        "--test",
        metavar="PATH",
        help="labelled target samples that you got after training; the models of all runs are tested on them",
    )
    parser.add_argument(
        "--label",
        metavar="COLUMN",
        help="column of a --test table that holds the classes (default: the run's)",
    )
    parser.add_argument("--data", help="folder of the task's files, if it has moved since the run")
    for name, what in (("source", "your source"), ("target", "your target"), ("target-test", "your target test set")):
        parser.add_argument(f"--{name}", help=f"{what}, if it has moved or was given as arrays in Python")
    parser.add_argument(
        "--map",
        choices=("tsne", "pca", "none"),
        default="tsne",
        help="how features are projected to two dimensions (default: tsne)",
    )
    parser.add_argument(
        "--samples", type=int, default=10_000, metavar="N", help="number of target samples to use (default: 10000)"
    )
    parser.add_argument(
        "--net",
        metavar="NAME",
        action="append",
        default=[],
        help="package.module:function, for runs with your own network; may be given several times",
    )
    parser.add_argument(
        "--features",
        metavar="NAME",
        action="append",
        default=[],
        help="package.module:function, for runs on features of a network of your own; may be given several times",
    )
    add_device(parser)
    add_json(parser)
    parser.set_defaults(run=run, opening=OPENING)


def run(arguments: argparse.Namespace) -> int:
    from vmt.report.page import write_report
    from vmt.report.samples import Options
    from vmt.runs.spec import DataSpec

    if arguments.samples < 1:
        raise InputError(f"--samples must be 1 or more, but got {arguments.samples}.")
    check_free(arguments.out)
    places = DataSpec(
        data=arguments.data, source=arguments.source, target=arguments.target, target_test=arguments.target_test
    )
    nets = tuple(arguments.net)
    options = Options(
        arguments.map,
        arguments.samples,
        places,
        arguments.device,
        nets,
        arguments.test,
        arguments.label,
        tuple(arguments.features),
    )
    data = write_report(arguments.runs, arguments.out, options)
    verdict, size = data["verdict"], arguments.out.stat().st_size
    print(verdict["headline"])
    for name, warning in data["warnings"]:
        print(f"Warning: {name}: {warning}")
    for note in dict.fromkeys(task["note"] for task in data["tasks"] if task["note"]):
        print(note)
    print(f"{arguments.out} ({size / 1e6:.1f} MB): open it in a browser.")
    if arguments.json:
        summary = {"out": str(arguments.out), "bytes": size, "headline": verdict["headline"], "use": data["use"]}
        print(json.dumps(summary | {"next": [step["command"] for step in data["next"]]}))
    return 0


def check_free(out: Path) -> None:
    """Refuse to overwrite a file that is not a report."""
    from vmt.disk import check_parent_folder
    from vmt.report.page import GENERATOR

    if out.is_dir():
        raise InputError(f"{out} is a folder: give -o the name of a file, for example {out / 'report.html'}.")
    check_parent_folder(out)
    if out.exists():
        with out.open(encoding="utf-8", errors="replace") as file:
            head = file.read(2000)
        if f'content="{GENERATOR}"' not in head:
            raise InputError(f"{out} exists and is not a report: choose another -o.")
