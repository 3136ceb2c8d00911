"""Your own data on the command line: trained on, resumed with, refused."""

import csv
import json
from pathlib import Path

import pytest

from tests.own_pictures import CLASSES, class_folders, giant_png, picture, save, unlabelled_folder
from vmt.cli.main import main
from vmt.model import load

SHORT = ["--iterations", "3", "--batch-size", "8", "--net", "tiny", "--device", "cpu"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def vmt(*arguments: object) -> int:
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as ended:
        return int(str(ended.code))


def test_two_folders_to_a_model_with_class_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = class_folders(tmp_path / "a"), class_folders(tmp_path / "b", shade=50)
    run = tmp_path / "run"
    assert vmt("train", "--source", source, "--target", target, "--out", run, *SHORT, "--image-size", 8, 12) == 0
    output = capsys.readouterr().out
    for words in (
        "8×12 pixels",
        "evaluation only",
        "classes: 3, golden retriever, кошка, 鳥",
        "network: tiny",
        "iterations: 3 of vmt",
        "λ_d 0.01",
        "12.5%",
        "--warm-up",
        "radius of VAT",
    ):
        assert words in output
    assert json.loads((run / "run.json").read_text())["recipe"]["settings"]["warm_up"] == 0.125
    model = load(run)
    assert tuple(model.classes) == CLASSES
    assert model.preprocess.size == (8, 12)
    out = tmp_path / "out.csv"
    assert vmt("predict", run, target / "鳥" / "0.png", "--out", out) == 0
    assert next(csv.DictReader(out.open(encoding="utf-8")))["class"] in CLASSES
    assert vmt("evaluate", run) == 0
    assert "of 30 samples" in capsys.readouterr().out
    assert vmt("train", "--resume", run, "--image-size", 8, 12) == 0
    assert json.loads((run / "run.json").read_text())["data"]["image_size"] == [8, 12]
    save(source / "кошка" / "new.png", picture(1, 77))
    assert vmt("train", "--resume", run) == 2
    assert str(run) in capsys.readouterr().err


def test_a_method_that_trains_on_target_labels_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = class_folders(tmp_path / "a"), class_folders(tmp_path / "b", shade=50)
    flags = ["--source", source, "--target", target, "--out", tmp_path / "run", *SHORT, "--no-cache"]
    assert vmt("train", *flags, "--method", "target_only") == 0
    output = capsys.readouterr().out
    assert "evaluation only" not in output
    assert "target_only trains on target labels" in output
    assert not (tmp_path / "cache").exists()


def test_one_unreadable_picture_in_a_thousand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = class_folders(tmp_path / "a", 4), unlabelled_folder(tmp_path / "b", 1000)
    (target / "417.png").write_bytes((target / "417.png").read_bytes()[:90])
    run = tmp_path / "run"
    assert vmt("train", "--source", source, "--target", target, "--out", run, *SHORT) == 0
    output = capsys.readouterr().out
    assert "1 of the 1000 pictures of" in output
    assert "417.png (damaged)" in output
    assert "999 of the target to train on" in output
    assert vmt("predict", run, target, "--out", tmp_path / "out.csv") == 0
    assert "417.png (damaged)" in capsys.readouterr().err
    assert len((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()) == 1000


def test_a_table_to_a_model(tmp_path: Path) -> None:
    for name, shift in (("a.csv", 0), ("b.csv", 1)):
        rows = "".join(f"{i % 7 + shift},{i % 3},{'да' if i % 2 else 'no way'}\n" for i in range(40))
        (tmp_path / name).write_text("x,z,answer\n" + rows, encoding="utf-8")
    flags = ["--label", "answer", "--out", tmp_path / "run", "--iterations", 20, "--batch-size", 8, "--dirt-t"]
    assert vmt("train", "--source", tmp_path / "a.csv", "--target", tmp_path / "b.csv", *flags) == 0
    assert tuple(load(tmp_path / "run").classes) == ("no way", "да")
    refine = json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]["dirt_t"]
    assert (refine["iterations"], refine["interval"]) == (20, 2), "DIRT-T is as long as the method before it"


def bad_target(folder: Path, fault: str) -> None:
    if fault == "empty":
        folder.mkdir()
    elif fault == "strange class":
        class_folders(folder, 2, [*CLASSES, "a strange fish"])
    elif fault == "giant":
        giant_png(folder / "giant.png")
    elif fault == "loop":
        folder.mkdir()
        (folder / "loop").symlink_to(folder)
    elif fault == "unreadable":
        for path in unlabelled_folder(folder, 12).iterdir():
            path.write_bytes(b"GIF89a")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("empty", "no pictures"),
        ("missing", "does not exist"),
        ("strange class", "'a strange fish'"),
        ("giant", "giant.png (too large)"),
        ("loop", "no pictures"),
        ("unreadable", "12 of the 12 pictures"),
    ],
)
def test_bad_own_data(tmp_path: Path, fault: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    bad_target(tmp_path / "b", fault)
    assert vmt("train", "--source", class_folders(tmp_path / "a", 3), "--target", tmp_path / "b") == 2
    output = capsys.readouterr().err
    assert len(output.strip().splitlines()) == 1
    assert output.startswith("vmt: ")
    assert says in output
    assert str(tmp_path / "b") in output


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--image-size", 1, 2, 3], "3 numbers"),
        (["--image-size", 4], "5 pixels or more"),
        (["--channels", 2], "--channels"),
        (["digits", "--image-size", 8], "leave"),
        (["--source"], "--target is missing"),
        (["--target"], "--source is missing"),
    ],
)
def test_bad_flags(tmp_path: Path, flags: list[object], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = [] if "digits" in flags else ["--source", class_folders(tmp_path / "a", 3), "--target", tmp_path / "a"]
    if flags[0] in ("--source", "--target"):  # one of the two alone
        own = [tmp_path / "a"]
    assert vmt("train", *flags, *own) == 2
    assert says in capsys.readouterr().err


def test_a_warning_about_few_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = class_folders(tmp_path / "a", 12, CLASSES[:2]), unlabelled_folder(tmp_path / "b", 3)
    save(source / "rare" / "one.png", picture(1, 5))
    assert vmt("train", "--source", source, "--target", target, "--out", tmp_path / "run", *SHORT) == 0
    output = capsys.readouterr().out
    assert "rare (1)\n" in output
    assert "target has only 3 samples" in output


def test_a_folder_with_spaces_can_be_copied_and_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, run = class_folders(tmp_path / "a", 4), tmp_path / "my run"
    assert vmt("train", "--source", source, "--target", source, "--out", run, *SHORT) == 0
    assert f"vmt report '{run}' -o report.html" in capsys.readouterr().out
    assert vmt("train", "--source", source, "--target", source, "--out", run, *SHORT) == 2
    output = capsys.readouterr()
    assert str(run) in output.err
    assert not output.out, "refused before anything is read"


def test_a_run_started_in_another_folder_finds_its_data_or_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "begun").mkdir()
    class_folders(tmp_path / "begun" / "a", 4)
    monkeypatch.chdir(tmp_path / "begun")
    assert vmt("train", "--source", "a", "--target", "a", "--out", "../run", *SHORT) == 0
    monkeypatch.chdir(tmp_path)
    assert vmt("train", "--resume", "run") == 0
    assert vmt("report", "run", "-o", "report.html") == 0
    (tmp_path / "begun").rename(tmp_path / "moved")
    assert vmt("train", "--resume", "run") == 2
    output = capsys.readouterr().err.splitlines()[-1]
    assert "a (--source)" in output
    assert str(tmp_path) in output


def test_a_warning_is_a_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = class_folders(tmp_path / "a", 4)
    still = ["--net", "tests.user_modules:still", "--iterations", "2", "--batch-size", "8", "--device", "cpu"]
    assert vmt("train", "--source", source, "--target", source, "--out", tmp_path / "run", *still) == 0
    (output,) = (line for line in capfd.readouterr().err.splitlines() if "--xi" in line)
    assert output.startswith("vmt: ")
    assert "warn" not in output.lower(), "neither the category of the warning nor a line of code"
