"""The scripts in examples/ work."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "examples" / "vectors.py"


@pytest.mark.filterwarnings("ignore:.*collapsed")  # source only may collapse
def test_adaptation_helps_on_a_table_of_another_instrument(one_thread: None) -> None:
    vectors = runpy.run_path(str(VECTORS))
    found = vectors["accuracies"](vectors["breast_cancer"](0), 0, iterations=100)
    assert found["vmt"] > 0.92
    assert found["vmt"] > found["source_only"]


def test_vectors_as_a_program() -> None:
    arguments = ["--tasks", "moons", "--seeds", "2", "--iterations", "3"]
    done = subprocess.run([sys.executable, VECTORS, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["moons"] * 3
    assert "points" in lines[-1]
