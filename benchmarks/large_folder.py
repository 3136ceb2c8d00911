"""Train on a folder of more pictures than memory is given to, kill the run, resume it, and compare both models.

    python benchmarks/large_folder.py --folder /tmp/large --out results/large_folder.json

The pictures are made: soft spots of colour, as JPEG files, in one subfolder for each class and, without labels, in one
folder. Three processes train: a run without a break, which packs the pictures first; the same run in another folder,
which is killed by SIGKILL some iterations after a checkpoint; and its resumption. Their resident memory is the sum over
all processes of the command, read from /proc many times a second, and contains the parts of mapped files that the
system keeps in memory. Where all three end is compared: every byte of the model's tensors, and every record of the
log. The folder keeps the pictures, so that a second measurement need not make them again; remove it afterwards.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from hardware import machine
from PIL import Image
from safetensors.torch import load_file

from vmt.disk import write_atomically
from vmt.runs.folder import commit
from vmt.train.log import LOG, read_log

CLASSES = 10
MIB = 2**20
PAUSE = 0.05  # seconds between two looks at the memory


@dataclass(frozen=True)
class Ended:
    """What one command did."""

    code: int
    seconds: float
    cpu_s: float
    peak_mib: float
    """The most that all processes of the command had in memory at once."""
    looks: int
    """How often that was read."""
    largest_process_mib: float
    """The most that one of them ever had in memory, as the system counted it."""


def make_pictures(folder: Path, count: int, labelled: int, side: int) -> None:
    """A folder of labelled pictures and one of others, each picture drawn from its own number."""
    if (folder / "made").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    for name in (*(f"labelled/class {number}" for number in range(CLASSES)), "unlabelled"):
        (folder / name).mkdir(parents=True)
    for number in range(labelled + count):
        kind = number % CLASSES
        random = np.random.default_rng(number)
        spots = random.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        spots[kind // 4, kind % 4] = 255 if number < labelled else 220  # the place of the brightest spot is the class
        picture = Image.fromarray(spots).resize((side, side), Image.Resampling.BICUBIC)
        place = f"labelled/class {kind}" if number < labelled else "unlabelled"
        picture.save(folder / place / f"{number:06}.jpg", quality=90)
    (folder / "made").touch()


def family(process: int) -> Iterator[int]:
    """A process and all that it has started."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        parents.setdefault(parent, []).append(int(status.parent.name))
    waiting = [process]
    while waiting:
        yield (one := waiting.pop())
        waiting += parents.get(one, [])


def memory(process: int) -> tuple[int, int]:
    """The KiB of a process in memory, mapped files among them: now, and the most that it has had."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    found = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines) if "kB" in value}
    return found.get("VmRSS", 0), found.get("VmHWM", 0)  # a process that has just ended has neither


def followed(arguments: list[str], cache: Path, output: Path, stop: Callable[[], bool] = lambda: False) -> Ended:
    """Run ``vmt train`` until it ends, or kill all its processes as soon as ``stop`` says so."""
    command = [sys.executable, "-m", "vmt", "train", *arguments]
    began, peak, largest, looks = time.monotonic(), 0, 0, 0
    with output.open("ab") as file:
        started = subprocess.Popen(
            command, stdout=file, stderr=file, env=os.environ | {"VMT_CACHE": str(cache)}, start_new_session=True
        )
    while True:
        ended, status, used = os.wait4(started.pid, os.WNOHANG)
        if ended:
            break
        each = [memory(process) for process in family(started.pid)]
        peak, largest = max(peak, sum(now for now, _ in each)), max(largest, *(most for _, most in each))
        looks += 1
        if stop():
            os.killpg(started.pid, signal.SIGKILL)
        time.sleep(PAUSE)
    started.returncode = os.waitstatus_to_exitcode(status)
    return Ended(
        started.returncode,
        round(time.monotonic() - began, 1),
        round(used.ru_utime + used.ru_stime, 1),
        round(peak / 1024, 1),
        looks,
        round(largest / 1024, 1),
    )


def digest(run: Path) -> str:
    """A digest of every byte of the model's tensors."""
    found = hashlib.sha256()
    for name, tensor in sorted(load_file(run / "model.safetensors").items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    pictures = asked.folder / f"pictures-{asked.count}-{asked.labelled}-{asked.side}"
    began = time.monotonic()
    make_pictures(pictures, asked.count, asked.labelled, asked.side)
    print(f"pictures made: {time.monotonic() - began:.0f} s", flush=True)
    cache, whole, broken = (asked.folder / name for name in ("cache", "whole", "broken"))
    for folder in (cache, whole, broken):
        shutil.rmtree(folder, ignore_errors=True)
    every: int = asked.iterations // 3
    flags = ["--source", str(pictures / "labelled"), "--target", str(pictures / "unlabelled"), "--method", "vmt"]
    flags += ["--image-size", str(asked.side), "--memory", asked.memory, "--net", "tiny", "--device", "cpu"]
    flags += ["--batch-size", "32", "--iterations", str(asked.iterations), "--log-every", "1"]
    flags += ["--evaluate-every", str(every), "--checkpoint-every", str(every)]

    def at_the_place() -> bool:
        """Whether the second run is in the middle between its first two checkpoints."""
        return last_step(broken / LOG) >= every + every // 2

    def done(name: str, ended: Ended) -> Ended:
        print(f"{name}: {ended}", flush=True)
        return ended

    output = asked.folder / "output.txt"
    output.unlink(missing_ok=True)
    load = os.getloadavg()
    runs = {"unbroken": done("unbroken", followed([*flags, "--out", str(whole)], cache, output))}
    runs["killed"] = done("killed", followed([*flags, "--out", str(broken)], cache, output, at_the_place))
    if (codes := [each.code for each in runs.values()]) != [0, -signal.SIGKILL]:
        raise SystemExit(f"the runs ended with the codes {codes}; {output} has what they printed.")
    killed_at = last_step(broken / LOG)
    last_checkpoint = max(path.name for path in (broken / "checkpoints").iterdir())
    runs["resumed"] = done("resumed", followed(["--resume", str(broken)], cache, output))
    ours, theirs = (read_log(run / LOG) for run in (whole, broken))
    store = sum(path.stat().st_size for path in (cache / "pictures").rglob("*") if path.is_file())
    return {
        "command": f"python benchmarks/large_folder.py --count {asked.count} --iterations {asked.iterations}",
        "train": " ".join(["vmt", "train", *flags]).replace(str(pictures), "FOLDER"),
        "pictures": {"unlabelled": asked.count, "labelled": asked.labelled, "side": asked.side},
        "decoded_mib": round((asked.count + asked.labelled) * 3 * asked.side**2 / MIB, 1),
        "cache_mib": round(store / MIB, 1),
        "memory_for_samples": asked.memory,
        "runs": {name: asdict(ended) for name, ended in runs.items()},
        "peak_mib": max(max(each.peak_mib, each.largest_process_mib) for each in runs.values()),
        "killed": {"at_iteration": killed_at, "last_checkpoint": last_checkpoint},
        "equal": {
            "weights": digest(whole) == digest(broken),
            "log_records": ours == theirs,
            "number_of_records": len(ours),
        },
        "streamed": "streamed" in output.read_text(errors="replace"),
        "commit": commit(),
        "torch": torch.__version__,
        "pillow": PIL.__version__,
        "python": platform.python_version(),
        "machine": machine(),
        "load_before": [round(each, 2) for each in load],
    }


def last_step(log: Path) -> int:
    """The last iteration in a log, which need not be there yet."""
    return max((record["step"] for record in read_log(log)), default=0) if log.exists() else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where pictures, cache and runs are kept")
    parser.add_argument("--count", type=int, default=100_000, help="pictures without labels (default: 100,000)")
    parser.add_argument("--labelled", type=int, default=20_000, help="pictures with labels (default: 20,000)")
    parser.add_argument("--side", type=int, default=64, help="pixels of a side (default: 64)")
    parser.add_argument("--memory", default="512MiB", help="memory for samples (default: 512MiB)")
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the results to this file")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    result = measure(asked)
    text = json.dumps(result, indent=1)
    print(text)
    if asked.out is not None:
        write_atomically(asked.out, (text + "\n").encode())
    return 0 if result["streamed"] and result["equal"]["weights"] and result["equal"]["log_records"] else 1


if __name__ == "__main__":
    sys.exit(main())
