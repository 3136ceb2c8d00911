"""How a run is evaluated without target labels, and the best model by one of the validators.

All evaluations of a run use the same samples, because scores on other samples, or on another number of samples, are
not comparable.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vmt.data.domains import Domain
from vmt.data.preprocess import Preprocess
from vmt.data.task import Task
from vmt.evaluate.accuracy import feature_tap, logits_of, network_inputs, outputs_of, run_batches
from vmt.methods.nouns import Copy, Method
from vmt.nets.networks import Staged
from vmt.ranks.group import ALONE, Ranks
from vmt.step.state import State, predictor_of
from vmt.validators.class_shares import ClassShares, estimate_class_shares
from vmt.validators.clusters import nearest_neighbours, source_support
from vmt.validators.evidence import Evidence, scores
from vmt.validators.predictions import LAMBDA, collapse_alarm, partners
from vmt.validators.refinement import comparable_scores

# DEV fits a classifier to the features. With more features than this, only a run that keeps the best by DEV has it.
MAX_FEATURES_FOR_DEV = 256
SAMPLES_FOR_SHARES = 2000
# Where samples are compared without a network, larger images are shrunk to this many pixels on a side.
SIDE = 12
PREFIX = "best/"


@dataclass(frozen=True)
class Probe:
    """The samples on which a run is validated."""

    target: Domain
    """Target samples without labels."""
    source: Domain | None
    """Held-out source samples."""
    trained: Domain | None
    """Source samples that are trained on."""
    prior: Tensor
    """(K): the share of each class among the source's labels."""
    preprocess: Preprocess
    partner: Tensor
    """(N): the target sample that each target sample is mixed with."""

    @cached_property
    def neighbours(self) -> Tensor:
        """(N, 5): the target samples that are nearest to each one, among the samples themselves."""
        return nearest_neighbours(sample_rows(self.target.x, self.preprocess)).to(self.target.x.device)

    @cached_property
    def support(self) -> Tensor:
        """(N, K): how much the nearest samples of the source say for each class of a target sample."""
        assert self.trained is not None
        assert self.trained.y is not None
        target, source = (sample_rows(part.x, self.preprocess) for part in (self.target, self.trained))
        found = source_support(target, source, self.trained.y.cpu(), len(self.prior))
        return found.to(self.target.x.device)

    @property
    def samples(self) -> int:
        """The number of samples that pass through a network in a validation."""
        return 3 * len(self.target) + len(self.source or ()) + len(self.trained or ())

    def validate(self, network: Staged, student: Staged | None, by: str = "", ranks: Ranks = ALONE) -> dict[str, Any]:
        """The scores of the network that predicts, and a warning if it may have collapsed, as the log keeps them."""
        evidence = self.evidence(network, student, ranks)
        return ranks.from_first(lambda: self.judge(evidence, by))

    def judge(self, evidence: Evidence, by: str) -> dict[str, Any]:
        """The scores of what the networks have computed."""
        assert evidence.target is not None
        assert evidence.target_features is not None
        slow = ("dev",) if evidence.target_features.shape[1] > MAX_FEATURES_FOR_DEV and by != "dev" else ()
        return {
            "validators": {n: v if v is None else float(f"{v:.6g}") for n, v in scores(evidence, slow).items()},
            "alarm": collapse_alarm(evidence.target, self.prior),
            "validated": len(self.target),
        }

    def evidence(self, network: Staged, student: Staged | None, ranks: Ranks = ALONE) -> Evidence:
        """What the networks compute for the samples; the tensors are on their device."""
        target, target_features = self.outputs(network, self.target, ranks)
        source, source_features = (None, None) if self.source is None else self.outputs(network, self.source, ranks)
        evidence = Evidence(
            target=target,
            target_features=target_features,
            neighbours=self.neighbours,
            student=None if student is None else self.outputs(student, self.target, ranks)[0],
            mixed=self.mixed_logits(network, ranks),
            partner=self.partner,
            source=source,
            source_features=source_features,
            source_labels=None if self.source is None else self.source.y,
            trained_features=None if self.trained is None else self.outputs(network, self.trained, ranks)[1],
        )
        return evidence.on(target.device)  # the samples need not be there

    def outputs(self, network: Staged, domain: Domain, ranks: Ranks = ALONE) -> tuple[Tensor, Tensor]:
        """Logits (N, K), and the features (N, F) from which they are computed."""
        taps = (network.taps[-1], feature_tap(network))
        logits, features = outputs_of(network, domain.x, self.preprocess, taps, ranks=ranks)
        return logits, features.flatten(1)

    def mixed_logits(self, network: Staged, ranks: Ranks = ALONE) -> Tensor:
        """Logits (N, K) of mixtures of the target samples with their partners."""
        x, device = self.target.x, next(network.parameters()).device
        ranks = ranks.for_samples(len(x))
        share = ranks.share(len(x))
        own = network_inputs(x, self.preprocess, device, share=share)
        others = network_inputs(x, self.preprocess, device, order=self.partner, share=share)
        mixtures = (LAMBDA * a + (1 - LAMBDA) * b for a, b in zip(own, others, strict=True))
        (logits,) = run_batches(network, mixtures, len(x), network.taps[-1:], ranks=ranks)
        return logits


def make_probe(task: Task, count: int) -> Probe | None:
    """A probe of at most ``count`` samples of each part of a task; None if ``count`` is 0."""
    if count == 0:
        return None
    target = subsample(task.target.without_labels(), count)
    return Probe(
        target=target,
        source=task.source_test and subsample(task.source_test, count),
        trained=subsample(task.source, count),
        prior=source_shares(task),
        preprocess=task.preprocess,
        partner=partners(len(target), target.x.device),
    )


def subsample(domain: Domain, count: int) -> Domain:
    """At most ``count`` samples of a domain, always the same; all of them if ``count`` is 0.

    They are chosen at random, because evenly spaced samples may miss classes that alternate.
    """
    if count == 0 or count >= len(domain):
        return domain
    order = torch.randperm(len(domain), generator=torch.Generator().manual_seed(0))
    return domain.subset(order[:count].sort().values)


def sample_rows(samples: Tensor, preprocess: Preprocess) -> Tensor:
    """What a network would see of each sample, as one row of numbers; large images are shrunk."""
    rows = []
    for x in network_inputs(samples, preprocess, torch.device("cpu")):
        if x.ndim == 4 and max(x.shape[2:]) > SIDE:
            x = F.adaptive_avg_pool2d(x, (min(SIDE, x.shape[2]), min(SIDE, x.shape[3])))
        rows.append(x.flatten(1))
    return torch.cat(rows).double()


def class_shares_of(network: Staged, task: Task, count: int = SAMPLES_FOR_SHARES) -> ClassShares | None:
    """The class shares of a task's target by the predictions of a network; None without held-out source samples.

    At most ``count`` samples of each domain are used.
    """
    if task.source_test is None:
        return None
    source, target = subsample(task.source_test, count), subsample(task.target, count)
    assert source.y is not None
    logits = [logits_of(network, part.x, task.preprocess) for part in (target, source)]
    return estimate_class_shares(logits[0], logits[1], source.y, source_shares(task))


def source_shares(task: Task) -> Tensor:
    """(K): the share of each class among the source's labels."""
    assert task.source.y is not None
    return task.source.y.bincount(minlength=len(task.classes)) / len(task.source)


def student_of(method: Method, state: State) -> Staged | None:
    """The trained network whose weight average predicts; None if the predictor itself is trained."""
    students = {name: role.of for name, role in method.roles.items() if isinstance(role, Copy)}
    if not any(name in students for name in method.predictor):
        return None
    return predictor_of(replace(method, predictor=tuple(students.get(name, name) for name in method.predictor)), state)


class BestModel:
    """A copy of the best network so far by one validator. Checkpoints hold it, so that a kill does not lose it."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.weights: dict[str, Tensor] = {}

    def consider(
        self,
        evaluation: Mapping[str, Any],
        network: Staged,
        best: dict[str, Any] | None,
        earlier: Iterable[Mapping[str, Any]] = (),
    ) -> dict[str, Any] | None:
        """What is known about the best evaluation: this one or ``best``. A better network is copied.

        ``earlier`` are the records of the run before this evaluation.
        """
        score = comparable_scores(evaluation, earlier).get(self.by)
        if score is None or (
            best and ranking_key(best["alarm"], best["score"]) >= ranking_key(evaluation["alarm"], score)
        ):
            return best
        self.weights = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
        about = {"by": self.by, "score": score, "target_accuracy": evaluation["target"]["accuracy"]}
        return about | {name: evaluation[name] for name in ("step", "phase", "alarm")}

    def tensors(self) -> dict[str, Tensor]:
        """The weights of the copy under the names that a checkpoint gives them."""
        return {PREFIX + name: tensor for name, tensor in self.weights.items()}

    def take_from(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Take the copy out of the tensors of a checkpoint, and return the other tensors."""
        self.weights = {n.removeprefix(PREFIX): t for n, t in tensors.items() if n.startswith(PREFIX)}
        return {name: tensor for name, tensor in tensors.items() if not name.startswith(PREFIX)}

    def model(self, like: Staged) -> Staged | None:
        """The best network, with the layers of ``like``; None if no network was kept."""
        if not self.weights:
            return None
        network = copy.deepcopy(like)
        network.load_state_dict(self.weights)
        return network


def ranking_key(alarm: str | None, score: float) -> tuple[bool, float]:
    """The key by which evaluations are compared: any without an alarm is better than any with one."""
    return alarm is None, score
