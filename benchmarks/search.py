"""A search of settings without target labels against the default settings and an oracle, with a worker that is killed.

    python benchmarks/search.py                         # three seeds, four processes, 40 trials each
    python benchmarks/search.py --seeds 0 --trials 12   # a smaller one
    python benchmarks/search.py --tables                # only print the table of --results

For each seed, ``--workers`` processes are started with the same ``vmt search`` command. They share one journal file.
When a third of the trials is finished, the process of a trial that has a checkpoint is killed with SIGKILL. The others
resume its trial and finish the search. The data are the embedded digits, fonts → handwriting, with short runs of a thin
network, so that the whole takes about 25 minutes of CPU time. Chosen is what the search returns; the default settings
are those of trial 0; and the oracle is the finished trial with the highest accuracy on the test samples, whose labels
nothing else reads.
"""

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from vmt.runs.folder import LOCK, SUMMARY, environment
from vmt.runs.search import TRIALS
from vmt.train.checkpoint import CHECKPOINTS, PREFIX, checkpoints

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "search.jsonl"
COLUMNS = {"default": "default settings", "chosen": "chosen", "oracle": "oracle", "source_only": "source only"}


def command(arguments: argparse.Namespace, seed: int, out: Path) -> list[str]:
    every = str(max(1, arguments.iterations // 6))
    words = ["search", "digits", "--trials", arguments.trials, "--iterations", arguments.iterations, "--seed", seed]
    words += ["--batch-size", arguments.batch_size, "--evaluate-every", every, "--checkpoint-every", every]
    return [*map(str, words), "--device", "cpu", "--threads", "1", "--out", str(out)]


def killed(out: Path, trials: int, processes: list[subprocess.Popen[bytes]]) -> dict[str, Any]:
    """Kill the process of a trial that has a checkpoint, when a third of the trials is finished."""
    numbers = {process.pid for process in processes}
    while True:
        time.sleep(0.2)
        if all(process.poll() is not None for process in processes):
            raise SystemExit("the search has ended before a process could be killed: use more trials or iterations")
        folders = sorted((out / TRIALS).glob("[0-9]*"))
        if sum((folder / SUMMARY).exists() for folder in folders) < trials / 3:
            continue
        for folder in folders:
            saved = checkpoints(folder / CHECKPOINTS)
            if (folder / SUMMARY).exists() or not saved or not (folder / LOCK).exists():
                continue
            number = int((folder / LOCK).read_text().split()[1])
            if number in numbers:
                os.kill(number, signal.SIGKILL)
                step = int(saved[0].name.removeprefix(PREFIX))
                return {"trial": folder.name, "process": number, "checkpoint": step}


def searched(arguments: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Search with several processes, kill one, and return what the others have found."""
    out = arguments.runs / f"seed-{seed}"
    words, began = command(arguments, seed, out), time.time()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    processes = []
    for k in range(arguments.workers):
        with (arguments.runs / f"seed-{seed}-{k}.txt").open("w") as printed:
            full = [sys.executable, "-m", "vmt", *words]
            processes.append(subprocess.Popen(full, stdout=printed, stderr=subprocess.STDOUT))
    loss = killed(out, arguments.trials, processes)
    codes = {process.pid: process.wait() for process in processes}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert codes.pop(loss["process"]) == -signal.SIGKILL
    assert not any(codes.values()), codes
    summary = json.loads((out / SUMMARY).read_text())
    trials, chosen = summary["search"]["trials"], summary["choice"]["chosen"]
    states = [trial["state"] for trial in trials]
    taken_over = next(trial for trial in trials if trial["name"] == loss["trial"])
    finished = [trial for trial in trials if trial["state"] == "finished"]
    loss["state"] = taken_over["state"]
    printed = "".join((arguments.runs / f"seed-{seed}-{k}.txt").read_text() for k in range(arguments.workers))
    found = re.search(rf"trial {int(loss['trial'])}: resumed from iteration (\d+)", printed)
    loss["resumed_from"] = None if found is None else int(found[1])
    best = max(finished, key=lambda trial: trial["target_accuracy"])
    default = next(trial for trial in trials if trial["number"] == 0)
    lower = json.loads((out / "source_only" / SUMMARY).read_text())
    return {
        "seed": seed,
        "command": "vmt " + " ".join(words[:-2]),  # without the folder
        "workers": arguments.workers,
        "states": {state: states.count(state) for state in dict.fromkeys(states)},
        "killed": loss,
        "chosen": {"trial": chosen, "score": next((t["score"] for t in trials if t["name"] == chosen), None)},
        "best": {"trial": best["name"], "score": best["score"]},
        "accuracy": {
            "default": default["target_accuracy"],
            "chosen": summary["target_accuracy"],
            "oracle": best["target_accuracy"],
            "source_only": lower["target_accuracy"],
            "mean of finished trials": mean(trial["target_accuracy"] for trial in finished),
        },
        "importances": summary["search"]["importances"],
        "reason": summary["choice"]["text"],
        "trials": trials,
        "seconds": round(time.time() - began, 1),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "environment": environment("cpu"),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The accuracies of every seed, with mean and standard deviation, as Markdown."""
    lines = [f"| seed | {' | '.join(COLUMNS.values())} | finished, pruned | killed |", "| --- " * 7 + "|"]
    for row in rows:
        cells = [f"{100 * row['accuracy'][name]:.1f}" for name in COLUMNS]
        states, loss = row["states"], row["killed"]
        cells.append(f"{states.get('finished', 0)}, {states.get('pruned', 0)}")
        cells.append(f"trial {int(loss['trial'])}, resumed from iteration {loss['resumed_from']}")
        lines.append(f"| {row['seed']} | {' | '.join(cells)} |")
    if len(rows) > 1:
        values = {name: [100 * row["accuracy"][name] for row in rows] for name in COLUMNS}
        cells = [f"{mean(each):.1f} ± {stdev(each):.1f}" for each in values.values()]
        lines.append(f"| mean | {' | '.join(cells)} | | |")
    return "\n".join(lines)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--runs", type=Path, default=Path("runs/search-benchmark"), help="folder of the searches")
    parser.add_argument("--tables", action="store_true", help="only print the table")
    arguments = parser.parse_args()
    done = {row["seed"] for row in read(arguments.results)}
    arguments.runs.mkdir(parents=True, exist_ok=True)
    for seed in [] if arguments.tables else [seed for seed in arguments.seeds if seed not in done]:
        row = searched(arguments, seed)
        with arguments.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"seed {seed}: {row['accuracy']}, {row['states']}, {row['cpu_seconds']:.0f} s of CPU time", flush=True)
    print(table(read(arguments.results)))


if __name__ == "__main__":
    main()
