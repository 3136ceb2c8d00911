"""``vmt methods`` and ``vmt tasks``: what there is."""

import argparse
import json
from typing import Any

from vmt.data.tasks import TASKS
from vmt.methods.systems import METHODS, dirt_t


def list_methods(arguments: argparse.Namespace) -> int:
    lines = {name: first_line(function) for name, function in METHODS.items()}
    if arguments.json:
        print(json.dumps(lines))
        return 0
    for name, line in lines.items():
        print(f"{name:<12} {line}")
    print(f"\nAfter any of them, --dirt-t: {first_line(dirt_t)}")
    return 0


def list_tasks(arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(
            json.dumps({name: {"description": t.description, "needs_data": t.needs_data} for name, t in TASKS.items()})
        )
        return 0
    for name, task in TASKS.items():
        needs = "  (needs --data)" if task.needs_data else ""
        print(f"{name:<12} {task.source} → {task.target}: {task.description}{needs}")
    return 0


def first_line(function: Any) -> str:
    return (function.__doc__ or "").strip().splitlines()[0]
