"""A GPU that is out of memory or fails: the run ends with a clear message and can be resumed.

Here, a user's network raises the errors that torch raises on a GPU.
"""

from dataclasses import astuple
from pathlib import Path

import pytest
import torch

from tests.cli.test_bad_input import official_files
from tests.paper_cells import OVERRIDES, cell
from vmt.cli.main import main
from vmt.errors import message_of_gpu_error
from vmt.many.queue import run_queue
from vmt.paper.experiment import jobs_for
from vmt.paper.queue import PaperQueue, Workspace
from vmt.progress import Progress

NET = """
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes, shape):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(256, 16), nn.ReLU(), nn.Linear(16, 10))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > int(os.environ["CALLS"]):
            raise getattr(torch, os.environ["RAISES"])(os.environ["SAYS"])
        return self.body(x)
"""
FULL = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB of which 1 GiB is free."
BROKEN = "CUDA error: an illegal memory access was encountered\nSearch for it in the documentation."


@pytest.mark.parametrize(
    ("raises", "says", "reason"),
    [
        pytest.param("OutOfMemoryError", FULL, "CUDA out of memory", id="full"),
        pytest.param("AcceleratorError", BROKEN, "illegal memory access", id="broken"),
    ],
)
def test_a_run_whose_gpu_fails_says_how_to_resume_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    own_modules: None,
    raises: str,
    says: str,
    reason: str,
) -> None:
    (tmp_path / "mine.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    for name, value in (("CALLS", "20"), ("RAISES", raises), ("SAYS", says)):
        monkeypatch.setenv(name, value)
    length = ["--iterations", "30", "--checkpoint-every", "5", "--evaluate-every", "100", "--engine", "eager"]
    asked = ["digits", "--method", "source_only", "--net", "mine:Net", "--out", "run", "--device", "cpu", *length]
    assert main(["train", *asked]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert reason in message
    assert "--resume run" in message
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))
    monkeypatch.setenv("CALLS", "1000000")
    assert main(["train", "--resume", "run", "--net", "mine:Net"]) == 0
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_other_errors_of_torch_are_not_errors_of_the_gpu() -> None:
    assert message_of_gpu_error(RuntimeError("shapes do not match")) is None
    assert message_of_gpu_error(torch.OutOfMemoryError()) is not None


class ShortOfMemory(Progress):
    """The first of two runs is out of memory."""

    def advance(self, steps: int) -> None:
        if "_0 " in self.label:
            raise torch.OutOfMemoryError(FULL)


def test_a_run_out_of_memory_does_not_stop_the_next_one(tmp_path: Path) -> None:
    queue = jobs_for([cell("Source-Only", "source_only", 2)])
    workspace = Workspace(str(official_files(tmp_path)), tmp_path / "results", tmp_path / "runs")
    done, missing, problems = astuple(run_queue(PaperQueue(queue, workspace, OVERRIDES), None, print, ShortOfMemory))
    assert (done, missing, len(problems)) == (1, 1, 1)
    assert problems[queue[0].run].startswith(f"{queue[0]}: ")
    assert "CUDA out of memory" in problems[queue[0].run]
