"""The embedded task: repeatable, balanced, and with parts that share no picture."""

import pytest
import torch

from vmt.data import Domain, Task, digits_task, load_task
from vmt.errors import InputError


@pytest.fixture(scope="module")
def task() -> Task:
    return digits_task()


def parts(task: Task) -> list[Domain]:
    assert task.source_test is not None
    assert task.target_test is not None
    return [task.source, task.source_test, task.target, task.target_test]


def pictures(samples: Domain) -> set[bytes]:
    return {x.numpy().tobytes() for x in samples.x}


def test_the_same_seed_gives_the_same_bits(task):
    for first, again in zip(parts(task), parts(load_task("digits")), strict=True):
        assert torch.equal(first.x, again.x)
        assert torch.equal(first.y, again.y)


def test_another_seed_draws_another_source_but_keeps_the_handwriting(task):
    other = digits_task(seed=1)
    assert not torch.equal(other.source.x, task.source.x)
    assert torch.equal(other.target.x, task.target.x)
    assert torch.equal(other.target_test.x, task.target_test.x)


def test_the_global_random_state_is_not_changed():
    state = torch.get_rng_state()
    digits_task()
    assert torch.equal(torch.get_rng_state(), state)


def test_sizes_and_balance(task):
    assert task.source.y.bincount().tolist() == [400] * 10
    assert 980 <= len(task.target) <= 1020
    assert 480 <= len(task.target_test) <= 515
    for part in parts(task):
        assert part.x.dtype == torch.uint8
        assert part.x.shape[1:] == (1, 16, 16)
        assert part.y.bincount().min() > 0.8 * len(part) / 10


def test_the_three_parts_of_the_handwriting_are_disjoint(task):
    validation = digits_task(evaluate_on="validation").target_test
    assert 285 <= len(validation) <= 315
    assert len(task.target) + len(validation) + len(task.target_test) == 1797
    three = [pictures(part) for part in (task.target, validation, task.target_test)]
    assert sum(len(part) for part in three) == len(set.union(*three))
    with pytest.raises(InputError, match=r"evaluate_on .*'exam'"):
        digits_task(evaluate_on="exam")


def test_both_domains_are_light_on_dark_and_every_digit_is_visible(task):
    for part in parts(task):
        x = part.x.float()
        border = torch.cat([x[:, 0, :, 0], x[:, 0, :, -1]], dim=1).median()
        assert border < 50
        assert (x.amax((1, 2, 3)) - x.mean((1, 2, 3))).min() > 50


def test_rendered_digits_can_be_classified(task):
    """Nearest class mean: far above chance if labels and glyphs agree, far below perfect if poses vary."""
    train, test = task.source, task.source_test
    means = torch.stack([train.x[train.y == k].float().mean(0) for k in range(10)]).flatten(1)
    nearest = torch.cdist(test.x.float().flatten(1), means).argmin(1)
    assert 0.5 < (nearest == test.y).float().mean() < 0.99


def test_the_earlier_name_of_evaluate_on_warns():
    with pytest.warns(DeprecationWarning, match="evaluate_on"):
        earlier = digits_task(judge="validation")
    assert torch.equal(earlier.target_test.x, digits_task(evaluate_on="validation").target_test.x)
