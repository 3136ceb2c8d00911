"""Imports between the rooms of the package point one way."""

import ast
import json
import runpy
import subprocess
import sys
from pathlib import Path

import vmt

# From the foundation to the roof. A room may import those before it; rooms in one row do not import each other.
ROOMS = """
errors json_types _imports notebook
progress
disk
cache device losses figures ranks
kernels
data validators
nets
methods
step
engine
evaluate
train
model
export
runs
api
estimator
estimator_search
report
trackers
many
paper
cli
__main__
""".strip().splitlines()
FLOOR = {room: floor for floor, row in enumerate(ROOMS) for room in row.split()}
PACKAGE = Path(vmt.__file__).parent
# The picture of the rooms reads the imports in the same way.
imported_in = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "architecture.py"))["imported_in"]


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(module: str) -> str:
    return module.split(".")[1]


def test_imports_point_one_way() -> None:
    known = modules()
    wrong = set()
    for module, path in known.items():
        if module == "vmt":
            continue
        for name in imported_in(ast.parse(path.read_text(encoding="utf-8"))):
            imported = name if name in known else name.rpartition(".")[0]
            if imported == "vmt" or not imported.startswith("vmt."):
                continue
            here, there = room_of(module), room_of(imported)
            if here != there and FLOOR[there] >= FLOOR[here]:
                wrong.add((module, imported))
    assert not wrong


def test_every_room_has_its_place() -> None:
    assert {room_of(module) for module in modules() if module != "vmt"} == FLOOR.keys()


def test_a_step_needs_no_readers() -> None:
    probe = "import sys, vmt.step.iteration; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    loaded = {name for name in done.stdout.split() if name.startswith("vmt.")}
    assert not {
        name for name in loaded if name.startswith(("vmt.data.readers", "vmt.data.files", "vmt.data.synthetic"))
    }
    assert not {room_of(name) for name in loaded if FLOOR[room_of(name)] > FLOOR["step"]}


def test_the_way_to_the_first_backward_pass_does_not_grow() -> None:
    """The number of files that run between ``vmt train mnist-svhn`` and the first backward pass."""
    script = PACKAGE.parents[1] / "benchmarks" / "files_on_the_way.py"
    done = subprocess.run([sys.executable, script, "--json"], check=True, capture_output=True, text=True)
    files = json.loads(done.stdout)["files"]
    assert {"cli/train.py", "runs/run.py", "train/loop.py", "step/iteration.py"} <= set(files)
    assert len(files) <= 36
