"""A target whose pictures are negatives of the source's: it is seen without labels, and everything can cope with it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits
from torch import Tensor

from vmt.data import Domain
from vmt.data.files.store import pack
from vmt.data.stored import StoredSamples
from vmt.data.task import Task, make_task
from vmt.evaluate.accuracy import logits_of
from vmt.evaluate.kernel import adapted_kernel, source_kernel
from vmt.evaluate.matching import estimated_shares
from vmt.evaluate.polarity import in_polarity_of_target, target_is_negative
from vmt.runs.recipes import own_recipe
from vmt.runs.spec import warnings_about

DIGITS = load_digits()
PIXELS = (DIGITS.images * (255 / 16)).astype(np.float32)
Change = Callable[[np.ndarray], np.ndarray]
random = np.random.default_rng(0)


def either(x: np.ndarray) -> np.ndarray:
    """Every second picture is inverted."""
    return np.where(random.random((len(x), 1, 1)) < 0.5, 255 - x, x)


NEGATIVE: dict[str, Change] = {
    "inverted": lambda x: 255 - x,
    "dark on grey": lambda x: 200 - 0.5 * x,
    "inverted and blurred": lambda x: 255 - gaussian_filter(x, (0, 0.7, 0.7)),
}
OTHERS: dict[str, Change] = {
    "the same": lambda x: x,
    "bright background": lambda x: 150 + x / 3,
    "blurred": lambda x: gaussian_filter(x, (0, 1, 1)),
    "noise": lambda x: x + 85 * random.normal(size=x.shape),
    "moved": lambda x: np.roll(x, 2, axis=2),
    "of both kinds": either,
}


def stored(x: np.ndarray) -> Tensor:
    return torch.from_numpy(x.clip(0, 255).round().astype(np.uint8))[:, None]


def task_of(change: Change, count: int = 400) -> Task:
    order = np.random.default_rng(0).permutation(len(PIXELS))
    one, other = order[:count], order[count : 2 * count]
    source = Domain(stored(PIXELS[one]), torch.from_numpy(DIGITS.target[one]), "source")
    target = Domain(stored(change(PIXELS[other])), None, "target")
    test = Domain(target.x, torch.from_numpy(DIGITS.target[other]), "test")
    return make_task(source, target, target_test=test)


@pytest.mark.parametrize("name", [*NEGATIVE, *OTHERS])
def test_negatives_are_told_from_other_changes(name: str) -> None:
    task = task_of((NEGATIVE | OTHERS)[name])
    assert target_is_negative(task) == (name in NEGATIVE)
    back = replace(task, source=task.target, target=task.source)
    assert target_is_negative(back) == (name in NEGATIVE)


def test_pictures_in_colour_and_of_other_sizes() -> None:
    task = task_of(NEGATIVE["inverted"])
    larger = task.target.x.repeat_interleave(2, 2).repeat_interleave(2, 3).expand(-1, 3, -1, -1)
    source = replace(task.source, x=task.source.x.expand(-1, 3, -1, -1))
    assert target_is_negative(make_task(source, replace(task.target, x=larger)))


def test_pictures_on_the_disk_are_like_those_in_memory(tmp_path: Path) -> None:
    task = task_of(NEGATIVE["inverted"])
    rows = task.target.x.numpy()
    store = pack(tmp_path / "store", len(rows), rows.shape[1:], lambda numbers, done: iter(rows[done:]))
    streamed = replace(task, target=replace(task.target, x=StoredSamples(store.rows)))
    assert target_is_negative(streamed)
    back = replace(streamed, source=streamed.target, target=task.source)
    assert torch.equal(in_polarity_of_target(back.source, back).x, 255 - task.target.x)


def test_vectors_have_no_negatives() -> None:
    task = task_of(NEGATIVE["inverted"])
    source, target = (replace(part, x=part.x.flatten(1).float()) for part in (task.source, task.target))
    assert not target_is_negative(make_task(source, target))


def test_a_network_with_random_weights_sees_inverted_pictures_and_the_run_says_so() -> None:
    task = task_of(NEGATIVE["inverted"])
    for method in ("source_only", "vmt"):
        assert own_recipe(task, method).settings["augment_invert"] == 0.5
        assert "augment_invert" not in own_recipe(task, method, pretrained=True).settings
        assert "augment_invert" not in own_recipe(task_of(OTHERS["the same"]), method).settings
    assert any("--augment-invert" in sentence for sentence in warnings_about(task))
    assert not any("--augment-invert" in sentence for sentence in warnings_about(task_of(OTHERS["blurred"])))


def test_kernel_classifiers_recognise_negatives() -> None:
    task = task_of(NEGATIVE["inverted"])
    assert task.target_test is not None
    for network in (source_kernel(task), adapted_kernel(task, None)):
        right = logits_of(network, task.target_test.x, task.preprocess).argmax(1) == task.target_test.y
        assert right.double().mean() > 0.9


def test_negatives_are_no_reason_to_believe_in_other_class_shares() -> None:
    shares = estimated_shares(task_of(NEGATIVE["inverted"]))
    assert shares is not None
    assert not shares.differ
