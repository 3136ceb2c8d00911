"""PACS with a fine-tuned network: EfficientNet-Lite0 at 224 pixels with its ImageNet weights, on a GPU.

    python benchmarks/pacs_finetune.py --data PACS --seeds 3 --jobs 4

PACS has a folder for each domain, with a folder for each of the seven classes; --data may also be another such set.
pacs_network.py has the network. Every contender is trained on every pair with every seed, and a line is appended to
results/pacs_finetune.jsonl as each ends.
What is there is not done again, unless the code has changed (--any-version keeps it). --table prints the table of the
results that are there.

Each run is that of ``vmt train --source PACS/photo --target PACS/sketch --net …`` with pretrained weights: the recipe
of the library for them, batches of 32 of each domain, 400 iterations, crops and mirrored pictures. One recipe serves
all pairs; it was chosen on pictures of styled_pictures.py. The accuracy is that on the whole target, of the *last*
model, of the one *chosen* without labels by the default validator among the evaluations of the run, and of the
*oracle*, the best of these evaluations by target labels.
"""

import argparse
import json
import shlex
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

from pacs import DOMAINS, measured
from pacs_network import lite0
from pacs_table import finetuned

from own_data import check_variant, chosen, code_version, read, records_of, variants_in
from vmt.errors import InputError
from vmt.runs.folder import commit

RESULTS = Path(__file__).parent.parent / "results" / "pacs_finetune.jsonl"
SOME = ("photo-art_painting", "photo-sketch", "art_painting-cartoon", "sketch-photo")
CONTENDERS = ("vmt_mcc", "mcc", "dann", "source_only")
COMMON: dict[str, Any] = {
    "iterations": 400,
    "batch_size": 32,
    "augment_crop": 0.5,
    "augment_flip": True,
    "evaluate_every": 200,
    "validate_samples": 500,
}


@dataclass(frozen=True)
class Job:
    """One contender on one pair with one seed."""

    pair: str
    seed: int
    contender: str
    data: str
    settings: Mapping[str, Any] = field(hash=False)
    """Keyword arguments of vmt.adapt."""

    def key(self, any_version: bool) -> str:
        version = None if any_version else code_version()
        return json.dumps([self.pair, self.seed, self.contender, dict(self.settings), version])


def key_of(record: Mapping[str, Any], any_version: bool) -> str:
    kind = [record[name] for name in ("pair", "seed", "contender", "settings")]
    return json.dumps([*kind, None if any_version else record["version"]])


@cache
def task_of_pair(data: str, pair: str) -> Any:
    """The pictures of a pair, with the target also as the test set."""
    from vmt.nets.backbone import expected_format
    from vmt.runs.spec import DataSpec, load_data

    source, target = (str(Path(data) / name) for name in pair.split("-"))
    return load_data(DataSpec(source=source, target=target, target_test=target).expecting(expected_format(lite0, {})))


def measure(job: Job) -> dict[str, Any]:
    """Train a contender and measure its models on the whole target."""
    import torch

    torch.set_num_threads(2)
    record: dict[str, Any] = {
        "pair": job.pair,
        "seed": job.seed,
        "contender": job.contender,
        "settings": dict(job.settings),
        "version": code_version(),
    }
    started = time.perf_counter()
    try:
        with warnings.catch_warnings(action="ignore"):
            task = task_of_pair(job.data, job.pair)
            record["read_s"] = round(time.perf_counter() - started, 1)
            record |= measured(task, job.seed, {"net": lite0, **job.settings})
    except Exception as error:  # a contender that fails is a result, too
        record["failed"] = f"{type(error).__name__}: {error}"[:300]
    record["wall_s"] = round(time.perf_counter() - started, 1)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    memory = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None
    record |= {"commit": commit(), "torch": torch.__version__, "machine": where, "peak_gib": memory}
    return record | {"command": shlex.join(sys.argv)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", type=Path, help="the folder of the domains")
    add("--pairs", nargs="+", default=list(SOME), help=f"pairs or patterns such as 'photo-*' (default: {SOME})")
    add("--methods", nargs="+", default=["*"], help="contenders or patterns (default: all)")
    add("--seeds", type=int, nargs="+", default=[3], help="number of seeds, or several seeds (default: 3)")
    add("--variant", action="append", default=[], help='a further contender, NAME=JSON: \'a={"method": "vmt"}\'')
    add("--jobs", type=int, default=1, help="processes that share the GPU (default: 1)")
    add("--out", type=Path, default=RESULTS, help="file of the results (default: results/pacs_finetune.jsonl)")
    add("--any-version", action="store_true", help="also keep results of earlier code")
    add("--table", action="store_true", help="only print the table of the results that are there")
    asked = parser.parse_args(arguments)
    try:
        known: dict[str, Mapping[str, Any]] = {name: {"method": name} for name in CONTENDERS}
        variants = variants_in(asked.variant, None)
        known |= {name: check_variant(f"{name} of PACS", given) for name, given in variants.items()}
        names = chosen(asked.methods, known, "contender")
        domains = sorted(folder.name for folder in asked.data.iterdir() if folder.is_dir()) if asked.data else DOMAINS
        pairs = chosen(asked.pairs, [f"{source}-{target}" for source, target in permutations(domains, 2)], "pair")
    except InputError as error:
        parser.error(str(error))
    if not asked.table:
        if asked.data is None:
            parser.error("give the folder of the domains with --data.")
        seeds = range(asked.seeds[0]) if len(asked.seeds) == 1 else asked.seeds
        data = str(asked.data)
        jobs = [
            Job(pair, seed, name, data, {**COMMON, **known[name]}) for seed in seeds for pair in pairs for name in names
        ]
        done = {key_of(record, asked.any_version) for record in read(asked.out) if "failed" not in record}
        missing = [job for job in jobs if job.key(asked.any_version) not in done]
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        for number, record in enumerate(records_of(measure, missing, asked.jobs), 1):
            with asked.out.open("a") as file:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
            result = record.get("failed") or f"{record['last']:.1%}"
            what = f"{record['pair']}, seed {record['seed']}, {record['contender']}"
            print(f"[{number}/{len(missing)}] {what}: {result}, {record['wall_s']} s", flush=True)
    print(finetuned(read(asked.out)))


if __name__ == "__main__":
    main()
