"""What the validators see during a run, and the best model that is kept by their scores."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import vmt as library
from vmt import methods
from vmt.data import Domain, Task
from vmt.evaluate.accuracy import outputs_of
from vmt.evaluate.probe import BestModel, make_probe, student_of, subsample
from vmt.methods.nouns import Adam
from vmt.nets import Staged, mlp
from vmt.step.state import build_state
from vmt.train import Config, train


def test_validators_never_see_target_labels_or_source_samples_that_were_trained_on(task: Task) -> None:
    probe = make_probe(task, 50)
    assert probe is not None
    assert probe.target.y is None
    assert probe.source is not None
    held_out = {tuple(row) for row in probe.source.x.tolist()}
    assert held_out.isdisjoint(tuple(row) for row in task.source.x.tolist())
    assert (len(probe.target), len(probe.trained), len(probe.source)) == (50, 50, 20)
    again = make_probe(task, 50)
    assert again is not None
    assert torch.equal(probe.target.x, again.target.x), "every evaluation uses the same samples"


def test_a_subsample_does_not_miss_classes_that_alternate() -> None:
    """Every fourth of labels 0, 1, 2, 3, 0, 1 … is one class only."""
    y = torch.arange(400) % 4
    few = subsample(Domain(torch.zeros(400, 1), y, "turns"), 100)
    assert few.y is not None
    assert (few.y.bincount(minlength=4) > 10).all()


class Mode(nn.Module):
    """Adds 100 in training mode."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 100 * self.training


def test_networks_are_evaluated_in_evaluation_mode_and_left_in_their_own(task: Task) -> None:
    network = Staged({"hidden": nn.Linear(6, 5), "logits": nn.Sequential(nn.Linear(5, 4), Mode())})
    network.train()
    x = task.target.x[:7]
    counts: list[int] = []
    logits, features = outputs_of(network, x, task.preprocess, ("logits", "hidden"), 3, counts.append)
    assert network.training
    assert logits.abs().max() < 50
    assert features.shape == (7, 5)
    assert counts == [3, 3, 1]
    together, _ = outputs_of(network, x, task.preprocess, ("logits", "hidden"))
    torch.testing.assert_close(logits, together)


def test_a_probe_mixes_each_target_sample_with_its_partner(task: Task) -> None:
    network = Staged({"hidden": nn.Linear(6, 5), "logits": nn.Linear(5, 4)})
    probe = make_probe(task, 7)
    assert probe is not None
    x, preprocess = probe.target.x, task.preprocess
    by_hand = network(0.55 * preprocess(x) + 0.45 * preprocess(x[probe.partner]))["logits"]
    torch.testing.assert_close(probe.mixed_logits(network), by_hand.detach())


def test_the_student_is_the_network_that_is_averaged(task: Task) -> None:
    method = methods.vmt(iterations=3)
    state = build_state(method, lambda: mlp((6,), 4), (6,), 0, torch.device("cpu"))
    assert student_of(method, state) is state.roles["classifier"]


def test_the_first_of_equals_is_kept_and_one_with_an_alarm_gives_way() -> None:
    network = Staged({"logits": nn.Linear(2, 2)})
    best, about = BestModel("im"), None
    evaluations = [(1, 5.0, "one class"), (2, 1.0, None), (3, 1.0, None), (4, 9.0, "one class"), (5, None, None)]
    for step, score, alarm in evaluations:
        nn.init.constant_(network.stages["logits"].weight, step)
        seen = {"step": step, "phase": "vmt", "alarm": alarm, "target": {"accuracy": None}}
        about = best.consider({**seen, "validators": {"im": score}}, network, about)
    assert about is not None
    assert about["step"] == 2
    kept = best.model(network)
    assert kept is not None
    assert float(kept.stages["logits"].weight[0, 0].detach()) == 2.0


def test_adapt_returns_the_best_model_when_asked(task: Task) -> None:
    """The best of 60 iterations is the model that a run ends with which stops there."""
    source = (task.source.x, task.source.y)
    method = methods.source_only(optimiser=Adam(lr=0.05)).with_decay(0.0)

    def adapted(iterations: int, **config: Any) -> library.Model:
        given = {"evaluate_every": 5, "batch_size": 16, "progress": False, **config}
        return library.adapt(source, task.target.x, method, net="mlp", iterations=iterations, **given)

    best, last = adapted(60, keep_best="snd"), adapted(60)
    step = best.about["best"]["step"]
    assert step < 60, "or nothing is shown"
    x = task.target.x.numpy()
    np.testing.assert_array_equal(best.predict_proba(x), adapted(step).predict_proba(x))
    assert not np.allclose(best.predict_proba(x), last.predict_proba(x))


def test_a_run_without_validators_logs_none(task: Task) -> None:
    config = Config(batch_size=16, log_every=5, evaluate_every=5, checkpoint_every=5, validate_samples=0)
    outcome = train(task, methods.source_only(iterations=5), lambda: mlp((6,), 4), config)
    assert all("validators" not in record for record in outcome.records)
    assert outcome.best is None


def test_the_best_model_may_have_forgotten_the_source_in_dirt_t() -> None:
    network = Staged({"logits": nn.Linear(2, 2)})
    best, about = BestModel("source_accuracy"), None
    records: list[dict[str, Any]] = []
    for step, phase, accuracy, diversity in ((1, "vmt", 0.9, 2.0), (2, "dirt_t", 0.5, 2.1), (3, "dirt_t", 0.4, 1.5)):
        scores = {"source_accuracy": accuracy, "diversity": diversity, "entropy": -0.5}
        evaluation = {"step": step, "phase": phase, "alarm": None, "validators": scores, "target": {"accuracy": None}}
        about = best.consider(evaluation, network, about, records)
        records.append(evaluation)
    assert about is not None
    assert about["step"] == 2
