"""The command line as a new user meets it: real processes, real files."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.own_data import command, write_blobs
from tests.processes import vmt
from vmt.cli.demo import comparison
from vmt.cli.main import main
from vmt.runs.folder import commit


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on the embedded task."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    flags = ["--iterations", 6, "--dirt-t", "--dirt-t-iterations", 4, "--batch-size", 16, "--log-every", 2]
    done = vmt("train", "digits", "--out", folder, "--json", *flags)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.strip().splitlines()[-1])
    assert summary["iterations"] == 10
    assert set(summary["phases"]) == {"vmt", "dirt_t"}
    return folder


def test_a_run_folder_holds_everything(run: Path) -> None:
    for name in ("run.json", "log.jsonl", "model.safetensors", "curves.png", "summary.json", "checkpoints"):
        assert (run / name).exists(), name
    record = json.loads((run / "run.json").read_text())
    assert record["environment"]["torch"]
    assert record["recipe"]["settings"]["lambda_t"] == 1.0
    with Image.open(run / "curves.png") as picture:
        assert min(picture.size) > 400


def test_the_log_holds_every_loss_part_and_health_figure(run: Path) -> None:
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    names = {name for record in records for name in record}
    parts = {
        "L_y",
        "L_d",
        "L_disc",
        "L_c(target)",
        "L_m(source)",
        "L_m(target)",
        "L_v(source)",
        "L_v(target)",
        "teacher",
    }
    figures = {"entropy(target)", "predicted share(target)", "gradient norm"}
    assert {f"classifier/{part}" for part in parts | figures} <= names
    assert {"discriminator/accuracy", "discriminator/gradient norm", "target", "source"} <= names
    shares = [record["classifier/predicted share(target)"] for record in records if "classifier/L_c(target)" in record]
    assert all(len(share) == 10 and abs(sum(share) - 1) < 1e-4 for share in shares)


def test_predict_writes_class_and_probabilities(run: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 256, (40, 30), dtype=np.uint8)).save(tmp_path / "grey.png")
    Image.fromarray(random.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(tmp_path / "colour.png")
    np.savez(tmp_path / "many.npz", x=random.integers(0, 256, (5, 16, 16), dtype=np.uint8))
    out = tmp_path / "out.csv"
    files = [tmp_path / "grey.png", tmp_path / "colour.png", tmp_path / "many.npz"]
    done = vmt("predict", run, *files, "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == f"Wrote 7 predictions to {out}."
    assert done.stdout == ""
    rows = list(csv.DictReader(out.open()))
    assert [row["index"] for row in rows] == ["0", "0", "0", "1", "2", "3", "4"]
    for row in rows:
        probabilities = {k[2:-1]: float(v) for k, v in row.items() if k.startswith("p(")}
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-4)
        assert max(probabilities, key=lambda k: probabilities[k]) == row["class"]


def test_pictures_are_read_as_in_training(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Transparent pixels are white, and a photograph taken sideways is turned upright."""
    ink = np.random.default_rng(0).integers(0, 256, (16, 16), dtype=np.uint8)
    ink[:, :5] = 255
    alpha = np.full_like(ink, 255)
    alpha[:, :5] = 0
    unseen = np.where(alpha == 0, 0, ink)
    Image.fromarray(ink).save(tmp_path / "plain.png")
    Image.fromarray(np.stack([unseen, alpha], 2), "LA").save(tmp_path / "transparent.png")
    turned = Image.fromarray(np.ascontiguousarray(np.rot90(ink)))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90° clockwise
    turned.save(tmp_path / "turned.png", exif=exif)
    names = ("plain", "transparent", "turned")
    assert main(["predict", str(run), *(str(tmp_path / f"{name}.png") for name in names)]) == 0
    rows = [row[3:] for row in csv.reader(capsys.readouterr().out.splitlines())][1:]
    assert rows[1] == rows[0]
    assert rows[2] == rows[0]


def test_evaluate_agrees_with_the_summary(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert found["accuracy"] == json.loads((run / "summary.json").read_text())["target_accuracy"]


def test_evaluate_on_your_own_labelled_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = write_blobs(tmp_path)
    flags = ["--iterations", "3", "--batch-size", "8", "--target-test", str(tmp_path / "test.npz")]
    folder = tmp_path / "run"
    assert main(["train", "--source", str(source), "--target", str(target), "--out", str(folder), *flags]) == 0
    assert main(["evaluate", str(folder), "--test", str(tmp_path / "test.npz")]) == 0
    assert "240 samples" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["", "demo", "train", "evaluate", "predict", "methods", "tasks"])
def test_help_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "example" in text
    assert f"vmt {command}".strip() in text


def test_every_config_field_has_a_flag_with_its_docstring(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help-all"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--stop-on-collapse" in text
    assert "samples per domain in a batch (default: 64)" in text


def test_help_is_short_first(capsys: pytest.CaptureFixture[str]) -> None:
    helps = []
    for option in ("--help", "--help-all", "--help"):
        with pytest.raises(SystemExit):
            main(["train", option])
        helps.append(capsys.readouterr().out)
    short, whole, again = helps
    assert again == short
    assert "--lambda-t" in short
    assert "--stop-on-collapse" not in short
    assert "vmt train --help-all" in short
    assert len(short) < 0.7 * len(whole)


@pytest.mark.parametrize("arguments", [[], ["help"], ["help", "predict"]])
def test_help_without_a_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: vmt")


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["trian"], "train"),
        (["digits"], "vmt train digits"),
        (["vada"], "vmt train --method vada"),
        (["data", "dowload"], "download"),
        (["report", "run", "--map", "tnse"], "tsne"),
        (["train", "--itrations", "3"], "--iterations"),
    ],
    ids=str,
)
def test_a_mistyped_word_gets_a_suggestion(
    arguments: list[str], suggestion: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"(perhaps {suggestion}?)" in line


def test_methods_and_tasks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) >= {"source_only", "target_only", "dann", "vada", "vmt"}
    assert main(["tasks"]) == 0
    assert "mnist-svhn" in capsys.readouterr().out


def test_a_small_demo(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "mine.txt").write_text("from before")
    done = vmt("demo", "--iterations", 5, "--out", tmp_path / "demo", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.strip().splitlines()[-1])
    assert list(result["accuracy"]) == ["source only", "VMT", "VMT + DIRT-T", "trained on target labels"]
    out = tmp_path / "demo-2"  # beside the folder that exists, which is not overwritten
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["mine.txt"]
    assert (out / "curves.png").exists()
    assert "source_only" in (out / "report.html").read_text()
    assert (out / "vmt" / "model.safetensors").exists()
    assert done.stderr.count("The eager engine") <= 1, "three runs, and one note about the engine"


@pytest.mark.parametrize(
    ("low", "ours", "high", "words"),
    [
        (0.4, 0.85, 0.9, "90% of the gap"),
        (0.4, 0.4, 0.9, "0% of the gap"),
        (0.3, 0.5, 0.4, "better than 90 iterations"),
        (0.4, 0.3, 0.9, "worse than source only"),
        (0.5, 0.6, 0.5, "no gap"),
    ],
)
def test_the_sentence_of_the_demo_is_true_after_few_iterations(
    low: float, ours: float, high: float, words: str
) -> None:
    table = {"source only": low, "VMT": 0.5, "VMT + DIRT-T": ours, "trained on target labels": high}
    assert words in comparison(table, 90)


def test_output_that_is_not_unicode() -> None:
    """Such as output to a file on Windows, or without a locale."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command("tasks"), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert r"\u2192" in done.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_that_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package installed inside another repository does not report the commits of that repository."""
    monkeypatch.delenv("VMT_COMMIT", raising=False)
    installed, project = tmp_path / ".venv" / "vmt", tmp_path / "src"
    for folder in (installed, project):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    (tmp_path / ".gitignore").write_text(".venv/")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *arguments], check=True)
    assert commit(installed) is None
    clean = commit(project)
    assert clean is not None
    assert len(clean) == 12
    (project / "more.py").touch()
    assert commit(project) == clean + "+"


@pytest.mark.parametrize(
    "name", ["demo", "train", "select", "report", "evaluate", "predict", "export", "data", "paper", "bench", "tasks"]
)
def test_help_fits_a_terminal(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([name, "--help"])
    narrow = capsys.readouterr().out
    assert [line for line in narrow.splitlines() if len(line) > 80] == []
    monkeypatch.setenv("COLUMNS", "140")
    with pytest.raises(SystemExit):
        main([name, "--help"])
    wide = capsys.readouterr().out
    assert wide.split() == narrow.split(), "the same words"


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "vmt", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("vmt ")
