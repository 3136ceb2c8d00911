"""``vmt bench`` ends with one line of JSON, and :func:`vmt.engine.bench.bench` returns the same report."""

import json

import pytest

from vmt.cli.main import main
from vmt.engine import bench as module
from vmt.engine.bench import bench, gigaflop

PROMISED = {"device", "baseline_ms", "ms", "ratio", "dirt_t_ms", "peak_gib", "startup_s"}


@pytest.mark.parametrize("device", ["cpu", *(pytest.param(name, marks=pytest.mark.gpu) for name in ("cuda", "cuda:0"))])
def test_last_line_is_the_report(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--batch-size", "2", "--precision", "float32", "--engines", "eager", "--iterations", "1"]
    assert main(["bench", "--json", "--device", device, *small]) == 0
    lines = capsys.readouterr().out.splitlines()
    report = json.loads(lines[-1])
    assert report.keys() >= PROMISED
    assert report["engine"] == "eager"
    assert report["bfloat16"] is False
    assert report["ratio"] == pytest.approx(report["baseline_ms"] / report["ms"])
    assert any(line.startswith("plain port") for line in lines)


def test_function_returns_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCKS_ON_CPU", 2)
    written: list[str] = []
    report = bench(batch_size=2, precision="float32", device="cpu", baseline=False, write=written.append)
    assert report.keys() >= PROMISED
    assert report["ratio"] is None
    assert set(report["all_ms"]) == {"eager", "eager, DIRT-T"}
    assert any(line.startswith("eager: ready") for line in written)


@pytest.mark.parametrize("name", ["nonsense", "cuda:99"])
def test_missing_device_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--device", name]) == 2
    assert f"'{name}'" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "least"), [("--batch-size", 2), ("--iterations", 1)])
@pytest.mark.parametrize("below", [1, 2])
def test_too_few_to_time(flag: str, least: int, below: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", flag, str(least - below)])
    assert flag in capsys.readouterr().err


def test_operations_of_an_iteration_by_hand() -> None:
    # One image through the small net: 18 operations per pixel and pair of channels.
    network = 18 * (1024 * (3 * 64 + 2 * 64**2) + 256 * 3 * 64**2 + 64 * 3 * 64**2)
    encoder = network - 18 * 64 * 3 * 64**2
    passes = 128 * encoder + 256 * 3 * network + 128 * 2 * network + 128 * 3 * network
    assert gigaflop((64, 64, 64), 64) == pytest.approx(passes / 1e9)
