"""The command line in a process that sends itself signals at an iteration of its training.

A signal from another process would come at a time that depends on how busy the machine is, perhaps after the end.

python -m tests.interrupted 20 SIGKILL train …
"""

import os
import signal
import sys
from functools import partial, wraps
from pathlib import Path

from tests.processes import vmt
from vmt.cli.main import main
from vmt.train.loop import Training

ROOT = Path(__file__).parents[1]


def send_at(iteration: int, *names: str) -> None:
    """Let this process send itself signals as soon as its training has done so many iterations."""
    advance = Training.advance
    left = list(names)

    @wraps(advance)
    def advance_and_send(self: Training) -> int:
        count = advance(self)
        while left and self.done >= iteration:
            os.kill(os.getpid(), getattr(signal, left.pop()))
        return count

    Training.advance = advance_and_send  # type: ignore[method-assign]


def interrupted(iteration: int, name: str, *arguments: object) -> int:
    """The exit code of the command line in such a process."""
    return vmt(*arguments, before=partial(send_at, iteration, name)).returncode


if __name__ == "__main__":
    step, names, *arguments = sys.argv[1:]
    # Under torchrun, rank 1 alone, and not when torchrun has started it again.
    if (os.environ.get("RANK", "1"), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == ("1", "0"):
        send_at(int(step), *names.split("+"))
    sys.exit(main(arguments))
