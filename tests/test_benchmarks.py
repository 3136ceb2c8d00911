"""Benchmarks that need hours, a GPU or data of others work at a tiny size."""

import json
import re
import runpy
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vmt.data.files.pictures import ORIENTATION, decode
from vmt.data.framing import Framing
from vmt.errors import InputError

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import deployed  # noqa: E402
import doubts_of_features  # noqa: E402
import large_folder  # noqa: E402
import photographs_flow  # noqa: E402
import resnet50  # noqa: E402
import streaming  # noqa: E402


@pytest.fixture
def matmul_precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def test_the_network_has_the_parameters_of_resnet_50() -> None:
    assert sum(each.numel() for each in resnet50.network(1000).parameters()) == 25_557_032


def test_resnet50_times_the_plain_port_and_ours(
    tmp_path: Path, one_thread: None, matmul_precision: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmt.engine.bench.BLOCKS_ON_CPU", 2)
    out = tmp_path / "resnet50.json"
    resnet50.main(["--small", "--device", "cpu", "--batch-size", "2", "--tf32", "--json", str(out)])
    found = json.loads(out.read_text())
    assert len(found["ms"]) == 4
    assert found["ms"].keys() == found["startup_s"].keys() == found["peak_gib"].keys()
    for median, low, high, fastest in found["ms"].values():
        assert 0 < fastest <= median
        assert low <= median <= high


STREAMING = (
    "--device",
    "cpu",
    "--side",
    "8",
    "--batch-size",
    "4",
    "--iterations",
    "2",
    "--turns",
    "2",
    "--warm-up",
    "1",
)


def test_streaming_times_samples_in_memory_and_on_the_disk(
    tmp_path: Path, one_thread: None, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--samples", "40", "--memory", "0.001MiB", "--cold", "--folder", str(tmp_path / "store"), *STREAMING]
    assert streaming.main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"] == 40 * 3 * 8 * 8
    assert found["streamed_speed"] == pytest.approx(found["ms"]["resident"] / found["ms"]["streamed"], rel=0.01)
    for name, (fastest, slowest) in found["spread_ms"].items():
        assert 0 < fastest <= found["ms"][name] <= slowest


def test_streaming_refuses_samples_that_fit_into_the_memory() -> None:
    with pytest.raises(InputError, match="--memory"):
        streaming.main(["--samples", "40", "--memory", "1GiB", *STREAMING])


@pytest.fixture
def pacs(tmp_path: Path) -> Path:
    """The two domains that photographs are made of, with eight pictures of each of two classes."""
    for domain in ("photo", "art_painting"):
        for kind in ("dog", "house"):
            folder = tmp_path / "pacs" / domain / kind
            folder.mkdir(parents=True)
            for number in range(8):
                pixels = np.random.default_rng(number).integers(0, 256, (5, 5, 3), dtype=np.uint8)
                Image.fromarray(pixels).resize((60, 60)).save(folder / f"{number}.jpg")
    return tmp_path


def test_photographs_are_of_the_kinds_that_their_names_say(pacs: Path, tmp_path: Path) -> None:
    made = deployed.make_photographs(pacs, tmp_path / "photographs", 27, seed=0)
    assert set(made.values()) == {"dog", "house"}
    decoded = runpy.run_path(str(deployed.SCRIPT))["decoded"]
    expects = {"resized_to": [32, 32], "channels": 3, "crop": 1.0, "interpolation": "bicubic"}
    seen = set()
    for path in made:
        _, _, turned, kind = path.name.split("-", 3)
        with Image.open(path) as picture:
            assert picture.getexif()[ORIENTATION] == int(turned)
            assert picture.mode == {"PA": "P"}.get(deployed.KINDS[kind], deployed.KINDS[kind])
            assert picture.has_transparency_data == ("alpha" in kind)
            seen.add((kind, int(turned)))
        ours = decode(path, Framing((32, 32), 3, 1.0, "bicubic"))
        np.testing.assert_array_equal(ours, decoded(str(path), expects).transpose(2, 0, 1), path.name)
    assert seen == {(kind, turned) for kind in deployed.KINDS for turned in (1, 2, 3)}


def test_a_turned_photograph_is_upright_again(pacs: Path, tmp_path: Path) -> None:
    original = pacs / "pacs" / "photo" / "dog" / "0.jpg"
    framing = Framing((20, 20), 3)
    for orientation in range(1, 9):
        out = tmp_path / f"{orientation}.png"
        deployed.photograph(original, "colour.png", orientation, np.random.default_rng(0), out)
        assert np.abs(decode(out, framing).astype(int) - decode(original, framing)).mean() < 8


def test_the_commands_for_photographs_are_those_of_the_first_page() -> None:
    timed = photographs_flow.commands("mine.nets:features")
    assert [command.split()[1] for command in timed] == ["train", "export", "predict"]
    for command in timed:
        bare = re.sub(r" --features \S+", "", command)
        assert bare in re.sub(r" --features \S+", "", (ROOT / "README.md").read_text())


def test_new_pictures_are_not_among_those_that_are_trained_on(pacs: Path, tmp_path: Path) -> None:
    photographs_flow.choose(pacs, tmp_path, each=10, new=4, seed=0)
    names = {name: {path.name for path in (tmp_path / name).rglob("*.jpg")} for name in ("unlabelled", "new-pictures")}
    assert [len(found) for found in names.values()] == [10, 4]
    assert not names["unlabelled"] & names["new-pictures"]
    labelled = list((tmp_path / "labelled").rglob("*.jpg"))
    assert len(labelled) == 10
    assert all(path.name.startswith(f"{path.parent.name}-") for path in labelled)


def test_pictures_of_a_large_folder_depend_on_their_numbers_alone(tmp_path: Path) -> None:
    for name, count in (("a", 20), ("b", 30)):
        large_folder.make_pictures(tmp_path / name, count=count, labelled=10, side=8)
    assert len(list((tmp_path / "a" / "labelled").rglob("*.jpg"))) == 10
    assert len(list((tmp_path / "b" / "unlabelled").iterdir())) == 30
    for path in (tmp_path / "a").rglob("*.jpg"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


@pytest.fixture
def two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of vmt: a process that starts another, and both hold 50 MB for some seconds."""
    lines = (
        "import os, pathlib, subprocess, sys, time",
        "held = bytearray(b'1' * 50_000_000)",
        "pathlib.Path(f'process-{os.getpid()}').touch()",
        "if 'train' in sys.argv: subprocess.run([sys.executable, '-m', 'vmt', sys.argv[-1]])",
        "else: time.sleep(float(sys.argv[-1]))",
    )
    (tmp_path / "vmt.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_memory_of_a_command_is_that_of_all_its_processes(two_processes: Path) -> None:
    ended = large_folder.followed(["1"], two_processes / "cache", two_processes / "output.txt")
    assert ended.code == 0, (two_processes / "output.txt").read_text()
    assert ended.peak_mib > 110 > ended.largest_process_mib > 50


def test_a_command_is_killed_with_all_its_processes(two_processes: Path) -> None:
    def both() -> list[Path]:
        return list(two_processes.glob("process-*"))

    ended = large_folder.followed(
        ["600"], two_processes / "cache", two_processes / "output.txt", lambda: len(both()) == 2
    )
    assert ended.code == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while any(large_folder.memory(int(path.name.removeprefix("process-")))[0] for path in both()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_class_shares_of_drawn_features_are_compared_with_the_true_ones(tmp_path: Path, one_thread: None) -> None:
    """On features that tell the classes apart in both domains, the estimates are nearly right."""
    random = np.random.default_rng(0)
    y = np.arange(900) % 3
    domains = {name: (random.normal(size=(900, 6)) + 5 * np.eye(6)[y]).astype(np.float16) for name in ("one", "two")}
    features = tmp_path / "features.npz"
    np.savez(features, **{f"{name}_x": x for name, x in domains.items()}, one_y=y, two_y=y)
    source, target = doubts_of_features.problem(features, "one-two", 0)
    assert len(np.unique(target[1])) == 3
    folder = tmp_path / "outputs"
    folder.mkdir()
    assert doubts_of_features.keep_outputs(features, "one-two", 0, False, folder) == "one-two.0"
    record = doubts_of_features.about(folder / "one-two.0.npz")
    shares = [np.bincount(labels) / len(labels) for labels in (source[1], target[1])]
    assert record["difference"] == pytest.approx(np.abs(shares[0] - shares[1]).sum() / 2, abs=0.02)
    assert all(each["error"] < 0.1 for each in record["estimates"].values() if "error" in each)
    head, rule, *rows = doubts_of_features.shares_found([record, record])
    assert len(rows) == len(record["estimates"])
    assert head.count("|") == rule.count("|")
