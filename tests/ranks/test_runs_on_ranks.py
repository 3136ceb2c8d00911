"""One run on two ranks: the same weights on both, resumed bit for bit, and ended together."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.interrupted import ROOT
from tests.own_data import write_blobs
from tests.ranks.started import PATIENCE, ended, printed, start, train, train_interrupted
from vmt.cli.main import main
from vmt.runs.folder import folder_lock

FLAGS = ["--iterations", 60, "--log-every", 10, "--evaluate-every", 30, "--checkpoint-every", 10, "--batch-size", 8]
FLAGS += ["--method", "dann", "--precision", "float32", "--no-match-shares"]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on two ranks, and of its data."""
    folder = tmp_path_factory.mktemp("unbroken")
    write_blobs(folder)
    assert ended(start(train, *data(folder), "--out", folder / "run", *FLAGS, log=folder)) == [0, 0]
    return folder


def data(folder: Path) -> list[Any]:
    return ["--source", folder / "source.npz", "--target", folder / "target.npz"]


def weights(run: Path) -> dict[str, list[float]]:
    return {name: tensor.tolist() for name, tensor in load_file(run / "model.safetensors").items()}


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_rank_0_prints_and_the_record_is_whole(unbroken: Path) -> None:
    assert "Model, log and curves" in printed(unbroken, 0)
    assert printed(unbroken, 1) == ""
    steps = [record["step"] for record in records(unbroken / "run") if "target" not in record]
    assert steps == list(range(10, 61, 10))


def test_a_killed_rank_ends_the_others_and_the_resumed_run_is_the_same(
    unbroken: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    ranks = start(train_interrupted, 1, 25, ["SIGKILL"], *data(unbroken), "--out", run, *FLAGS, log=tmp_path)
    ranks[1].join(PATIENCE)
    lost = time.monotonic()
    assert ended(ranks) == [1, -signal.SIGKILL]
    assert time.monotonic() - lost < 30
    (sentence,) = [line for line in printed(tmp_path, 0).splitlines() if "rank 1 of 2" in line]
    assert f"--resume {run}" in sentence
    assert "Traceback" not in printed(tmp_path, 0)
    alone = shutil.copytree(run, tmp_path / "alone")
    assert ended(start(train, "--resume", run, log=tmp_path)) == [0, 0]
    assert weights(run) == weights(unbroken / "run")
    assert records(run) == records(unbroken / "run")
    # Another number of ranks is allowed, and said.
    assert main(["train", "--resume", str(alone)]) == 0
    assert "2 ranks" in capfd.readouterr().err
    assert records(alone)[-1]["step"] == 60


def test_a_killed_rank_0_ends_the_others_and_the_resumed_run_is_the_same(unbroken: Path, tmp_path: Path) -> None:
    """It is the one that logs, saves and listens to the others."""
    run = tmp_path / "run"
    ranks = start(train_interrupted, 0, 25, ["SIGKILL"], *data(unbroken), "--out", run, *FLAGS, log=tmp_path)
    ranks[0].join(PATIENCE)
    lost = time.monotonic()
    assert ended(ranks) == [-signal.SIGKILL, 1]
    assert time.monotonic() - lost < 30
    (sentence,) = [line for line in printed(tmp_path, 1).splitlines() if "rank 0 of 2" in line]
    assert f"--resume {run}" in sentence
    assert "Traceback" not in printed(tmp_path, 1)
    assert ended(start(train, "--resume", run, log=tmp_path)) == [0, 0]
    assert "Resuming at iteration" in printed(tmp_path, 0)
    assert weights(run) == weights(unbroken / "run")
    assert records(run) == records(unbroken / "run")


def test_one_rank_equals_a_run_without_torchrun(unbroken: Path, tmp_path: Path) -> None:
    one, alone = tmp_path / "one", tmp_path / "alone"
    assert ended(start(train, *data(unbroken), "--out", one, *FLAGS, count=1, log=tmp_path)) == [0]
    assert train(*data(unbroken), "--out", alone, *FLAGS) == 0
    assert weights(one) == weights(alone)
    assert weights(one) != weights(unbroken / "run")
    assert records(one) == records(alone)


def test_torchrun_brings_a_run_back_after_a_kill(unbroken: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "1", "-m", "tests.interrupted", "15", "SIGKILL", "train"]
    with (tmp_path / "printed.txt").open("w") as file:
        arguments = map(str, [*command, *data(unbroken), "--out", run, *FLAGS])
        done = subprocess.run([*arguments], stdout=file, stderr=file, cwd=ROOT, timeout=PATIENCE, check=False)
    assert done.returncode == 0, (tmp_path / "printed.txt").read_text()
    assert "Resuming at iteration" in (tmp_path / "printed.txt").read_text()
    assert weights(run) == weights(unbroken / "run")
    assert records(run) == records(unbroken / "run")


def test_both_ranks_stop_cleanly_when_one_is_asked_to(unbroken: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    # As one Ctrl-C under torchrun: the terminal and torchrun both send a signal.
    twice = ["SIGINT", "SIGINT"]
    ranks = start(train_interrupted, 1, 15, twice, *data(unbroken), "--out", run, *FLAGS, log=tmp_path)
    assert ended(ranks) == [130, 130]
    assert ended(start(train, "--resume", run, log=tmp_path)) == [0, 0]
    assert weights(run) == weights(unbroken / "run")
    assert records(run) == records(unbroken / "run")


def train_with_other_data_on_rank_1(folder: Path, out: Path) -> int:
    missing = ["--target", "missing.npz"] if os.environ["RANK"] == "1" else []
    return train(*data(folder), *missing, "--out", out, *FLAGS)


def test_an_error_is_printed_once_by_rank_0(unbroken: Path, tmp_path: Path) -> None:
    assert ended(start(train, *data(unbroken), "--out", unbroken / "run", *FLAGS, log=tmp_path)) == [2, 2]
    assert "already holds a run" in printed(tmp_path, 0)
    assert printed(tmp_path, 1) == ""
    # An error of rank 0 alone, which writes to the folder, and one of rank 1 alone.
    with folder_lock(tmp_path / "locked"):
        assert ended(start(train, *data(unbroken), "--out", tmp_path / "locked", *FLAGS, log=tmp_path)) == [2, 2]
    assert "is writing to" in printed(tmp_path, 0)
    assert printed(tmp_path, 1) == ""
    assert ended(start(train_with_other_data_on_rank_1, unbroken, tmp_path / "run", log=tmp_path)) == [2, 2]
    assert "missing.npz" in printed(tmp_path, 0)
    assert printed(tmp_path, 1) == ""


def test_an_environment_that_is_not_that_of_torchrun_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": "a", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    assert main(["methods"]) == 2
    assert "RANK" in capsys.readouterr().err
