"""Which label-free score chooses well among the candidates that a user has? Validators × methods × tasks.

    python benchmarks/validators_choice.py --jobs 2                      # every task, three seeds
    python benchmarks/validators_choice.py --tasks design --seeds 0 1    # some tasks, other seeds
    python benchmarks/validators_choice.py --tables                      # only print the tables

A *trial* is one task with one seed: every candidate is trained on it with the defaults for own data, and its validators
and its true accuracy on the target's test part, which no validator uses, become one line of --out. A trial that has a
line with all candidates is not run again, so the command can be stopped and repeated. --tasks takes names, and

    pairs      the tasks of validators_tasks.py; ``design`` and ``judging`` are its two parts
    own-data   the tasks of own_data_tasks.py; ``choosing`` and ``reporting`` are its two parts

The tables show how each score chooses: how often the chosen candidate is within two points of the best, how many points
are lost on average, how often it is worse than source only; and for how many of the pairs with and without DIRT-T that
differ by more than five points the better one is chosen. With --evidence FOLDER the outputs of all candidates are kept,
and --rescore computes the scores of kept outputs again, without training.

It needs no network and no GPU; each job uses one thread.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from own_data_tasks import CHOOSING, REPORTING, BenchTask, Problem, side
from own_data_tasks import TASKS as OWN_DATA
from validators_tasks import DESIGN, EQUAL, FINAL, JUDGING, PAIR_TASKS, SEEDS, STRONGER

from validators import read
from vmt import InputError
from vmt.data.domains import domain
from vmt.data.task import Task, make_task
from vmt.disk import write_atomically
from vmt.evaluate.probe import make_probe, ranking_key
from vmt.nets.networks import Staged
from vmt.runs.folder import environment
from vmt.runs.recipes import own_recipe
from vmt.runs.run import make_run, with_shares
from vmt.train import Config, train
from vmt.validators import VALIDATORS, Evidence, choose, refined_scores, scores

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "validators_choice.jsonl"
ALL_TASKS: dict[str, BenchTask] = {**PAIR_TASKS, **OWN_DATA}
GROUPS: dict[str, tuple[str, ...]] = {
    "pairs": tuple(PAIR_TASKS),
    "design": DESIGN,
    "judging": JUDGING,
    "final": tuple(FINAL),
    "own-data": tuple(name for name, task in OWN_DATA.items() if not task.sets),
    CHOOSING: tuple(name for name, task in OWN_DATA.items() if not task.sets and side(name) == CHOOSING),
    REPORTING: tuple(name for name, task in OWN_DATA.items() if not task.sets and side(name) == REPORTING),
}
REFERENCE = "source_only"
# Candidates, with the method that is trained for each and whether DIRT-T follows.
CANDIDATES = {
    REFERENCE: (REFERENCE, False),
    "adabn": ("adabn", False),
    "mcc": ("mcc", False),
    "vmt": ("vmt", False),
    "vmt+dirt_t": ("vmt", True),
    "vmt_mcc": ("vmt_mcc", False),
    "vmt_mcc+dirt_t": ("vmt_mcc", True),
    "vada": ("vada", False),
    "vada+dirt_t": ("vada", True),
}
BEGIN, END = "<!-- choice: written by benchmarks/validators_choice.py -->", "<!-- end of choice -->"
DESCRIPTIONS = {"design": "designing the score after DIRT-T", "judging": "judging it first", "final": "judging it last"}
CLOSE, HARM = 2.0, 5.0
AS_COMPUTED = ", as computed"
# The row of vmt.validators.choose, which compares all candidates with source only.
GUARDED = "choose"
SAMPLES = 500


@dataclass(frozen=True)
class Trial:
    """One task with one seed, and how its candidates are trained."""

    task: str
    seed: int
    candidates: tuple[str, ...] = tuple(CANDIDATES)
    iterations: int | None = None
    """The length of each phase; None is the default for own data."""
    evidence: Path | None = None
    rescore: bool = False

    @property
    def key(self) -> tuple[str, int, int | None]:
        return self.task, self.seed, self.iterations

    @property
    def file(self) -> Path | None:
        """Where the outputs of the candidates are kept."""
        return self.evidence and self.evidence / f"{self.task}_{self.seed}_{self.iterations or 'default'}.pt"


def task_of(problem: Problem, name: str) -> Task:
    """A problem as the library takes it."""
    source, target = domain(problem.xs, problem.ys, name="source"), domain(problem.xt, name="target")
    target_test = domain(problem.xt_test, problem.yt_test, name="target test")
    return make_task(source, target, target_test=target_test, classes=problem.classes, name=name)


def trained(task: Task, trial: Trial, method: str, dirt_t: bool) -> Iterator[tuple[str, dict[str, Any], Evidence]]:
    """Train a method; yields the candidate, its record and its outputs at the end of each phase."""
    asked: dict[str, Any] = {}
    config = Config(seed=trial.seed, device="cpu", threads=1, log_every=10**9, evaluate_every=10**9)
    config = replace(config, checkpoint_every=10**9, validate_samples=SAMPLES)

    usual = own_recipe(task, method, device="cpu").settings
    if trial.seed % 2 and "lambda_t" in usual:
        asked["lambda_t"] = STRONGER * usual["lambda_t"]
    run = make_run(
        task,
        method,
        dirt_t=dirt_t,
        asked=asked,
        iterations=trial.iterations,
        target_labels=None,
        net=None,
        net_options=None,
        config=config,
        match_shares=False if trial.seed % 2 else None,
    )
    probe = make_probe(task, SAMPLES)
    assert probe is not None
    outputs: list[Evidence] = []
    started = time.perf_counter()
    seconds: list[float] = []

    def phase_ended(phase: str, network: Staged) -> None:
        seconds.append(time.perf_counter() - started)
        outputs.append(probe.evidence(network, None))

    matched, _ = with_shares(run)
    outcome = train(matched, run.method, run.build, config, phase_ended=phase_ended)
    evaluations = [record for record in outcome.records if "target" in record]
    for phase, record, evidence, spent in zip(run.method.phases, evaluations, outputs, seconds, strict=True):
        name = method + ("+dirt_t" if phase.name == "dirt_t" else "")
        about = {
            "accuracy": round(record["target"]["accuracy"], 4),
            "alarm": record["alarm"],
            "scores": record["validators"],
            "seconds": round(spent, 1),
        }
        yield name, about, evidence


def carry_out(trial: Trial) -> dict[str, Any]:
    """Train all candidates of a trial, or take their outputs from a file, and score them."""
    torch.set_num_threads(1)
    task = task_of(ALL_TASKS[trial.task].problem(trial.seed), trial.task)
    candidates: dict[str, dict[str, Any]] = {}
    outputs: dict[str, dict[str, torch.Tensor]] = {}
    made = json.loads(json.dumps(environment()))  # plain strings, so that the kept file is loaded without a pickle
    if trial.file is not None and trial.file.exists():
        kept = torch.load(trial.file, weights_only=True)
        candidates, outputs, made = kept["candidates"], kept["outputs"], kept["made"]
    wanted = {CANDIDATES[name] for name in trial.candidates if name not in candidates}
    for method, dirt_t in sorted(wanted):
        if not dirt_t and (method, True) in wanted:
            continue  # the run with DIRT-T has this model as well
        try:
            for name, about, evidence in trained(task, trial, method, dirt_t):
                candidates[name] = about
                outputs[name] = {f.name: t for f in fields(evidence) if (t := getattr(evidence, f.name)) is not None}
        except InputError as error:  # a loss that is not finite
            for name in trial.candidates:
                if name not in candidates and CANDIDATES[name] in ((method, False), (method, dirt_t)):
                    candidates[name] = {"accuracy": None, "alarm": str(error), "scores": {}, "seconds": 0.0}
    if wanted and trial.file is not None:
        trial.file.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"candidates": candidates, "outputs": outputs, "made": made}, trial.file)
    if trial.rescore:
        for name, parts in outputs.items():
            candidates[name]["scores"] |= scores(Evidence(**parts))
    record = {"task": trial.task, "seed": trial.seed, "iterations": trial.iterations, "candidates": candidates}
    if REFERENCE in outputs:
        prior = task.source.y.bincount(minlength=len(task.classes)) / len(task.source)
        evidence = {name: Evidence(**parts) for name, parts in outputs.items()}
        chosen = choose(evidence, prior, refines={n: b for n in outputs if (b := begun_from(n)) in outputs})
        neighbours = {name: round(finding.neighbours, 4) for name, finding in chosen.findings.items()}
        record["choice"] = {"chosen": chosen.chosen, "reason": chosen.reason, "neighbours": neighbours}
    return {**record, "made": made}


def begun_from(name: str) -> str | None:
    """The candidate that DIRT-T began from; None for a candidate without DIRT-T."""
    before, dirt_t, _ = name.partition("+dirt_t")
    return before if dirt_t else None


# --- Running trials ---


def fill(path: Path, trials: Sequence[Trial], jobs: int) -> None:
    """Carry out the trials that have no complete record, and add a line as each ends."""
    records = {(r["task"], r["seed"], r["iterations"]): r for r in read(path)}

    def complete(trial: Trial) -> bool:
        return trial.key in records and not set(trial.candidates) - set(records[trial.key]["candidates"])

    missing = [trial for trial in trials if trial.rescore or not complete(trial)]
    path.parent.mkdir(parents=True, exist_ok=True)
    for done, record in enumerate(results(missing, jobs), 1):
        with path.open("a") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        accuracies = ", ".join(
            f"{name} {'failed' if c['accuracy'] is None else format(c['accuracy'], '.1%')}"
            for name, c in record["candidates"].items()
        )
        print(f"[{done}/{len(missing)}] {record['task']}, seed {record['seed']}: {accuracies}", flush=True)


def results(missing: Sequence[Trial], jobs: int) -> Iterator[dict[str, Any]]:
    if jobs == 1:
        yield from map(carry_out, missing)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(carry_out, trial) for trial in missing]):
            yield future.result()


def latest(path: Path) -> list[dict[str, Any]]:
    """The last record of each trial."""
    return list({(r["task"], r["seed"], r["iterations"]): r for r in read(path)}.values())


# --- Tables ---


def usable(record: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The candidates whose training did not fail, with the scores that ``vmt select`` ranks them by.

    The scores that DIRT-T changes are there as they were computed, too.
    """
    trained = {name: c for name, c in record["candidates"].items() if c["accuracy"] is not None}
    ranked = {}
    for name, c in trained.items():
        before = begun_from(name)
        known = refined_scores(trained[before]["scores"], c["scores"]) if before in trained else c["scores"]
        computed = {n + AS_COMPUTED: v for n, v in c["scores"].items() if "source" in VALIDATORS[n].needs}
        ranked[name] = {**c, "scores": {**known, **computed}}
    return ranked


def chosen_by(candidates: Mapping[str, Mapping[str, Any]], score: str) -> str:
    """The candidate with the highest score; any without an alarm is better than any with one."""

    def rank(name: str) -> tuple[bool, float]:
        value = candidates[name]["scores"].get(score)
        return ranking_key(candidates[name]["alarm"], float("-inf") if value is None else value)

    return max(candidates, key=rank)


def lost_by(records: Sequence[Mapping[str, Any]], score: str) -> tuple[list[float], list[float]]:
    """Points that each choice is below the best candidate, and below source only."""
    lost, harm = [], []
    for record in records:
        candidates = usable(record)
        if score in CANDIDATES:
            if score not in candidates:
                continue
            chosen = candidates[score]["accuracy"]
        elif score == GUARDED:
            if "choice" not in record:
                continue
            chosen = candidates[record["choice"]["chosen"]]["accuracy"]
        else:
            chosen = candidates[chosen_by(candidates, score)]["accuracy"]
        lost.append(points(max(c["accuracy"] for c in candidates.values()) - chosen))
        if REFERENCE in candidates:
            harm.append(points(candidates[REFERENCE]["accuracy"] - chosen))
    return lost, harm


def points(difference: float) -> float:
    """A difference of two accuracies, which have four decimals, in points: exactly 2 or 5 is not more than that."""
    return round(100 * difference, 2)


def pairs_right(records: Sequence[Mapping[str, Any]], score: str) -> tuple[int, int]:
    """How often the better one of two models with and without DIRT-T is chosen where they differ, and how often."""
    right = total = 0
    for record in records:
        candidates = usable(record)
        for name in candidates:
            after = f"{name}+dirt_t"
            if after not in candidates:
                continue
            gain = points(candidates[after]["accuracy"] - candidates[name]["accuracy"])
            if abs(gain) <= EQUAL:
                continue
            total += 1
            pair = {n: candidates[n] for n in (name, after)}
            right += (chosen_by(pair, score) == after) == (gain > 0)
    return right, total


def scores_in(records: Sequence[Mapping[str, Any]]) -> list[str]:
    have = {score for record in records for c in usable(record).values() for score in c["scores"]}
    return [*(name for name in VALIDATORS if name in have), *sorted(have - VALIDATORS.keys())]


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """One row for each score, and one for each candidate as if it were always chosen, the best first."""
    rows = []
    for score in [GUARDED, *scores_in(records), *CANDIDATES]:
        lost, harm = lost_by(records, score)
        if not lost:
            continue
        right, total = pairs_right(records, score) if score not in (GUARDED, *CANDIDATES) else (0, 0)
        cells = [
            f"always {score}" if score in CANDIDATES else f"`{score}`",
            f"{np.mean([each <= CLOSE for each in lost]):.0%}",
            f"{np.mean(lost):.1f}",
            f"{max(lost):.0f}",
            str(sum(each > HARM for each in harm)),
            f"{right} of {total}" if total else "",
        ]
        rows.append((float(np.mean(lost)), cells))
    head = ["chosen by", "within 2 points", "points lost", "most", "5 below source only", "DIRT-T pairs right"]
    lines = [head, ["---"] * len(head), *(cells for _, cells in sorted(rows, key=lambda row: row[0]))]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def study(records: Sequence[Mapping[str, Any]]) -> str:
    """A table for each group of tasks that has records, with what was run above it."""
    parts = []
    for group in ("design", "judging", "final", CHOOSING, REPORTING):
        of_group = [record for record in records if record["task"] in GROUPS[group]]
        for length in sorted({record["iterations"] for record in of_group}, key=lambda n: n or 0):
            trials = [record for record in of_group if record["iterations"] == length]
            made = sorted({(r["made"]["torch"], r["made"]["commit"] or "not recorded") for r in trials})
            where = "; ".join(f"torch {torch}, commit {commit}" for torch, commit in made)
            tasks, seeds = {record["task"] for record in trials}, sorted({record["seed"] for record in trials})
            parts.append(
                f"Tasks for {DESCRIPTIONS.get(group, group)}: {len(trials)} trials on {len(tasks)} tasks, seeds "
                f"{', '.join(map(str, seeds))}, {'the default length' if length is None else f'{length} iterations'}, "
                f"{sum(map(cost, trials)) / 60:.0f} minutes on one thread of a busy CPU ({where})."
            )
            parts.append(table(trials))
    return "\n\n".join(parts)


def cost(record: Mapping[str, Any]) -> float:
    """Seconds of a trial; those of a candidate with DIRT-T include those of the candidate that it began from."""
    candidates = record["candidates"]
    return float(sum(c["seconds"] for name, c in candidates.items() if f"{name}+dirt_t" not in candidates))


def write_study(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the tables between their marks in a page."""
    before, rest = path.read_text().split(BEGIN)
    _, after = rest.split(END)
    write_atomically(path, f"{before}{BEGIN}\n\n{study(records)}\n\n{END}{after}".encode())


def tasks_named(names: Sequence[str]) -> list[str]:
    chosen = [task for name in names for task in GROUPS.get(name, (name,))]
    for name in chosen:
        if name not in ALL_TASKS:
            raise SystemExit(f"there is no task or group of tasks {name!r}: see validators_tasks.py, own_data_tasks.py")
    return list(dict.fromkeys(chosen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["pairs", "own-data"], metavar="TASK", help="tasks or groups")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS), metavar="SEED", help="default: 0 1 2")
    parser.add_argument("--candidates", nargs="+", default=list(CANDIDATES), choices=CANDIDATES, help="default: all")
    parser.add_argument("--iterations", type=int, help="length of each phase (default: that for own data)")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time, one thread each (default: 1)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the records")
    parser.add_argument("--evidence", type=Path, help="folder to keep the outputs of the candidates in")
    parser.add_argument("--rescore", action="store_true", help="score kept outputs again")
    parser.add_argument("--tables", action="store_true", help="only print the tables")
    parser.add_argument(
        "--docs", type=Path, help="a page to write the tables of all records to: docs/validators-study.md"
    )
    a = parser.parse_args()
    tasks = tasks_named(a.tasks)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    trials = [
        Trial(task, seed, tuple(a.candidates), a.iterations, a.evidence, a.rescore)
        for seed in a.seeds
        for task in tasks
    ]
    if not a.tables:
        fill(a.out, trials, a.jobs)
    wanted = {trial.key for trial in trials}
    print("\n" + study([r for r in latest(a.out) if (r["task"], r["seed"], r["iterations"]) in wanted]))
    if a.docs is not None:
        write_study(latest(a.out), a.docs)


if __name__ == "__main__":
    main()
