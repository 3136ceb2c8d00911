"""Reading and predicting need little memory beside the samples, which may fill it."""

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vmt import methods
from vmt.data import Domain, Preprocess, domain, make_task, read_own
from vmt.data.files.store import pack
from vmt.data.stored import StoredSamples
from vmt.data.task import check_digits
from vmt.engine.engine import make_engine
from vmt.evaluate.accuracy import BATCH, evaluate, logits_of
from vmt.evaluate.probe import make_probe
from vmt.nets.networks import Staged
from vmt.runs.folder import data_fingerprint
from vmt.step.iteration import make_context
from vmt.step.state import build_state

MIB = 2**20
# Writing 5 to it resets the peak memory of a process to its present memory.
RESET = Path("/proc/self/clear_refs")


def resident(which: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which))
    return int(line.split()[1]) / 1024


def most_taken(work: Callable[[], object]) -> float:
    """The peak memory of some work in MiB, beyond the memory that was used before."""
    gc.collect()
    try:
        RESET.write_text("5")
    except OSError:
        pytest.skip("this system cannot reset the peak memory of a process")
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before


def test_vectors_are_checked_and_standardised_without_copies_of_them() -> None:
    x = np.random.default_rng(0).normal(size=(80_000, 100)).astype(np.float32)
    source, target = x[:500], x[500:]
    labels = np.arange(500) % 2

    def work() -> None:
        check_digits(source, target)
        make_task(domain(source, labels, name="source"), domain(target, name="target"))

    assert most_taken(work) < 1.5 * x.nbytes / MIB


def test_a_table_is_never_held_as_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    row = ",".join(f"{k}.123456" for k in range(50))
    path.write_text(",".join(f"f{k}" for k in range(50)) + "\n" + f"{row}\n" * 20_000)
    own = []
    taken = most_taken(lambda: own.append(read_own(path)))
    assert tuple(own[0].domain.x.shape) == (20_000, 50)
    assert taken < 40, "its numbers take 8 MiB in 64 bits and 4 in 32"


class Mean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.weight * x.mean((2, 3))}


def test_pictures_of_another_size_are_resized_a_batch_at_a_time() -> None:
    x = torch.randint(256, (40 * BATCH, 1, 8, 8), dtype=torch.uint8)
    preprocess = Preprocess(1, (48, 48), (1 / 127.5,), (-1.0,))
    all_at_once = 4 * 48 * 48 * len(x) / MIB
    assert most_taken(lambda: logits_of(Mean(), x, preprocess)) < all_at_once / 2


def test_samples_on_the_disk_stay_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The split, the fingerprint, the batches of training, evaluations and the probe take little of 190 MiB."""
    monkeypatch.setenv("VMT_CACHE", str(tmp_path / "cache"))
    row = np.random.default_rng(0).integers(0, 256, (3, 128, 128), dtype=np.uint8)
    store = pack(tmp_path, 4000, row.shape, lambda numbers, done: (row for _ in numbers))
    source = Domain(StoredSamples(store.rows), torch.arange(4000) % 2, "source")
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))

    def work() -> None:
        task = make_task(source, source.without_labels(), target_test=source)
        data_fingerprint(task)
        state = build_state(
            methods.source_only(), lambda: Staged({"logits": pooled}), row.shape, 0, torch.device("cpu")
        )
        context = make_context(task, methods.source_only(), state, seed=0, batch_size=32, bfloat16=False)
        make_engine("eager", state, context, 0).run(methods.source_only().phases[0], 0, 3, 0)
        evaluate(state.roles["classifier"], task.target_test or source, task.preprocess)
        make_probe(task, 300)

    assert most_taken(work) < 150
