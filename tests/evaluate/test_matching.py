"""A target with other class shares: they are estimated from samples, and the source is drawn in them."""

import json
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import vmt
from vmt.data import Domain
from vmt.data.task import Task, make_task
from vmt.evaluate.matching import drawn_in_equal_shares, drawn_in_shares, estimated_shares
from vmt.runs.folder import SUMMARY

DIGITS = load_digits()
FEW = (0, 1, 2, 3)


def halves(seed: int) -> tuple[Any, Any, Any, Any]:
    """Two halves of the scanned digits; every feature of the second has another gain and offset."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(DIGITS.data))
    x, y = DIGITS.data[order].astype(np.float32), DIGITS.target[order]
    gain, offset = np.exp(0.4 * random.normal(size=64)), 2 * random.normal(size=64)
    return x[:900], y[:900], (x[900:] * gain + offset).astype(np.float32), y[900:]


def task_of(seed: int, classes: tuple[int, ...]) -> tuple[Task, Any]:
    xs, ys, xt, yt = halves(seed)
    kept = np.isin(yt, classes)
    target = Domain(torch.from_numpy(xt[kept]), None, "target")
    return make_task(Domain(torch.from_numpy(xs), torch.from_numpy(ys), "source"), target), yt[kept]


@pytest.mark.parametrize("seed", range(5))
def test_equal_shares_are_left_alone_under_a_shift(seed: int) -> None:
    shares = estimated_shares(task_of(seed, tuple(range(10)))[0])
    assert shares is not None
    assert not shares.differ


@pytest.mark.parametrize("seed", range(5))
def test_the_shares_of_a_target_with_few_classes_are_found_under_a_shift(seed: int) -> None:
    task, labels = task_of(seed, FEW)
    shares = estimated_shares(task)
    assert shares is not None
    assert shares.differ
    true = np.bincount(labels, minlength=10) / len(labels)
    assert np.abs(np.array(shares.target) - true).sum() / 2 < 0.15
    assert np.abs(np.array(shares.source) - true).sum() / 2 > 0.5


@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_knows_the_classes_by_heart_is_not_asked(seed: int) -> None:
    """More features than samples: a logistic regression fits any labels, here those of noise."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (120, 3, 16, 16), generator=random, dtype=torch.uint8)
    task = make_task(Domain(x[:60], torch.arange(60) % 3, "source"), Domain(x[60:], None, "target"))
    assert estimated_shares(task) is None


def test_a_model_that_cannot_tell_the_classes_is_not_asked() -> None:
    """Concentric rings: a logistic regression knows nothing about them."""
    random = np.random.default_rng(0)
    angle, y = 2 * np.pi * random.random(400), np.arange(400) % 2
    x = torch.from_numpy((1 + 2 * y)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)).float()
    task = make_task(Domain(x, torch.from_numpy(y), "source"), Domain(x[y == 0], None, "target"))
    assert estimated_shares(task) is None


def test_pictures_larger_than_the_model_needs() -> None:
    random = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = random.integers(0, 80, (120, 3, 40, 30)).astype(np.uint8)
    for k in range(3):
        x[y == k, :, 12 * k : 12 * k + 12] += 150
    few = y[:90] != 2
    target = Domain(torch.from_numpy(x[:90][few]), None, "target")
    shares = estimated_shares(make_task(Domain(torch.from_numpy(x), torch.from_numpy(y), "source"), target))
    assert shares is not None
    assert shares.target[2] < 0.1


def test_the_source_is_drawn_in_shares_and_always_alike() -> None:
    y = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    source = Domain(torch.arange(100.0)[:, None], y, "source")
    drawn = drawn_in_shares(source, (0.2, 0.8, 0.0))
    assert drawn.y is not None
    assert drawn.y.bincount().tolist() == [20, 80, 3]  # some samples of every class stay
    assert len(drawn.x[drawn.y == 0].unique()) == 20  # no sample twice before every sample is there once
    assert len(drawn.x[drawn.y == 1].unique()) == 30
    assert torch.equal(drawn.x, drawn_in_shares(source, (0.2, 0.8, 0.0)).x)


def test_matching_saves_a_target_with_few_classes(tmp_path: Path) -> None:
    xs, ys, xt, yt = halves(0)
    kept = np.isin(yt, FEW)
    accuracy = {}
    for match in (True, False):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = vmt.adapt(
                (xs, ys), xt[kept], iterations=250, match_shares=match, progress=False, out=tmp_path / str(match)
            )
        accuracy[match] = model.evaluate(xt[kept], yt[kept]).accuracy
        summary = json.loads((tmp_path / str(match) / SUMMARY).read_text())
        assert (summary["class_shares"] is not None) == match
        assert any("proportions" in str(warning.message) for warning in caught)
    assert accuracy[True] > accuracy[False] + 0.04


def test_source_only_and_equal_shares_are_not_matched(tmp_path: Path) -> None:
    xs, ys, xt, yt = halves(0)
    for name, target, method in (("lower", xt[np.isin(yt, FEW)], "source_only"), ("equal", xt, "mcc")):
        vmt.adapt((xs, ys), target, method, iterations=3, progress=False, out=tmp_path / name)
        assert json.loads((tmp_path / name / SUMMARY).read_text())["class_shares"] is None


def test_a_matched_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    xs, ys, xt, yt = halves(0)
    settings: dict[str, Any] = {"method": "mcc", "iterations": 400, "progress": False}
    target = xt[np.isin(yt, FEW)]
    whole = vmt.adapt((xs, ys), target, **settings)
    timer = threading.Timer(0.7, signal.raise_signal, (signal.SIGTERM,))
    timer.start()
    try:
        resumed = vmt.adapt((xs, ys), target, out=tmp_path / "run", checkpoint_every=5, **settings)
    except KeyboardInterrupt:
        resumed = vmt.adapt((xs, ys), target, out=tmp_path / "run", resume=True, checkpoint_every=5, **settings)
    timer.cancel()
    np.testing.assert_array_equal(resumed.predict_proba(xt), whole.predict_proba(xt))
    with pytest.raises(vmt.InputError, match="match_shares"):
        vmt.adapt((xs, ys), target, out=tmp_path / "run", resume=True, match_shares=False, **settings)


def test_every_class_of_a_balanced_source_has_as_many_samples_up_to_twice_the_mean() -> None:
    y = torch.tensor([0] * 30 + [1] * 6 + [3] * 4)
    drawn = drawn_in_equal_shares(Domain(torch.arange(40.0)[:, None], y, "source"))
    assert drawn.y is not None
    assert drawn.y.bincount().tolist() == [27, 27, 0, 27]  # the mean of the three classes that exist is 13.3
    for k in (1, 3):
        rows = drawn.x[drawn.y == k].flatten().long()
        assert set(rows.tolist()) == set(torch.nonzero(y == k).flatten().tolist()), "no sample may be left out"
