"""Labels of some target samples: for evaluation only or, on request, for training."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vmt
from tests.own_pictures import CLASSES, class_folders, picture, save, unlabelled_folder
from vmt.api import task_of
from vmt.cli.main import main
from vmt.data.files.own import ReadOptions, own_task, read_own
from vmt.errors import InputError
from vmt.methods.systems import METHODS, dirt_t, with_target_labels

pytestmark = pytest.mark.usefixtures("one_thread")

QUIET = ReadOptions(cache=False, progress=False)
SHORT = ["--iterations", "4", "--batch-size", "8", "--checkpoint-every", "2", "--net", "tiny", "--device", "cpu"]


def turned(n: int = 120) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two clusters, side by side in the source, above each other in the target: only labels tell which is which."""
    random = np.random.default_rng(0)
    y = np.arange(n) % 2
    x = np.stack([4.0 * y - 2, np.zeros(n)], 1) + 0.3 * random.standard_normal((n, 2))
    return x, y, x[:, ::-1], y


METHOD = vmt.methods.vmt(lambda_t=0.1, lambda_s=0.0, radius=0.1, optimiser=vmt.methods.nouns.Adam(lr=5e-3)).with_decay(
    0.9
)
SETTINGS: dict[str, Any] = {"iterations": 100, "batch_size": 32, "progress": False, "device": "cpu"}


@pytest.mark.parametrize("exchanged", [False, True])
def test_a_few_labels_decide_between_two_clusters(exchanged: bool) -> None:
    xs, ys, xt, yt = turned()
    yt = 1 - yt if exchanged else yt
    few = np.where(np.arange(len(yt)) < 6, yt, -1)
    model = vmt.adapt((xs, ys), xt, METHOD, target_labels=few, **SETTINGS)
    assert model.evaluate(xt, yt).accuracy > 0.9
    assert model.evaluate(xs, ys).accuracy > 0.9
    assert model.about["method"] == "vmt+target_labels"


@pytest.mark.parametrize("label", [0, 1])
def test_one_label_is_normalised_together_with_unlabelled_samples(label: int) -> None:
    """Normalised alone, it would be the mean of its batch and carry no information."""
    xs, ys, xt, _ = turned()
    one = np.where(np.arange(len(xt)) == 1, label, -1)
    method = vmt.methods.source_only(statistics="target", optimiser=vmt.methods.nouns.Adam(lr=5e-3)).with_decay(0.9)
    model = vmt.adapt((xs, ys), xt, method, target_labels=one, **SETTINGS)
    assert model.predict_proba(xt[1:2])[0, label] > 0.7


@pytest.mark.parametrize("name", [name for name in METHODS if name != "target_only"])
def test_every_method_trains_on_them_in_every_phase(name: str) -> None:
    method = METHODS[name]()
    method = with_target_labels(dirt_t(method) if "ema" in method.roles else method, 0.5)
    for phase in method.phases:
        terms = [term for update in phase.updates for term in update.terms if term.name.startswith("L_y(target)")]
        assert len(terms) == (2 if phase.name in ("co_da", "drcn") else 1)  # two classifiers, and two updates of one
        assert {term.weight for term in terms} == {0.5}
    assert not METHODS[name]().reads_labels_of("labelled target")


def test_target_only_trains_on_all_labels_already() -> None:
    with pytest.raises(InputError, match="target_only"):
        with_target_labels(METHODS["target_only"]())


def partly_labelled(folder: Path, kind: str) -> Path:
    """Nine samples of the target, six of them without a label."""
    if kind == "folder":
        class_folders(folder / "b", 1, shade=50)
        unlabelled_folder(folder / "b" / "Unlabelled", 6)
        return folder / "b"
    files = [save(folder / "files" / f"{i}.png", picture(i % 3, 50 + i)) for i in range(9)]
    labels = [CLASSES[i % 3] if i < 3 else "" for i in range(9)]
    if kind == "csv":
        rows = [f"{path},{label}" for path, label in zip(files, labels, strict=True)]
        (folder / "b.csv").write_text("\n".join(["path,label", *rows]), encoding="utf-8")
        return folder / "b.csv"
    x = np.stack([picture(i % 3, 50 + i) for i in range(9)])
    numbers = np.where(np.arange(9) < 3, np.arange(9) % 3, -1)
    np.savez(folder / "b.npz", x=x, y=np.array(labels) if kind == "names" else numbers)
    return folder / "b.npz"


@pytest.mark.parametrize("kind", ["folder", "csv", "names", "numbers"])
def test_the_ways_to_give_a_partly_labelled_target(tmp_path: Path, kind: str) -> None:
    source, target = class_folders(tmp_path / "a"), partly_labelled(tmp_path, kind)
    task, notes = own_task(source, target, how=QUIET)
    assert task.target_labelled is None
    assert task.target.y is None
    assert task.target_test is not None
    assert task.target_test.y is not None
    assert task.target_test.y.tolist() == [0, 1, 2]
    assert any("evaluation only" in note for note in notes)
    task, notes = own_task(source, target, how=QUIET, use_target_labels=True)
    assert task.target_test is None, "samples that are trained on do not measure the accuracy"
    assert len(task.target) == 9
    assert task.target_labelled is not None
    assert task.target_labelled.y is not None
    assert task.target_labelled.y.tolist() == [0, 1, 2]
    assert any("3 of the 9 samples" in note and "trained on" in note for note in notes)
    own = read_own(target, like=read_own(source, cache=False), cache=False)
    assert own.labels is not None
    assert sorted(own.labels.tolist()) == [-1] * 6 + [0, 1, 2]
    assert own.domain.y is None


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source, target = class_folders(tmp_path / "a"), partly_labelled(tmp_path, "folder")
    run = tmp_path / "run"
    own = ["train", "--source", str(source), "--target", str(target), *SHORT]
    assert main([*own, "--out", str(run), "--use-target-labels", "0.5"]) == 0
    assert "target labels: 3, weight 0.5" in capsys.readouterr().out
    assert "classifier/L_y(target)" in (run / "log.jsonl").read_text()
    assert json.loads((run / "summary.json").read_text())["target_accuracy"] is None
    assert main(["evaluate", str(run)]) == 2
    assert "--test" in capsys.readouterr().err
    finished = vmt.load(run)
    (run / "model.safetensors").unlink()
    shutil.rmtree(run / "checkpoints" / "step-000000004")
    assert main(["train", "--resume", str(run)]) == 0
    for tensor, other in zip(
        finished.network.state_dict().values(), vmt.load(run).network.state_dict().values(), strict=True
    ):
        assert torch.equal(tensor, other)
    capsys.readouterr()
    unlabelled = [
        "train",
        "--source",
        str(source),
        "--target",
        str(unlabelled_folder(tmp_path / "c")),
        *SHORT,
        "--out",
        str(tmp_path),
    ]
    for arguments, says in (
        ([*unlabelled, "--use-target-labels"], "no labels"),
        (["train", "digits", "--use-target-labels"], "--use-target-labels"),
        ([*own, "--use-target-labels", "--method", "target_only", "--out", str(tmp_path / "x")], "target_only"),
    ):
        assert main(arguments) == 2
        assert says in capsys.readouterr().err


@pytest.mark.parametrize("missing", [np.nan, None])
def test_numbers_with_gaps_as_in_a_data_frame(missing: float | None) -> None:
    xs, ys, xt, yt = turned(20)
    known = yt.astype(object)
    known[4:] = missing
    task = task_of((xs, ys), xt, None, known if missing is None else known.astype(float), None)
    assert task.target_labelled is not None
    assert task.target_labelled.y is not None
    assert task.target_labelled.y.tolist() == [0, 1, 0, 1]
    again = task_of((xs, ys), xt, None, tuple(known), None).target_labelled
    assert again is not None
    assert len(again) == 4


@pytest.mark.filterwarnings("ignore:.*collapsed")  # three iterations are few
def test_through_the_estimator() -> None:
    xs, ys, xt, yt = turned()
    names = np.array(["left", "right"])
    settings: dict[str, Any] = {"iterations": 60, "batch_size": 32, "lr": 1e-2, "lambda_t": 0.1, "lambda_s": 0}
    settings |= {"use_target_labels": True, "random_state": 0}
    known = np.arange(len(yt)) < 6
    x, domains = np.concatenate([xs, xt]), np.repeat([1, -1], [len(xs), len(xt)])
    for truth in (yt, 1 - yt):
        model = vmt.VMTClassifier(**settings).fit(xs, ys, X_target=xt, y_target=np.where(known, truth, -1))
        assert model.score(xt, truth) > 0.9
    masked = np.concatenate([names[ys], np.where(known, names[1 - yt], "")])
    by_domain = vmt.VMTClassifier(**settings).fit(x, masked, sample_domain=domains)
    np.testing.assert_array_equal(by_domain.predict_proba(xt), model.predict_proba(xt))
    blind = {**settings, "iterations": 3, "use_target_labels": False}
    scores = [
        vmt.VMTClassifier(**blind).fit(x, labels, sample_domain=domains).predict_proba(xt)
        for labels in (masked, np.concatenate([names[ys], names[yt]]))
    ]
    np.testing.assert_array_equal(*scores, "labels of the target are used without use_target_labels")
    for labels, says in (
        (None, "y_target"),
        (np.full(len(yt), -1), "no label"),
        (yt + 7, "label [78]"),
        (yt[:3], "3 labels"),
    ):
        with pytest.raises(ValueError, match=says):
            vmt.VMTClassifier(**settings).fit(xs, ys, X_target=xt, y_target=labels)
