"""An exported file says what its model says, and a file that would not is not written."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import vmt
from tests.own_data import write_blobs
from vmt.cli.main import main
from vmt.data import Task, digits_task, read_npz
from vmt.export import export, load_exported
from vmt.nets import from_module

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

ROOT = Path(__file__).parent.parent
NAMES = [f"número {k}" for k in range(10)]


@pytest.fixture(scope="module")
def digits() -> Task:
    return digits_task()


@pytest.fixture(scope="module")
def model(digits: Task) -> vmt.Model:
    """A CNN that has learned something, so that its probabilities are neither all alike nor all 0 or 1."""
    assert digits.source.y is not None
    source = digits.source.x, digits.source.y
    method = vmt.methods.vmt(radius=1.75).with_decay(0.8)
    return vmt.adapt(
        source, digits.target.x, method, net="tiny", classes=NAMES, iterations=25, batch_size=32, progress=False
    )


@pytest.fixture(scope="module")
def files(model: vmt.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model in both formats, checked on samples that it makes up."""
    folder = tmp_path_factory.mktemp("exported")
    for name in ("model.onnx", "model.pt2"):
        assert export(model, folder / name).difference <= 1e-4
    return folder


@pytest.fixture(scope="module")
def vector_model() -> tuple[vmt.Model, np.ndarray]:
    """Features of very different scale, so that preprocessing matters."""
    random = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = (random.standard_normal((200, 5)) + y[:, None]) * [1, 10, 100, 0.1, 1] + 3
    return vmt.adapt((x, y), x, iterations=20, batch_size=32, progress=False), x


def test_onnxruntime_alone_agrees_on_a_thousand_images(files: Path, model: vmt.Model, digits: Task) -> None:
    x = digits.target.x[:1000]
    session = onnxruntime.InferenceSession(files / "model.onnx")
    (probabilities,) = session.run(None, {"samples": x.permute(0, 2, 3, 1).numpy()})
    expected = model.predict_proba(x)
    assert len(expected) == 1000
    assert expected.max(1).mean() > 0.15, "a model that says nothing agrees with anything"
    np.testing.assert_allclose(probabilities, expected, atol=1e-4)


@pytest.mark.parametrize("format", ["onnx", "pt2"])
@pytest.mark.parametrize("count", [1, 7])
def test_any_number_of_images_of_any_size(files: Path, model: vmt.Model, digits: Task, format: str, count: int) -> None:
    exported = load_exported(files / f"model.{format}", trust=True)
    random = np.random.default_rng(0)
    for samples in (
        digits.target.x[:count],
        random.integers(0, 256, (count, 40, 11), dtype=np.uint8),
        random.integers(0, 256, (count, 9, 9, 1), dtype=np.uint8),
    ):
        np.testing.assert_allclose(exported.predict_proba(samples), model.predict_proba(samples), atol=1e-4)
        assert (exported.predict(samples) == model.predict(samples)).all()


@pytest.mark.parametrize("format", ["onnx", "pt2"])
def test_vectors(vector_model: tuple[vmt.Model, np.ndarray], tmp_path: Path, format: str) -> None:
    model, x = vector_model
    parity = export(model, tmp_path / f"model.{format}", samples=x)
    assert (parity.samples, parity.difference <= 1e-4) == (200, True)
    exported = load_exported(tmp_path / f"model.{format}", trust=True)
    for count in (1, 7, 200):
        np.testing.assert_allclose(exported.predict_proba(x[:count]), model.predict_proba(x[:count]), atol=1e-4)


def test_floating_point_colour_images(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, y = random.random((40, 12, 10, 3)).astype(np.float32), np.arange(40) % 2
    options = {"instance_norm": True}
    model = vmt.adapt((x, y), x, net="tiny", net_options=options, iterations=2, batch_size=8, progress=False)
    assert export(model, tmp_path / "model.onnx", samples=x).difference <= 1e-4
    exported = load_exported(tmp_path / "model.onnx")
    np.testing.assert_allclose(exported.predict_proba(x[..., :1]), model.predict_proba(x[..., :1]), atol=1e-4)
    with pytest.raises(vmt.InputError, match="rescale"):
        exported.predict((x * 255).astype(np.uint8))


def test_the_file_describes_itself(files: Path) -> None:
    session = onnxruntime.InferenceSession(files / "model.onnx")
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == NAMES
    described = json.loads(metadata["input"])
    assert (described["layout"], described["dtype"], described["range"]) == ("NHWC", "uint8", [0, 255])
    assert session.get_inputs()[0].shape == ["batch", "height", "width", 1]
    extra = {"vmt.json": ""}
    torch.export.load(files / "model.pt2", extra_files=extra)
    assert json.loads(json.loads(extra["vmt.json"])["classes"]) == NAMES


class Restless(nn.Module):
    """Random in evaluation mode too."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


@pytest.mark.parametrize("format", ["onnx", "pt2"])
def test_a_file_that_differs_from_its_model_is_not_written(tmp_path: Path, format: str) -> None:
    random = np.random.default_rng(0)
    x, y = random.standard_normal((40, 4)), np.arange(40) % 2
    net = from_module(nn.Sequential(nn.Linear(4, 8), Restless(), nn.Linear(8, 2)), classes=2)
    model = vmt.adapt((x, y), x, net=lambda: net, iterations=2, batch_size=8, progress=False)
    path = tmp_path / f"model.{format}"
    path.write_bytes(b"what was there before")
    with pytest.raises(vmt.InputError, match="probabilities"):
        export(model, path)
    assert [path.read_bytes()] == [file.read_bytes() for file in tmp_path.iterdir()] == [b"what was there before"]


def test_a_folder_that_is_not_there_is_named(model: vmt.Model, tmp_path: Path) -> None:
    for write, name in ((model.save, "model.safetensors"), (lambda path: vmt.export.export(model, path), "model.pt2")):
        with pytest.raises(vmt.InputError, match=name):
            write(tmp_path / "not" / name)


def test_an_onnx_file_names_no_path_of_the_machine_that_wrote_it(files: Path) -> None:
    content = (files / "model.onnx").read_bytes()
    assert str(Path(vmt.__file__).parent).encode() not in content
    assert b"site-packages" not in content


def test_what_is_wrong_is_said(files: Path, model: vmt.Model, tmp_path: Path) -> None:
    with pytest.raises(vmt.InputError, match=r"format 'tflite'.*onnx"):
        export(model, tmp_path / "model.tflite")
    with pytest.raises(vmt.InputError, match="channels"):
        load_exported(files / "model.onnx").predict(np.zeros((2, 9, 9, 3), np.uint8))
    for scale, remedy in ((1, "multiply it by 255"), (255, "round the input"), (300, "rescale it")):
        with pytest.raises(vmt.InputError, match=remedy):
            load_exported(files / "model.onnx").predict(scale * np.random.default_rng(0).random((2, 9, 9)))
    for suffix in ("onnx", "pt2"):
        damaged = tmp_path / f"damaged.{suffix}"
        damaged.write_bytes((files / f"model.{suffix}").read_bytes()[:3000])
        with pytest.raises(vmt.InputError, match=f"damaged.{suffix}"):
            load_exported(damaged, trust=True)
        with pytest.raises(vmt.InputError, match=r"vmt\.export\.load_exported"):
            vmt.load(files / f"model.{suffix}")
    with pytest.raises(vmt.InputError, match="CPU"):
        load_exported(files / "model.onnx", device="cuda")


def test_without_the_extra_a_sentence_says_what_to_install(
    model: vmt.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(vmt.InputError, match=r"pip install 'vmt\[export\]'"):
        export(model, tmp_path / "model.onnx")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on vectors of one's own."""
    folder = tmp_path_factory.mktemp("own")
    source, target = write_blobs(folder)
    flags = ["--iterations", "5", "--batch-size", "8", "--out", str(folder / "run")]
    assert main(["train", "--source", str(source), "--target", str(target), *flags]) == 0
    return folder / "run"


@pytest.mark.parametrize("format", ["onnx", "pt2"])
def test_from_a_run_to_predictions(run: Path, format: str, capsys: pytest.CaptureFixture[str]) -> None:
    samples = str(run.parent / "test.npz")
    assert main(["export", str(run), "--format", format, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert summary["checked_on"].endswith("target.npz")
    assert summary["difference"] <= 1e-4
    tables = []
    for model in (run, run / f"model.{format}"):
        assert main(["predict", str(model), samples, "--trust"]) == 0
        tables.append([line.split(",") for line in capsys.readouterr().out.splitlines()])
    assert tables[0][0] == tables[1][0]
    for one, other in zip(tables[0][1:], tables[1][1:], strict=True):
        assert one[:3] == other[:3]
        np.testing.assert_allclose([float(p) for p in one[3:]], [float(p) for p in other[3:]], atol=1e-4)
    assert len(tables[1]) == 1 + len(read_npz(Path(samples))[0])


def test_a_model_outlives_its_data(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moved = shutil.copytree(run, tmp_path / "moved")
    record = json.loads((moved / "run.json").read_text())
    record["data"]["target"] = "gone.npz"
    (moved / "run.json").write_text(json.dumps(record))
    assert main(["export", str(moved), "--out", str(tmp_path / "mine.pt2")]) == 0
    assert "random samples" in capsys.readouterr().out
    assert main(["export", str(moved), "--format", "onnx", "--out", str(tmp_path / "mine.pt2")]) == 2
    assert "mine.pt2" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "mine.pt2")]) == 2
    assert "exported" in capsys.readouterr().err


def test_the_example_needs_neither_torch_nor_this_library(files: Path, model: vmt.Model, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 20), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "grey.png")
    code = (
        "import sys, runpy; sys.modules.update(torch=None, vmt=None); sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    arguments = [ROOT / "examples" / "onnx_only.py", files / "model.onnx", tmp_path / "grey.png"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert NAMES[int(model.predict(pixels[None])[0])] in done.stdout


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", "--help"])
    assert ended.value.code == 0
    assert "vmt export runs/mine" in capsys.readouterr().out
