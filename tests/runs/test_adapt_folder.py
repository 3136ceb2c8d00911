"""The folder of vmt.adapt: gone on with as it was begun, never written over."""

import json
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import vmt
from vmt.cli.main import main
from vmt.errors import InputError

Y = np.arange(80) % 2
X = np.random.default_rng(0).normal(size=(80, 3)) + 4 * Y[:, None]


def adapt(out: Path, **changed: Any) -> vmt.Model:
    arguments = {"source": (X, Y), "target": X + 0.5, "iterations": 6, "out": out, "progress": False, **changed}
    return vmt.adapt(**arguments)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "mine"
    adapt(folder)
    return folder


@pytest.fixture(scope="module")
def as_in_the_paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "papers"
    adapt(folder, method=vmt.methods.vmt())
    return folder


def test_going_on_with_a_finished_run_changes_nothing(begun: Path) -> None:
    model = adapt(begun, resume=True)
    np.testing.assert_array_equal(vmt.load(begun, device="cpu").predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "already holds a run: pass resume=True"),
        ({"resume": True, "target": X + 0.6}, "the data of .* have changed"),
        ({"resume": True, "iterations": 9}, "begun with iterations vmt 6, not 9"),
        ({"resume": True, "seed": 1}, "begun with seed 0, not 1"),
        ({"resume": True, "method": vmt.methods.dann()}, "begun with method vmt, not dann"),
        ({"resume": True, "method": vmt.methods.vmt(lambda_t=0.5)}, "begun with weights vmt/classifier/"),
        ({"resume": True, "precision": "bfloat16"}, "begun with precision auto, not bfloat16"),
        ({"resume": True, "keep_best": "im"}, "begun with keep_best None, not im"),
    ],
)
def test_another_run_is_refused(begun: Path, changed: dict[str, Any], said: str) -> None:
    before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(InputError, match=said):
        adapt(begun, **changed)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"optimiser": vmt.methods.nouns.Adam(lr=0.5)},
            r"optimisers vmt/discriminator Adam\(lr=0.001, .*, not Adam\(lr=0.5",
        ),
        ({"radius": 1.0}, r"terms vmt/classifier/L_v\(source\) radius 3.5, not 1.0"),
        ({"xi": 0.1}, r"terms vmt/classifier/L_v\(source\) xi None, not 0.1"),
        ({"alpha": 0.3}, r"terms vmt/classifier/L_m\(source\) alpha 1.0, not 0.3"),
        ({"mix": "probabilities"}, "loss virtual_mixup, not virtual_mixup_on_probabilities"),
    ],
)
def test_settings_that_are_no_weights_are_settings_all_the_same(
    as_in_the_paper: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        adapt(as_in_the_paper, method=vmt.methods.vmt(**settings), resume=True)
    assert adapt(as_in_the_paper, method=vmt.methods.vmt(), resume=True)


def own_net(width: int, more: int = 0) -> nn.Module:
    layers = [nn.Linear(3, width), nn.BatchNorm1d(width), *(nn.Linear(width, width) for _ in range(more))]
    return nn.Sequential(*layers, nn.Dropout(0.1), nn.Linear(width, 2))


@pytest.mark.parametrize("changed", [{"width": 8}, {"width": 1, "more": 1}])
def test_another_network_of_ones_own_is_refused(tmp_path: Path, changed: dict[str, int]) -> None:
    """Also one that weights of width 1 could be copied into, each of them many times."""
    adapt(tmp_path, net=lambda: own_net(1))
    with pytest.raises(InputError, match="of another network or method than this run's: they differ in"):
        adapt(tmp_path, net=lambda: own_net(**changed), resume=True)
    assert adapt(tmp_path, net=lambda: own_net(1), resume=True)


def test_a_run_of_an_earlier_version_goes_on(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun, tmp_path / "run")
    path = tmp_path / "run" / "adapt.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in record.items() if name != "terms"}))
    assert adapt(tmp_path / "run", resume=True)


def test_a_model_whose_checkpoints_were_removed_is_not_written_over(begun: Path, tmp_path: Path) -> None:
    kept = (tmp_path / "model.safetensors", (begun / "model.safetensors").read_bytes())
    kept[0].write_bytes(kept[1])
    for resume in (False, True):
        with pytest.raises(InputError, match="holds a model and no checkpoint to go on from"):
            adapt(tmp_path, resume=resume)
    assert kept[0].read_bytes() == kept[1]


@pytest.mark.parametrize("command", [["report"], ["select"], ["evaluate"], ["train", "--resume"]])
def test_commands_that_need_files_say_what_it_is(
    begun: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, str(begun)]) == 2
    assert f"{begun} holds a run of vmt.adapt" in capsys.readouterr().err


def test_a_damaged_record_is_a_sentence(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun, tmp_path / "run")
    for damage in ("[1]", "{", "1"):
        (tmp_path / "run" / "adapt.json").write_text(damage)
        with pytest.raises(InputError, match=r"adapt\.json cannot be read"):
            adapt(tmp_path / "run", resume=True)


def test_a_run_that_never_began_may_be_tried_again(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="trains on target labels"):
        adapt(tmp_path, method=vmt.methods.target_only())
    assert adapt(tmp_path)


def test_a_missing_device_leaves_no_run_behind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'cuda:99' is not there"):
        adapt(tmp_path / "run", device="cuda:99")
    assert not (tmp_path / "run").exists()


def test_half_a_training_is_no_model(tmp_path: Path) -> None:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt, match=r"stopped at iteration \d+ of 200000; go on with out=.*resume=True"):
        adapt(tmp_path, iterations=200_000)
    assert list(tmp_path.glob("checkpoints/step-*"))
    assert not (tmp_path / "model.safetensors").exists()
    with pytest.raises(InputError, match=r"is not finished: go on with .*resume=True"):
        vmt.load(tmp_path)
    (tmp_path / "model_vmt.safetensors").touch()  # as the first of two phases leaves it
    with pytest.raises(InputError, match=r"resume=True\. Until then there is .*model_vmt\.safetensors\."):
        vmt.load(tmp_path)
