"""Networks that start from weights of elsewhere: files of weights, frozen statistics, and the recipe that follows."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import vmt
from tests.own_pictures import class_folders, unlabelled_folder
from vmt.cli.main import main
from vmt.data.framing import PictureFormat
from vmt.errors import InputError
from vmt.nets.factory import NetSpec
from vmt.nets.norm import BatchNorm
from vmt.nets.registry import with_defaults
from vmt.runs.spec import DataSpec

SHAPE, CLASSES = (3, 8, 8), 3


def backbone(classes: int = 5) -> nn.Sequential:
    """A small network of the kind that comes with weights for other classes."""
    body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(body, nn.Linear(4, classes))


SOURCE = """
from torch import nn

def make(pretrained=False):
    body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(body, nn.Linear(4, 5))

def plain():
    return make()

def ready():
    return make()

def complete():
    from vmt.nets import from_module
    return from_module(make(), classes=3)

def stages():
    return complete()

for each in (ready, stages):
    each.mean, each.std, each.size = (0.5, 0.4, 0.3), (0.2, 0.2, 0.2), 12
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "backbones.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "backbones", raising=False)


def trained() -> nn.Sequential:
    """The network with weights and statistics that no initialisation gives."""
    torch.manual_seed(3)
    module = backbone()
    with torch.no_grad():
        for tensor in module.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.5)
    return module


@pytest.mark.parametrize("kind", ["weights.safetensors", "plain.pt", "wrapped.pt", "parallel.pt"])
def test_weights_of_a_file_start_the_backbone(kind: str) -> None:
    state = trained().state_dict()
    if kind.endswith(".safetensors"):
        save_file(state, kind)
    elif kind == "wrapped.pt":
        torch.save({"epoch": 3, "state_dict": state}, kind)
    else:
        torch.save({("module." if kind == "parallel.pt" else "") + name: t for name, t in state.items()}, kind)
    net = NetSpec("backbones:make", SHAPE, CLASSES, {"weights": kind, "logit_norm": False}).build().eval()
    x = torch.rand(4, *SHAPE)
    assert torch.equal(net(x)["features"], trained()[0].eval()(x))
    assert net(x)["logits"].shape == (4, CLASSES)
    assert isinstance(net.stages["logits"], nn.Linear)


@pytest.mark.parametrize(
    ("change", "offender"),
    [
        ({"0.0.weight": None}, r"lacks '0\.0\.weight'"),
        ({"0.9.weight": torch.zeros(2)}, r"also has '0\.9\.weight'"),
        ({"0.0.weight": torch.zeros(4, 1, 3, 3)}, r"another shape of '0\.0\.weight'"),
    ],
)
def test_weights_of_another_network_are_refused(change: dict[str, Any], offender: str) -> None:
    state: dict[str, Any] = {**trained().state_dict(), **change}
    save_file({name: tensor for name, tensor in state.items() if tensor is not None}, "other.safetensors")
    with pytest.raises(InputError, match=offender):
        NetSpec("backbones:make", SHAPE, CLASSES, {"weights": "other.safetensors"}).build()


def test_files_that_hold_no_weights_are_refused() -> None:
    torch.save(trained(), "whole.pt")  # a pickled module runs code when it is loaded
    Path("text.safetensors").write_text("no")
    for path in ("whole.pt", "text.safetensors", "missing.pt"):
        with pytest.raises(InputError, match=path.replace(".", r"\.")):
            NetSpec("backbones:make", SHAPE, CLASSES, {"weights": path}).build()


@pytest.mark.parametrize(
    ("name", "options", "offender"),
    [
        ("tiny", {"pretrained": True}, "tiny.*timm"),
        ("backbones:plain", {"pretrained": True}, "backbones:plain.*pretrained"),
        ("torchvision:resnet18", {"depth": 3}, "depth|torchvision"),
        ("tiny", {"bottleneck": 8}, "bottleneck"),
        ("backbones:complete", {"bottleneck": 8}, "bottleneck"),
    ],
)
def test_options_that_a_network_does_not_have_are_refused(name: str, options: dict[str, Any], offender: str) -> None:
    with pytest.raises(InputError, match=offender):
        NetSpec(name, SHAPE, CLASSES, options).build()


def test_frozen_statistics_are_used_in_training_and_stay() -> None:
    save_file(trained().state_dict(), "weights.safetensors")
    options = {"weights": "weights.safetensors", "freeze_statistics": True, "logit_norm": True}
    net = NetSpec("backbones:make", SHAPE, CLASSES, options).build().train()
    norms = [layer for layer in net.modules() if isinstance(layer, BatchNorm)]
    assert [norm.frozen for norm in norms] == [True, False]  # not that of the logits
    x = 3 * torch.rand(6, *SHAPE)
    assert torch.equal(net(x)["features"], trained()[0].eval()(x))
    assert torch.equal(norms[0].running_mean, trained()[0][1].running_mean)  # type: ignore[arg-type]


def test_a_bottleneck_is_part_of_the_last_stage() -> None:
    """So it learns at the rate of the head, and its statistics are those of the batch."""
    options = {"bottleneck": 8, "freeze_statistics": True, "logit_norm": False}
    net = NetSpec("backbones:make", SHAPE, CLASSES, options).build().train()
    x = torch.rand(6, *SHAPE)
    taps = net(x)
    assert taps["hidden"].shape == (6, 4)
    assert taps["logits"].shape == (6, CLASSES)
    norms = [layer for layer in net.stages["logits"].modules() if isinstance(layer, BatchNorm)]
    assert [(len(norm.weight), norm.frozen) for norm in norms] == [(8, False)]
    with pytest.raises(InputError, match="bottleneck"):
        NetSpec("backbones:make", SHAPE, CLASSES, {"bottleneck": -1}).build()


def test_a_package_network_from_weights_stays_as_it_is() -> None:
    assert with_defaults("tiny", {"weights": "w.safetensors"}) == {"logit_norm": False, "weights": "w.safetensors"}


def test_a_run_from_a_file_of_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The recipe for pretrained weights, in the record; the model has its own weights and needs the file no more."""
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (40, 8, 8, 3), np.uint8), np.arange(40) % CLASSES
    np.savez("a.npz", x=x, y=y)
    np.savez("b.npz", x=x)
    save_file(trained().state_dict(), "weights.safetensors")
    run = ["train", "--source", "a.npz", "--target", "b.npz", "--net", "backbones:make", "--weights"]
    run += ["weights.safetensors", "--batch-size", "8", "--validate-samples", "0", "--device", "cpu", "--out", "run"]
    assert main([*run, "--iterations", "3", "--method", "mcc"]) == 0
    printed = capsys.readouterr().out
    assert "sgd, learning rate 0.01 (inverse)" in printed
    assert "--no-freeze-statistics" in printed
    assert "--head-first" in printed
    recipe = json.loads(Path("run/run.json").read_text())["recipe"]
    assert recipe["net_options"] == {
        "logit_norm": False,
        "bottleneck": 256,
        "freeze_statistics": True,
        "weights": "weights.safetensors",
    }
    assert recipe["settings"]["head_first"] == 0.4
    assert recipe["balance_classes"] is True
    assert recipe["settings"]["backbone_rate"] == 0.1
    assert list(json.loads(Path("run/summary.json").read_text())["phases"]) == ["head", "mcc"]
    Path("weights.safetensors").unlink()
    model = vmt.load("run", network="backbones:make", device="cpu")
    assert model.predict(x).shape == (40,)
    assert load_file("run/model.safetensors")["stages.logits.0.0.weight"].shape == (256, 4)


def test_a_function_that_says_what_its_weights_expect() -> None:
    """It returns pretrained weights: pictures get their size, mean and std, and the run has the recipe for them."""
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (40, 16, 16, 3), np.uint8), np.arange(40) % CLASSES
    short: dict[str, Any] = {
        "iterations": 2,
        "batch_size": 8,
        "validate_samples": 0,
        "device": "cpu",
        "progress": False,
    }
    model = vmt.adapt((x, y), x, "source_only", net="backbones:ready", out="run", **short)
    assert model.preprocess.mean == (0.5, 0.4, 0.3)
    assert model.preprocess.size == (12, 12)
    assert model.spec.options == {"logit_norm": False, "bottleneck": 256, "freeze_statistics": True}
    assert json.loads(Path("run/run.json").read_text())["recipe"]["settings"]["optimiser"] == "sgd"


@pytest.mark.parametrize("command_line", [True, False])
def test_a_ready_network_of_named_stages_gets_no_bottleneck(command_line: bool) -> None:
    """It is complete, so that a default that it cannot have is not asked of it."""
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (40, 16, 16, 3), np.uint8), np.arange(40) % CLASSES
    if command_line:
        np.savez("a.npz", x=x, y=y)
        np.savez("b.npz", x=x)
        run = [
            "train",
            "--source",
            "a.npz",
            "--target",
            "b.npz",
            "--net",
            "backbones:stages",
            "--method",
            "source_only",
        ]
        short = ["--iterations", "2", "--batch-size", "8", "--validate-samples", "0", "--device", "cpu", "--out", "run"]
        assert main([*run, *short]) == 0
    else:
        made: dict[str, Any] = {"batch_size": 8, "validate_samples": 0, "device": "cpu", "progress": False}
        vmt.adapt((x, y), x, "source_only", net="backbones:stages", iterations=2, out="run", **made)
    recipe = json.loads(Path("run/run.json").read_text())["recipe"]
    assert recipe["net_options"] == {"logit_norm": False, "bottleneck": 0, "freeze_statistics": True}
    assert vmt.load("run", network="backbones:stages", device="cpu").predict(x).shape == (40,)


def test_a_fine_tuned_model_is_refined_whole(tmp_path: Path) -> None:
    """Nothing of it is new, so no phase trains the head alone."""
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (40, 16, 16, 3), np.uint8), np.arange(40) % CLASSES
    short: dict[str, Any] = {"batch_size": 8, "validate_samples": 0, "device": "cpu", "progress": False}
    vmt.adapt((x, y), x, "mcc", net="backbones:ready", iterations=3, out="run", **short)
    np.savez("b.npz", x=x)
    run = ["train", "--from", "run", "--target", "b.npz", "--net", "backbones:ready", "--iterations", "3"]
    assert main([*run, "--batch-size", "8", "--validate-samples", "0", "--device", "cpu", "--out", "refined"]) == 0
    assert list(json.loads(Path("refined/summary.json").read_text())["phases"]) == ["dirt_t"]


def test_the_candidates_of_auto_read_pictures_as_their_weights_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmt.runs.auto.TRAINED", {"source_only": 1.0})
    class_folders(Path("source"), each=6)
    unlabelled_folder(Path("target"), count=12)
    run = ["train", "--source", "source", "--target", "target", "--method", "auto", "--net", "backbones:ready"]
    assert main([*run, "--iterations", "2", "--batch-size", "4", "--device", "cpu", "--out", "run"]) == 0
    model = vmt.load("run", network="backbones:ready", device="cpu")
    assert (model.preprocess.mean, model.preprocess.size) == ((0.5, 0.4, 0.3), (12, 12))


def test_pictures_are_read_as_weights_expect_unless_something_else_was_asked_for() -> None:
    expected = PictureFormat((12, 12), (0.5,), (0.2,), "bicubic", 0.9)
    asked = DataSpec(task="pacs-photo-art", crop=1.0).expecting(expected)
    assert asked == DataSpec(
        task="pacs-photo-art", image_size=[12, 12], mean=[0.5], std=[0.2], interpolation="bicubic", crop=1.0
    )
    assert DataSpec(task="mnist-svhn").expecting(expected) == DataSpec(task="mnist-svhn")


def test_networks_of_timm(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    options = {"logit_norm": False, "freeze_statistics": True}
    net = NetSpec("timm:resnet10t", (3, 64, 64), CLASSES, options).build()
    assert net(torch.zeros(2, 3, 64, 64))["logits"].shape == (2, CLASSES)


def test_networks_of_torchvision() -> None:
    pytest.importorskip("torchvision")
    net = NetSpec("torchvision:resnet18", (3, 64, 64), CLASSES, {"logit_norm": False}).build()
    assert net(torch.zeros(2, 3, 64, 64))["logits"].shape == (2, CLASSES)
