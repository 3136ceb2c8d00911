"""How much this machine can do at the same time."""

import os


def usable_cores() -> int:
    """How many workers can run at the same time."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
