"""A network that a user's function builds, from training to export, and networks of timm."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import vmt as package
from tests.docs.documented import ROOT, blocks
from tests.own_data import write_blobs
from tests.own_pictures import CLASSES, class_folders, unlabelled_folder
from tests.processes import vmt
from vmt.cli.main import main
from vmt.nets.factory import NetSpec, factory_name

NETS = '''
from torch import nn

def make(classes, shape, width=6):
    """A small CNN with the usual layers."""
    return nn.Sequential(
        nn.Conv2d(shape[0], width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.Dropout(0.2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes),
    )

def dense(classes, shape):
    return nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, classes))

def lazy(classes, shape):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(9), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(classes))

def convolution(classes, shape):
    return nn.Sequential(nn.Conv2d(7, 4, 3), nn.Flatten(), nn.Linear(4, classes))

def too_few(classes, shape):
    from vmt.nets import Staged
    return Staged({"features": nn.Flatten(), "hidden": nn.Identity(), "logits": nn.LazyLinear(classes - 1)})

def certain(classes, shape):
    return nn.Sequential(nn.Linear(shape[0], classes), nn.Softmax(-1))

class Tempered(nn.Module):
    """Changes the output of its last layer."""
    def __init__(self, classes, shape):
        super().__init__()
        self.head = nn.Linear(shape[0], classes)
    def forward(self, x):
        return self.head(x) / 2

class Pair(Tempered):
    def forward(self, x):
        return self.head(x), x

def nothing(classes, shape):
    return None

def plain():
    """Needs no sizes."""
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 3))

def broken(classes, shape):
    raise RuntimeError("out of ideas")

number = 7
'''
FLAGS = ["--iterations", "6", "--batch-size", "8", "--checkpoint-every", "2", "--device", "cpu"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_modules: None) -> Path:
    """A current folder with a user's package."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "nets.py").write_text(NETS)
    (tmp_path / "mine" / "bad.py").write_text("import no_such_package\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def tensors(path: Path) -> dict[str, np.ndarray]:
    with safe_open(path, framework="np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)


def test_train_resume_load_predict_evaluate_export(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = class_folders(here / "a"), unlabelled_folder(here / "b", 12)
    run = here / "run"
    own = ["--net", "mine.nets:make"]
    # In a new process, whose sys.path does not have the current folder.
    done = vmt("train", "--source", source, "--target", target, "--out", run, "--net", "module:mine.nets.make", *FLAGS)
    assert done.returncode == 0, done.stderr
    assert "mine.nets:make" in done.stdout
    assert f"vmt report {run}" in done.stdout
    finished = tensors(run / "model.safetensors")
    # Nothing is imported because a file says so, and the message says what to add.
    for command in (
        ["predict", run, target],
        ["evaluate", run, "--test", source],
        ["export", run],
        ["train", "--resume", run],
    ):
        capsys.readouterr()
        assert main([str(a) for a in command]) == 2
        assert "--net mine.nets:make" in capsys.readouterr().err
    assert "mine.nets" not in sys.modules
    # Resumed in the middle, the run has the same result.
    again = shutil.copytree(run, here / "again")
    for name in ("model.safetensors", "summary.json"):
        (again / name).unlink()
    shutil.rmtree(again / "checkpoints" / "step-000000006")
    assert main(["train", "--resume", str(again), *own]) == 0
    for name, tensor in tensors(again / "model.safetensors").items():
        np.testing.assert_array_equal(tensor, finished[name])
    capsys.readouterr()
    assert main(["evaluate", str(run), "--test", str(source), *own]) == 0
    assert "of 30 samples" in capsys.readouterr().out
    # A report says what is missing, and what to add.
    for flags, words in (([], "--net mine.nets:make"), (own, '"origin":"the finished model"')):
        assert main(["report", str(run), "-o", str(here / "r.html"), "--map", "none", *flags]) == 0
        assert words in (here / "r.html").read_text()
    assert main(["report", str(run), "-o", str(here / "r.html"), "--net", "mine.nets:dense"]) == 2
    printed = capsys.readouterr().err
    assert "mine.nets:dense" in printed
    assert "mine.nets:make" in printed
    rows = []
    for model, flags in ((run, own), (run / "model.onnx", []), (run / "model.pt2", ["--trust"])):
        if model is not run:
            assert main(["export", str(run), "--out", str(model), *own]) == 0
        capsys.readouterr()
        assert main(["predict", str(model), str(target), *flags]) == 0
        rows.append([line.split(",") for line in capsys.readouterr().out.splitlines()])
    for other in rows[1:]:
        assert [row[:3] for row in other] == [row[:3] for row in rows[0]]
        p, q = (np.array([row[3:] for row in table[1:]], float) for table in (rows[0], other))
        np.testing.assert_allclose(p, q, atol=1e-4)
    assert tuple(package.load(run, network="mine.nets:make").classes) == CLASSES
    with pytest.raises(package.InputError, match=r"mine\.nets:make.*mine\.nets:dense"):
        package.load(run, network="mine.nets:dense")


def test_from_python_and_through_the_estimator(here: Path) -> None:
    random = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = random.standard_normal((60, 4)) + 2 * y[:, None]
    short = {"iterations": 3, "batch_size": 8}
    model = package.adapt((x, y), x, net="mine.nets:dense", progress=False, **short)  # type: ignore[arg-type]
    model.save(here / "model.safetensors")
    again = package.load(here / "model.safetensors", network="mine.nets:dense")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    images = random.integers(0, 256, (30, 9, 9), dtype=np.uint8)
    classifier = package.VMTClassifier(net="mine.nets:make", net_options={"width": 3}, **short)  # type: ignore[arg-type]
    assert classifier.fit(images, y[:30]).predict(images).shape == (30,)
    classifier.model_.save(here / "images.safetensors")
    loaded = package.load(here / "images.safetensors", network="mine.nets:make")
    assert loaded.spec.options == {"width": 3}
    np.testing.assert_array_equal(loaded.predict(images), classifier.model_.predict(images))


@pytest.mark.parametrize(
    ("net", "says"),
    [
        ("mine.nest:make", "'mine.nest'"),
        ("yours:make", "'yours'"),
        ("mine.bad:make", "'no_such_package'"),
        ("mine.nets:mak", "perhaps make?"),
        ("mine.nets:number", "'number'"),
        ("mine.nets:", "'mine.nets:'"),
        ("mine.nets:nothing", "NoneType"),
        ("mine.nets:broken", "out of ideas (RuntimeError in nets.py, line"),
        ("mine.nets:convolution", "shape (8,)"),
        ("mine.nets:certain", "Softmax"),
        ("mine.nets:Tempered", "mine.nets:Tempered"),
        ("mine.nets:Pair", "a tuple"),
        ("mine.nets:too_few", "(2, 2)"),
        ("smal", "perhaps small?"),
    ],
)
def test_invalid_networks_are_refused_before_anything_is_written(
    here: Path, net: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = write_blobs(here)
    arguments = ["train", "--source", str(source), "--target", str(target), "--out", str(here / "run"), "--net", net]
    assert main([*arguments, *FLAGS]) == 2
    printed = capsys.readouterr().err
    assert len(printed.strip().splitlines()) == 1
    assert says in printed
    assert not (here / "run").exists()


def test_lazy_layers_learn_their_sizes(here: Path) -> None:
    network = NetSpec("mine.nets:lazy", (3, 8, 8), 4).build()
    assert tuple(network(torch.zeros(2, 3, 8, 8))["logits"].shape) == (2, 4)
    assert not network.separate_passes


def test_a_function_gets_the_arguments_that_it_has_parameters_for(here: Path) -> None:
    """The same as for a function that is passed in Python."""
    assert tuple(NetSpec("mine.nets:plain", (4,), 3).build()(torch.zeros(2, 4))["logits"].shape) == (2, 3)


def test_the_function_of_the_documentation(here: Path) -> None:
    (block,) = (block for block in blocks(ROOT / "docs" / "networks.md", "python") if "def make" in block)
    (here / "mine" / "documented.py").write_text(block)
    taps = NetSpec("mine.documented:make", (3, 28, 28), 10).build()(torch.zeros(4, 3, 28, 28))
    assert tuple(taps["logits"].shape) == (4, 10)


def test_the_ways_to_write_a_name() -> None:
    assert factory_name("module:a.b.make") == factory_name("module:a.b:make") == factory_name("a.b:make") == "a.b:make"
    assert factory_name("small") is factory_name("timm:resnet18") is None


@pytest.mark.parametrize("name", ["timm:resnet18", "timm:no_such_network"])
def test_timm_is_asked_for_only_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(package.InputError, match="pip install timm"):
        NetSpec(name, (3, 32, 32), 10).build()
