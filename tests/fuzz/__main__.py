"""Read many damaged files of every format, and count what happens.

    python -m tests.fuzz                              2·10⁵ cases and more: 10⁴ of each format
    python -m tests.fuzz --cases 1000 --format npz    one format
    python -m tests.fuzz --jobs 16 --out counts.json  in several processes
    python -m tests.fuzz --show npz:17                the case 17 of a format, with its traceback

A case is made from the seed, the name of the format and its number alone. Many cases share a process, whose memory is
limited; a process that dies or hangs is recorded as a crash of its case, and another one continues after it.
"""

import argparse
import json
import mmap
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CASES = 10_000
MEMORY = 2 * 2**30
CHUNK = 10_000  # cases of one process, which takes seconds to start
HANGS = 60.0  # seconds without progress
ALL = "all"
KEPT = 20  # failures that are described in full


@dataclass
class Counts:
    """What happened to the cases of a format."""

    cases: int = 0
    read: int = 0
    refused: int = 0
    tracebacks: int = 0
    crashes: int = 0
    peak: int = 0
    """The largest memory of a process, in bytes."""
    seconds: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: "Counts") -> None:
        for name in ("cases", "read", "refused", "tracebacks", "crashes", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.peak = max(self.peak, other.peak)
        self.failures += other.failures


# --- In the worker ---


def limit_memory(most: int) -> None:
    """Let this process take no more than `most` bytes of memory, by a limit on its addresses."""
    pages, resident = (int(number) for number in Path("/proc/self/statm").read_text().split()[:2])
    page = resource.getpagesize()
    limit = pages * page + most - resident * page
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def work(name: str, seed: int, first: int, count: int, marker: Path) -> Counts:
    """Read `count` cases of a format, or of all formats in turn. `marker` always has the number of the current case."""
    import torch

    from tests.fuzz.formats import all_formats

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    counts = Counts()
    with tempfile.TemporaryDirectory(prefix="vmt-fuzz-") as temporary, marker.open("r+b") as file:
        current = mmap.mmap(file.fileno(), 8)
        folder = Path(temporary)
        known = all_formats(folder)
        formats = {each: known[each]() for each in (known if name == ALL else [name])}
        written: dict[str, bytes] = {}
        limit_memory(MEMORY)
        for number in range(first, first + count):
            current[:] = number.to_bytes(8, "little")
            of = list(formats)[number % len(formats)]
            place = folder / of
            changed, files = formats[of].case(random.Random(f"{seed}/{of}/{number // len(formats)}"))
            put(place, files, written)
            os.chdir(place)  # paths on standard input are relative to the working folder
            outcomes = [outcome(read, place) for read in formats[of].readers[changed]]
            written.pop(f"{place / changed}", None)  # a reader may have written it again
            failed = next((each for each in outcomes if each not in ("read", "refused")), None)
            counts.cases += 1
            if failed is not None:
                counts.tracebacks += 1
                counts.failures.append({"case": f"{of}:{number // len(formats)}", "traceback": failed})
            elif "refused" in outcomes:
                counts.refused += 1
            else:
                counts.read += 1
    counts.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return counts


def put(folder: Path, files: dict[str, bytes], written: dict[str, bytes]) -> None:
    """Write the files that differ from those that are there."""
    for name, content in files.items():
        path = folder / name
        if written.get(f"{path}") != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            written[f"{path}"] = content


def outcome(read: Any, folder: Path) -> str:
    """``read``, ``refused``, or a traceback."""
    from vmt.errors import InputError

    try:
        read(folder)
    except InputError as error:
        text = str(error)
        return "refused" if "\n" not in text.strip() else f"a message of several lines: {text}"
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # also the panics of libraries in Rust
        return traceback.format_exc()
    return "read"


# --- In the parent ---


def run_chunk(name: str, seed: int, first: int, count: int) -> Counts:
    """Read cases in a process of their own, and in another one after each crash."""
    total = Counts()
    end = first + count
    while first < end:
        with tempfile.TemporaryDirectory(prefix="vmt-fuzz-") as temporary:
            marker, result = Path(temporary) / "marker", Path(temporary) / "result"
            marker.write_bytes(first.to_bytes(8, "little"))
            command = [sys.executable, "-m", "tests.fuzz", "--seed", str(seed)]
            command += ["--worker", name, str(first), str(end - first), str(marker), str(result)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2", "MKL_NUM_THREADS": "1"}
            worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
            why = wait(worker, marker)
            if why is None:
                total.add(Counts(**json.loads(result.read_text())))
                return total
            number = int.from_bytes(marker.read_bytes(), "little")
            crashed = Counts(cases=number - first + 1, read=number - first, crashes=1)
            crashed.failures = [{"case": f"{name}:{number}", "traceback": why}]
            total.add(crashed)
            first = number + 1
    return total


def wait(worker: "subprocess.Popen[bytes]", marker: Path) -> str | None:
    """Wait for a worker: None if it ended well, otherwise what happened."""
    before, since = b"", time.monotonic()
    while True:
        try:
            _, errors = worker.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            now = marker.read_bytes()
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > HANGS:
                worker.kill()
                worker.communicate()
                return f"no progress for {HANGS:.0f} seconds"
            continue
        if worker.returncode == 0:
            return None
        return f"exit code {worker.returncode}: {errors.decode(errors='replace')[-1500:]}"


def run_all(names: list[str], cases: int, seed: int, jobs: int) -> dict[str, Counts]:
    """The counts of every format, printed as they are complete."""
    counts = {name: Counts() for name in names}
    chunks = [(name, first) for name in names for first in range(0, cases, CHUNK)]
    left = Counter(name for name, _ in chunks)
    print(
        f"{'format':<20}{'cases':>9}{'read':>9}{'refused':>9}{'tracebacks':>12}{'crashes':>9}{'peak MiB':>10}{'ms':>7}"
    )

    def run(chunk: tuple[str, int]) -> tuple[str, Counts, float]:
        name, first = chunk
        start = time.monotonic()
        return name, run_chunk(name, seed, first, min(CHUNK, cases - first)), time.monotonic() - start

    with ThreadPoolExecutor(jobs) as pool:
        for name, result, seconds in pool.map(run, chunks):
            result.seconds = seconds
            counts[name].add(result)
            left[name] -= 1
            if not left[name]:
                print(row(name, counts[name]), flush=True)
    total = Counts()
    for each in counts.values():
        total.add(each)
    print(row("all", total), flush=True)
    return counts


def row(name: str, c: Counts) -> str:
    peak, each = c.peak / 2**20, 1000 * c.seconds / max(c.cases, 1)
    return f"{name:<20}{c.cases:>9}{c.read:>9}{c.refused:>9}{c.tracebacks:>12}{c.crashes:>9}{peak:>10.0f}{each:>7.1f}"


def show(name: str, number: int, seed: int) -> None:
    """Write the files of a case to the folder fuzz-case, and read them in this process."""
    from tests.fuzz.formats import all_formats

    with tempfile.TemporaryDirectory(prefix="vmt-fuzz-") as temporary:
        format = all_formats(Path(temporary))[name]()
    changed, files = format.case(random.Random(f"{seed}/{name}/{number}"))
    folder = Path("fuzz-case").absolute()
    put(folder, files, {})
    print(f"{folder / changed}, {len(files[changed])} bytes")
    os.chdir(folder)
    for read in format.readers[changed]:
        print(outcome(read, folder))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=CASES, help=f"cases of each format (default: {CASES})")
    parser.add_argument("--format", action="append", help="only this format; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other cases")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--out", type=Path, help="write the counts and the failures here, as JSON")
    parser.add_argument("--show", metavar="FORMAT:NUMBER", help="read one case in this process")
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        name, first, count, marker, result = arguments.worker
        counts = work(name, arguments.seed, int(first), int(count), Path(marker))
        Path(result).write_text(json.dumps(vars(counts)))
        return 0
    if arguments.show:
        name, _, number = arguments.show.rpartition(":")
        show(name, int(number), arguments.seed)
        return 0
    from tests.fuzz.formats import all_formats

    with tempfile.TemporaryDirectory() as folder:
        known = list(all_formats(Path(folder)))
    names = arguments.format or known
    if unknown := set(names) - set(known):
        parser.error(f"there is no format {unknown.pop()}; choose among {', '.join(known)}")
    counts = run_all(names, arguments.cases, arguments.seed, arguments.jobs)
    if arguments.out:
        arguments.out.write_text(json.dumps({name: vars(each) for name, each in counts.items()}, indent=1))
    failures = [failure for each in counts.values() for failure in each.failures]
    for failure in failures[:KEPT]:
        print(f"\n{failure['case']}\n{failure['traceback']}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
