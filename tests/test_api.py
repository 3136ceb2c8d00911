"""The library in one call, as the README shows it."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

import vmt
from vmt.data import domain
from vmt.evaluate.accuracy import BATCH
from vmt.methods.nouns import Adam, Method
from vmt.nets import Staged, from_module

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def moved_blobs() -> Arrays:
    """Source samples and labels, target samples and labels: the same two clusters, moved."""
    random = np.random.default_rng(0)
    y = np.arange(300) % 2
    centres = np.array([[-2.0, 0, 0, 0], [2.0, 0, 0, 0]])
    source = centres[y] + random.standard_normal((300, 4)) * 0.7
    target = centres[y] + random.standard_normal((300, 4)) * 0.7 + np.array([1.2, 1.5, 0, 0])
    return source, y, target, y


@pytest.fixture(scope="module")
def model(moved_blobs: Arrays) -> vmt.Model:
    xs, ys, xt, _ = moved_blobs
    method = vmt.methods.vmt(lambda_t=0.1, radius=0.5).with_decay(0.95)
    return vmt.adapt(source=(xs, ys), target=xt, method=method, iterations=150, batch_size=32, progress=False)


def test_adapts_and_predicts(model: vmt.Model, moved_blobs: Arrays) -> None:
    _, _, xt, yt = moved_blobs
    probabilities = model.predict_proba(xt)
    assert probabilities.shape == (300, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    assert (model.predict(xt) == probabilities.argmax(1)).all()
    evaluation = model.evaluate(xt, yt)
    assert evaluation.accuracy == (model.predict(xt) == yt).mean()
    assert evaluation.accuracy > 0.9
    assert evaluation.per_class is not None
    assert np.mean([a for a in evaluation.per_class if a is not None]) == pytest.approx(evaluation.accuracy)


def test_the_same_seed_gives_the_same_model(moved_blobs: Arrays) -> None:
    xs, ys, xt, _ = moved_blobs
    random_state = torch.get_rng_state()
    made = [
        vmt.adapt((xs, ys), xt, iterations=5, batch_size=16, seed=seed, progress=False).predict_proba(xt)
        for seed in (3, 3, 4)
    ]
    assert (made[0] == made[1]).all()
    assert (made[0] != made[2]).any()
    assert torch.equal(random_state, torch.get_rng_state()), "training must not disturb the caller's generator"


def test_saved_and_loaded_it_predicts_the_same(model: vmt.Model, moved_blobs: Arrays, tmp_path: Path) -> None:
    xt = moved_blobs[2]
    model.save(tmp_path / "model.safetensors")
    random_state = torch.get_rng_state()
    again = vmt.load(tmp_path / "model.safetensors")
    assert torch.equal(random_state, torch.get_rng_state()), "loading must not disturb the caller's generator"
    assert (again.predict_proba(xt) == model.predict_proba(xt)).all()
    assert again.classes == model.classes
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        header = file.metadata()
    assert header["format"] == "vmt-model"
    assert json.loads(header["network"])["name"] == "mlp"


def test_a_model_of_a_newer_format_is_refused(model: vmt.Model, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model.save(path)
    path.write_bytes(path.read_bytes().replace(b'"version":"1"', b'"version":"9"'))
    with pytest.raises(vmt.InputError, match=r"version 9.*upgrade"):
        vmt.load(path)


def test_a_module_of_ones_own(moved_blobs: Arrays, tmp_path: Path) -> None:
    """Its BatchNorm layers are made group-aware; without dropout or noise it is told that ξ was chosen for it."""
    xs, ys, xt, yt = moved_blobs

    def build() -> vmt.nets.Staged:
        body = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
        return from_module(body, classes=2)

    method = vmt.methods.vmt(lambda_t=0.1, radius=0.5).with_decay(0.95)
    with pytest.warns(UserWarning, match="xi|ξ"):
        model = vmt.adapt((xs, ys), xt, method, net=build, iterations=120, batch_size=32, progress=False)
    accuracy = model.evaluate(xt, yt).accuracy
    assert accuracy is not None
    assert accuracy > 0.85
    model.save(tmp_path / "own.safetensors")
    with pytest.raises(vmt.InputError, match="--net"):
        vmt.load(tmp_path / "own.safetensors")
    again = vmt.load(tmp_path / "own.safetensors", network=build)
    assert (again.predict(xt) == model.predict(xt)).all()


def test_a_short_run_is_not_an_average_of_its_beginnings(moved_blobs: Arrays) -> None:
    """The paper's average remembers more iterations than it has."""

    def decays(method: Method) -> list[float]:
        return [average.decay for update in method.updates() for average in update.averages]

    xs, ys, xt, yt = moved_blobs
    settings = {"lambda_t": 0.3, "radius": 0.6, "optimiser": Adam(lr=3e-3)}
    method = vmt.methods.vmt(**settings)
    model = vmt.adapt((xs, ys), xt, method, iterations=60, batch_size=32, progress=False)
    assert (model.evaluate(xt, yt).accuracy or 0) > 0.9
    assert decays(method.with_iterations(60)) == decays(vmt.methods.vmt(**settings, iterations=60)) < [0.9]
    assert decays(method) == decays(method.with_iterations(9_000)) == [0.998]
    assert decays(method.with_decay(0.5).with_iterations(60)) == [0.5]


def test_a_run_that_failed_says_so_without_a_bar(moved_blobs: Arrays, capsys: pytest.CaptureFixture[str]) -> None:
    xs, _, xt, _ = moved_blobs
    guesses = np.random.default_rng(0).integers(0, 2, len(xs))
    method = vmt.methods.source_only(iterations=510)
    config = {"batch_size": 16, "evaluate_every": 510, "progress": False}
    with pytest.warns(UserWarning, match="510"):
        vmt.adapt((xs, guesses), xt, method, **config)
    assert capsys.readouterr().err == ""


def test_a_network_that_uses_a_layer_twice_is_saved(moved_blobs: Arrays, tmp_path: Path) -> None:
    xs, ys, xt, _ = moved_blobs

    def build() -> Staged:
        twice = nn.Linear(4, 4)
        return from_module(nn.Sequential(twice, nn.Dropout(0.1), twice, nn.Linear(4, 2)), classes=2)

    model = vmt.adapt((xs, ys), xt, net=build, iterations=2, batch_size=16, progress=False)
    model.save(tmp_path / "own.safetensors")
    again = vmt.load(tmp_path / "own.safetensors", network=build)
    assert (again.predict_proba(xt) == model.predict_proba(xt)).all()


def test_images_of_the_wrong_range_are_refused_when_predicting() -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    y = np.arange(40) % 2
    model = vmt.adapt((x, y), x, net="tiny", iterations=2, batch_size=8, progress=False)
    with pytest.raises(vmt.InputError, match="255"):
        model.predict(x / np.float32(255))
    assert model.predict(np.zeros((1, 8, 8), np.float32)).shape == (1,), "a black picture is one as well"
    for shift in (0, 1):
        scaled = x / np.float32(255) * (1 + shift) - shift
        model_of_floats = vmt.adapt((scaled, y), scaled, net="tiny", iterations=2, batch_size=8, progress=False)
        for wrong in (x, x.astype(np.float32), scaled - 1):
            with pytest.raises(vmt.InputError, match="trained on"):
                model_of_floats.predict(wrong)
    larger = random.integers(0, 256, (BATCH + 1, 12, 10), dtype=np.uint8)
    resized = model.preprocess.fit(domain(larger, name="larger").x)
    assert (model.predict_proba(larger) == model.predict_proba(resized)).all(), "another size is resized"
    with pytest.raises(vmt.InputError, match=r"images.*vectors"):
        model.predict(x.reshape(40, 64))


def test_target_labels_never_reach_an_unsupervised_method(moved_blobs: Arrays) -> None:
    """Scrambling them changes nothing."""
    xs, ys, xt, yt = moved_blobs
    models = [vmt.adapt((xs, ys), (xt, labels), iterations=4, batch_size=16, progress=False) for labels in (yt, 1 - yt)]
    assert (models[0].predict_proba(xt) == models[1].predict_proba(xt)).all()


def test_vmt_inside_a_foreign_loop(moved_blobs: Arrays) -> None:
    """The README's five lines: L_m added to somebody else's training loop."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    xs, ys, xt, _ = (torch.as_tensor(a, dtype=torch.float32) for a in moved_blobs)
    first = last = 0.0
    for step in range(60):
        loss = nn.functional.cross_entropy(net(xs), ys.long())

        lam, partner = torch.rand(len(xt)), torch.randperm(len(xt))
        mixed = vmt.losses.mixed(xt, lam, partner)
        mixup = vmt.losses.virtual_mixup(net(xt), net(mixed), lam, partner).mean()
        loss = loss + 0.1 * mixup + 0.1 * vmt.losses.conditional_entropy(net(xt)).mean()

        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        first, last = (loss.item(), loss.item()) if step == 0 else (first, loss.item())
    assert last < 0.5 * first


def test_whole_numbers_may_be_numpys(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    numbers = {"seed": np.int64(1), "iterations": np.int32(3), "batch_size": np.uint8(8)}
    model = vmt.adapt((x, y), x, out=tmp_path, progress=False, **numbers)
    same = vmt.adapt((x, y), x, progress=False, seed=1, iterations=3, batch_size=8)
    np.testing.assert_array_equal(model.predict_proba(x), same.predict_proba(x))
    for name in numbers:
        with pytest.raises(vmt.InputError, match=name):
            vmt.adapt((x, y), x, progress=False, **{name: "a"})


def test_runs_in_threads_do_not_mix() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(80, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)

    def fit(batch_size: int) -> np.ndarray:
        model = vmt.adapt((x, y), x + 0.3, iterations=30, batch_size=batch_size, progress=False)
        return np.asarray(model.predict_proba(x))

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(fit, (16, 32)))
    for batch_size, found in zip((16, 32), together, strict=True):
        np.testing.assert_array_equal(found, fit(batch_size))


def test_predicting_while_another_thread_trains() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(80, 4)).astype(np.float32)
    model = vmt.adapt((x, (x[:, 0] > 0).astype(np.int64)), x, iterations=5, progress=False)
    alone = model.predict_proba(x)
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(vmt.adapt, (x, (x[:, 0] > 0).astype(np.int64)), x, iterations=100, progress=False)
        while not training.done():
            np.testing.assert_array_equal(model.predict_proba(x), alone)
        training.result()


def test_names_of_classes_that_are_numbers_of_numpy_can_be_saved(tmp_path: Path) -> None:
    y = np.arange(40) % 2
    x = np.random.default_rng(0).normal(size=(40, 3)) + y[:, None]
    vmt.adapt((x, y), x, classes=np.unique(y + 7), iterations=1, progress=False, out=tmp_path / "run")
    assert vmt.load(tmp_path / "run").classes == ("7", "8")
