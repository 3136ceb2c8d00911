"""``vmt data``: get the benchmark sets, or build those that cannot be had."""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from vmt.data.fetch import fetch
from vmt.data.published import SOURCES, Remote
from vmt.data.synthetic.built_sets import Built
from vmt.data.synthetic.mnistm import build_mnistm
from vmt.data.synthetic.syn import build_syn
from vmt.device import usable_cores
from vmt.errors import InputError

BUILT = ("mnistm", "syn")


def download(arguments: argparse.Namespace) -> int:
    records = download_sets(arguments.sets, arguments.data)
    if arguments.json:
        print(json.dumps({"files": records}))
    return 0


def download_sets(
    names: Sequence[str], data: Path, sources: Mapping[str, tuple[Remote, ...]] = SOURCES
) -> list[dict[str, Any]]:
    """Fetches every file of these sets and says so, one line each."""
    for name in names:
        if name in BUILT:
            raise InputError(f"{name} cannot be downloaded: use vmt data build {name}.")
        if name not in sources:
            raise InputError(f"there is no set {name!r} to download: choose from {', '.join(sources)}.")
    records = []
    for remote in dict.fromkeys(remote for name in names for remote in sources[name]):
        with bar(remote.path, "B") as shown:

            def watch(done: int, total: int | None, shown: Any = shown) -> None:
                shown.total = total
                shown.update(done - shown.n)

            path = fetch(remote, data, watch)
        print(f"{path}: {'checked' if remote.checksum else 'there, but no checksum is published'}")
        records.append({"file": str(path), "bytes": path.stat().st_size, "checksum": remote.checksum})
    return records


def mnistm(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    with bar("MNIST-M", "image") as shown:
        built = build_mnistm(arguments.data, arguments.out, arguments.seed, shown.update)
    return report(built, "MNIST-M", time.monotonic() - started, arguments.json)


def syn(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    out = arguments.data / "syn" if arguments.out is None else arguments.out
    total = arguments.count + arguments.test_count
    with bar("Synthetic Digits (re-creation)", "image", total) as shown:
        built = build_syn(
            out,
            {"train": arguments.count, "test": arguments.test_count},
            arguments.seed,
            usable_cores() if arguments.workers is None else arguments.workers,
            arguments.fonts,
            shown.update,
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


@contextmanager
def bar(label: str, unit: str, total: int | None = None) -> Iterator[Any]:
    """A live bar on a terminal, a line now and then elsewhere."""
    patience = 0.1 if sys.stderr.isatty() else 15.0
    scale = {"unit_scale": True, "unit_divisor": 1024} if unit == "B" else {}
    # The delay keeps an empty bar from preceding a sentence about what is missing.
    with tqdm(
        total=total, desc=label, unit=unit, mininterval=patience, delay=0.3, dynamic_ncols=True, **scale
    ) as shown:
        yield shown
