"""Functions that print the lines of a queue's worker processes and make the workers fail.

A worker imports them by name, so they are in a module that imports little.
"""

import os
import signal
from pathlib import Path

from vmt.cli.paper import to_stderr

FOLDER = "VMT_TEST_FOLDER"
"""The environment variable with the folder in which workers leave marks."""


def starts_a_job(line: str) -> bool:
    return line.startswith("[")


def kill_the_first_worker(line: str) -> None:
    """Kill the first worker that starts a job, as the system does when memory is short."""
    if starts_a_job(line):
        try:
            (Path(os.environ[FOLDER]) / "killed").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    to_stderr(line)


def break_the_gpu_of_every_worker(line: str) -> None:
    """Raise in every worker that starts a job what PyTorch raises when a GPU fails."""
    import torch

    if starts_a_job(line):
        with (Path(os.environ[FOLDER]) / "failures").open("a") as failures:
            failures.write("x")
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nSearch for it")
    to_stderr(line)
