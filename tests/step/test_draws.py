"""Random numbers as a pure function of (seed, step, name), and with the right distribution."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from vmt.kernels.random_bits import mix64, shift_right, signed
from vmt.step.draws import RecordedDraws, SeededDraws, key, seed_layers, seen_before

pytestmark = pytest.mark.usefixtures("one_thread")


def draws(seed: int = 0, step: int = 0) -> SeededDraws:
    return SeededDraws(seed, torch.tensor(step))


def everything(source: SeededDraws, name: str = "a") -> list[torch.Tensor]:
    return [
        source.normal(name, (3, 4)),
        source.beta(name, 1.0, 12),
        source.beta(name, 0.2, 12),
        source.permutation(name, 12),
        source.choice(name, 100, 12),
        source.choice(name, 100_000, 12),
    ]


def test_same_seed_step_and_name_give_the_same_values() -> None:
    for first, second in zip(everything(draws(3, 5)), everything(draws(3, 5)), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize(("seed", "step", "name"), [(4, 5, "a"), (3, 6, "a"), (3, 5, "b"), (35, 0, "a"), (3, 0, "a/5")])
def test_another_seed_step_or_name_gives_other_values(seed: int, step: int, name: str) -> None:
    for first, second in zip(everything(draws(3, 5)), everything(draws(seed, step), name), strict=True):
        assert not torch.equal(first, second)


def test_the_order_of_asking_does_not_matter() -> None:
    forwards, backwards = draws(1, 2), draws(1, 2)
    a, b = forwards.normal("a", (8,)), forwards.normal("b", (8,))
    assert torch.equal(backwards.normal("b", (8,)), b)
    assert torch.equal(backwards.normal("a", (8,)), a)
    assert torch.equal(forwards.normal("a", (8,)), a)


def test_the_step_is_read_when_drawing() -> None:
    """A captured step reads the counter from its tensor, so it must not be turned into a Python number."""
    step = torch.tensor(0)
    source = SeededDraws(0, step)
    at_zero = source.uniform("λ", 16)
    step += 1
    at_one = source.uniform("λ", 16)
    assert not torch.equal(at_zero, at_one)
    assert torch.equal(at_one, draws(0, 1).uniform("λ", 16))
    state = torch.get_rng_state()
    everything(source)
    assert torch.equal(torch.get_rng_state(), state)


def test_frozen_values_stay_and_fresh_ones_do_not() -> None:
    frozen = [draws(7, step).beta("λ", 1.0, 16, frozen=True) for step in range(4)]
    fresh = [draws(7, step).beta("λ", 1.0, 16) for step in range(4)]
    assert all(torch.equal(frozen[0], other) for other in frozen[1:])
    assert not any(torch.equal(fresh[0], other) for other in fresh[1:])
    assert not torch.equal(frozen[0], draws(8, 0).beta("λ", 1.0, 16, frozen=True))
    assert not torch.equal(frozen[0], draws(7, 0).beta("μ", 1.0, 16, frozen=True))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**62), st.integers(0, 2**62))
def test_a_permutation_is_one(n: int, seed: int, step: int) -> None:
    assert sorted(draws(seed, step).permutation("p", n).tolist()) == list(range(n))


def test_permutations_are_uniform() -> None:
    counts = np.zeros((5, 5))
    for step in range(1000):
        counts[np.arange(5), draws(0, step).permutation("p", 5).numpy()] += 1
    for row in counts:
        assert stats.chisquare(row).pvalue > 1e-4


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.integers(0, 5000), st.integers(0, 10**6))
def test_a_choice_has_no_repeats_and_stays_in_range(n: int, more: int, step: int) -> None:
    population = n + more
    chosen = draws(0, step).choice("c", population, n)
    assert chosen.shape == (n,)
    assert len(set(chosen.tolist())) == n
    assert int(chosen.min()) >= 0
    assert int(chosen.max()) < population


@pytest.mark.parametrize("population", [40, 1000, 73_257])
def test_a_choice_is_uniform(population: int) -> None:
    """From a small population (sorted) and from a large one (repeats dropped)."""
    n = 8
    chosen = torch.cat([draws(0, step).choice("c", population, n) for step in range(1500)]).numpy()
    counts = np.histogram(chosen, bins=20, range=(0, population))[0]
    widths = np.diff(np.ceil(np.linspace(0, population, 21)))
    assert stats.chisquare(counts, counts.sum() * widths / widths.sum()).pvalue > 1e-4


class Largest(TorchDispatchMode):
    """Remembers how large the largest result was."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple) else (found,):
            self.numbers = max(self.numbers, each.numel())
        return found


def test_a_large_batch_is_chosen_without_comparing_all_with_all() -> None:
    n = 2000
    with Largest() as largest:
        chosen = draws().choice("c", 200_000, n)
    assert len(set(chosen.tolist())) == n
    assert largest.numbers == 2 * n


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_what_was_seen_before(values: list[int]) -> None:
    assert seen_before(torch.tensor(values)).tolist() == [value in values[:i] for i, value in enumerate(values)]


def test_a_large_population_is_drawn_from_with_repeats_dropped_and_never_sorted_itself() -> None:
    """64 of 65 × 64, the smallest population that is not permuted whole: the 128 draws are what is sorted, and a value
    that they repeat, as is common here, is dropped."""
    population, n = 64 * 65, 64
    for step in range(200):
        with Largest() as largest:
            chosen = draws(2, step).choice("c", population, n)
        assert len(set(chosen.tolist())) == n
        assert largest.numbers == 2 * n


def test_uniform_values_are_strictly_between_zero_and_one() -> None:
    u = draws().uniform("u", 200_000)
    assert float(u.min()) > 0
    assert float(u.max()) < 1
    assert stats.kstest(u.numpy(), "uniform").pvalue > 1e-4
    # The extreme bit patterns too.
    extreme = torch.tensor([0, -1])
    ends = (shift_right(extreme, 41).float() + 0.5) * 2.0**-23
    assert 0 < float(ends[0]) < float(ends[1]) < 1


def test_neighbouring_steps_and_names_are_uncorrelated() -> None:
    n = 20_000
    first = draws(0, 0).normal("a", (n,))
    for other in (draws(0, 1).normal("a", (n,)), draws(1, 0).normal("a", (n,)), draws(0, 0).normal("b", (n,))):
        assert abs(np.corrcoef(first.numpy(), other.numpy())[0, 1]) < 5 / n**0.5
    assert abs(np.corrcoef(first[1:].numpy(), first[:-1].numpy())[0, 1]) < 5 / n**0.5


def test_normal_values_are_normal() -> None:
    z = draws(1).normal("z", (400, 500)).double().numpy()
    assert z.shape == (400, 500)
    assert abs(z.mean()) < 0.012
    assert abs(z.var() - 1) < 0.02
    for beyond in (1, 2, 3, 4):
        expected = 2 * stats.norm.sf(beyond)
        share = (np.abs(z) > beyond).mean()
        assert abs(share - expected) < 5 * (expected / z.size) ** 0.5 + 1e-6
    assert np.isfinite(z).all()


@pytest.mark.parametrize("alpha", [0.2, 1.0, 2.0])
def test_beta_moments(alpha: float) -> None:
    lam = draws(5).beta("λ", alpha, 100_000).double().numpy()
    assert lam.min() >= 0
    assert lam.max() <= 1
    assert abs(lam.mean() - 0.5) < 0.006
    assert abs(lam.var() - 1 / (4 * (2 * alpha + 1))) < 0.003
    for quantile in (0.1, 0.3, 0.7, 0.9):
        below = (lam < stats.beta(alpha, alpha).ppf(quantile)).mean()
        assert abs(below - quantile) < 0.008


@pytest.mark.parametrize("alpha", [0.2, 50.0, 1000.0])
def test_beta_has_no_outliers(alpha: float) -> None:
    """Where α is large, all λ are near ½."""
    lam = draws(5).beta("λ", alpha, 100_000).double().numpy()
    assert lam.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.02)
    assert stats.beta(alpha, alpha).cdf(lam.min()) > 1e-8


def test_the_hash_is_splitmix64() -> None:
    """The first outputs of the published generator for seed 1234567."""
    golden = 0x9E3779B97F4A7C15
    states = torch.tensor([signed(1234567 + (i + 1) * golden) for i in range(3)])
    outputs = [int(v) % 2**64 for v in mix64(states)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_keys_do_not_run_seed_and_name_together() -> None:
    assert len({key(1, "1/a"), key(11, "a"), key(1, "a"), key(0, "a")}) == 4


def test_layers_are_seeded_by_run_and_step() -> None:
    def drawn(seed: int, step: int) -> torch.Tensor:
        seed_layers(seed, step, torch.device("cpu"))
        return torch.rand(4)

    assert torch.equal(drawn(1, 2), drawn(1, 2))
    assert not torch.equal(drawn(1, 2), drawn(1, 3))
    assert not torch.equal(drawn(1, 2), drawn(2, 2))


def test_recorded_draws_return_what_they_are_given() -> None:
    asked: list[str] = []

    def values(name: str) -> torch.Tensor:
        asked.append(name)
        return torch.arange(6)

    recorded = RecordedDraws(values)
    assert recorded.normal("n", (2, 3)).shape == (2, 3)
    assert recorded.beta("b", 1.0, 6).tolist() == recorded.choice("c", 9, 6).tolist() == list(range(6))
    assert recorded.permutation("p", 6).tolist() == list(range(6))
    assert asked == ["n", "b", "c", "p"]
