"""Augmentation: what it does to pictures, and where a method has it."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import vmt
from vmt import methods
from vmt.errors import InputError
from vmt.methods.augment import Augmentation, augmented, recoloured, resampled, solarised, turned
from vmt.methods.nodes import Batch, View, below
from vmt.methods.nouns import Method
from vmt.step.draws import SeededDraws

pytestmark = pytest.mark.usefixtures("one_thread")
ALL = Augmentation(crop=0.3, flip=True, colour=0.5, strength=0.8, invert=0.5)


def pictures(n: int = 40, channels: int = 3) -> Tensor:
    return torch.rand(n, channels, 12, 10, generator=torch.Generator().manual_seed(0))


def drawn(augmentation: Augmentation, x: Tensor, step: int = 0, name: str = "a") -> Tensor:
    return augmentation(x, SeededDraws(0, torch.tensor(step)), name)


def test_nothing_is_changed_by_default() -> None:
    assert torch.equal(drawn(Augmentation(), pictures()), pictures())
    assert augmented(methods.vmt(), Augmentation()) == methods.vmt()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("augmentation", [ALL, *(Augmentation(**{n: 0.5}) for n in ("crop", "colour", "strength"))])
def test_pictures_stay_pictures_and_draws_decide(augmentation: Augmentation, channels: int) -> None:
    x = pictures(channels=channels)
    once, again = (drawn(augmentation, x, step=3) for _ in range(2))
    assert torch.equal(once, again)
    assert once.shape == x.shape
    assert once.min() >= 0
    assert once.max() <= 1
    changed = (once != x).flatten(1).any(1)
    assert changed.float().mean() > 0.6  # most pictures; a distortion may leave a few as they are
    assert not torch.equal(once, drawn(augmentation, x, step=4))
    assert not torch.equal(once, drawn(augmentation, x, step=3, name="b"))


def test_every_second_picture_is_mirrored() -> None:
    x = pictures(200)
    y = drawn(Augmentation(flip=True), x)
    same, mirrored = ((y - other).abs().amax((1, 2, 3)) < 1e-5 for other in (x, x.flip(3)))
    assert (same | mirrored).all()
    assert 0.4 < mirrored.float().mean() < 0.6


def test_a_share_of_the_pictures_is_inverted() -> None:
    x = pictures(400)
    y = drawn(Augmentation(invert=0.25), x)
    same, inverted = ((y - other).abs().amax((1, 2, 3)) < 1e-6 for other in (x, 1 - x))
    assert (same | inverted).all()
    assert 0.15 < inverted.float().mean() < 0.35


def test_a_crop_is_the_part_of_the_picture_that_its_place_names() -> None:
    x = pictures(1)
    half = torch.tensor([[[0.5, 0, -0.5], [0, 0.5, 0.5], [0, 0, 1]]])  # the lower left quarter
    y = resampled(x, half)
    expected = torch.nn.functional.interpolate(x[:, :, 6:, :5], scale_factor=2, mode="bilinear", align_corners=False)
    torch.testing.assert_close(y[:, :, 2:-2, 2:-2], expected[:, :, 2:-2, 2:-2])


def test_colours() -> None:
    x, zero = pictures(4), torch.zeros(4)
    torch.testing.assert_close(recoloured(x, zero, zero, zero, zero), x)
    grey = recoloured(x, zero, zero, zero - 1, zero)
    torch.testing.assert_close(grey[:, 0], grey[:, 2])
    torch.testing.assert_close(turned(turned(x, zero + 0.3), zero - 0.3), x)
    assert torch.equal(solarised(x, zero), x)
    assert torch.equal(solarised(x, zero + 1), 1 - x)


def batches(method: Method) -> Iterator[Batch]:
    for update in method.updates():
        for node in (*update.keep, *(node for term in update.terms for node in term.reads)):
            yield from (each for each in below(node) if isinstance(each, Batch))


def test_all_batches_but_the_teachers_are_augmented() -> None:
    method = augmented(methods.dirt_t(methods.vmt()), ALL)
    update = method.phases[1].updates[0]
    teacher, student = (tap.view for tap in update.terms[0].reads)  # type: ignore[attr-defined]
    assert (teacher.input.augment, student.input.augment) == (None, ALL)
    assert replace(student.input, augment=None) == teacher.input  # the same rows
    plain = [batch for batch in batches(method) if batch.augment is None]
    assert set(plain) == {teacher.input}
    assert isinstance(student, View)


def test_an_augmented_run_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (30, 8, 8, 3), np.uint8), np.arange(30) % 3
    common: dict[str, Any] = {"batch_size": 6, "validate_samples": 0, "device": "cpu", "progress": False, "net": "tiny"}
    common |= {"augment_crop": 0.4, "augment_flip": True, "augment_colour": 0.3, "augment_strength": 0.5}
    common |= {
        "augment_invert": 0.3,
        "iterations": 4,
        "checkpoint_every": 2,
        "optimiser": "sgd",
        "lr_schedule": "cosine",
    }
    whole = vmt.adapt((x, y), x, "vmt_mcc", **common, out=tmp_path / "whole")
    plain = vmt.adapt((x, y), x, "vmt_mcc", **{**common, "augment_strength": 0.0})
    (tmp_path / "part").mkdir()
    for name in ("run.json", "checkpoints", "log.jsonl"):
        made = tmp_path / "whole" / name
        (shutil.copytree if made.is_dir() else shutil.copy)(made, tmp_path / "part" / name)
    shutil.rmtree(tmp_path / "part" / "checkpoints" / "step-000000004")
    resumed = vmt.adapt((x, y), x, "vmt_mcc", **common, out=tmp_path / "part", resume=True)
    assert np.array_equal(whole.predict_proba(x), resumed.predict_proba(x))
    assert not np.array_equal(whole.predict_proba(x), plain.predict_proba(x))
    with pytest.raises(InputError, match="strength"):
        vmt.adapt((x, y), x, "vmt_mcc", **{**common, "augment_strength": 0.1}, out=tmp_path / "part", resume=True)


@pytest.mark.parametrize(
    ("field", "value"), [("crop", 0.0), ("crop", 1.5), ("colour", -1.0), ("strength", 2.0), ("invert", -0.5)]
)
def test_values_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=f"augment_{field}"):
        Augmentation(**{field: value})  # type: ignore[arg-type]


def test_vectors_cannot_be_augmented() -> None:
    x, y = np.random.default_rng(0).normal(size=(20, 4)), np.arange(20) % 2
    with pytest.raises(InputError, match="vectors"):
        vmt.adapt((x, y), x, iterations=2, batch_size=4, augment_flip=True, progress=False)
