"""Read many damaged files of every format, and count what happens.

    python -m tests.fuzz                              10,000 cases of each format, more than 200,000 in all
    python -m tests.fuzz --cases 1000 --format npz    one format
    python -m tests.fuzz --jobs 16 --out counts.json  in several processes
    python -m tests.fuzz --show npz:17                the case 17 of a format, with its traceback

A case is made from the seed, the name of the format and its number alone. Many cases share a process, whose memory is
limited; a process that dies or hangs is recorded as a crash of its case, and another one continues with the rest.
"""

import argparse
import json
import os
import platform
import random
import resource
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

CASES = 10_000
MEMORY = 2 * 2**30
BLOCK = 500  # cases of one format that a process reads in a row
BLOCKS = 40  # of one process, which takes seconds to start
HANGS = 60.0  # seconds without progress
KEPT = 20  # failures that are described in full


class Block(NamedTuple):
    """Some cases of a format: their numbers are `first` and above, and below `end`."""

    format: str
    first: int
    end: int


@dataclass
class Counts:
    """What happened to the cases of a format."""

    cases: int = 0
    read: int = 0
    refused: int = 0
    tracebacks: int = 0
    crashes: int = 0
    peak: int = 0
    """The largest memory of a process while it read them, in bytes."""
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


def peak_memory() -> int:
    """The most memory of this process since the last call, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")
    return int(line.split()[1]) * 1024


def work(blocks: Sequence[Block], seed: int, marker: Path, result: Path) -> None:
    """Read blocks of cases, and append the counts of each to `result`. `marker` has the number of the current case."""
    import torch

    from tests.fuzz.formats import all_formats

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="vmt-fuzz-") as temporary, marker.open("r+b", buffering=0) as current:
        folder = Path(temporary)
        known = all_formats(folder)
        formats = {name: known[name]() for name in {block.format for block in blocks}}
        limit_memory(MEMORY)
        for block in blocks:
            peak_memory()
            counts = read_block(block, formats[block.format], seed, folder / block.format, current)
            counts.peak = peak_memory()
            with result.open("a") as file:
                file.write(json.dumps(vars(counts)) + "\n")


def read_block(block: Block, format: Any, seed: int, folder: Path, current: IO[bytes]) -> Counts:
    counts, start = Counts(cases=block.end - block.first), time.monotonic()
    folder.mkdir(exist_ok=True)
    os.chdir(folder)  # paths on standard input are relative to the working folder
    written: dict[str, bytes] = {}
    for number in range(block.first, block.end):
        current.seek(0)
        current.write(number.to_bytes(8, "little"))
        changed, files = format.case(random.Random(f"{seed}/{block.format}/{number}"))
        put(folder, files, written)
        outcomes = [outcome(read, folder) for read in format.readers[changed]]
        written.pop(changed, None)  # a reader may have written it again
        if failed := [each for each in outcomes if each not in ("read", "refused")]:
            counts.tracebacks += 1
            counts.failures.append({"case": f"{block.format}:{number}", "what": failed[0]})
        elif "refused" in outcomes:
            counts.refused += 1
        else:
            counts.read += 1
    counts.seconds = time.monotonic() - start
    return counts


def put(folder: Path, files: dict[str, bytes], written: dict[str, bytes]) -> None:
    """Write the files that differ from those that are there."""
    for name, content in files.items():
        if written.get(name) != content:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
            written[name] = content


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


def run_blocks(blocks: Sequence[Block], seed: int) -> Iterator[tuple[str, Counts]]:
    """The counts of blocks that are read in a process of their own, and in another one after each crash."""
    left = list(blocks)
    while left:
        with tempfile.TemporaryDirectory(prefix="vmt-fuzz-") as temporary:
            marker, result, given = (Path(temporary) / name for name in ("marker", "result", "blocks"))
            marker.write_bytes(left[0].first.to_bytes(8, "little"))
            given.write_text(json.dumps(left))
            result.touch()
            command = [sys.executable, "-m", "tests.fuzz", "--seed", str(seed), "--worker"]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2", "MKL_NUM_THREADS": "1"}
            worker = subprocess.Popen(
                [*command, str(given), str(marker), str(result)],
                cwd=Path(__file__).parents[2],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment,
            )
            why = wait(worker, marker)
            for line in result.read_text().splitlines():
                yield left.pop(0).format, Counts(**json.loads(line))
            if why is not None:
                broken = left.pop(0)
                number = int.from_bytes(marker.read_bytes(), "little")
                failure = {"case": f"{broken.format}:{number}", "what": why}
                yield broken.format, Counts(cases=1, crashes=1, failures=[failure])
                # The cases around it are read again, because their counts were lost with the process.
                parts = (Block(broken.format, broken.first, number), Block(broken.format, number + 1, broken.end))
                left = [part for part in parts if part.first < part.end] + left


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


def run_all(names: Sequence[str], cases: int, seed: int, jobs: int, show: Callable[[str], object]) -> dict[str, Counts]:
    """The counts of every format, shown as they are complete."""
    counts = {name: Counts() for name in names}
    blocks = [Block(name, k, min(k + BLOCK, cases)) for name in names for k in range(0, cases, BLOCK)]
    size = max(1, min(BLOCKS, -(-len(blocks) // jobs)))
    shown: set[str] = set()
    show(
        f"{'format':<20}{'cases':>9}{'read':>9}{'refused':>9}{'tracebacks':>12}{'crashes':>9}{'peak MiB':>10}{'ms':>7}"
    )
    with ThreadPoolExecutor(jobs) as pool:
        groups = [blocks[k : k + size] for k in range(0, len(blocks), size)]
        for done in as_completed([pool.submit(lambda group: list(run_blocks(group, seed)), group) for group in groups]):
            for name, result in done.result():
                counts[name].add(result)
            for name, each in counts.items():
                if each.cases == cases and name not in shown:
                    shown.add(name)
                    show(row(name, each))
    total = Counts()
    for each in counts.values():
        total.add(each)
    show(row("all", total))
    return counts


def row(name: str, c: Counts) -> str:
    peak, each = c.peak / 2**20, 1000 * c.seconds / max(c.cases, 1)
    return f"{name:<20}{c.cases:>9}{c.read:>9}{c.refused:>9}{c.tracebacks:>12}{c.crashes:>9}{peak:>10.0f}{each:>7.1f}"


def circumstances() -> dict[str, Any]:
    """What a published count needs beside itself."""
    import torch

    from vmt.runs.folder import commit

    return {
        "command": f"python -m tests.fuzz {shlex.join(sys.argv[1:])}",
        "commit": commit(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def show_case(name: str, number: int, seed: int) -> None:
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


def known_formats() -> list[str]:
    from tests.fuzz.formats import all_formats

    with tempfile.TemporaryDirectory(prefix="vmt-fuzz-") as folder:
        return list(all_formats(Path(folder)))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=CASES, help=f"cases of each format (default: {CASES})")
    parser.add_argument("--format", action="append", help="only this format; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other cases")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--out", type=Path, help="write the counts and the failures here, as JSON")
    parser.add_argument("--show", metavar="FORMAT:NUMBER", help="read one case in this process")
    parser.add_argument("--worker", nargs=3, type=Path, help=argparse.SUPPRESS)
    return parser


def main() -> int:
    parser = build_parser()
    arguments = parser.parse_args()
    if arguments.worker:
        given, marker, result = arguments.worker
        work([Block(*each) for each in json.loads(given.read_text())], arguments.seed, marker, result)
        return 0
    if arguments.show:
        name, _, number = arguments.show.rpartition(":")
        show_case(name, int(number), arguments.seed)
        return 0
    known = known_formats()
    names = arguments.format or known
    if unknown := set(names) - set(known):
        parser.error(f"there is no format {unknown.pop()}; choose among {', '.join(known)}")
    start = time.monotonic()
    counts = run_all(names, arguments.cases, arguments.seed, arguments.jobs, lambda line: print(line, flush=True))
    if arguments.out:
        formats = {name: vars(each) for name, each in counts.items()}
        whole = {**circumstances(), "seconds": time.monotonic() - start, "formats": formats}
        arguments.out.write_text(json.dumps(whole, indent=1) + "\n")
    failures = [failure for each in counts.values() for failure in each.failures]
    for failure in failures[:KEPT]:
        print(f"\n{failure['case']}\n{failure['what']}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
