"""What happens to a run at night: signals, full disks, damaged files. Nothing that was saved is lost, and no traceback."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.own_data import command, vmt, write_blobs

FLAGS = ["--iterations", 60, "--dirt-t", "--dirt-t-iterations", 40, "--interval", 20, "--log-every", 5]
FLAGS += ["--evaluate-every", 20, "--checkpoint-every", 10, "--batch-size", 16, "--keep-best", "im", "--tensorboard"]
posix = pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken")
    done = vmt(*begin(folder, folder / "run"))
    assert done.returncode == 0, done.stderr
    return folder


def begin(data: Path, run: Path) -> list[object]:
    source, target = write_blobs(data)
    return ["train", "--source", source, "--target", target, "--out", run, *FLAGS]


def models(run: Path) -> dict[str, bytes]:
    """The weights of every model file; their headers name the folder."""
    from safetensors.torch import load_file, save

    return {path.name: save(load_file(path)) for path in run.glob("model*.safetensors")}


def same_end(run: Path, unbroken: Path) -> None:
    done = vmt("train", "--resume", run)
    assert done.returncode == 0, done.stderr
    assert models(run) == models(unbroken / "run")
    assert (run / "log.jsonl").read_text() == (unbroken / "run" / "log.jsonl").read_text()


@posix
def test_a_terminal_that_closes_saves_first_and_nohup_goes_on(unbroken: Path, tmp_path: Path) -> None:
    for name, prefix, code in (("run", [], 130), ("nohup", ["nohup"], 0)):
        run = tmp_path / name
        arguments = begin(unbroken, run)
        arguments[arguments.index("--checkpoint-every") + 1] = 1000
        process = subprocess.Popen([*prefix, *command(*arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (run / "log.jsonl").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=60) == code
        assert list(run.glob("checkpoints/step-*"))
        same_end(run, unbroken)
