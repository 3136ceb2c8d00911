"""How good is vmt.adapt on data that nobody tuned it for? Many small tasks, against scikit-learn and skada.

    python benchmarks/own_data.py --jobs 2

measures every contender on every task (own_data_tasks.py, which also has the rule that splits them into tasks for
choosing and tasks for reporting) with five seeds, and writes the page docs/own-data-bench.md. Each result is a line of
results/own_data.jsonl; a result that is there is not computed again, unless the code or the version of its contender
has changed. Contenders are vmt.adapt with each of its methods (OURS), and the competitors of own_data_peers.py, all
with their defaults and on one CPU thread. Competitors whose packages are missing are left out: the extra `bench` of
this package installs them.

To choose settings, add contenders of your own and measure them on the tasks for choosing:

    python benchmarks/own_data.py --split choosing --methods source_only vmt stronger --jobs 16 --out sweep.jsonl \
        --variant 'stronger={"method": "vmt", "lambda_t": 1.0}'

A variant holds keyword arguments of vmt.adapt. --variants reads many of them from a JSON file.
"""

import argparse
import fnmatch
import hashlib
import inspect
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# Before NumPy is imported: every contender has one thread, also in the worker processes, which inherit this.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

from own_data_peers import PEERS
from own_data_table import summary, write_page
from own_data_tasks import CHOOSING, REPORTING, REVISION, TASKS, Array, Problem, side

import vmt
from vmt.api import split_settings
from vmt.errors import InputError, perhaps
from vmt.methods.settings import AUTO
from vmt.runs.auto import TRAINED
from vmt.runs.folder import SUMMARY, commit, environment

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "results" / "own_data.jsonl", ROOT / "docs" / "own-data-bench.md"
OURS = ("source_only", "adabn", "mcc", "cdan", "vmt", "vmt_mcc", "auto")
SEEDS = 5
# What a record of auto has and those of its candidates have not.
OF_CHOICE = ("chosen", "candidates", "alarms", "scores")
# The rooms of the package that cannot change a result: those that print, draw and publish.
WITHOUT_EFFECT = ("cli", "report", "paper", "figures.py", "progress.py", "export.py")


@dataclass(frozen=True)
class Job:
    """One contender on one task with one seed."""

    task: str
    seed: int
    contender: str
    settings: Mapping[str, Any] | None = field(default=None, hash=False)
    """Keyword arguments of vmt.adapt; None for a competitor."""
    data: str | None = None

    def key(self, any_version: bool = False) -> str:
        """What a result must match so that this job is not done again."""
        settings = None if self.settings is None else dict(self.settings)
        kind = [self.task, REVISION, self.seed, self.contender, settings]
        return json.dumps([*kind, None if any_version else self.version()], sort_keys=True)

    def version(self) -> str:
        return code_version() if self.settings is not None else PEERS[self.contender].version()

    @property
    def trains(self) -> tuple[str, ...]:
        """The contenders that are measured by this job: auto trains the runs of its candidates as well."""
        if self.settings != {"method": AUTO}:
            return (self.contender,)
        return ("auto", *TRAINED)

    def adapted(self, problem: Problem, folder: Path) -> vmt.Model:
        arguments = {"device": "cpu", "progress": False, "seed": self.seed, **(self.settings or {})}
        return vmt.adapt((problem.xs, problem.ys), problem.xt, out=folder, **arguments)


@cache
def code_version() -> str:
    """A digest of the package's code, without the parts that cannot change a result."""
    digest = hashlib.sha256()
    package = Path(vmt.__file__).parent
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] not in WITHOUT_EFFECT:
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def key_of(record: Mapping[str, Any], any_version: bool = False) -> str:
    """The key of the job that a record is the result of."""
    kind = [record[name] for name in ("task", "revision", "seed", "contender", "settings")]
    return json.dumps([*kind, None if any_version else record["version"]], sort_keys=True)


def measure(job: Job) -> list[dict[str, Any]]:
    """Train a contender and measure its accuracy on the target's test part; with auto, that of its candidates, too."""
    import torch

    torch.set_num_threads(1)
    record: dict[str, Any] = {
        "task": job.task,
        "revision": REVISION,
        "seed": job.seed,
        "contender": job.contender,
        "settings": None if job.settings is None else dict(job.settings),
        "version": job.version(),
    }
    if job.settings is not None:
        record |= {"commit": commit(), "torch": torch.__version__, "machine": machine()}
    problem = TASKS[job.task].problem(job.seed, None if job.data is None else Path(job.data))

    def right(predicted: Array) -> float:
        return round(float((predicted == problem.yt_test).mean()), 5)

    records = [record]
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(action="ignore"), TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        try:
            if job.settings is None:
                record["accuracy"] = right(PEERS[job.contender].predict(problem, job.seed))
            else:
                record["accuracy"] = right(job.adapted(problem, folder).predict(problem.xt_test))
        except Exception as error:  # a contender that fails is a result, too
            record["failed"] = f"{type(error).__name__}: {error}"[:200]
        record["cpu_s"] = round(time.process_time() - cpu, 2)
        record["wall_s"] = round(time.perf_counter() - wall, 2)
        if len(job.trains) > 1 and "accuracy" in record:
            choice = read_summary(folder)["choice"]
            record["chosen"] = choice["chosen"]
            of_each = {name: vmt.load(folder / name, device="cpu") for name in choice["candidates"]}
            record["candidates"] = {name: right(model.predict(problem.xt_test)) for name, model in of_each.items()}
            record["alarms"] = [name for name, found in choice["candidates"].items() if found["alarm"]]
            # The label-free scores of each candidate, for the study of which of them chooses best.
            record["scores"] = {name: short(found["scores"]) for name, found in choice["candidates"].items()}
            trained = job.trains[1:]
            seconds = {name: read_summary(folder / name)["seconds"] for name in trained}
            for name in trained:
                cpu_s = round(record["cpu_s"] * seconds[name] / sum(seconds.values()), 2)
                about = {"contender": name, "settings": {"method": name}, "cpu_s": cpu_s, "wall_s": seconds[name]}
                of_run = {key: value for key, value in record.items() if key not in OF_CHOICE}
                records.append({**of_run, **about, "accuracy": record["candidates"][name]})
    return records


def short(scores: Mapping[str, float | None]) -> dict[str, float | None]:
    """Scores with five digits."""
    return {name: value if value is None else float(f"{value:.5g}") for name, value in scores.items()}


def read_summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / SUMMARY).read_text()))


@cache
def machine() -> str:
    return str(environment("cpu")["machine"])


# --- The file of results ---


def read(path: Path) -> list[dict[str, Any]]:
    """The records in a file; a line that a kill cut short is left out."""
    records = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        with suppress(ValueError):
            records.append(json.loads(line))
    return records


def complete(path: Path, jobs: Sequence[Job], workers: int, any_version: bool = False, retry: bool = False) -> None:
    """Carry out the jobs that have no record, and add a line as each ends."""
    done = {key_of(record, any_version) for record in read(path) if not (retry and "failed" in record)}
    missing = [job for job in jobs if job.key(any_version) not in done]
    alongside = {(job.task, job.seed, name) for job in missing if len(job.trains) > 1 for name in job.trains[1:]}
    missing = [job for job in missing if (job.task, job.seed, job.contender) not in alongside]
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_bytes()[-1:] not in (b"", b"\n"):
        with path.open("a") as file:
            file.write("\n")
    for number, records in enumerate(records_of(measure, missing, workers), 1):
        with path.open("a") as file:
            file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        record = records[0]
        result = record.get("failed") or f"{record['accuracy']:.1%}"
        what = f"{record['task']}, seed {record['seed']}, {record['contender']}"
        print(f"[{number}/{len(missing)}] {what}: {result}, {record['cpu_s']} CPU s", flush=True)


def records_of(measure: Callable[[Any], Any], jobs: Sequence[Any], workers: int) -> Iterator[Any]:
    """Do the jobs, here or in several worker processes."""
    if workers == 1 or not jobs:
        yield from map(measure, jobs)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(measure, job) for job in jobs]):
            yield future.result()


# --- Which tasks and contenders ---


def chosen(patterns: Sequence[str], known: Iterable[str], what: str) -> list[str]:
    """The names that match one of the patterns, in their own order."""
    known = list(known)
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            raise InputError(f"no {what} is called {pattern!r}{perhaps(pattern, known)}: known are {', '.join(known)}.")
    return [name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def tasks_for(patterns: Sequence[str], split: str, data: Path | None) -> list[str]:
    """The tasks of a side of the split that match, by name or by family; those of published sets need a data folder."""
    names = [name for name in TASKS if split in ("all", side(name))]
    families = {TASKS[name].family for name in names}
    wanted = {name for name in names if TASKS[name].family in patterns}
    wanted |= set(chosen([pattern for pattern in patterns if pattern not in families], names, "task"))
    for name in [name for name in names if data is not None and name in wanted]:
        if missing := TASKS[name].missing(data):
            print(f"{name} is left out: {data} lacks {missing}.", file=sys.stderr)
    return [name for name in names if name in wanted and not TASKS[name].missing(data)]


def contenders(variants: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any] | None]:
    """Every contender that can run here, with the arguments of vmt.adapt if it is ours."""
    absent = {name: missing for name, peer in PEERS.items() if (missing := peer.missing())}
    for packages in dict.fromkeys(absent.values()):
        names = ", ".join(name for name in absent if absent[name] == packages)
        print(f"Without {packages}, these are left out: {names}.", file=sys.stderr)
    found: dict[str, Mapping[str, Any] | None] = {name: None for name in PEERS if name not in absent}
    found |= {name: {"method": name} for name in OURS}
    return found | {name: check_variant(name, arguments) for name, arguments in variants.items()}


def check_variant(name: str, arguments: Any) -> Mapping[str, Any]:
    """Refuse a variant that vmt.adapt would not take, before anything is run."""
    if name in PEERS or name in OURS:
        raise InputError(f"the variant {name} has the name of another contender: choose another name.")
    if not isinstance(arguments, dict):
        raise InputError(f"the variant {name} must be a JSON object with keyword arguments of vmt.adapt.")
    own = inspect.signature(vmt.adapt).parameters
    split_settings({key: value for key, value in arguments.items() if key not in own})
    return arguments


def variants_in(texts: Sequence[str], file: Path | None) -> dict[str, Any]:
    """Variants given as NAME=JSON, and those of a JSON file that maps names to keyword arguments."""
    found: dict[str, Any] = {} if file is None else json.loads(file.read_text())
    for text in texts:
        name, equals, arguments = text.partition("=")
        try:
            found[name] = json.loads(arguments)
        except ValueError as error:
            raise InputError(f"--variant {text!r} is not NAME=JSON ({error}).") from error
        if not equals or not name:
            raise InputError(f"--variant {text!r} has no name: write NAME=JSON.")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--split", choices=(CHOOSING, REPORTING, "all"), default="all", help="which tasks (default: all)")
    add("--tasks", nargs="+", default=["*"], help="names, patterns such as 'digits-*', or families (default: all)")
    add("--methods", nargs="+", default=["*"], help="names or patterns of contenders (default: all)")
    add("--seeds", type=int, nargs="+", default=[SEEDS], help="number of seeds, or several seeds (default: 5)")
    add("--variant", action="append", default=[], help="a further contender, NAME=JSON, for example 'a={\"lr\": 0.01}'")
    add("--variants", type=Path, help="a JSON file of further contenders, {NAME: {…}, …}")
    add("--jobs", type=int, default=1, help="processes, one thread each (default: 1)")
    add("--out", type=Path, default=RESULTS, help="file of the results (default: results/own_data.jsonl)")
    add("--data", type=Path, help="folder of MNIST, MNIST-M and USPS, for the tasks that need them")
    add("--any-version", action="store_true", help="also keep results of earlier code and of other versions")
    add("--retry", action="store_true", help="repeat what failed before")
    add("--list", action="store_true", help="only list the tasks and the contenders")
    add("--table", action="store_true", help="only write the page, from the results that are there")
    add("--page", type=Path, default=PAGE, help="where to write the page (default: docs/own-data-bench.md)")
    asked = parser.parse_args(arguments)
    try:
        known = contenders(variants_in(asked.variant, asked.variants))
        names = chosen(asked.methods, known, "contender")
        tasks = tasks_for(asked.tasks, asked.split, asked.data)
    except InputError as error:
        parser.error(str(error))
    if asked.list:
        for name in tasks:
            print(f"{name:32} {side(name):10} {TASKS[name].family:16} {TASKS[name].description}.")
        print("Contenders: " + ", ".join(names))
        return
    seeds = range(asked.seeds[0]) if len(asked.seeds) == 1 else asked.seeds
    data = None if asked.data is None else str(asked.data)
    if not asked.table:
        jobs = [
            Job(task, seed, name, known[name], data if TASKS[task].sets else None)
            for seed in seeds
            for task in tasks
            for name in names
        ]
        complete(asked.out, jobs, asked.jobs, asked.any_version, asked.retry)
    records = read(asked.out)
    print(summary(records, tasks, {name: known[name] for name in names}, seeds))
    # The published page has every task and every contender; a part of them must not replace it.
    everything = asked.split == "all" and asked.tasks == asked.methods == ["*"] and asked.out == RESULTS
    if asked.table or everything:
        write_page(records, asked.page)


if __name__ == "__main__":
    main()
