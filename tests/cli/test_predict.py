"""Predictions for files, folders, lists and standard input, batch by batch; unreadable samples are left out."""

import csv
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import vmt as vmt_package
from tests.own_data import command
from tests.own_pictures import CLASSES, class_folders, picture, save, unlabelled_folder
from tests.processes import start
from vmt.cli.main import main
from vmt.data.files import stream as module
from vmt.export import export

SHORT: dict[str, Any] = {"iterations": 3, "batch_size": 8, "device": "cpu", "progress": False}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of pictures in three kinds of file, and one of a table with named columns."""
    folder = tmp_path_factory.mktemp("models")
    x, y = np.stack([picture(i % 3, i) for i in range(30)]), np.arange(30) % 3
    model = vmt_package.adapt((x, y), x, net="tiny", classes=CLASSES, **SHORT)
    model.save(folder / "pictures.safetensors")
    for format in ("onnx", "pt2"):
        export(model, folder / f"pictures.{format}")
    rows = "".join(f"{i % 7},{i % 3},{'да' if i % 2 else 'no way'}\n" for i in range(40))
    (folder / "table.csv").write_text("height,width,label\n" + rows, encoding="utf-8")
    table = vmt_package.data.read_own(folder / "table.csv")
    vmt_package.adapt(table.domain, table.domain, classes=table.classes, **SHORT).save(folder / "table.safetensors")
    return folder


def predict(*arguments: object, given: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process, with these bytes on its standard input."""
    done = start("predict", *arguments, given=given).ended()
    assert b"Traceback" not in done.stderr
    return done


def rows_of(text: bytes | str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text if isinstance(text, str) else text.decode())))


@pytest.mark.parametrize("kind", ["safetensors", "onnx", "pt2"])
def test_a_folder_with_everything(models: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = class_folders(tmp_path / "in", 4)
    save(root / "deep" / "er" / "photo.JPG", picture(1, size=(40, 30)))
    np.save(root / "a.npy", np.stack([picture(2, i) for i in range(5)]))
    np.savez(root / "b.npz", x=np.stack([picture(0, i) for i in range(6)]))
    (root / "loop").symlink_to(root)
    (root / "notes.txt").write_text("")
    assert main(["predict", str(models / f"pictures.{kind}"), str(root), "--trust"]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert len(rows) == 12 + 1 + 5 + 6
    assert [row["index"] for row in rows if row["file"].endswith("a.npy")] == list("01234")
    assert {row["class"] for row in rows} <= set(CLASSES)
    # The same as one by one.
    assert main(["predict", str(models / f"pictures.{kind}"), str(root / "鳥" / "2.png"), "--trust"]) == 0
    (alone,) = rows_of(capsys.readouterr().out)
    (same,) = [row for row in rows if row["file"] == alone["file"]]
    assert [float(alone[f"p({c})"]) for c in CLASSES] == pytest.approx(
        [float(same[f"p({c})"]) for c in CLASSES], abs=2e-4
    )


def test_paths_on_standard_input_and_json_lines(models: Path, tmp_path: Path) -> None:
    root = unlabelled_folder(tmp_path / "a folder with spaces", 3)
    np.save(tmp_path / "x.npy", np.stack([picture(2, i) for i in range(2)]))
    lines = [root / "001.png", "", tmp_path / "gone.png", tmp_path / "x.npy", root]
    given = "\n".join(map(str, lines)).encode() + b"\n"
    done = predict(models / "pictures.safetensors", "-", "--format", "jsonl", given=given)
    assert done.returncode == 0
    records = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert [Path(record["file"]).name for record in records] == [
        "001.png", "x.npy", "x.npy", "000.png", "001.png", "002.png",
    ]  # fmt: skip
    assert set(records[0]["probabilities"]) == set(CLASSES)
    assert records[0] == records[4]
    assert "1 of 7 samples" in done.stderr.decode()
    assert "gone.png (missing)" in done.stderr.decode()
    empty = predict(models / "pictures.safetensors", "-", given=b"\n")
    assert (empty.returncode, empty.stdout) == (2, b"")
    assert "standard input" in empty.stderr.decode()


def test_a_list_of_pictures(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unlabelled_folder(tmp_path / "files", 3)
    (tmp_path / "list.csv").write_text("label,path\n?,files/002.png\n,files/000.png\n?,\n,files/gone.png\n")
    assert main(["predict", str(models / "pictures.onnx"), str(tmp_path / "list.csv")]) == 0
    output = capsys.readouterr()
    assert [Path(row["file"]).name for row in rows_of(output.out)] == ["002.png", "000.png"]
    assert "2 of 4 samples" in output.err
    assert "index 2 of" in output.err


def test_columns_are_found_by_their_names(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def probabilities(path: Path) -> list[list[str]]:
        assert main(["predict", str(models / "table.safetensors"), str(path)]) == 0
        return [list(row.values())[1:] for row in rows_of(capsys.readouterr().out)]

    (tmp_path / "a.csv").write_text("width;id;height\n1;x;5\n2;y;6\n")
    (tmp_path / "bare.csv").write_text("5,1\n6,2\n")
    parquet.write_table(
        pyarrow.table({"width": [1, 2], "label": ["?", "?"], "height": [5.0, 6.0]}), tmp_path / "a.parquet"
    )
    np.save(tmp_path / "a.npy", np.array([[5.0, 1.0], [6.0, 2.0]]))
    expected = probabilities(tmp_path / "a.npy")
    for name in ("a.csv", "bare.csv", "a.parquet"):
        assert probabilities(tmp_path / name) == expected, name
    (tmp_path / "b.csv").write_text("width,depth\n1,2\n")
    assert main(["predict", str(models / "table.safetensors"), str(tmp_path / "b.csv")]) == 2
    assert "height" in capsys.readouterr().err


def test_rows_on_standard_input(models: Path) -> None:
    done = predict(models / "table.safetensors", "-", given=b"height,width\n5,1\nx,2\n\nnan,3\n6,2\n")
    assert done.returncode == 0
    assert [row["index"] for row in rows_of(done.stdout)] == ["0", "3"]
    output = done.stderr.decode()
    assert all(words in output for words in ("index 1 of standard input", "'x'", "'height'", "index 2"))


def test_rows_of_a_wide_table_on_standard_input(tmp_path: Path) -> None:
    """Such a row is longer than any file name may be."""
    x = np.random.default_rng(0).normal(size=(20, 40))
    vmt_package.adapt((x, np.arange(20) % 2), x, **SHORT).save(tmp_path / "wide.safetensors")
    rows = "".join(",".join(map(str, row)) + "\n" for row in x)
    done = predict(tmp_path / "wide.safetensors", "-", given=rows.encode())
    assert done.returncode == 0, done.stderr
    assert len(rows_of(done.stdout)) == 20
    assert b"\r" not in done.stdout, "for awk and cut"


def test_unreadable_pictures_up_to_a_limit(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unlabelled_folder(tmp_path / "in", 40)
    for i in range(11):
        (root / f"{i + 20:03}.png").write_bytes(b"no picture")
    out = tmp_path / "out.csv"
    arguments = ["predict", str(models / "pictures.safetensors"), str(root), "--out", str(out)]
    assert main(arguments) == 2
    output = capsys.readouterr().err
    assert len(output.strip().splitlines()) == 1
    assert "020.png (damaged)" in output
    assert "--max-unreadable" in output
    assert not out.exists()
    assert main([*arguments, "--max-unreadable", "11", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unreadable"] == 11
    assert len(rows_of(out.read_text())) == 29
    only_bad = str(root / "020.png")
    assert main(["predict", str(models / "pictures.safetensors"), only_bad]) == 2
    assert "020.png (damaged)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "name", "says"),
    [
        ("pictures", "gone.png", "does not exist"),
        ("pictures", "empty", "no pictures"),
        ("pictures", "table.csv", "vectors"),
        ("pictures", "vectors.npy", "images"),
        ("table", "a.png", "vectors"),
        ("table", "wide.npy", "(N, 2)"),
        ("table", "empty.csv", "empty"),
        ("table", "endless.csv", "field larger than"),
        ("table", "damaged.parquet", "Parquet"),
    ],
)
def test_input_that_is_refused(
    models: Path, tmp_path: Path, model: str, name: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty.csv").write_text("\n")
    (tmp_path / "endless.csv").write_text("height,width\n1,2\n1," + "2" * 200_000 + "\n")
    whole = pyarrow.table({name: np.random.default_rng(0).random(5000) for name in ("height", "width")})
    parquet.write_table(whole, tmp_path / "damaged.parquet", compression="zstd")
    with (tmp_path / "damaged.parquet").open("r+b") as file:
        file.seek(9000)
        file.write(bytes(20_000))
    save(tmp_path / "a.png", picture(0))
    np.save(tmp_path / "vectors.npy", np.zeros((3, 4)))
    np.save(tmp_path / "wide.npy", np.zeros((3, 4)))
    assert main(["predict", str(models / f"{model}.safetensors"), str(tmp_path / name)]) == 2
    output = capsys.readouterr().err
    assert len(output.strip().splitlines()) == 1
    assert says in output
    assert name in output


def test_inputs_are_not_overwritten(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    table.write_text("height,width\n1,2\n")
    model = tmp_path / "table.safetensors"
    model.write_bytes((models / "table.safetensors").read_bytes())
    before = {path: path.read_bytes() for path in (table, model)}
    for given, out in ((table, table), (tmp_path, table), (table, model)):
        assert main(["predict", str(model), str(given), "--out", str(out)]) == 2
        assert str(out) in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (table, model)} == before
    assert main(["predict", str(model), str(table), "--out", str(tmp_path / "out.csv")]) == 0


@pytest.mark.parametrize("given", ["damaged.png", "table.csv", "vectors.npy"])
def test_refused_input_leaves_earlier_predictions(models: Path, tmp_path: Path, given: str) -> None:
    out = tmp_path / "out.csv"
    save(tmp_path / "good.png", picture(1))
    arguments = ["predict", str(models / "pictures.safetensors")]
    assert main([*arguments, str(tmp_path / "good.png"), "--out", str(out)]) == 0
    before = out.read_text()
    (tmp_path / "damaged.png").write_bytes(b"none")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    np.save(tmp_path / "vectors.npy", np.zeros((4, 3), np.float32))
    assert main([*arguments, str(tmp_path / given), "--out", str(out)]) == 2
    assert out.read_text() == before


@pytest.mark.parametrize("out", ["/dev/full", "nowhere/out.csv"])
def test_a_full_disk_and_a_missing_folder(
    models: Path, tmp_path: Path, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "x.png", picture(1))
    assert main(["predict", str(models / "pictures.safetensors"), str(path), "--out", str(tmp_path / out)]) == 2
    output = capsys.readouterr().err
    assert len(output.strip().splitlines()) == 1
    assert f"{tmp_path / out} cannot be written" in output
    assert (f"the folder {tmp_path / 'nowhere'} does not exist" in output) == out.startswith("nowhere")


def test_results_are_written_before_all_input_is_read(models: Path, tmp_path: Path) -> None:
    """The first batch comes out while the writer of the paths still waits."""
    path = save(tmp_path / "x.png", picture(1))
    process = subprocess.Popen(
        command("predict", models / "pictures.safetensors", "-"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{path}\n".encode() * 3 * module.BATCH)
    process.stdin.flush()
    lines = [process.stdout.readline() for _ in range(1 + module.BATCH)]
    assert lines[-1].decode().startswith(str(path))
    process.stdin.close()
    assert len(process.stdout.read().splitlines()) == 2 * module.BATCH
    assert process.wait(60) == 0


def test_evaluate_on_folders_lists_and_tables(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def evaluated(model: str, *arguments: object) -> dict[str, Any]:
        assert main(["evaluate", str(models / f"{model}.safetensors"), "--json", *map(str, arguments)]) == 0
        result: dict[str, Any] = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
        return result

    root = class_folders(tmp_path / "in", 4, CLASSES[1:])
    whole = evaluated("pictures", "--test", root)
    assert whole["samples"] == 8
    assert whole["per_class"][0] is None
    unlabelled_folder(root / "unlabelled", 3)
    assert evaluated("pictures", "--test", root) == whole, "samples without a label are left out"
    lines = [f"{path.relative_to(tmp_path)},{path.parent.name}" for path in sorted(root.rglob("?.png"))]
    (tmp_path / "list.csv").write_text("\n".join(["path,kind", *lines, f"{root}/鳥/0.png,"]), encoding="utf-8")
    assert evaluated("pictures", "--test", tmp_path / "list.csv", "--label", "kind") == whole
    x = np.stack([picture(n, i) for n in (0, 1) for i in range(4)])
    np.savez(tmp_path / "names.npz", x=x, y=np.repeat(CLASSES[1:], 4))
    np.savez(tmp_path / "numbers.npz", x=np.concatenate([x, x]), y=np.repeat([1, 2, -1], [4, 4, 8]))
    assert evaluated("pictures", "--test", tmp_path / "names.npz") == whole
    assert evaluated("pictures", "--test", tmp_path / "numbers.npz") == whole
    assert whole["classes"] == list(CLASSES)
    assert main(["evaluate", str(models / "pictures.safetensors"), "--test", str(tmp_path / "numbers.npz")]) == 0
    assert f"0 for {CLASSES[0]}" in capsys.readouterr().out
    (tmp_path / "b.csv").write_text("width,height,label\n1,2,да\n2,1,no way\n3,1,\n", encoding="utf-8")
    assert evaluated("table", "--test", tmp_path / "b.csv")["samples"] == 2
    for folder, says in (
        (unlabelled_folder(tmp_path / "heap", 3), "no labels"),
        (class_folders(root, 1, ["fish"]), "'fish'"),
    ):
        assert main(["evaluate", str(models / "pictures.safetensors"), "--test", str(folder)]) == 2
        assert says in capsys.readouterr().err


def test_evaluate_knows_the_column_that_a_run_was_trained_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, run = tmp_path / "a.csv", tmp_path / "run"
    table.write_text("height,width,kind\n" + "".join(f"{i % 7},{i % 3},{'ab'[i % 2]}\n" for i in range(40)))
    short = ["--iterations", 2, "--batch-size", 8, "--device", "cpu", "--out", run]
    assert main(list(map(str, ["train", "--source", table, "--target", table, "--label", "kind", *short]))) == 0
    assert main(["evaluate", str(run), "--test", str(table)]) == 0
    assert "of 40 samples" in capsys.readouterr().out
    assert main(["evaluate", str(run / "model.safetensors"), "--test", str(table)]) == 2
    output = capsys.readouterr().err
    assert "'label'" in output
    assert "--label" in output
