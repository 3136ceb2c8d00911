"""``vmt methods`` and ``vmt tasks``: list the methods and the tasks."""

import argparse
import ast
import json
from importlib.util import find_spec
from pathlib import Path

from vmt.data.tasks import TASKS
from vmt.methods.settings import AUTO, METHODS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"example:\n  {parser.prog}"
    if parser.prog.endswith("tasks"):
        parser.epilog = (
            "examples:\n  vmt tasks\n  vmt tasks --data DATA      what is missing there, and where to get it"
        )
        parser.add_argument("--data", type=Path, metavar="DIR", help="say which files of each task are missing here")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.set_defaults(run=run, needs_torch=False)


def run(arguments: argparse.Namespace) -> int:
    return list_methods(arguments) if arguments.command == "methods" else list_tasks(arguments)


def list_methods(arguments: argparse.Namespace) -> int:
    descriptions = first_lines("vmt.methods.systems") | first_lines("vmt.methods.published")
    if arguments.json:
        print(json.dumps({name: descriptions[name] for name in METHODS}))
        return 0
    for name in METHODS:
        print(f"{name:<12} {descriptions[name]}")
    print(f"\nAfter the methods from source_only to vmt_mcc, --dirt-t: {descriptions['dirt_t']}")
    print(f"On your own data, --method {AUTO}: several of them, and an answer chosen without target labels.")
    return 0


def list_tasks(arguments: argparse.Namespace) -> int:
    missing = {} if arguments.data is None else {name: task.missing(arguments.data) for name, task in TASKS.items()}
    if arguments.json:
        described = {
            name: {"description": t.description, "needs_data": t.needs_data}
            | ({"missing": missing[name]} if missing else {})
            for name, t in TASKS.items()
        }
        print(json.dumps(described))
        return 0
    width = max(map(len, TASKS))
    for name, task in TASKS.items():
        needs = "  (needs --data)" if task.needs_data else ""
        if missing:
            needs = f"  (missing: {missing[name]})" if missing[name] else "  (complete)"
        print(f"{name:<{width}} {task.source} → {task.target}: {task.description}{needs}")
    return 0


def first_lines(module: str) -> dict[str, str]:
    """The first line of each function's docstring, read from the source because importing it would import PyTorch."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    functions = [each for each in body if isinstance(each, ast.FunctionDef)]
    return {each.name: (ast.get_docstring(each) or "").partition("\n")[0] for each in functions}
