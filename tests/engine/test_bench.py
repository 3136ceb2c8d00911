"""``vmt bench`` keeps its promise of one line of JSON."""

import json

import pytest

from vmt.cli.main import main


@pytest.mark.parametrize("device", ["cpu", *(pytest.param(name, marks=pytest.mark.gpu) for name in ("cuda", "cuda:0"))])
def test_last_line_is_the_report(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--batch-size", "2", "--precision", "float32", "--engines", "eager", "--iterations", "1"]
    assert main(["bench", "--json", "--device", device, *small]) == 0
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


@pytest.mark.parametrize(("flag", "least"), [("--batch-size", 2), ("--iterations", 1)])
@pytest.mark.parametrize("below", [1, 2])
def test_too_few_to_time(flag: str, least: int, below: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", flag, str(least - below)])
    assert f"argument {flag}: '{least - below}' is not a whole number of {least} or more" in capsys.readouterr().err
