"""From two folders of 1,000 photographs to a file that classifies others, by the README's commands, and their time.

    python benchmarks/photographs_flow.py --data DATA --folder /tmp/flow --out results/photographs_flow.json

The labelled photographs are 1,000 of PACS, the unlabelled ones 1,000 of its art paintings, and the new ones 100 others
of these; a seed chooses them. The commands are read from the README and run in a shell, in the folder that has the
photographs, with an empty cache. Only the network is another: that of ``--features`` in place of timm's, which would be
downloaded. The export names it again, as an own function needs it.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hardware import machine

from vmt.data.files.paths import PICTURE_SUFFIXES
from vmt.data.picture_sets import PICTURE_SETS
from vmt.disk import write_atomically
from vmt.runs.folder import commit

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"


@dataclass(frozen=True)
class Ran:
    """A command that has succeeded, and its time."""

    command: str
    seconds: float
    cpu_s: float


def commands(features: str) -> list[str]:
    """The commands for photographs in the README, with another network."""
    (block,) = (body for body in re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL) if "--features" in body)
    lines = [re.sub(r"--features \S+", f"--features {features}", line) for line in block.splitlines()]
    return [f"{line} --features {features}" if line.startswith("vmt export") else line for line in lines]


def choose(data: Path, folder: Path, each: int, new: int, seed: int) -> None:
    """Copy pictures of PACS into the folders that the commands name."""
    random, pacs = np.random.default_rng(seed), PICTURE_SETS["pacs"]

    def drawn(domain: str) -> Iterator[Path]:
        files = sorted(p for p in pacs.folder(data, domain).rglob("*") if p.suffix.lower() in PICTURE_SUFFIXES)
        return (files[number] for number in random.permutation(len(files)))

    def copy(path: Path, to: Path) -> None:
        to.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to / f"{path.parent.name}-{path.name}")

    photographs, paintings = drawn("photo"), drawn("art")
    for _ in range(each):
        path = next(photographs)
        copy(path, folder / "labelled" / path.parent.name)
        copy(next(paintings), folder / "unlabelled")
    for _ in range(new):
        copy(next(paintings), folder / "new-pictures")


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    choose(asked.data, asked.folder, asked.each, asked.new, asked.seed)
    here = {"VMT_CACHE": str(asked.folder / "cache"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    here["PYTHONPATH"] = f"{HERE}:{os.environ.get('PYTHONPATH', '')}"
    load, ran = os.getloadavg(), list[Ran]()
    for command in commands(asked.features):
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, shell=True, check=True, cwd=asked.folder, env=os.environ | here)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        ran.append(Ran(command, round(time.monotonic() - began, 1), round(cpu, 1)))
        print(ran[-1], flush=True)
    written = (asked.folder / "predictions.csv").read_text().splitlines()[1:]
    correct = [Path(row.split(",")[0]).name.partition("-")[0] == row.split(",")[2] for row in written]
    return {
        "commands": [asdict(each) for each in ran],
        "to_the_file": {
            "seconds": round(sum(each.seconds for each in ran[:2]), 1),
            "cpu_s": round(sum(each.cpu_s for each in ran[:2]), 1),
        },
        "new_pictures": {"count": len(written), "accuracy": round(sum(correct) / len(written), 4)},
        "pictures": {"labelled": asked.each, "unlabelled": asked.each, "seed": asked.seed},
        "commit": commit(),
        "torch": torch.__version__,
        "machine": machine(),
        "load": {"before": [round(each, 2) for each in load], "after": [round(each, 2) for each in os.getloadavg()]},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the data folder, which holds PACS")
    parser.add_argument("--folder", type=Path, required=True, help="a new folder for pictures, cache and run")
    parser.add_argument("--features", default="pacs_network:features", help="as for vmt train")
    parser.add_argument("--each", type=int, default=1000, help="pictures of each domain (default: 1,000)")
    parser.add_argument("--new", type=int, default=100, help="new pictures to predict (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="chooses the pictures (default: 0)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the results to this file")
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True)
    text = json.dumps(measure(asked), indent=1)
    print(text)
    if asked.out is not None:
        write_atomically(asked.out, (text + "\n").encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
