"""``vmt report``: one page that shows whether a run worked."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from vmt.disk import check_parent_folder, write_atomically
from vmt.errors import InputError
from vmt.report import Options, gather, render
from vmt.report.page import GENERATOR
from vmt.runs.spec import load_data


def run(arguments: argparse.Namespace) -> int:
    if arguments.samples < 1:
        raise InputError(f"--samples is {arguments.samples}: give 1 or more.")
    check_free(arguments.out)
    data = write_report(
        arguments.runs, arguments.out, map=arguments.map, samples=arguments.samples, data=arguments.data,
        device=arguments.device, nets=tuple(arguments.net),
    )  # fmt: skip
    verdict, size = data["verdict"], arguments.out.stat().st_size
    print(verdict["headline"])
    for note in dict.fromkeys(task["note"] for task in data["tasks"] if task["note"]):
        print(note)
    print(f"{arguments.out} ({size / 1e6:.1f} MB): open it in a browser.")
    if arguments.json:
        print(json.dumps({"out": str(arguments.out), "bytes": size, "headline": verdict["headline"]}))
    return 0


def write_report(runs: list[Path], out: Path, **options: Any) -> dict[str, Any]:
    """Gather, render, write; returns what was gathered."""
    with Bar() as bar:
        data = gather(runs, load_data, Options(**options), bar)
    write_atomically(out, render(data).encode())
    return data


def check_free(out: Path) -> None:
    """A report may be made anew; no other file is written over."""
    if out.is_dir():
        raise InputError(f"{out} is a folder: give -o the name of a file, for example {out / 'report.html'}.")
    check_parent_folder(out)
    if out.exists():
        with out.open(encoding="utf-8", errors="replace") as file:
            head = file.read(2000)
        if f'content="{GENERATOR}"' not in head:
            raise InputError(f"{out} exists and is not a report: choose another -o.")


class Bar:
    """A bar on stderr for each thing that takes time; nothing where stderr is not a terminal."""

    def __init__(self) -> None:
        self.bar: Any = None

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def start(self, what: str, total: int) -> None:
        self.__exit__()
        self.bar = tqdm(total=total, desc=what, leave=False, disable=not sys.stderr.isatty(), dynamic_ncols=True)

    def advance(self, count: int) -> None:
        self.bar.update(count)
