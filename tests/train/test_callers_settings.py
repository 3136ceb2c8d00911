"""Training neither changes nor depends on the caller's generators, default types, devices and autocast."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import vmt
from vmt import methods
from vmt.data import Task
from vmt.nets import mlp
from vmt.progress import Progress
from vmt.step.state import build_state
from vmt.train import Config, train


def test_building_networks_seeds_only_generators_that_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, this shows what torch.manual_seed would do to GPUs; tests/engine/test_engine_gpu.py uses one."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    before = torch.get_rng_state()
    build_state(methods.vmt(), lambda: mlp((2,), 3), (2,), 0, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)
    assert not seeded


@pytest.fixture
def in_doubles() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def adapted(images: bool) -> tuple[vmt.Model, np.ndarray]:
    random = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = random.normal(size=(40, 8, 8) if images else (40, 5)) + 3 * y.reshape(-1, *[1] * (2 if images else 1))
    x = (x - x.min()) / (x.max() - x.min())
    return vmt.adapt((x, y), x, iterations=3, batch_size=8, validate_samples=20, progress=False), x


@pytest.mark.parametrize("images", [False, True])
def test_the_default_type_of_the_caller_changes_nothing(
    images: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    plain, x = adapted(images)
    plain.save(tmp_path / "model.safetensors")
    loaded = vmt.load(tmp_path / "model.safetensors")
    request.getfixturevalue("in_doubles")
    model, _ = adapted(images)
    assert torch.get_default_dtype() == torch.float64
    assert (model.predict_proba(x) == plain.predict_proba(x)).all()
    again = vmt.load(tmp_path / "model.safetensors")
    assert (again.predict_proba(x) == loaded.predict_proba(x)).all()


@pytest.mark.parametrize("images", [False, True])
def test_the_autocast_of_the_caller_changes_nothing(images: bool) -> None:
    plain, x = adapted(images)
    probabilities = plain.predict_proba(x)
    with torch.autocast("cpu", torch.bfloat16):
        model, _ = adapted(images)
        assert (plain.predict_proba(x) == probabilities).all()
        assert torch.is_autocast_enabled("cpu")
    assert (model.predict_proba(x) == probabilities).all()


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """A default device that holds no values; it stands for a GPU."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.mark.parametrize("images", [False, True])
def test_the_default_device_of_the_caller_changes_nothing(
    images: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    plain, x = adapted(images)
    probabilities = plain.predict_proba(x)
    plain.save(tmp_path / "model.safetensors")
    request.getfixturevalue("elsewhere")
    model, _ = adapted(images)
    assert (model.predict_proba(x) == probabilities).all()
    assert (vmt.load(tmp_path / "model.safetensors").predict_proba(x) == probabilities).all()
    vmt.VMTClassifier(iterations=2).fit(x, np.where(np.arange(40) < 20, np.arange(40) % 2, -1)).predict(x)
    assert torch.get_default_device() == torch.device("meta")


@pytest.mark.usefixtures("in_doubles")
def test_the_default_type_comes_back_after_a_refusal() -> None:
    with pytest.raises(vmt.InputError):
        vmt.adapt((np.zeros((9, 3)), np.arange(9) % 2), np.zeros((9, 3)), "target_only", progress=False)
    assert torch.get_default_dtype() == torch.float64


@pytest.mark.usefixtures("in_doubles")
def test_the_default_type_is_the_callers_during_training(task: Task) -> None:
    """Other threads share the default type and may change it."""
    found: list[torch.dtype] = []

    class Watching(Progress):
        def advance(self, steps: int) -> None:
            found.append(torch.get_default_dtype())
            torch.set_default_dtype(torch.float16)

    config = Config(batch_size=16, log_every=1)
    outcome = train(task, methods.vmt(iterations=2), lambda: mlp((6,), 4), config, progress=Watching(show=False))
    assert found == [torch.float64, torch.float16]
    assert torch.get_default_dtype() == torch.float16
    assert {p.dtype for p in outcome.network.parameters()} == {torch.float32}
