"""What a run looks at to judge itself without target labels, and the best model it has seen by that.

The samples are the same at every look: scores of other samples, or of other numbers of them, do not compare.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from vmt.data.domains import Domain
from vmt.data.preprocess import Preprocess
from vmt.data.task import Task
from vmt.evaluate.accuracy import BATCH
from vmt.methods.nouns import Copy, Method
from vmt.nets.staged import Staged, evaluating
from vmt.step.state import State, predictor_of
from vmt.validators.evidence import Evidence, scores
from vmt.validators.predictions import LAMBDA, collapse_alarm, partners

# DEV fits a classifier to the features. Where they are wider than this it is left out, unless the run chooses by it.
WIDE = 256
PREFIX = "best/"


@dataclass(frozen=True)
class Probe:
    """Samples on which a run is validated: of the target without labels, of the source trained on, and held out."""

    target: Domain
    source: Domain | None
    trained: Domain
    prior: Tensor
    """The shares of the classes among the source's labels."""
    preprocess: Preprocess
    partner: Tensor

    def validate(self, network: Staged, student: Staged | None, by: str = "") -> dict[str, Any]:
        """The scores of the network that predicts, and whether it looks collapsed: what the log keeps of a look."""
        evidence = self.evidence(network, student)
        assert evidence.target is not None
        assert evidence.target_features is not None
        dear = ("dev",) if evidence.target_features.shape[1] > WIDE and by != "dev" else ()
        return {
            "validators": {n: v if v is None else float(f"{v:.6g}") for n, v in scores(evidence, dear).items()},
            "alarm": collapse_alarm(evidence.target, self.prior),
            "validated": len(self.target),
        }

    def evidence(self, network: Staged, student: Staged | None) -> Evidence:
        """What the networks say about the samples, in evaluation mode; tensors stay on the device."""
        target, target_features = outputs(network, self.target.x, self.preprocess)
        source, source_features = (
            (None, None) if self.source is None else outputs(network, self.source.x, self.preprocess)
        )
        return Evidence(
            target=target,
            target_features=target_features,
            student=None if student is None else outputs(student, self.target.x, self.preprocess)[0],
            mixed=outputs(network, self.target.x, self.preprocess, self.partner)[0],
            partner=self.partner,
            source=source,
            source_features=source_features,
            source_labels=None if self.source is None else self.source.y,
            trained_features=outputs(network, self.trained.x, self.preprocess)[1],
        )


def make_probe(task: Task, count: int) -> Probe | None:
    """At most ``count`` samples of each part of a task; None for 0."""
    if count == 0:
        return None
    assert task.source.y is not None
    target = some(task.target.without_labels(), count)
    return Probe(
        target=target,
        source=task.source_test and some(task.source_test, count),
        trained=some(task.source, count),
        prior=task.source.y.bincount(minlength=len(task.classes)) / len(task.source),
        preprocess=task.preprocess,
        partner=partners(len(target), target.x.device),
    )


@torch.inference_mode()
def outputs(
    network: nn.Module, x: Tensor, preprocess: Preprocess, partner: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits and what they are computed from, of stored samples, or of their mixtures with their partners."""
    parts = []
    with evaluating(network):
        for rows in torch.split(torch.arange(len(x), device=x.device), BATCH):
            inputs = preprocess(x[rows])
            if partner is not None:
                inputs = LAMBDA * inputs + (1 - LAMBDA) * preprocess(x[partner[rows]])
            taps = network(inputs)
            names = tuple(taps)
            parts.append((taps[names[-1]].float(), taps[names[max(len(names) - 2, 0)]].float().flatten(1)))
    logits, features = zip(*parts, strict=True)
    return torch.cat(logits), torch.cat(features)


def some(domain: Domain, count: int) -> Domain:
    """At most so many samples of a domain, always the same random ones; all of them for 0.

    Random, because samples that are evenly spaced may miss classes that come in turn.
    """
    if count == 0 or count >= len(domain):
        return domain
    order = torch.randperm(len(domain), generator=torch.Generator().manual_seed(0))
    return domain.subset(order[:count].sort().values)


def student_of(method: Method, state: State) -> Staged | None:
    """The networks being trained whose weight averages predict; None where the predictor is trained itself."""
    students = {name: role.of for name, role in method.roles.items() if isinstance(role, Copy)}
    if not any(name in students for name in method.predictor):
        return None
    return predictor_of(replace(method, predictor=tuple(students.get(name, name) for name in method.predictor)), state)


class Best:
    """A copy of the best network so far by one validator. It lives in the checkpoints, so a kill does not lose it."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.weights: dict[str, Tensor] = {}

    def consider(self, seen: Mapping[str, Any], network: Staged, best: dict[str, Any] | None) -> dict[str, Any] | None:
        """What is known of the best look, ``seen`` or the one before it; a better network is copied."""
        score = seen["validators"].get(self.by)
        if score is None or (best and standing(best["alarm"], best["score"]) >= standing(seen["alarm"], score)):
            return best
        self.weights = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
        about = {"by": self.by, "score": score, "target_accuracy": seen["target"]["accuracy"]}
        return about | {name: seen[name] for name in ("step", "phase", "alarm")}

    def tensors(self) -> dict[str, Tensor]:
        """The copy's weights as a checkpoint names them."""
        return {PREFIX + name: tensor for name, tensor in self.weights.items()}

    def take_from(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Take the copy out of a checkpoint's tensors, and return the others."""
        self.weights = {n.removeprefix(PREFIX): t for n, t in tensors.items() if n.startswith(PREFIX)}
        return {name: tensor for name, tensor in tensors.items() if not name.startswith(PREFIX)}

    def model(self, like: Staged) -> Staged | None:
        """The best network, built like the last one; None if none was kept."""
        if not self.weights:
            return None
        network = copy.deepcopy(like)
        network.load_state_dict(self.weights)
        return network


def standing(alarm: str | None, score: float) -> tuple[bool, float]:
    """By this, looks compare: those without an alarm are better than any with one."""
    return alarm is None, score
