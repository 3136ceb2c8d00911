"""A run says how long it will take and, if that is long, what would make it shorter."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.own_data import write_blobs
from vmt.cli.main import main
from vmt.data.domains import domain
from vmt.data.task import Task, make_task
from vmt.runs.describe import how_to_shorten
from vmt.runs.recipes import own_recipe

HOUR = 3600.0


def pictures(side: int) -> Task:
    x = np.random.default_rng(0).integers(0, 256, (12, 3, side, side), dtype=np.uint8)
    return make_task(domain(x, np.arange(12) % 2, name="source"), domain(x, name="target"))


def vectors(features: int) -> Task:
    x = np.random.default_rng(0).normal(size=(12, features)).astype(np.float32)
    return make_task(domain(x, np.arange(12) % 2, name="source"), domain(x, name="target"))


def test_an_hour_on_a_cpu_comes_with_what_to_change() -> None:
    for task, net, named, unnamed in (
        (pictures(64), "small", ("1 h", "--image-size 32", "--net tiny", "features", "--iterations"), ()),
        (pictures(16), "tiny", ("1 h", "--iterations"), ("--image-size", "--net")),
        (vectors(2_000), "mlp", ("1 h", "2,000", "--iterations"), ("--image-size", "--net")),
    ):
        recipe = replace(own_recipe(task, device="cpu"), net=net)
        text = how_to_shorten(recipe, task, HOUR)
        assert all(word in text for word in named), text
        assert not any(word in text for word in unnamed), text
        assert how_to_shorten(recipe, task, HOUR / 10) == ""


def test_a_run_announces_its_time_once_and_before_its_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vmt.train.loop.WORTH_ANNOUNCING", 0.0)
    monkeypatch.setattr("vmt.runs.describe.LONG", 0.0)
    monkeypatch.setattr("vmt.train.loop.CHUNK", 0.0)  # one iteration at a time
    monkeypatch.setattr("vmt.progress.SECONDS_BETWEEN_LINES", 0.0)
    source, target = write_blobs(tmp_path)
    own = ["train", "--source", source, "--target", target, "--iterations", 45, "--batch-size", 8, "--device", "cpu"]
    assert main(list(map(str, [*own, "--out", tmp_path / "run"]))) == 0
    lines = capsys.readouterr().err.splitlines()
    (announced,) = [i for i, line in enumerate(lines) if line.startswith("About ")]
    assert lines[announced + 1].startswith("This run will take about ")
    before = [line for line in lines[:announced] if " of 45 iterations, " in line]
    assert len(before) <= 20
    after = [line for line in lines[announced:] if " of 45 iterations, " in line][:-1]
    assert len(after) >= 20
    assert all(word in line for line in after for word in (" elapsed", " left", " per second"))
