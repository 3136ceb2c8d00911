"""``vmt data``: download the benchmark sets, or build those that cannot be downloaded."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmt.cli.options import add_json
from vmt.data.fetch import SOURCES, SYN_TEST, SYN_TRAIN, Remote
from vmt.errors import InputError
from vmt.progress import Bar

if TYPE_CHECKING:
    from vmt.data.synthetic.built_sets import Built

BUILT = ("mnistm", "syn")
DELAY = 0.3  # seconds; without it an empty bar would appear above an error about a missing file
EXAMPLES = """examples:
  vmt data download mnist svhn --data DATA     the two sets of mnist-svhn
  vmt data build mnistm --data DATA            MNIST-M, from MNIST and BSDS500
  vmt data build syn --data DATA               Synthetic Digits, re-created from fonts
"""
DOWNLOAD = f"""examples:
  vmt data download mnist svhn --data DATA
  vmt data download mnist bsds500 --data DATA  what MNIST-M is built from

Sets: {", ".join(SOURCES)}. Each file is checked against its published
checksum if there is one; an interrupted download continues where it stopped, and existing files are kept. SVHN and
BSDS500 are for non-commercial use.
"""
BUILD = """examples:
  vmt data build mnistm --data DATA            MNIST-M, from MNIST and BSDS500
  vmt data build syn --data DATA               Synthetic Digits, re-created from fonts
"""
MNISTM = """examples:
  vmt data build mnistm --data DATA
  vmt data build mnistm --data DATA --out elsewhere/mnistm --json

Reads DATA/mnist and DATA/bsds500 and writes train.npz and test.npz. The same seed always gives the same pixels.
"""
SYN = f"""examples:
  vmt data build syn --data DATA
  vmt data build syn --data DATA --fonts /usr/share/fonts --workers 8
  vmt data build syn --out small --count 10000 --test-count 1000 --seed 1

Draws numbers with the fonts that ship with matplotlib and writes recreated_train.npz ({SYN_TRAIN:,} pictures) and
recreated_test.npz ({SYN_TEST:,}). It is a re-creation, not the published set, and every result on it is marked as such.
The number of workers does not change the pictures.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_download(actions)
    builders = actions.add_parser("build", help="build a set that cannot be downloaded", epilog=BUILD)
    sets = builders.add_subparsers(dest="set", metavar="SET", required=True)
    add_mnistm(sets)
    add_syn(sets)


def add_download(actions: Any) -> None:
    parser = actions.add_parser("download", help="download published sets", epilog=DOWNLOAD)
    parser.add_argument("sets", nargs="+", metavar="SET", help=f"any of {', '.join(SOURCES)}")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="the data folder to write to")
    add_json(parser)
    parser.set_defaults(run=download, needs_torch=False)


def add_mnistm(sets: Any) -> None:
    parser = sets.add_parser("mnistm", help="MNIST-M, from MNIST and BSDS500", epilog=MNISTM)
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="the data folder, which contains mnist and bsds500"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write to (default: DATA/mnistm)")
    parser.add_argument(
        "--seed", type=int, default=0, help="determines the photographs and crops (default: 0, the usual set)"
    )
    add_json(parser)
    parser.set_defaults(run=mnistm)


def add_syn(sets: Any) -> None:
    parser = sets.add_parser("syn", help="Synthetic Digits, re-created from fonts", epilog=SYN)
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--data", type=Path, metavar="DIR", help="the data folder; the set is written to its folder syn")
    place.add_argument("--out", type=Path, metavar="DIR", help="the folder to write to")
    for split, flag, default in (("train", "--count", SYN_TRAIN), ("test", "--test-count", SYN_TEST)):
        parser.add_argument(
            flag, type=int, default=default, metavar="N", help=f"pictures in the {split} split (default: {default})"
        )
    parser.add_argument("--seed", type=int, default=0, help="determines every random draw (default: 0)")
    parser.add_argument("--workers", type=int, metavar="N", help="number of processes (default: one per core)")
    parser.add_argument("--fonts", type=Path, metavar="DIR", help="also draw with the fonts under this folder")
    add_json(parser)
    parser.set_defaults(run=syn)


def download(arguments: argparse.Namespace) -> int:
    records = download_sets(arguments.sets, arguments.data)
    if arguments.json:
        print(json.dumps({"files": records}))
    return 0


def download_sets(
    names: Sequence[str], data: Path, sources: Mapping[str, tuple[Remote, ...]] = SOURCES
) -> list[dict[str, Any]]:
    """Fetch every file of these sets, and print a line about each."""
    from vmt.data.fetch import fetch

    for name in names:
        if name in BUILT:
            raise InputError(f"{name} cannot be downloaded: use vmt data build {name}.")
        if name not in sources:
            raise InputError(f"there is no set {name!r} to download: choose from {', '.join(sources)}.")
    records = []
    for remote in dict.fromkeys(remote for name in names for remote in sources[name]):
        with Bar(remote.path, "B", delay=DELAY) as bar:

            def watch(done: int, total: int | None, bar: Bar = bar) -> None:
                bar.total = total
                bar.update(done - bar.done)

            path = fetch(remote, data, watch)
        print(f"{path}: {'checked' if remote.checksum else 'downloaded, but no checksum is published'}")
        records.append({"file": str(path), "bytes": path.stat().st_size, "checksum": remote.checksum})
    return records


def mnistm(arguments: argparse.Namespace) -> int:
    from vmt.data.synthetic.mnistm import build_mnistm

    started = time.monotonic()
    with Bar("MNIST-M", "images", delay=DELAY) as bar:
        built = build_mnistm(arguments.data, arguments.out, arguments.seed, bar.update)
    return report(built, "MNIST-M", time.monotonic() - started, arguments.json)


def syn(arguments: argparse.Namespace) -> int:
    from vmt.data.synthetic.syn import build_syn
    from vmt.device import usable_cores

    started = time.monotonic()
    out = arguments.data / "syn" if arguments.out is None else arguments.out
    total = arguments.count + arguments.test_count
    with Bar("Synthetic Digits (re-creation)", "images", total, delay=DELAY) as bar:
        built = build_syn(
            out,
            {"train": arguments.count, "test": arguments.test_count},
            arguments.seed,
            usable_cores() if arguments.workers is None else arguments.workers,
            arguments.fonts,
            bar.update,
        )
    return report(built, "the re-creation of Synthetic Digits", time.monotonic() - started, arguments.json)


def report(built: Built, name: str, seconds: float, as_json: bool) -> int:
    if built.warning:
        print(f"vmt: warning: {built.warning}", file=sys.stderr)
    for split, path in built.files.items():
        print(f"{path}: {name}, {split}, SHA-256 of the pixels {built.made[split]['sha256']}")
    if as_json:
        files = {split: str(path) for split, path in built.files.items()}
        print(json.dumps({"files": files, "made": built.made, "warning": built.warning, "seconds": round(seconds, 1)}))
    return 0
