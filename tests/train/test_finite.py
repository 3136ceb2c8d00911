"""No model and no checkpoint is written whose weights or predictions are infinite or not a number."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vmt
from tests.own_data import write_blobs
from vmt import InputError, methods
from vmt.cli.main import main
from vmt.data import Task
from vmt.methods.nouns import Adam, Method, Ramp
from vmt.nets import mlp
from vmt.runs.folder import MODEL
from vmt.train import Config, train
from vmt.train.checkpoint import load_checkpoint, save_checkpoint

# The first overflows at once; the second leaves finite weights whose predictions are not numbers.
TOO_LARGE = [1e39, 1e38]


def written(folder: Path) -> list[str]:
    """The models and checkpoints in a run folder."""
    return sorted(path.name for pattern in ("*.safetensors", "checkpoints/*") for path in folder.glob(pattern))


@pytest.mark.parametrize("lr", TOO_LARGE)
@pytest.mark.parametrize("more", [[], ["--dirt-t", "--keep-best", "im"]])
def test_vmt_train_ends_with_a_sentence(
    lr: float, more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = write_blobs(tmp_path, 60)
    flags = ["--method", "source_only", "--lr", str(lr), "--iterations", "1", "--batch-size", "8", *more]
    run = tmp_path / "run"
    assert main(["train", "--source", str(source), "--target", str(target), "--out", str(run), *flags]) == 2
    said = capsys.readouterr().err
    assert "at iteration 1" in said
    assert "checkpoint of" not in said
    assert written(run) == []


@pytest.mark.parametrize("lr", TOO_LARGE)
def test_python_gets_no_such_model(lr: float, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, y = random.standard_normal((40, 4)), np.arange(40) % 2
    short: dict[str, Any] = {"iterations": 1, "batch_size": 8}
    for more in ({}, {"out": tmp_path / "run"}, {"keep_best": "im", "out": tmp_path / "best"}):
        with pytest.raises(InputError, match="at iteration 1"):
            vmt.adapt((x, y), x, "source_only", lr=lr, progress=False, **short, **more)
    assert written(tmp_path / "run") == written(tmp_path / "best") == []
    with pytest.raises(InputError, match="at iteration 1"):
        vmt.VMTClassifier("source_only", lr=lr, **short).fit(x, y)


def exploding(after: float, iterations: int = 40) -> Method:
    """A method whose learning rate becomes far too large after this share of its iterations."""
    return methods.source_only(
        optimiser=Adam(lr=Ramp(1e-3, 1e38, begin=after, until=after + 1e-4)), iterations=iterations
    )


def test_the_checkpoint_that_the_sentence_names_can_be_used(task: Task, tmp_path: Path) -> None:
    """Iteration 24 is the first with that learning rate, and its own loss is still finite."""
    config = Config(batch_size=16, log_every=1, evaluate_every=100, checkpoint_every=8)
    with pytest.raises(InputError, match=r"checkpoint of iteration 16 "):
        train(task, exploding(0.56), lambda: mlp((6,), 4), config, tmp_path)
    assert written(tmp_path) == ["step-000000008", "step-000000016"]
    tensors, _ = load_checkpoint(tmp_path / "checkpoints" / "step-000000016")
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    # Resumed, the run says the same.
    with pytest.raises(InputError, match=r"iteration 24.*checkpoint of iteration 16 "):
        train(task, exploding(0.56), lambda: mlp((6,), 4), config, tmp_path, resume=True)


def test_what_is_kept_as_the_best_was_finite(task: Task, tmp_path: Path) -> None:
    """It is evaluated more often than it is saved: a model that is not finite must not become the best meanwhile."""
    config = Config(batch_size=16, log_every=100, evaluate_every=2, checkpoint_every=100, keep_best="im")
    with pytest.raises(InputError, match="at iteration 24"):
        train(task, exploding(0.56), lambda: mlp((6,), 4), config, tmp_path)
    assert written(tmp_path) == []


def test_a_phase_that_ends_well_keeps_its_model(task: Task, tmp_path: Path) -> None:
    first, second = methods.source_only(iterations=4), exploding(0.0, 4)
    renamed = replace(second.phases[0], name="second")
    method = replace(first, phases=(*first.phases, renamed))
    assert task.source.y is not None
    with pytest.raises(InputError, match=r"at iteration 6.*checkpoint of iteration 4 "):
        vmt.adapt(
            (task.source.x, task.source.y), task.target.x, method, out=tmp_path, log_every=1, evaluate_every=1,
            batch_size=16, progress=False,
        )  # fmt: skip
    assert written(tmp_path) == ["model_source_only.safetensors", "step-000000004"]
    kept = vmt.load(tmp_path / "model_source_only.safetensors").predict_proba(task.target.x)
    assert np.isfinite(kept).all()
    assert not (tmp_path / MODEL).exists()


def test_a_checkpoint_of_an_earlier_version_may_not_be_finite(task: Task, tmp_path: Path) -> None:
    config = Config(batch_size=16, checkpoint_every=4)
    train(task, methods.source_only(iterations=4), lambda: mlp((6,), 4), config, tmp_path)
    tensors, loop_state = load_checkpoint(tmp_path / "checkpoints" / "step-000000004")
    name = next(name for name in tensors if name.endswith("logits.0.weight"))
    save_checkpoint(tmp_path / "checkpoints", tensors | {name: tensors[name] * torch.inf}, loop_state, 4)
    with pytest.raises(InputError, match=r"logits\.0\.weight"):
        train(task, methods.source_only(iterations=8), lambda: mlp((6,), 4), config, tmp_path, resume=True)


class Masked(nn.Module):
    """A buffer that is infinite on purpose, as in attention."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf, 0.0]))
        self.encode, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.encode(x) + self.mask).softmax(1))


def test_a_saved_model_has_finite_weights_and_any_constants(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, y = random.standard_normal((40, 4)), np.arange(40) % 2
    model = vmt.adapt((x, y), x, "source_only", net=Masked, iterations=2, batch_size=8, progress=False)
    path = tmp_path / "model.safetensors"
    model.save(path)
    before = path.read_bytes()
    with torch.no_grad():
        next(model.network.parameters())[0] = torch.nan
    with pytest.raises(InputError, match="not a number"):
        model.save(path)
    with pytest.raises(InputError, match="not a number"):
        vmt.export.export(model, tmp_path / "model.pt2")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]
