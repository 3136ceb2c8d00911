"""What runs on features know about the class shares of their target, and about whether adapting did harm.

    python benchmarks/styled_pictures.py --data DATA --even --file styled_even.npz --backbone pacs_network:features
    python benchmarks/doubts_of_features.py --file styled_even.npz --folder drawn --out results/doubts_of_features.json

The tasks are the twelve directions between the styles of styled_pictures.py. In each draw, both domains are drawn in
other shares of the seven classes: the most frequent class of the source is up to 7 times as frequent as the rarest, of
the target up to 20 times, and from draw 100 on 20 to 1,100 times, so that classes nearly vanish. The candidates of
``auto`` are trained on each task, and their outputs are kept in a file TASK.DRAW.npz, which is not made again. In the
draws of --without-networks, source_only alone is trained, which is enough for the class shares.

The first table compares estimates of the class shares with the true ones: the rank correlation of the estimated with
the true difference from the source, the mean distance of the estimate from the truth, and how many tasks with very
different shares (above 24 %) and how many others are found with two thresholds. ``both`` is the smaller of the two
differences that those that know the source alone find, so that both must say so.

The second table compares warnings with the truth about harm: the answer of ``auto`` is more than 1 point below the best
of source_only, source_kernel and logistic regression, with the units of the source or of each domain. ``kernel against
adapting`` asks a third classifier, the kernel that adapts: whether it agrees more often with those that know the source
alone than with the networks that adapt.
"""

import argparse
import json
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from itertools import permutations
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import numpy as np
import torch
from numpy.typing import NDArray
from pacs import logistic, machine
from scipy.stats import spearmanr

from vmt.api import task_of
from vmt.data.files.features import Extractor
from vmt.disk import write_atomically
from vmt.evaluate.accuracy import logits_of
from vmt.evaluate.kernel import adapted_kernel, source_kernel
from vmt.evaluate.probe import make_probe
from vmt.nets.registry import KERNEL
from vmt.runs.auto import PROBE_SAMPLES, SOURCE_KERNEL, UNADAPTED, Portfolio
from vmt.runs.folder import commit
from vmt.runs.run import carry_out
from vmt.runs.spec import DataSpec
from vmt.train.config import Config
from vmt.validators import Evidence, estimate_class_shares
from vmt.validators.choice import REFERENCE
from vmt.validators.class_shares import LEAST_DIFFERENCE, NOISE_FACTOR
from vmt.validators.together import OF_FEATURES, answer_together

Labelled = tuple[NDArray[np.float32], NDArray[np.int64]]
Drawn = tuple[Labelled, Labelled]
Logits = Mapping[str, torch.Tensor]
FEW_CLASSES = 100  # from this draw on
FEWEST = 3
HARM = 0.01
COMPARED_SAMPLES = 2000
LOWER = 0.18
DIFFERENT, OTHERS = "very different", "others"


def drawn(y: NDArray[np.int64], strength: float, random: np.random.Generator) -> NDArray[np.int64]:
    """Rows in shares of the classes that fall exponentially; the most frequent has e^strength times the rarest."""
    classes = int(y.max()) + 1
    weights = random.permutation(np.exp(-strength * np.arange(classes) / (classes - 1)))
    count = (np.bincount(y) / weights).min()
    parts = (
        random.permutation(np.flatnonzero(y == k))[: max(FEWEST, round(count * weights[k]))] for k in range(classes)
    )
    return np.sort(np.concatenate(list(parts)))


def problem(file: Path, pair: str, draw: int) -> Drawn:
    """The source and the target of a task."""
    with np.load(file) as found:
        names = domains_in(found)
        domains = [(found[f"{name}_x"].astype(np.float32), found[f"{name}_y"]) for name in pair.split("-")]
    random = np.random.default_rng([draw, *(names.index(name) for name in pair.split("-"))])
    strengths = random.uniform(0, 2), random.uniform(0, 3) if draw < FEW_CLASSES else random.uniform(3, 7)
    rows = [drawn(y, strength, random) for (_, y), strength in zip(domains, strengths, strict=True)]
    source, target = ((x[kept], y[kept]) for (x, y), kept in zip(domains, rows, strict=True))
    return source, target


def domains_in(found: Mapping[str, Any]) -> list[str]:
    return [name.removesuffix("_x") for name in found if name.endswith("_x")]


def keep_outputs(file: Path, pair: str, draw: int, networks: bool, folder: Path) -> str:
    """Train the candidates on one task and write their outputs."""
    torch.set_num_threads(1)
    source, target = problem(file, pair, draw)
    task = task_of(source, target[0], target, None, None, standardise_per_domain=True)
    # As if a frozen network had computed the features just now.
    task = replace(task, backbone=cast(Extractor, "of the file"))
    portfolio = Portfolio(task, DataSpec(), Config(seed=draw, device="cpu", validate_samples=0))
    probe = make_probe(task, PROBE_SAMPLES)
    assert probe is not None
    assert task.source_test is not None
    assert task.source_test.y is not None
    found: dict[str, Any] = {
        "prior": probe.prior.numpy(),
        "neighbours": probe.neighbours.numpy().astype(np.int16),
        "labels/target": target[1].astype(np.uint8),
        "labels/source": task.source_test.y.numpy().astype(np.uint8),
    }
    with warnings.catch_warnings(action="ignore"):
        trained = {
            name: carry_out(portfolio.run_of(name, None)).model.network
            for name in (portfolio.candidates if networks else (REFERENCE,))
        }
        found["logistic"] = np.array([logistic(source, target, per_domain)["last"] for per_domain in (False, True)])
    for name, network in {
        **trained,
        SOURCE_KERNEL: source_kernel(task),
        KERNEL: adapted_kernel(task, portfolio.shares),
    }.items():
        for part, x in {"target": torch.from_numpy(target[0]), "source": task.source_test.x}.items():
            found[f"{name}/{part}"] = logits_of(network, x, task.preprocess).to(torch.float16).numpy()
    path = folder / f"{pair}.{draw}.npz"
    with path.with_suffix(".part").open("wb") as stream:
        np.savez_compressed(stream, **found)
    path.with_suffix(".part").rename(path)
    return path.stem


# --- What is known about a task, from its outputs ---


def about(path: Path) -> dict[str, Any]:
    """The record of a task."""
    pair, _, draw = path.stem.rpartition(".")
    with np.load(path) as found:
        arrays = dict(found)
    target: Logits = {name: torch.from_numpy(value).double() for name, value in of_part(arrays, "target")}
    source: Logits = {name: torch.from_numpy(value).double() for name, value in of_part(arrays, "source")}
    labels, source_labels = (torch.from_numpy(arrays[f"labels/{part}"].astype(int)) for part in ("target", "source"))
    prior = torch.from_numpy(arrays["prior"]).double()
    true = labels.bincount(minlength=len(prior)) / len(labels)
    equal = torch.full_like(prior, 1 / len(prior))
    record: dict[str, Any] = {
        "task": pair,
        "draw": int(draw),
        "samples": len(labels),
        "difference": distance(true, prior),
        "difference_from_equal": distance(true, equal),
    }
    parts = {rule: (mean_of(target, names), mean_of(source, names)) for rule, names in ESTIMATES.items()}
    shares = {
        rule: torch.tensor(estimate_class_shares(of_target, of_source, source_labels, prior).target)
        for rule, (of_target, of_source) in parts.items()
    }
    shares["mean of both estimates"] = (shares[REFERENCE] + shares[SOURCE_KERNEL]) / 2
    record["estimates"] = {
        rule: {"difference": distance(each, prior), "error": distance(each, true)} for rule, each in shares.items()
    }
    smaller = min(record["estimates"][name]["difference"] for name in UNADAPTED)
    record["estimates"]["both"] = {"difference": smaller}
    networks = [name for name in target if name not in (*UNADAPTED, KERNEL)]
    if networks:
        record |= adapting(arrays, target, labels, prior, networks)
    return rounded(record)


def adapting(
    arrays: Mapping[str, NDArray[Any]], target: Logits, labels: torch.Tensor, prior: torch.Tensor, networks: list[str]
) -> dict[str, Any]:
    """The accuracies, and what the kernel classifier says about adapting."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    probe, compared = (order[:count].sort().values for count in (PROBE_SAMPLES, COMPARED_SAMPLES))
    neighbours = torch.from_numpy(arrays["neighbours"].astype(int))
    evidence = {name: Evidence(target=logits[probe], neighbours=neighbours) for name, logits in target.items()}
    together = answer_together(evidence, UNADAPTED, prior, rule=OF_FEATURES)
    answer = sum(
        weight * target[name].softmax(1) for name, weight in zip(together.members, together.weights, strict=True)
    )
    assert isinstance(answer, torch.Tensor)
    accuracy = {name: share(logits.argmax(1), labels) for name, logits in target.items()}
    accuracy |= {"auto": share(answer.argmax(1), labels)}
    accuracy |= dict(zip(("logistic", "logistic-per-domain"), map(float, arrays["logistic"]), strict=True))
    members = [name for name in together.members if name in networks]
    kernel, before, after = (mean_of(target, names)[compared].argmax(1) for names in ([KERNEL], UNADAPTED, members))
    with_before, with_after = kernel == before, kernel == after
    # The difference of both, in standard deviations by chance where only one of them agrees.
    against = int(with_before.sum() - with_after.sum()) / max(1, int((with_before != with_after).sum())) ** 0.5
    return {
        "accuracy": accuracy,
        "gain": accuracy["auto"] - max(accuracy[name] for name in (*UNADAPTED, "logistic", "logistic-per-domain")),
        "kernel_against_adapting": against,
    }


HEADS = [(least, what) for least in (LEAST_DIFFERENCE, LOWER) for what in (DIFFERENT, OTHERS)]
ESTIMATES: dict[str, Sequence[str]] = {**{name: (name,) for name in UNADAPTED}, "mean probabilities": UNADAPTED}


def of_part(arrays: Mapping[str, NDArray[Any]], part: str) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, value in arrays.items():
        if name.endswith(f"/{part}") and not name.startswith("labels/"):
            yield name.partition("/")[0], value


def mean_of(logits: Logits, names: Sequence[str]) -> torch.Tensor:
    """The logarithms of the mean probabilities of some classifiers."""
    return torch.stack([logits[name].softmax(1) for name in names]).mean(0).clamp_min(1e-12).log()


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The total variation distance."""
    return float((one - other).abs().sum() / 2)


def share(predicted: torch.Tensor, labels: torch.Tensor) -> float:
    return float((predicted == labels).double().mean())


def rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: rounded(each) for name, each in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def shares_found(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The rows of a table: how well each estimate tells how different the class shares are."""
    heads = (f"above {least:.0%}: {what}" for least, what in HEADS)
    yield f"| estimate | rank correlation | error | {' | '.join(heads)} |"
    yield "|---|---|---|" + len(HEADS) * "---|"
    true = np.array([each["difference"] for each in records])
    different = true > LEAST_DIFFERENCE
    for rule in records[0]["estimates"]:
        found = [each["estimates"][rule] for each in records]
        differences = np.array([each["difference"] for each in found])
        error = "–" if "error" not in found[0] else f"{np.mean([each['error'] for each in found]):.2f}"
        cells = [
            f"{int((differences > least)[different == (what == DIFFERENT)].sum())} of "
            f"{int((different == (what == DIFFERENT)).sum())}"
            for least, what in HEADS
        ]
        yield f"| {rule} | {spearmanr(true, differences).statistic:.2f} | {error} | {' | '.join(cells)} |"


def harm_found(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The rows of a table: which warnings come where adapting did harm."""
    yield "| warning | tasks with harm | others | a task with harm has the larger value |"
    yield "|---|---|---|---|"
    harmed = np.array([each["gain"] < -HARM for each in records])
    values: dict[str, tuple[float, list[float]]] = {
        f"class shares by {rule}": (LEAST_DIFFERENCE, [each["estimates"][rule]["difference"] for each in records])
        for rule in records[0]["estimates"]
    }
    values["kernel against adapting"] = (NOISE_FACTOR, [each["kernel_against_adapting"] for each in records])
    for name, (least, found) in values.items():
        value = np.array(found)
        larger = np.mean([(a > b) + (a == b) / 2 for a in value[harmed] for b in value[~harmed]])
        warned = value > least
        yield (
            f"| {name} | {int(warned[harmed].sum())} of {int(harmed.sum())} | {int(warned[~harmed].sum())} of "
            f"{int((~harmed).sum())} | {larger:.0%} |"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--file", type=Path, required=True, help="the features, by styled_pictures.py --even")
    add("--folder", type=Path, required=True, help="where the outputs of the candidates are kept")
    add("--draws", type=int, nargs="*", default=[0, 1, 100], help="with all candidates (default: 0 1 100)")
    add("--without-networks", type=int, nargs="*", default=[3, 4], help="with source_only alone (default: 3 4)")
    add("--jobs", type=int, default=1)
    add("--table", action="store_true", help="train nothing, and use the outputs that are there")
    add("--out", type=Path, required=True, help="the file of the results")
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    with np.load(asked.file) as found:
        pairs = ["-".join(pair) for pair in permutations(domains_in(found), 2)]
    draws = {**dict.fromkeys(asked.without_networks, False), **dict.fromkeys(asked.draws, True)}
    jobs = [
        (asked.file, pair, draw, networks, asked.folder)
        for draw, networks in draws.items()
        for pair in pairs
        if not asked.table and not (asked.folder / f"{pair}.{draw}.npz").exists()
    ]
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        for number, future in enumerate(as_completed([pool.submit(keep_outputs, *job) for job in jobs]), 1):
            print(f"{number} of {len(jobs)}: {future.result()}", flush=True)
    places = (asked.folder / f"{pair}.{draw}.npz" for draw in sorted(draws) for pair in pairs)
    records = [about(place) for place in places if place.exists()]
    whole = [each for each in records if "gain" in each]
    tables = {"class shares": [*shares_found(records)], "harm": [*harm_found(whole)] if whole else []}
    for (name, rows), count in zip(tables.items(), (len(records), len(whole)), strict=True):
        print(f"{name}, {count} tasks\n\n" + "\n".join(rows) + "\n")
    result = {
        "command": shlex.join(sys.argv),
        "commit": commit(),
        "torch": torch.__version__,
        "machine": machine(),
        "tables": tables,
        "tasks": records,
    }
    write_atomically(asked.out, (json.dumps(result, indent=1, ensure_ascii=False) + "\n").encode())


if __name__ == "__main__":
    main()
