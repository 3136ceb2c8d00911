"""``vmt report``: the data that it gathers, the page that it writes, and the input that it refuses."""

import hashlib
import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import vmt
from tests.own_data import write_blobs
from tests.report_runs import NAMES, fabricate, report, train, write_pictures
from vmt.cli.main import main
from vmt.runs.folder import read_run
from vmt.runs.run import Run, carry_out
from vmt.runs.spec import load_data


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lower bound and an adapted run on images whose classes have hostile names."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_pictures(folder / "data")
    train(folder / "lower", data, "--method", "source_only", "--net", "tiny")
    train(folder / "mine", data, "--method", "vmt", "--net", "tiny")
    return folder


def test_the_page_agrees_with_the_runs(runs: Path, tmp_path: Path) -> None:
    _, data = report(tmp_path / "r.html", runs / "mine", runs / "lower", "--map", "pca")
    lower, mine = data["runs"]
    assert (lower["kind"], mine["kind"]) == ("lower", "adapted"), "the bound always comes first"
    summary = json.loads((runs / "mine" / "summary.json").read_text())
    assert mine["accuracy"]["value"] == summary["target_accuracy"]
    matrix = np.array(mine["confusion"]["matrix"])
    assert matrix.sum() == 90
    assert matrix.trace() / 90 == pytest.approx(summary["target_accuracy"])
    assert matrix.sum(0).tolist() == mine["shares"]["predicted"]
    assert sum(count for _, _, count, _ in mine["calibration"]) == 90
    assert sum(hits for _, _, _, hits in mine["calibration"]) == matrix.trace()
    assert mine["shares"]["true"] == [30, 30, 30]
    samples = data["tasks"][0]["samples"]
    right = [a == b for a, b in zip(samples["label"], mine["predicted"], strict=True)][samples["source"] :]
    assert np.mean(right) == pytest.approx(summary["target_accuracy"]), "all 90 target samples fit in the page"
    assert len(mine["map"]) == len(mine["predicted"]) == len(mine["confidence"])
    assert all(1 / 3 <= p <= 1 for p in mine["confidence"])
    assert {"target/accuracy", "discriminator/accuracy", "classifier/L_m(target)"} <= set(mine["curves"])
    assert mine["curves"]["target/accuracy"][0] == [4, 8]
    assert all(chart["should"] for chart in data["charts"])
    assert dict(mine["settings"]["Method"])["method"] == "vmt"


def test_samples_are_numbered_as_in_the_data(runs: Path, tmp_path: Path) -> None:
    _, data = report(tmp_path / "r.html", runs / "mine", "--map", "none", "--samples", 20)
    samples = data["tasks"][0]["samples"]
    shown = list(zip(samples["index"], samples["label"], strict=True))[samples["source"] :]
    assert len(shown) == 20
    assert max(index for index, _ in shown) > 20
    task = load_data(read_run(runs / "mine").data)
    assert task.target_test is not None
    assert task.target_test.y is not None
    assert [int(task.target_test.y[index]) for index, _ in shown] == [label for _, label in shown]


def test_hostile_names_stay_text(runs: Path, tmp_path: Path) -> None:
    odd = tmp_path / "<b onclick=alert(1)>"
    shutil.copytree(runs / "mine", odd)
    page, data = report(tmp_path / "r.html", odd, "--map", "pca")
    assert tuple(data["tasks"][0]["classes"]) == tuple(sorted(NAMES)), "the names arrive unchanged"
    tags: list[tuple[str, list[tuple[str, str | None]]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append((tag, attrs))

    Reader().feed(page)
    assert [dict(attrs).get("type") for tag, attrs in tags if tag == "script"] == ["application/json", None]
    assert not {tag for tag, _ in tags} & {"img", "iframe", "object"}
    assert not [name for _, attrs in tags for name, _ in attrs if name.startswith("on")]
    inside = page.split('id="data">')[1].split("</script>")[0]
    assert not set(inside) & set("<>&")


def test_the_page_needs_nothing_else(runs: Path, tmp_path: Path) -> None:
    page, _ = report(tmp_path / "r.html", runs / "mine", "--map", "none")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    outside = re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.DOTALL)
    addresses = set(re.findall(r"https?://[^\s\"']+", outside))
    assert addresses == {"http://www.w3.org/2000/svg"}, "the name of a namespace, which is not fetched"


def test_run_folders_stay_as_they_are(runs: Path, tmp_path: Path) -> None:
    def prints() -> dict[str, str]:
        files = sorted(path for path in runs.rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = prints()
    report(tmp_path / "r.html", runs, "--map", "pca")
    assert prints() == before


def test_an_unfinished_run_is_shown_from_its_checkpoint(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "mine"
    shutil.copytree(runs / "mine", run)
    (run / "model.safetensors").unlink()
    (run / "summary.json").unlink()
    page, data = report(tmp_path / "r.html", run, "--map", "pca")
    (mine,) = data["runs"]
    assert mine["status"]["kind"] == "unfinished"
    assert mine["origin"] == "the checkpoint at iteration 8"
    whole = report(tmp_path / "w.html", runs / "mine", "--map", "pca")[1]["runs"][0]
    assert mine["predicted"] == whole["predicted"], "the last checkpoint predicts like the model"
    shutil.rmtree(run / "checkpoints")
    page, data = report(tmp_path / "r.html", run)
    assert "neither a model nor a checkpoint" in data["runs"][0]["missing"]
    assert "unfinished" in page


def test_a_run_interrupted_between_two_log_records_is_shown_from_its_checkpoint(runs: Path, tmp_path: Path) -> None:
    spec, run = read_run(runs / "mine"), tmp_path / "mine"
    carry_out(Run.of(spec, load_data(spec.data)), run, budget=0.0)
    (mine,) = report(tmp_path / "r.html", run, "--map", "pca")[1]["runs"]
    assert mine["origin"] == "the checkpoint at iteration 1"


def test_code_that_an_unfinished_run_names_is_not_imported(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a run may come from a stranger. For finished runs, tests of models check the same."""
    run = tmp_path / "mine"
    shutil.copytree(runs / "mine", run)
    (run / "model.safetensors").unlink()
    named = (run / "run.json").read_text().replace('"tiny"', '"hostile_net:make"')
    (run / "run.json").write_text(named)
    (tmp_path / "hostile_net.py").write_text("from pathlib import Path\nPath('was_run').touch()\n")
    monkeypatch.chdir(tmp_path)
    _, data = report(tmp_path / "r.html", run)
    assert "hostile_net:make" in data["runs"][0]["missing"]
    assert not (tmp_path / "was_run").exists()


def test_without_data_the_page_says_so(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, data = report(tmp_path / "r.html", fabricate(tmp_path / "run"))
    assert "could not be read" in data["tasks"][0]["note"]
    assert "could not be read" in capsys.readouterr().out
    assert data["runs"][0]["shares"] == {"source": None, "predicted": [0.4, 0.3, 0.3], "true": None, "logged": True}


def test_vectors_and_no_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = write_blobs(tmp_path)
    flags = ["--source", str(source), "--target", str(target), "--keep-best", "im", "--net", "mlp"]
    run = train(tmp_path / "run", flags)
    assert f"vmt report {run} -o report.html" in capsys.readouterr().out, "the command suggests the report"
    _, data = report(tmp_path / "r.html", run)
    (about,), (mine,) = data["tasks"], data["runs"]
    assert about["sheet"] is None
    assert not about["labels"]
    assert set(about["samples"]["label"][about["samples"]["source"] :]) == {None}
    assert mine["accuracy"] is None
    assert mine["confusion"] is None
    assert any("best model by im" in sign["text"] for sign in mine["signs"])
    assert "validators/im" in mine["curves"]
    assert data["verdict"]["tone"] in ("unknown", "bad")
    assert any("--test" in step["command"] for step in data["next"])


def test_a_run_that_has_only_started(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", finished=False)
    (run / "log.jsonl").unlink()
    page, data = report(tmp_path / "r.html", run)
    assert data["verdict"]["tone"] == "unknown"
    assert data["charts"] == []
    assert "unfinished" in page


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_folder_whose_name_is_not_utf8(tmp_path: Path) -> None:
    folder = fabricate(tmp_path / "run").rename(tmp_path / "caf\udce9")
    assert main(["report", str(folder), "-o", str(tmp_path / "r.html"), "--map", "none"]) == 0
    assert r"caf\udce9" in (tmp_path / "r.html").read_text("utf-8")


def test_a_page_of_many_images_has_less_than_five_megabytes(tmp_path: Path) -> None:
    """The images are coloured noise, which cannot be compressed. A page never shows more of them than this one."""
    data = write_pictures(tmp_path / "data", target=2500, size=32, names=tuple("abcdefghij"))
    flags = ["--iterations", "1", "--validate-samples", "0", "--evaluate-samples", "100"]
    run = train(tmp_path / "run", data, *flags)
    _, gathered = report(tmp_path / "r.html", run, "--map", "pca")
    assert gathered["tasks"][0]["target_samples"] == 2500
    assert sum(gathered["runs"][0]["shares"]["predicted"]) == 2500
    assert (tmp_path / "r.html").stat().st_size < 5_000_000


@pytest.mark.parametrize(
    ("arguments", "offender"),
    [
        (["nothing-here"], "nothing-here"),
        (["RUN", "-o", "."], ". is a folder"),
        (["RUN", "-o", "missing/r.html"], "missing"),
        (["RUN", "-o", "letter.html/r.html"], "letter.html"),
        (["RUN", "-o", "letter.html"], "letter.html"),
        (["RUN", "--samples", "0"], "--samples"),
        (["RUN", "--net", "other.nets:make"], "other.nets:make"),
        (["BROKEN"], "BROKEN"),
    ],
)
def test_bad_input_is_named_in_one_sentence(
    arguments: list[str],
    offender: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    fabricate(Path("RUN"))
    (fabricate(Path("BROKEN")) / "summary.json").write_text("{")
    Path("letter.html").write_text("Dear reader")
    assert main(["report", *arguments]) == 2
    message = capsys.readouterr().err
    assert offender in message
    assert len(message.strip().splitlines()) == 1
    assert Path("letter.html").read_text() == "Dear reader"


def test_a_report_may_be_overwritten(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run")
    report(tmp_path / "r.html", run)
    report(tmp_path / "r.html", run)


def test_a_run_from_python_is_reported_with_and_without_its_data(tmp_path: Path) -> None:
    source, target = write_blobs(tmp_path)
    arrays = np.load(source)
    vmt.adapt((arrays["x"], arrays["y"]), np.load(target)["x"], iterations=4, out=tmp_path / "run", progress=False)
    _, data = report(tmp_path / "r.html", tmp_path / "run")
    assert "--source" in data["tasks"][0]["note"]
    assert data["runs"][0]["method"] == "VMT"
    _, data = report(tmp_path / "r.html", tmp_path / "run", "--source", source, "--target", target, "--map", "pca")
    assert data["runs"][0]["origin"] == "the finished model"
    assert data["runs"][0]["map"]
