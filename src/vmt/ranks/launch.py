"""How torchrun started this process. The command line reads this before PyTorch is imported."""

import os
from dataclasses import dataclass

from vmt.errors import InputError

NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Launch:
    """The place of this process among those that torchrun started together."""

    rank: int
    count: int
    local_rank: int
    """The rank among the processes of this machine, which is the number of its GPU."""
    local_count: int
    address: str
    """The machine of rank 0."""
    restarts: int
    """How often torchrun has started the processes again after a failure."""


def launched() -> Launch | None:
    """How torchrun started this process; None if it did not."""
    environment = os.environ
    if not all(environment.get(name) for name in NEEDED):
        return None
    try:
        rank, count, local_rank = (int(environment[name]) for name in NEEDED[:3])
        local_count = int(environment.get("LOCAL_WORLD_SIZE", count))
        restarts = int(environment.get("TORCHELASTIC_RESTART_COUNT", 0))
    except ValueError as error:
        raise InputError(
            f"{', '.join(NEEDED[:3])} in the environment are not numbers ({error}): start the run with torchrun, or "
            "remove these variables."
        ) from error
    return Launch(rank, count, local_rank, local_count, environment["MASTER_ADDR"], restarts)


def is_first() -> bool:
    """Whether this process prints: rank 0, the only one, or one whose rank cannot be read."""
    try:
        here = launched()
    except InputError:
        return True
    return here is None or here.rank == 0


def check_alone(what: str) -> None:
    """Refuse what several ranks cannot do together."""
    here = launched()
    if here is not None and here.count > 1:
        raise InputError(f"{what} does not run under torchrun: start it without torchrun.")
