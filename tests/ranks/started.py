"""Processes that torchrun could have started. They are forked from one that has imported PyTorch already."""

import os
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.interrupted import send_at
from tests.processes import FORKED, PATIENCE


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def start(function: Callable[..., Any], *arguments: Any, count: int = 2, log: Path) -> list[BaseProcess]:
    """Call a function on each rank. Its result is the exit code, and what it prints goes to ``log/rank-N.txt``."""
    port = free_port()
    processes = [FORKED.Process(target=run, args=(function, arguments, r, count, port, log)) for r in range(count)]
    for process in processes:
        process.start()
    return processes


def run(function: Callable[..., Any], arguments: Any, rank: int, count: int, port: int, log: Path) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ |= {name: str(value) for name, value in place.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with (log / f"rank-{rank}.txt").open("w", buffering=1) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(function(*arguments))


def train(*flags: Any) -> int:
    """``vmt train`` with these flags."""
    from vmt.cli.main import main

    return main(["train", *map(str, flags)])


def train_interrupted(rank: int, step: int, names: list[str], *flags: Any) -> int:
    """``vmt train``, in which one rank sends itself signals once it has done so many iterations."""
    if os.environ["RANK"] == str(rank):
        send_at(step, *names)
    return train(*flags)


def ended(processes: list[BaseProcess]) -> list[int | None]:
    """The exit codes, once all processes have ended; None for one that hangs."""
    end = time.monotonic() + PATIENCE
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return codes


def printed(folder: Path, rank: int) -> str:
    """What a rank has printed."""
    return (folder / f"rank-{rank}.txt").read_text()
