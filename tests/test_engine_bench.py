"""``vmt bench`` keeps its promise of one line of JSON."""

import json

import pytest

from vmt.cli.main import main


def test_last_line_is_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--json", "--device", "cpu", "--batch-size", "2", "--precision", "float32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    report = json.loads(lines[-1])
    promised = {"device", "baseline_ms", "ms", "ratio", "dirt_t_ms", "peak_gib", "startup_s"}
    assert promised <= report.keys()
    assert report["engine"] == "eager"
    assert report["bfloat16"] is False
    assert report["ratio"] == pytest.approx(report["baseline_ms"] / report["ms"])
    assert any(line.startswith("plain port") for line in lines)


@pytest.mark.parametrize("name", ["nonsense", "cuda:99"])
def test_device_that_is_not_there(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--device", name]) == 2
    assert f"device '{name}'" in capsys.readouterr().err
