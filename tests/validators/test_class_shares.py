"""Class shares of the target, estimated without its labels: a warning where classes are missing, and no false alarm."""

import json
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

import vmt
from vmt.data import Domain
from vmt.data.synthetic.digits import digits_task
from vmt.data.task import Task
from vmt.runs.describe import how_it_went
from vmt.runs.folder import SUMMARY, read_run
from vmt.validators import corrected_shares, estimate_class_shares

ALL, FIRST = tuple(range(10)), (0, 1, 2, 3)


@cache
def digits() -> Task:
    return digits_task()


def vectors(samples: Domain, classes: tuple[int, ...] = ALL) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """The embedded digits as 64 numbers, only those of some classes."""
    assert samples.y is not None
    kept = samples.subset(torch.nonzero(torch.isin(samples.y, torch.tensor(classes))).squeeze(1))
    assert kept.y is not None
    return avg_pool2d(kept.x.float(), 2).flatten(1).numpy(), kept.y.numpy()


def sentences(classes: tuple[int, ...], method: str, seed: int, iterations: int, out: Path | None = None) -> list[str]:
    """What vmt.adapt warns of."""
    target, _ = vectors(digits().target, classes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = vmt.adapt(
            vectors(digits().source),
            target,
            method,
            seed=seed,
            iterations=iterations,
            device="cpu",
            out=out,
            progress=False,
        )
    told = [str(each.message) for each in caught if "proportions" in str(each.message)]
    assert model.about["warnings"] == told
    return told


@pytest.mark.parametrize(("method", "iterations"), [("source_only", 400), ("vmt", 300)])
def test_digits_0_to_3_alone_are_noticed(tmp_path: Path, method: str, iterations: int) -> None:
    (sentence,) = sentences(FIRST, method, 0, iterations, tmp_path / "run")
    assert ("match-shares" if method == "vmt" else "source_only") in sentence
    summary = json.loads((tmp_path / "run" / SUMMARY).read_text())
    assert summary["warnings"] == [sentence]
    assert sentence in how_it_went(read_run(tmp_path / "run"), digits(), summary)


@pytest.mark.parametrize("seed", range(3))
def test_no_false_alarm_for_all_digits(seed: int) -> None:
    assert sentences(ALL, "source_only", seed, 400) == []


def test_no_false_alarm_after_adaptation() -> None:
    assert sentences(ALL, "vmt", 0, 300) == []


def draw(shares: Tensor, count: int, accuracy: float, seed: int) -> tuple[Tensor, Tensor]:
    """Logits of a classifier that errs at random, and the true labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(shares, count, replacement=True, generator=generator)
    wrong = torch.rand(count, generator=generator) > accuracy
    seen = torch.where(wrong, torch.randint(len(shares), (count,), generator=generator), labels)
    return 5.0 * torch.nn.functional.one_hot(seen, len(shares)), labels


def test_errors_as_on_the_source_are_corrected() -> None:
    even, some = torch.full((5,), 0.2), torch.tensor([0.5, 0.3, 0.2, 0.0, 0.0])
    source, labels = draw(even, 4000, 0.6, 0)
    target, _ = draw(some, 4000, 0.6, 1)
    torch.testing.assert_close(corrected_shares(target, source, labels).float(), some, atol=0.05, rtol=0)


@pytest.mark.parametrize("classes", [2, 10, 60])
@pytest.mark.parametrize("count", [60, 2000])
@pytest.mark.parametrize("accuracy", [0.6, 0.95])
def test_chance_is_not_an_alarm(classes: int, count: int, accuracy: float) -> None:
    """Few samples, or many classes, have other proportions by chance."""
    shares = torch.full((classes,), 1 / classes)
    for seed in range(5):
        source, labels = draw(shares, count, accuracy, 2 * seed)
        target, _ = draw(shares, count, accuracy, 2 * seed + 1)
        assert estimate_class_shares(target, source, labels, shares).warning([str(k) for k in range(classes)]) is None


def test_the_sentence_names_the_classes() -> None:
    even = torch.full((4,), 0.25)
    source, labels = draw(even, 500, 0.95, 0)
    target, _ = draw(torch.tensor([0.5, 0.5, 0.0, 0.0]), 500, 0.95, 1)
    sentence = estimate_class_shares(target, source, labels, even).warning(["ant", "bee", "cat", "dog"])
    assert sentence is not None
    assert "cat" in sentence.partition("more")[0]
    assert "ant" in sentence.partition("more")[2]


def test_a_class_without_held_out_samples() -> None:
    even = torch.full((3,), 1 / 3)
    source, labels = draw(torch.tensor([0.5, 0.5, 0.0]), 500, 1.0, 0)
    target, _ = draw(even, 500, 1.0, 1)
    shares = estimate_class_shares(target, source, labels, even)
    assert shares.target == pytest.approx([1 / 3] * 3, abs=0.05)
    assert not shares.differ
