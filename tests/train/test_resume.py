"""A run that is killed at any moment and resumed ends like a run that was never stopped."""

import json
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.interrupted import interrupted
from tests.own_data import write_blobs
from tests.processes import start
from vmt.cli.main import main

FLAGS = ["--iterations", 250, "--dirt-t", "--dirt-t-iterations", 150, "--interval", 40, "--log-every", 10]
FLAGS += ["--optimiser", "adamw", "--lr", 1e-3, "--lr-schedule", "cosine", "--backbone-rate", 0.5, "--clip-norm", 3]
FLAGS += ["--evaluate-every", 25, "--checkpoint-every", 5, "--batch-size", 16, "--precision", "float32"]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken")
    source, target = write_blobs(folder)
    arguments = ["train", "--source", source, "--target", target, "--out", folder / "run", *FLAGS]
    assert main([str(each) for each in arguments]) == 0
    return folder


def resume(run: Path) -> int:
    return main(["train", "--resume", str(run)])


def weights(run: Path) -> dict[str, list[float]]:
    return {name: tensor.tolist() for name, tensor in load_file(run / "model.safetensors").items()}


def records(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_killed_ten_times_and_resumed(unbroken: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    source, target = unbroken / "source.npz", unbroken / "target.npz"
    moments = random.Random(0)
    arguments: list[object] = ["train", "--source", source, "--target", target, "--out", run, *FLAGS]
    kills = 0
    while kills < 10:
        process = start(*arguments)
        before = progress_of(run)
        while progress_of(run) <= before and process.is_running():
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.25))
        assert process.is_running(), "the run ended before it had been killed ten times"
        process.send_signal(signal.SIGKILL)
        process.ended()
        kills += 1
        arguments = ["train", "--resume", run]
    assert resume(run) == 0
    assert weights(run) == weights(unbroken / "run")
    assert records(run) == records(unbroken / "run")


def progress_of(run: Path) -> int:
    """The newest checkpoint's step; 0 before the first."""
    return max((int(path.name.split("-")[1]) for path in run.glob("checkpoints/step-*")), default=0)


def test_a_run_that_is_asked_to_stop_saves_first(unbroken: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    source, target = unbroken / "source.npz", unbroken / "target.npz"
    assert interrupted(7, "SIGTERM", "train", "--source", source, "--target", target, "--out", run, *FLAGS) == 130
    assert 7 <= progress_of(run) <= 10, "it stops after the iterations that it is doing"
    assert resume(run) == 0
    assert weights(run) == weights(unbroken / "run")


@pytest.mark.parametrize("file", ["weights.safetensors", "state.pt", "manifest.json"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    unbroken: Path, tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(unbroken / "run", run)
    for made_at_the_end in ("model.safetensors", "summary.json", "curves.png"):
        (run / made_at_the_end).unlink()
    last = max(run.glob("checkpoints/step-*"))
    content = bytearray((last / file).read_bytes())
    content[len(content) // 2] ^= 0xFF
    (last / file).write_bytes(content)
    assert resume(run) == 0
    assert str(last) in capsys.readouterr().err
    assert weights(run) == weights(unbroken / "run")


def test_resuming_continues_and_does_not_start_again(unbroken: Path, tmp_path: Path) -> None:
    """A mark in an old record survives. Starting again would give the same weights but write a new record."""
    run = tmp_path / "run"
    shutil.copytree(unbroken / "run", run)
    first, *rest = records(run)
    lines = [json.dumps(record) + "\n" for record in ({**first, "mark": 1}, *rest)]
    (run / "log.jsonl").write_text("".join(lines))
    assert resume(run) == 0
    assert weights(run) == weights(unbroken / "run")
    assert records(run) == [{**first, "mark": 1}, *rest]


def test_a_damaged_digit_in_the_settings_is_noticed(
    unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file still parses, but the settings no longer match the identity that the run was started with."""
    run = shutil.copytree(unbroken / "run", tmp_path / "run")
    written = (run / "run.json").read_text()
    (run / "run.json").write_text(written.replace('"interval": 40', '"interval": 60'))
    assert resume(run) == 2
    assert str(run) in capsys.readouterr().err


def test_damaged_evaluations_in_the_log_do_not_keep_a_run_from_finishing(unbroken: Path, tmp_path: Path) -> None:
    run = shutil.copytree(unbroken / "run", tmp_path / "run")
    (run / "summary.json").unlink()
    head, *rest = (run / "log.jsonl").read_text().split('"target"')
    head += '"target"' + rest[0].replace('"source"', '"sourcf"')
    (run / "log.jsonl").write_text('"target"'.join([head, *rest[1:-1], rest[-1].replace('"accuracy"', '"acburacy"')]))
    assert resume(run) == 0
    assert (run / "summary.json").is_file()
    assert len(records(run)) == len(records(unbroken / "run")) - 2
