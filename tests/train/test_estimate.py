"""The estimate of the time that a run will still take, from given times of its parts."""

import pytest

from vmt import methods
from vmt.methods.nouns import Method
from vmt.train import Config
from vmt.train.estimate import Estimate, forward_passes

TAPS = dict.fromkeys(("classifier", "average", "teacher"), ("features", "hidden", "logits"))
TAPS["discriminator"] = ("domain",)


def two_phases(first: int = 100, second: int = 50) -> Method:
    return methods.dirt_t(methods.vmt(iterations=first), iterations=second, interval=10)


def estimate(method: Method, evaluate_every: int = 1000, saves: bool = False, evaluated: int = 0) -> Estimate:
    costs = [forward_passes(phase, TAPS) for phase in method.phases]
    config = Config(evaluate_every=evaluate_every, checkpoint_every=10, batch_size=10)
    return Estimate(method.phases, costs, config, evaluated, saves)


def test_a_backward_pass_costs_two_forward_passes() -> None:
    source_only = methods.source_only(iterations=1)
    (cost,) = (forward_passes(phase, TAPS) for phase in source_only.phases)
    vmt = forward_passes(two_phases().phases[0], TAPS)
    assert cost >= 3
    assert vmt > 4 * cost


def test_nothing_is_known_before_a_second_iteration() -> None:
    expected = estimate(two_phases())
    expected.enter(0, 0)
    expected.add_iterations(1, 60.0, waited=True)
    assert expected.left() is None
    assert expected.rate() is None
    assert not expected.is_founded


def test_compiling_and_capturing_are_not_the_pace_of_a_phase_but_count_for_the_next() -> None:
    method = two_phases()
    expected = estimate(method)
    expected.evaluation = 0.0
    expected.enter(0, 0)
    expected.add_iterations(1, 60.0, waited=True)
    expected.add_iterations(19, 19.0, waited=True)
    assert expected.is_founded
    assert expected.rate() == pytest.approx(1.0)
    first, second = expected.costs
    pace = second / first  # in seconds, because an iteration of the first phase takes one
    assert expected.left() == pytest.approx(80 + (60 - pace) + 50 * pace)
    expected.add_iterations(80, 80.0, waited=True)
    expected.enter(1, 100)
    expected.add_iterations(1, 30.0, waited=True)
    expected.add_iterations(9, 18.0, waited=True)
    assert expected.left() == pytest.approx(40 * 2.0), "measured, and no other phase to prepare"


def test_iterations_on_a_device_count_when_the_host_has_waited_for_them() -> None:
    expected = estimate(methods.vmt(iterations=1000))
    expected.enter(0, 0)
    expected.add_iterations(1, 5.0, waited=True)
    expected.add_iterations(50, 0.001, waited=False)
    assert expected.left() is None
    expected.add_iterations(50, 1.0, waited=True)
    assert expected.rate() == pytest.approx(100, rel=0.01)


def test_evaluations_and_checkpoints_count() -> None:
    expected = estimate(methods.vmt(iterations=100), evaluate_every=30, saves=True)
    expected.enter(0, 0)
    expected.add_iterations(1, 1.0, waited=True)
    expected.add_iterations(29, 29.0, waited=True)
    expected.evaluation, expected.saving = 2.0, 0.5
    assert expected.left() == pytest.approx(70 + 3 * 2.0 + 7 * 0.5), "at 60, 90 and the end; every ten iterations"


def test_the_first_evaluation_is_expected_from_the_samples_that_it_reads() -> None:
    one = estimate(methods.vmt(iterations=100), evaluated=0)
    other = estimate(methods.vmt(iterations=100), evaluated=1000)
    for expected in (one, other):
        expected.enter(0, 0)
        expected.add_iterations(1, 1.0, waited=True)
        expected.add_iterations(10, 10.0, waited=True)
    forwards = 1000 / 10  # batches
    assert other.left() == pytest.approx((one.left() or 0) + forwards / one.costs[0])


def test_a_resumed_run_has_the_rest_to_do() -> None:
    expected = estimate(two_phases())
    expected.evaluation = 0.0
    expected.enter(0, 120)
    expected.enter(1, 120)
    expected.add_iterations(1, 1.0, waited=True)
    expected.add_iterations(9, 9.0, waited=True)
    assert expected.left() == pytest.approx(20.0)


def test_a_pace_that_changes_is_followed() -> None:
    expected = estimate(methods.vmt(iterations=10_000))
    expected.evaluation = 0.0
    expected.enter(0, 0)
    expected.add_iterations(1, 1.0, waited=True)
    expected.add_iterations(100, 10.0, waited=True)
    for _ in range(20):
        expected.add_iterations(10, 10.0, waited=True)
    assert expected.rate() == pytest.approx(1.0, rel=0.1)
