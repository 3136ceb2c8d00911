"""PACS with frozen features: photographs, art paintings, cartoons and sketches of seven classes, in all 12 directions.

    python benchmarks/pacs.py --pictures DATA --backbone mine.nets:features --file pacs.npz    # once
    python benchmarks/pacs.py --file pacs.npz --seeds 5 --jobs 16                             # anywhere

The first command computes the features of all pictures as ``vmt train --features`` does, and keeps them in the same
cache. The file has the features ``DOMAIN_x``, in 16 bits, and the labels ``DOMAIN_y`` of all four domains. Every
contender is trained on every pair with every seed, on one CPU thread, and a line is appended to results/pacs.jsonl as
each ends. What is there is not done again, unless the code has changed (--any-version keeps it). --table writes
docs/pacs.md, with the results of pacs_finetune.py if there are any. ``auto`` trains source_only, mcc, vmt and vmt_mcc
with the same seed and settings as they have alone, so its record has their results, too.

The source is all of its domain with labels, the target all of its domain without. The accuracy is that on the whole
target, of three models: the *last*, the one *chosen* without labels by the default validator among the evaluations of
the run, and the *oracle*, the best of these evaluations by target labels, which nobody has. Recipes are the defaults
of the library for features and one for all pairs. --variant adds a contender, as in own_data.py.
"""

import argparse
import hashlib
import json
import os
import platform
import shlex
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

# Before NumPy is imported: every contender has one thread, also in the worker processes, which inherit this.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import numpy as np
from pacs_table import page, summary

from own_data import check_variant, chosen, code_version, read, records_of, variants_in
from vmt.data.files.features import Extractor
from vmt.disk import atomic_path, write_atomically
from vmt.errors import InputError
from vmt.runs.folder import commit
from vmt.runs.ranking import history_of, ranked
from vmt.runs.record import read_run_record
from vmt.validators.registry import DEFAULT

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "results" / "pacs.jsonl", ROOT / "docs" / "pacs.md"
FINETUNED = ROOT / "results" / "pacs_finetune.jsonl"
DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
PAIRS = [f"{source}-{target}" for source, target in permutations(DOMAINS, 2)]
OURS = ("auto", "cdan", "dann")
LOGISTIC = {"logistic": False, "logistic-per-domain": True}


@dataclass(frozen=True)
class Job:
    """One contender on one pair with one seed."""

    pair: str
    seed: int
    contender: str
    file: str
    settings: Mapping[str, Any] | None = field(default=None, hash=False)
    """Keyword arguments of vmt.adapt; None for logistic regression."""

    def key(self, any_version: bool) -> str:
        settings = None if self.settings is None else dict(self.settings)
        version = None if any_version or self.settings is None else code_version()
        return json.dumps([self.pair, self.seed, self.contender, settings, file_digest(self.file), version])


def key_of(record: Mapping[str, Any], any_version: bool) -> str:
    kind = [record[name] for name in ("pair", "seed", "contender", "settings", "features")]
    return json.dumps([*kind, None if any_version or record["settings"] is None else record["version"]])


@cache
def file_digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]


@cache
def domain(path: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The features and labels of one domain."""
    with np.load(path) as file:
        return file[f"{name}_x"].astype(np.float32), file[f"{name}_y"]


def measure(job: Job) -> dict[str, Any]:
    """Train a contender and measure its models on the whole target."""
    import torch

    torch.set_num_threads(1)
    source, target = (domain(job.file, name) for name in job.pair.split("-"))
    record: dict[str, Any] = {
        "pair": job.pair,
        "seed": job.seed,
        "contender": job.contender,
        "settings": None if job.settings is None else dict(job.settings),
        "features": file_digest(job.file),
        "version": code_version(),
    }
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        with warnings.catch_warnings(action="ignore"):
            if job.settings is None:
                record |= logistic(source, target, LOGISTIC[job.contender])
            else:
                record |= adapted(source, target, job.seed, dict(job.settings))
    except Exception as error:  # a contender that fails is a result, too
        record["failed"] = f"{type(error).__name__}: {error}"[:200]
    record |= {"cpu_s": round(time.process_time() - cpu, 2), "wall_s": round(time.perf_counter() - wall, 2)}
    record |= {"commit": commit(), "torch": torch.__version__, "machine": machine(), "command": shlex.join(sys.argv)}
    return record


def adapted(
    source: tuple[np.ndarray, np.ndarray], target: tuple[np.ndarray, np.ndarray], seed: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """The accuracies of a contender with features of the source and the target."""
    from vmt.api import task_of

    # The labels of the target only measure: the task has them as those of its test set, which nobody trains on.
    task = task_of(source, target[0], target, None, None, standardise_per_domain=True)
    # As if a frozen network had computed the features just now.
    return measured(replace(task, backbone=cast(Extractor, "of the file")), seed, {"device": "cpu", **settings})


def measured(task: Any, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """The accuracies of the last model, of the one chosen without labels and of the best, and what the run says."""
    from vmt.api import split_settings
    from vmt.runs.auto import Portfolio, carry_out_auto
    from vmt.runs.run import carry_out, make_run
    from vmt.runs.spec import DataSpec
    from vmt.train.config import Config

    method, net, options = settings.pop("method"), settings.pop("net", None), settings.pop("net_options", None)
    iterations = settings.pop("iterations", None)
    config, asked = split_settings(settings)
    config = {"seed": seed, "keep_best": DEFAULT, **config}
    if method == "auto":
        config["keep_best"] = ""  # the candidates' last models are compared
        portfolio = Portfolio(task, DataSpec(), Config(**config), net, options, None, iterations)
        with TemporaryDirectory() as folder:
            found = carry_out_auto(portfolio, Path(folder) / "auto", show=False)
            runs = {name: recorded(Path(folder) / "auto" / name) for name in portfolio.candidates}
        candidates = {name: each["target_accuracy"] for name, each in found.summary["choice"]["candidates"].items()}
        accuracy = candidates[found.choice.chosen]
        best = max(candidates.values())
        what = {"picked": found.choice.chosen, "candidates": candidates, "runs": runs}
        what |= {"alarm": found.choice.findings[found.choice.chosen].alarm, "warnings": found.summary["warnings"]}
        return {"last": accuracy, "chosen": accuracy, "oracle": best, **what}
    run = make_run(
        task,
        method,
        dirt_t=False,
        asked=asked,
        iterations=iterations,
        target_labels=None,
        net=net,
        net_options=options,
        config=Config(**config),
        evaluate_often="evaluate_every" not in config,
    )
    result = carry_out(run)
    evaluations = [each for each in result.outcome.records if "target" in each]
    accuracies = {each["step"]: each["target"]["accuracy"] for each in evaluations}
    best_step = (result.summary["best"] or {"step": evaluations[-1]["step"]})["step"]
    return {
        "last": evaluations[-1]["target"]["accuracy"],
        "chosen": accuracies[best_step],
        "oracle": max(accuracies.values()),
        "by": DEFAULT,
        "chosen_step": best_step,
        "collapsed": result.summary["collapsed"],
        "alarm": evaluations[-1].get("alarm"),
        "validators": evaluations[-1].get("validators"),
        "warnings": result.summary["warnings"],
    }


def recorded(folder: Path) -> dict[str, Any]:
    """The same of a run that a folder has, which was carried out without looking for the best model."""
    run = read_run_record(folder)
    evaluations, summary = history_of(run).evaluations, run.summary or {}
    accuracies = {each.step: each.accuracy for each in evaluations}
    step = ranked(evaluations, DEFAULT)[0].step
    last = run.evaluations[-1]
    return {
        "last": accuracies[last["step"]],
        "chosen": accuracies[step],
        "oracle": max(value for value in accuracies.values() if value is not None),
        "by": DEFAULT,
        "chosen_step": step,
        "collapsed": summary.get("collapsed"),
        "alarm": last.get("alarm"),
        "validators": last.get("validators"),
        "warnings": summary.get("warnings"),
        "seconds": summary.get("seconds"),
    }


def logistic(
    source: tuple[np.ndarray, np.ndarray], target: tuple[np.ndarray, np.ndarray], per_domain: bool
) -> dict[str, Any]:
    """Logistic regression on standardised features, with the source's units for both domains or each with its own."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    units = StandardScaler().fit(source[0])
    other = StandardScaler().fit(target[0]) if per_domain else units
    model = LogisticRegression(max_iter=1000).fit(units.transform(source[0]), source[1])
    accuracy = float((model.predict(other.transform(target[0])) == target[1]).mean())
    return {"last": accuracy, "chosen": accuracy, "oracle": accuracy}


def write_features(data: Path, backbone: str, file: Path) -> None:
    """Compute the features of all pictures of PACS below a data folder, and write them with their labels."""
    from vmt.data.picture_sets import PICTURE_SETS

    published = PICTURE_SETS["pacs"]
    folders = {known.folder: published.folder(data, name) for name, known in published.domains.items()}
    write_domains(folders, published.classes, backbone, file)


def write_domains(folders: Mapping[str, Path], classes: Sequence[str], backbone: str, file: Path) -> None:
    """Compute the features of the pictures of some domains, and write them with their labels."""
    from vmt.data.files.own import read_own
    from vmt.nets.backbone import make_backbone

    extractor = make_backbone(backbone)
    arrays: dict[str, np.ndarray] = {"classes": np.array(classes)}
    for name, folder in folders.items():
        own = read_own(folder, classes=classes, extractor=extractor, progress=True)
        assert own.labels is not None
        arrays |= {f"{name}_x": own.domain.x.numpy().astype(np.float16), f"{name}_y": own.labels}
    with atomic_path(file) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]
    print(f"Wrote {file}, {file.stat().st_size / 2**20:.1f} MiB.")


def machine() -> str:
    """The processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def complete(path: Path, jobs: Sequence[Job], workers: int, any_version: bool) -> None:
    """Carry out the jobs that have no record, and add a line as each ends."""
    done = {key_of(record, any_version) for record in read(path) if "failed" not in record}
    missing = [job for job in jobs if job.key(any_version) not in done]
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_bytes()[-1:] not in (b"", b"\n"):  # a line that a kill cut short
        with path.open("a") as file:
            file.write("\n")
    for number, record in enumerate(records_of(measure, missing, workers), 1):
        with path.open("a") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        result = record.get("failed") or f"{record['last']:.1%}"
        what = f"{record['pair']}, seed {record['seed']}, {record['contender']}"
        print(f"[{number}/{len(missing)}] {what}: {result}, {record['wall_s']} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--file", type=Path, required=True, help="the features of all pictures, an .npz file")
    add("--pictures", type=Path, help="make the file from the pictures below this data folder, and do nothing else")
    add("--backbone", help="the network that computes the features, as for vmt train --features")
    add("--pairs", nargs="+", default=["*"], help="pairs or patterns such as 'photo-*' (default: all)")
    add("--methods", nargs="+", default=["*"], help="contenders or patterns (default: all)")
    add("--seeds", type=int, nargs="+", default=[5], help="number of seeds, or several seeds (default: 5)")
    add("--variant", action="append", default=[], help='a further contender, NAME=JSON: \'a={"method": "vmt"}\'')
    add("--jobs", type=int, default=1, help="processes, one thread each (default: 1)")
    add("--out", type=Path, default=RESULTS, help="file of the results (default: results/pacs.jsonl)")
    add("--any-version", action="store_true", help="also keep results of earlier code")
    add("--table", action="store_true", help="only write the page, from the results that are there")
    add("--page", type=Path, default=PAGE, help="where to write the page (default: docs/pacs.md)")
    asked = parser.parse_args(arguments)
    try:
        if asked.pictures is not None:
            write_features(asked.pictures, asked.backbone or "", asked.file)
            return
        known: dict[str, Mapping[str, Any] | None] = dict.fromkeys(LOGISTIC)
        known |= {name: {"method": name} for name in OURS}
        variants = variants_in(asked.variant, None)
        known |= {name: check_variant(f"{name} of PACS", given) for name, given in variants.items()}
        names = chosen(asked.methods, known, "contender")
        pairs = chosen(asked.pairs, PAIRS, "pair")
    except InputError as error:
        parser.error(str(error))
    if not asked.table:
        seeds = range(asked.seeds[0]) if len(asked.seeds) == 1 else asked.seeds
        file = str(asked.file)
        # Logistic regression has no random numbers, so one seed is enough.
        jobs = [
            Job(pair, seed, name, file, known[name])
            for seed in seeds
            for name in names
            for pair in pairs
            if known[name] is not None or seed == seeds[0]
        ]
        complete(asked.out, jobs, asked.jobs, asked.any_version)
    records = read(asked.out)
    print(summary(records, PAIRS))
    if asked.table:
        write_atomically(asked.page, page(records, PAIRS, read(FINETUNED)).encode())


if __name__ == "__main__":
    main()
