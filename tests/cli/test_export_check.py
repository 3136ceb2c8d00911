"""``vmt export --check`` takes what ``vmt predict`` takes, and writes nothing if the samples are bad."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import vmt as vmt_package
from tests.own_pictures import CLASSES, picture, save, unlabelled_folder
from tests.processes import vmt
from vmt.cli.main import main

SHORT: dict[str, Any] = {"iterations": 3, "batch_size": 8, "device": "cpu", "progress": False}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of pictures as bytes, one of pictures in 0 to 1, and one of a table with named columns."""
    folder = tmp_path_factory.mktemp("models")
    x, y = np.stack([picture(i % 3, i) for i in range(30)]), np.arange(30) % 3
    for name, samples in (("pictures", x), ("unit", x / np.float32(255))):
        model = vmt_package.adapt((samples, y), samples, net="tiny", classes=CLASSES, **SHORT)
        model.save(folder / f"{name}.safetensors")
    rows = "".join(f"{i % 7},{i % 3},{i % 2}\n" for i in range(40))
    (folder / "table.csv").write_text("height,width,label\n" + rows)
    table = vmt_package.data.read_own(folder / "table.csv")
    vmt_package.adapt(table.domain, table.domain, classes=table.classes, **SHORT).save(folder / "table.safetensors")
    return folder


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of every kind, and files that are not samples."""
    folder = tmp_path_factory.mktemp("given")
    unlabelled_folder(folder / "pictures", 5)
    (folder / "pictures" / "damaged.png").write_bytes(b"no picture")
    np.save(folder / "pictures" / "larger.npy", np.stack([picture(2, i, size=(20, 17)) for i in range(4)]))
    save(folder / "one.png", picture(0))
    (folder / "list.csv").write_text("label,path\n?,pictures/002.png\n,pictures/000.png\n")
    np.savez(folder / "images.npz", x=np.stack([picture(1, i) for i in range(6)]))
    np.savez(folder / "images_of_none.npz", x=np.zeros((0, 12, 12, 3), np.uint8))
    np.savez(folder / "fractions.npz", x=np.full((2, 12, 12, 3), 7.5, np.float32))
    (folder / "rows.csv").write_text("width;id;height\n" + "1;x;5\n" * 2345)
    (folder / "kinds.tsv").write_text("width\tkind\theight\n1\t0\t5\n")
    (folder / "bare.csv").write_text("5,1,0\n6,2,1\n")
    parquet.write_table(pyarrow.table({"width": [1, 2, 3], "height": [5.0, 6.0, 7.0]}), folder / "rows.parquet")
    np.save(folder / "rows.npy", np.random.default_rng(0).normal(size=(1500, 2)))
    (folder / "other.csv").write_text("width,depth\n1,2\n")
    np.save(folder / "wide.npy", np.zeros((3, 4)))
    np.savez(folder / "no_x.npz", y=np.zeros((3, 4)))
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize(
    ("model", "name", "samples"),
    [
        ("pictures", "one.png", 1),
        ("pictures", "pictures", 9),
        ("pictures", "list.csv", 2),
        ("pictures", "images.npz", 6),
        ("unit", "one.png", 1),
        ("table", "rows.csv", 1000),
        ("table", "kinds.tsv", 1),
        ("table", "rows.parquet", 3),
        ("table", "rows.npy", 1000),
    ],
)
def test_samples_of_every_kind(
    models: Path, given: Path, tmp_path: Path, model: str, name: str, samples: int, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.pt2"
    arguments = ["export", str(models / f"{model}.safetensors"), "--out", str(out), "--check", str(given / name)]
    assert main([*arguments, "--json"]) == 0
    output = capsys.readouterr()
    summary = json.loads(output.out.strip().splitlines()[-1])
    assert (summary["samples"], summary["checked_on"]) == (samples, str(given / name))
    assert summary["difference"] <= 1e-4
    assert ("damaged.png (damaged)" in output.err) == (name == "pictures")
    assert out.is_file()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("pictures", "gone.png"),
        ("pictures", "empty"),
        ("pictures", "rows.csv"),
        ("pictures", "wide.npy"),
        ("pictures", "images_of_none.npz"),
        ("pictures", "pictures/damaged.png"),
        ("unit", "images.npz"),
        ("table", "one.png"),
        ("table", "other.csv"),
        ("table", "bare.csv"),
        ("table", "wide.npy"),
        ("table", "no_x.npz"),
    ],
)
def test_bad_samples_are_named_and_the_last_export_stays(
    models: Path, given: Path, tmp_path: Path, model: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.pt2"
    out.write_bytes(b"what was there before")
    arguments = ["export", str(models / f"{model}.safetensors"), "--out", str(out), "--check", str(given / name)]
    assert main(arguments) == 2
    output = capsys.readouterr().err
    assert len(output.strip().splitlines()) == 1
    assert name in output
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == {out: b"what was there before"}


def test_values_that_the_exported_file_refuses(
    models: Path, given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model resizes in floating point and takes them; the file reads bytes."""
    out = tmp_path / "model.pt2"
    out.write_bytes(b"what was there before")
    model, check = models / "pictures.safetensors", given / "fractions.npz"
    assert main(["export", str(model), "--out", str(out), "--check", str(check)]) == 2
    output = capsys.readouterr().err
    assert len(output.strip().splitlines()) == 1
    assert "round" in output
    assert out.read_bytes() == b"what was there before"


def test_a_column_that_is_not_a_feature_can_be_named(models: Path, tmp_path: Path) -> None:
    """A model without column names takes the other columns in their order."""
    x = np.random.default_rng(0).normal(size=(40, 2))
    model = tmp_path / "nameless.safetensors"
    vmt_package.adapt((x, np.arange(40) % 2), x, **SHORT).save(model)
    (tmp_path / "kinds.csv").write_text("height,kind,width\n1,a,5\n2,b,6\n")
    arguments = ["export", str(model), "--format", "pt2", "--check", str(tmp_path / "kinds.csv")]
    assert main(arguments) == 2
    assert main([*arguments, "--label", "kind"]) == 0


def test_paths_on_standard_input_as_a_process(models: Path, given: Path, tmp_path: Path) -> None:
    lines = "\n".join(str(given / name) for name in ("one.png", "gone.png", "images.npz")) + "\n"
    arguments = ("export", models / "pictures.safetensors", "--out", tmp_path / "model.pt2", "--check", "-", "--json")
    done = vmt(*arguments, given=lines.encode())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.strip().splitlines()[-1])["samples"] == 7
    assert "gone.png (missing)" in done.stderr


def test_the_help_shows_how_many_samples_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    assert "first 1,000 samples" in " ".join(capsys.readouterr().out.split())
