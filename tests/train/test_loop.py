"""The training loop: watching for collapse, stopping, refusing what cannot work."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from vmt import InputError, methods
from vmt.data import Task
from vmt.engine.engine import STEPS, TOTAL, MetricSums
from vmt.evaluate.accuracy import Evaluation
from vmt.methods.nouns import Adam, Ramp
from vmt.nets import mlp
from vmt.train import Config, train
from vmt.train.collapse import collapse_in
from vmt.train.log import LOG, read_log
from vmt.train.loop import Outcome, next_stop

SPREAD = (0.25, 0.25, 0.25, 0.25)
PILED = (0.01, 0.01, 0.97, 0.01)


def evaluation(share: tuple[float, ...], accuracy: float | None = None) -> Evaluation:
    return Evaluation(100, accuracy, None, share, 0.1)


@pytest.mark.parametrize(
    ("target", "source", "best", "largest", "late", "says"),
    [
        (evaluation(SPREAD), evaluation(SPREAD, 0.9), 0.9, 0.25, True, None),
        (evaluation(PILED), evaluation(SPREAD, 0.9), 0.9, 0.25, False, "97% of the target is predicted as class 2"),
        (evaluation(PILED), evaluation(SPREAD, 0.2), 0.2, 0.25, False, None),  # has not learned yet
        (evaluation(PILED), evaluation(SPREAD, 0.2), 0.2, 0.25, True, "class 2"),  # should have
        (evaluation(PILED), evaluation(SPREAD, 0.9), 0.9, 0.95, True, None),  # one class rules the source as well
        (evaluation(SPREAD), evaluation(SPREAD, 0.11), 0.98, 0.25, False, "source accuracy fell from 98.0% to 11.0%"),
        (evaluation(SPREAD), None, 0.0, 0.25, True, None),
    ],
)
def test_when_a_run_has_collapsed(
    target: Evaluation, source: Evaluation | None, best: float, largest: float, late: bool, says: str | None
) -> None:
    sentence = collapse_in(target, source, best, largest, late)
    if says is None:
        assert sentence is None
    else:
        assert sentence is not None
        assert says in sentence
        assert "lower lambda_t" in sentence, "the remedy is named"
        named = collapse_in(target, source, best, largest, late, ("ant", "bee", "cat", "dog"))
        assert named == sentence.replace("class 2", "'cat'")


def short(**changes: object) -> Config:
    return replace(Config(batch_size=16, log_every=5, evaluate_every=10, checkpoint_every=10), **changes)


def test_a_run_that_collapses_says_so_and_stops_if_asked(task: Task, tmp_path: Path) -> None:
    """Entropy with an absurd weight and nothing against it: everything becomes one class."""
    method = methods.vada(lambda_d=0, lambda_s=0, lambda_t=1.0, radius=1e-3, optimiser=Adam(lr=0.05), iterations=1500)
    method = method.with_decay(0.9)
    # Without the source term nothing holds the classes apart.
    phase = method.phases[0]
    update = replace(phase.updates[-1], terms=tuple(t for t in phase.updates[-1].terms if t.name != "L_y"))
    method = replace(method, phases=(replace(phase, updates=(update,)),))
    flat = replace(task, target=replace(task.target, x=torch.zeros_like(task.target.x) + task.target.x[:1]))
    config = short(evaluate_every=100, stop_on_collapse=True)
    outcome = train(flat, method, lambda: mlp((6,), 4), config, tmp_path)
    assert outcome.loop_state.collapsed is not None
    assert "collapsed" in outcome.loop_state.collapsed
    assert not outcome.finished
    assert outcome.step < 1500
    # Resuming does not change it.
    again = train(flat, method, lambda: mlp((6,), 4), config, tmp_path, resume=True)
    assert (again.step, again.loop_state, again.finished) == (outcome.step, outcome.loop_state, False)
    weights = zip(outcome.network.parameters(), again.network.parameters(), strict=True)
    assert all(torch.equal(before, after) for before, after in weights)
    assert outcome.given_up
    assert again.given_up
    # A collapsed run that was interrupted, and not stopped for the collapse, can be resumed like any other.
    other = replace(config, stop_on_collapse=False)
    interrupted = train(flat, method, lambda: mlp((6,), 4), other, tmp_path, resume=True, budget=0.0)
    assert interrupted.loop_state.collapsed is not None
    assert not interrupted.finished
    assert not interrupted.given_up
    # A collapse at the last evaluation leaves nothing to stop.
    just_enough = method.with_iterations(outcome.step)
    ended = train(flat, just_enough, lambda: mlp((6,), 4), config)
    assert ended.loop_state.collapsed is not None
    assert ended.finished


def test_a_phase_without_the_source_may_forget_it(task: Task) -> None:
    """DIRT-T is such a phase. Here the target is the source with its classes renamed, so each contradicts the other."""
    first, second = methods.source_only(iterations=150), methods.target_only(iterations=150)
    method = replace(first, phases=(*first.phases, *second.phases))
    assert task.source.y is not None
    task = replace(task, target=replace(task.source, y=(task.source.y + 1) % 4))
    outcome = train(task, method, lambda: mlp((6,), 4), short(evaluate_every=150))
    before, after = (record["source"]["accuracy"] for record in outcome.records if "target" in record)
    assert before > 0.7
    assert after < 0.5 * before
    assert outcome.loop_state.collapsed is None


def test_a_run_that_does_not_learn_the_source_says_so(task: Task) -> None:
    """Here the labels belong to other samples."""
    random = torch.Generator().manual_seed(0)
    y = torch.randint(4, (len(task.source),), generator=random)
    mislabelled = replace(task, source=replace(task.source, y=y), source_test=replace(task.source, y=y.flip(0)))
    method = methods.source_only(iterations=700)
    outcome = train(mislabelled, method, lambda: mlp((6,), 4), short(evaluate_every=350))
    assert outcome.loop_state.collapsed is not None
    assert "learned nothing" in outcome.loop_state.collapsed
    assert train(task, method, lambda: mlp((6,), 4), short(evaluate_every=350)).loop_state.collapsed is None
    # A phase without the source, such as DIRT-T's, does not withdraw it.
    after = methods.target_only(iterations=100)
    mislabelled = replace(mislabelled, target=replace(task.source, name="target"))
    both = replace(method, phases=(*method.phases, *after.phases))
    again = train(mislabelled, both, lambda: mlp((6,), 4), short(evaluate_every=350))
    assert again.step == 800
    assert again.loop_state.collapsed == outcome.loop_state.collapsed


def test_a_loss_that_is_not_a_number_ends_the_run(task: Task) -> None:
    method = methods.source_only(optimiser=Adam(lr=1e38), iterations=40)
    with pytest.raises(InputError, match="not a number"):
        train(task, method, lambda: mlp((6,), 4), short())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_training_does_not_depend_on_the_callers_mode(task: Task, mode: type) -> None:
    def trained() -> list[torch.Tensor]:
        outcome = train(task, methods.vmt(iterations=3), lambda: mlp((6,), 4), short())
        return [p.detach() for p in outcome.network.parameters()]

    usual = trained()
    with mode():
        assert all(map(torch.equal, usual, trained()))
        assert not torch.is_grad_enabled()


def test_training_on_target_labels_needs_them(task: Task) -> None:
    with pytest.raises(InputError, match="target labels"):
        train(task, methods.target_only(iterations=2), lambda: mlp((6,), 4), short())


def test_a_domain_smaller_than_a_batch_is_used_whole(task: Task) -> None:
    small = replace(task, target=task.target.subset(torch.arange(5)))
    assert train(small, methods.vmt(iterations=2), lambda: mlp((6,), 4), short()).finished


def test_schedules_follow_the_phase(task: Task) -> None:
    """With a learning rate of 0 from half way, 20 iterations end where 10 with a constant one do."""
    stopping = Ramp(1e-2, 0.0, begin=0.49, until=0.4901)
    ended = []
    for lr, iterations in ((stopping, 20), (1e-2, 10), (1e-2, 20)):
        method = methods.source_only(optimiser=Adam(lr=lr), iterations=iterations).with_decay(0.0)
        outcome = train(task, method, lambda: mlp((6,), 4), short())
        ended.append(outcome.network.state_dict()["stages.logits.0.weight"])
    torch.testing.assert_close(ended[0], ended[1])
    assert not torch.allclose(ended[0], ended[2], rtol=0.01)


def test_the_loop_stops_where_something_is_due() -> None:
    phase = methods.dirt_t(methods.vmt(iterations=7), interval=6, iterations=30).phases[1]
    config = Config(log_every=10, evaluate_every=25, checkpoint_every=40)
    stops, done = [], 7
    while done < 37:
        done = next_stop(done, 7, phase, config)
        stops.append(done)
    assert stops == [10, 13, 19, 20, 25, 30, 31, 37]


def test_the_last_two_checkpoints_are_kept(task: Task, tmp_path: Path) -> None:
    train(task, methods.source_only(iterations=50), lambda: mlp((6,), 4), short(), out=tmp_path)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-000000040", "step-000000050"]
    state = torch.load(tmp_path / "checkpoints" / "step-000000050" / "state.pt", weights_only=True)
    assert int(state["tensors"]["step"]) == 50


def test_interrupted_between_two_records_the_log_is_that_of_an_unbroken_run(task: Task, tmp_path: Path) -> None:
    """Here the run is interrupted after every step, by a budget of no time at all."""
    method = methods.dirt_t(methods.vmt(iterations=6), interval=2, iterations=5)
    config = short(log_every=4, evaluate_every=8, checkpoint_every=100)

    def go(out: Path, budget: float | None, resume: bool = False) -> Outcome:
        out.mkdir(exist_ok=True)
        return train(task, method, lambda: mlp((6,), 4), config, out, resume, budget=budget)

    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    go(unbroken, None)
    outcome = go(broken, 0.0)
    while not outcome.finished:
        assert outcome.step < method.iterations
        outcome = go(broken, 0.0, resume=True)
    assert read_log(broken / LOG) == read_log(unbroken / LOG)


def test_restored_sums_stay_where_a_graph_adds_to_them() -> None:
    sums, metrics = MetricSums(), {"a": torch.tensor(2.0), "b": torch.tensor([1.0, 3.0])}
    sums.add_(metrics)
    sums.reset()
    assert sums.total is not None
    place, cpu = sums.total.data_ptr(), torch.device("cpu")
    assert sums.tensors() == {}
    saved = {TOTAL: torch.tensor([4.0, 3.0, 9.0]), STEPS: torch.tensor(3)}
    sums.restore_(saved, cpu)
    assert sums.total.data_ptr() == place
    sums.add_(metrics)
    sums.steps += 1
    assert {name: mean.tolist() for name, mean in sums.means().items()} == {"a": 1.5, "b": [1.0, 3.0]}
    other = MetricSums()  # of a version that measures less
    other.restore_(saved, cpu)
    other.add_({"a": torch.tensor(2.0)})
    other.steps += 1
    assert other.means() == {"a": torch.tensor(2.0)}
