"""The folder of vmt.adapt: resumed with the settings it was started with, never overwritten, read by the commands."""

import json
import os
import shutil
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import vmt
from vmt.cli.main import main
from vmt.errors import InputError
from vmt.runs.run import carry_out

Y = np.arange(80) % 2
X = np.random.default_rng(0).normal(size=(80, 3)) + 4 * Y[:, None]


def adapt(out: Path, **changed: Any) -> vmt.Model:
    arguments = {"source": (X, Y), "target": X + 0.5, "iterations": 6, "out": out, "progress": False, **changed}
    return vmt.adapt(**arguments)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "mine"
    adapt(folder)
    return folder


@pytest.fixture(scope="module")
def as_in_the_paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "papers"
    adapt(folder, method=vmt.methods.vmt())
    return folder


def test_resuming_a_finished_run_changes_nothing(started: Path) -> None:
    model = adapt(started, resume=True)
    np.testing.assert_array_equal(vmt.load(started, device="cpu").predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    ("changed", "output"),
    [
        ({}, "already holds a run"),
        ({"resume": True, "target": X + 0.6}, "data of .* have changed"),
        ({"resume": True, "iterations": 9}, "iterations vmt 6, not 9"),
        ({"resume": True, "seed": 1}, "seed 0, not 1"),
        ({"resume": True, "method": vmt.methods.dann()}, "method vmt, not dann"),
        ({"resume": True, "method": vmt.methods.vmt(lambda_t=0.5)}, "weights vmt/classifier/"),
        ({"resume": True, "precision": "bfloat16"}, "precision auto, not bfloat16"),
        ({"resume": True, "keep_best": "im"}, "keep_best None, not im"),
    ],
)
def test_another_run_is_refused(started: Path, changed: dict[str, Any], output: str) -> None:
    before = {path: path.read_bytes() for path in started.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(InputError, match=output):
        adapt(started, **changed)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("settings", "output"),
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
def test_a_setting_that_is_not_a_weight_counts_as_well(
    as_in_the_paper: Path, settings: dict[str, Any], output: str
) -> None:
    with pytest.raises(InputError, match=output):
        adapt(as_in_the_paper, method=vmt.methods.vmt(**settings), resume=True)
    assert adapt(as_in_the_paper, method=vmt.methods.vmt(), resume=True)


def test_the_temperature_of_mcc_counts_as_well(tmp_path: Path) -> None:
    adapt(tmp_path, method=vmt.methods.mcc())
    with pytest.raises(InputError, match=r"temperature 2\.5, not 2\.0"):
        adapt(tmp_path, method=vmt.methods.mcc(temperature=2.0), resume=True)
    assert adapt(tmp_path, method=vmt.methods.mcc(), resume=True)


def own_net(width: int, more: int = 0) -> nn.Module:
    layers = [nn.Linear(3, width), nn.BatchNorm1d(width), *(nn.Linear(width, width) for _ in range(more))]
    return nn.Sequential(*layers, nn.Dropout(0.1), nn.Linear(width, 2))


@pytest.mark.parametrize("changed", [{"width": 8}, {"width": 1, "more": 1}])
def test_another_user_defined_network_is_refused(tmp_path: Path, changed: dict[str, int]) -> None:
    """Also one that weights of width 1 could be copied into, each of them many times."""
    adapt(tmp_path, net=lambda: own_net(1))
    with pytest.raises(InputError, match="another network or method"):
        adapt(tmp_path, net=lambda: own_net(**changed), resume=True)
    assert adapt(tmp_path, net=lambda: own_net(1), resume=True)


def test_a_run_of_an_earlier_version_is_resumed(started: Path, tmp_path: Path) -> None:
    """It has the identity in a file of its own, and not all that is recorded today."""
    shutil.copytree(started, tmp_path / "run")
    record = tmp_path / "run" / "run.json"
    identity = json.loads(record.read_text())["identity"]
    record.unlink()
    earlier = {name: value for name, value in identity.items() if name != "terms"}
    (tmp_path / "run" / "adapt.json").write_text(json.dumps(earlier))
    with pytest.raises(InputError, match="seed 0, not 1"):
        adapt(tmp_path / "run", resume=True, seed=1)
    assert adapt(tmp_path / "run", resume=True)
    assert json.loads(record.read_text())["identity"] == identity


def test_a_model_whose_checkpoints_were_removed_is_not_overwritten(started: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    model.write_bytes((started / "model.safetensors").read_bytes())
    for resume in (False, True):
        with pytest.raises(InputError, match="holds a model"):
            adapt(tmp_path, resume=resume)
    assert model.read_bytes() == (started / "model.safetensors").read_bytes()


def test_select_and_report_read_the_folder(started: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", str(started), "--json"]) == 0
    (ranked,) = json.loads(capsys.readouterr().out)["ranking"]
    assert ranked["file"] == str(started / "model.safetensors")
    np.savez(tmp_path / "source.npz", x=X, y=Y)
    np.savez(tmp_path / "target.npz", x=X + 0.5)
    page = tmp_path / "report.html"
    places = ["--source", str(tmp_path / "source.npz"), "--target", str(tmp_path / "target.npz")]
    assert main(["report", str(started), "-o", str(page), "--map", "none", *places]) == 0
    with_samples = page.stat().st_size
    assert main(["report", str(started), "-o", str(page), "--map", "none"]) == 0, "without samples, the log is enough"
    assert page.stat().st_size < with_samples


def test_the_best_and_the_last_model_are_kept(tmp_path: Path) -> None:
    model = adapt(tmp_path, keep_best="entropy", iterations=12)
    step = model.about["best"]["step"]
    result, best, last = (
        vmt.load(tmp_path / name, device="cpu").predict_proba(X)
        for name in ("model.safetensors", "model_best.safetensors", "model_last.safetensors")
    )
    np.testing.assert_array_equal(result, model.predict_proba(X))
    np.testing.assert_array_equal(result, best)
    assert (step == 12) == np.array_equal(best, last)


def test_vmt_train_does_not_resume_samples_in_no_file(started: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", str(started)]) == 2
    assert "resume=True" in capsys.readouterr().err


def test_vmt_train_resumes_a_run_whose_inputs_were_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("source.npz", x=X, y=Y)
    np.savez("target.npz", x=X + 0.5)
    files: dict[str, Any] = {"source": "source.npz", "target": Path("target.npz"), "checkpoint_every": 2}
    files |= {"keep_best": "entropy", "evaluate_every": 2}
    whole = adapt(Path("whole"), **files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vmt.api.carry_out", partial(carry_out, budget=0.0))
        with pytest.raises(KeyboardInterrupt):
            adapt(Path("stopped"), **files)
    assert main(["train", "--resume", "stopped"]) == 0
    np.testing.assert_array_equal(vmt.load("stopped", device="cpu").predict_proba(X), whole.predict_proba(X))
    models = [{path.name for path in Path(run).glob("model*")} for run in ("stopped", "whole")]
    assert models[0] == models[1] == {"model.safetensors", "model_best.safetensors", "model_last.safetensors"}
    assert adapt(Path("whole"), resume=True, **files).predict_proba(X).shape == (80, 2)


@pytest.mark.parametrize(
    "given",
    [{"source": "source.npz"}, {"target": "target.npz"}, {"source": "a", "target": "b", "target_labels": [0, 1]}],
)
def test_paths_and_arrays_are_not_mixed(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"source|target"):
        adapt(tmp_path, **given)


def test_a_damaged_record_raises_a_clear_error(started: Path, tmp_path: Path) -> None:
    shutil.copytree(started, tmp_path / "run")
    for damage in ("[1]", "{", "1"):
        (tmp_path / "run" / "run.json").write_text(damage)
        with pytest.raises(InputError, match=r"run\.json"):
            adapt(tmp_path / "run", resume=True)


def test_a_run_that_was_refused_may_be_tried_again(tmp_path: Path) -> None:
    for resume in (False, True):
        with pytest.raises(InputError, match="target labels"):
            adapt(tmp_path, method=vmt.methods.target_only(), resume=resume)
    assert adapt(tmp_path)


def test_a_missing_device_leaves_no_run_behind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cuda:99"):
        adapt(tmp_path / "run", device="cuda:99")
    assert not (tmp_path / "run").exists()


def test_an_interrupted_run_leaves_a_checkpoint_and_no_model(tmp_path: Path) -> None:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt, match=r"stopped at iteration \d+ of 200000; .*resume=True"):
        adapt(tmp_path, iterations=200_000)
    assert list(tmp_path.glob("checkpoints/step-*"))
    assert not (tmp_path / "model.safetensors").exists()
    with pytest.raises(InputError, match=r"not finished.*resume=True"):
        vmt.load(tmp_path)
    (tmp_path / "model_vmt.safetensors").touch()  # as the first of two phases leaves it
    with pytest.raises(InputError, match=r"model_vmt\.safetensors"):
        vmt.load(tmp_path)
