"""How much each candidate of ``method="auto"`` counts in the answer, without target labels.

Candidates are classifiers of two kinds: those that know the source alone, and those that adapt to the target. The
answer is a weighted mean of their probabilities, because they err on different samples. A candidate counts the more,
the better its classes fit the neighbourhoods of target samples, among the samples themselves, which no candidate can
change.

Smooth classes fit neighbourhoods better also where they are wrong, and a candidate that aligns the domains may have
found other clusters than the classes. So one that adapts counts the less, the more classes it changes that the nearest
samples of the source speak for: by a :class:`Rule`, its fit must grow with their share. One that knows the source alone
counts the less, the more often it is wrong on the source.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vmt.errors import InputError
from vmt.validators.choice import MANY_CHANGED, Choice, Finding
from vmt.validators.clusters import neighbour_agreement
from vmt.validators.evidence import Evidence, scores
from vmt.validators.predictions import collapse_alarm, probabilities, source_accuracy

AVERAGE = "average"
"""The name of the mean of several candidates."""
LEAST_WEIGHT = 0.05
"""A candidate that counts less than this part of the one that counts most is left out."""


@dataclass(frozen=True)
class Rule:
    """How much a candidate counts, by its value, which begins with its fit."""

    temperature: float
    """A candidate whose value is worse by this counts 1/e as much."""
    by_changed: float = 0.0
    """The value of a candidate that adapts is lowered by this times the share of the samples whose classes it changes,
    compared with those that do not adapt. A sample counts as much as the source speaks for the class before."""
    by_source: float = 0.0
    """The value of a candidate that does not adapt is lowered by this times what it loses on held-out samples of the
    source against the best of them."""
    floor: float | None = None
    """With a floor, a fit counts as −log(1 − fit + floor): clusters that are nearly clear of errors are rare by chance,
    so that the last errors count most. Without one, it counts as it is."""

    def of_fit(self, fit: float) -> float:
        """The value that a candidate begins with."""
        return fit if self.floor is None else -math.log(1 - fit + self.floor)


# By benchmarks/own_data_rules.py on the tasks for choosing (docs/auto.md).
OF_SAMPLES = Rule(temperature=0.2, by_changed=10.0, by_source=3.0, floor=0.01)
# By benchmarks/styled_pictures.py (docs/photographs.md): on features of a pretrained network, adapting nearly always
# helps, and every changed class counts alike, because the source says little about another style of pictures.
OF_FEATURES = Rule(temperature=0.2, by_changed=0.2)


@dataclass(frozen=True)
class Weighed:
    """How much each candidate counts."""

    logits: Mapping[str, Tensor]
    """Those of each candidate for the target samples."""
    neighbours: Tensor
    fits: Mapping[str, float]
    alarms: Mapping[str, str | None]
    shares: Tensor
    """The class shares that the target should have."""
    before: Tensor
    """The classes by those that do not adapt."""
    counts: Mapping[str, float]
    """How much a candidate without an alarm counts, beside the one that counts most."""
    weights: Mapping[str, float]
    """The weights of those that count enough, largest first. They sum to 1."""


@dataclass(frozen=True)
class Together:
    """Who answers, and why."""

    members: tuple[str, ...]
    """The candidates whose mean probabilities are the answer, first the one that counts most."""
    weights: tuple[float, ...]
    """Their weights in that mean, which sum to 1."""
    doubt: str | None
    """A sentence if it is in doubt whether adapting helps, although it changes many classes."""
    choice: Choice
    """What is known about each candidate; the one ``chosen`` is the first of the members, or AVERAGE of several."""


def weigh(
    candidates: Mapping[str, Evidence],
    unadapted: Sequence[str],
    prior: Tensor,
    expected: Tensor | None = None,
    support: Tensor | None = None,
    rule: Rule = OF_SAMPLES,
) -> Weighed:
    """How much each candidate counts; the arguments are those of :func:`answer_together`."""
    if not unadapted or any(name not in candidates for name in unadapted):
        raise InputError(f"the candidates that do not adapt must be among {', '.join(candidates)}, not {unadapted}.")
    logits = {name: _target(name, evidence) for name, evidence in candidates.items()}
    neighbours = candidates[unadapted[0]].neighbours
    if neighbours is None:
        raise InputError(f"the outputs of {unadapted[0]} lack neighbours: evaluate it on the target samples.")
    fits = {name: float(neighbour_agreement(neighbours, each)) for name, each in logits.items()}
    shares = prior if expected is None else expected
    alarms = {name: collapse_alarm(each, shares) for name, each in logits.items()}
    before = _classes(logits, dict.fromkeys(unadapted, 1.0))
    known = torch.ones_like(before) if support is None else support.to(before.device).gather(1, before[:, None])[:, 0]
    lost = {name: rule.by_changed * _differing(each.argmax(1), before, known) for name, each in logits.items()}
    lost |= {name: rule.by_source * each for name, each in _lost_on_source(candidates, unadapted).items()}
    worth = {name: rule.of_fit(fits[name]) - lost[name] for name in candidates if alarms[name] is None}
    counts = _counts(worth or {unadapted[0]: 0.0}, rule.temperature)
    return Weighed(logits, neighbours, fits, alarms, shares, before, counts, _weights(counts))


def answer_together(
    candidates: Mapping[str, Evidence],
    unadapted: Sequence[str],
    prior: Tensor,
    expected: Tensor | None = None,
    support: Tensor | None = None,
    rule: Rule = OF_SAMPLES,
    averages: bool = True,
) -> Together:
    """Decide between the candidates that know the source alone, the ``unadapted``, and the others.

    ``candidates`` are the outputs of each on the same target samples. The first of the ``unadapted`` also says where
    neighbours are, and answers if all have an alarm. ``prior`` has the shares of the classes in the source, and
    ``expected`` those in the target, if they are estimated to be others; a class that is absent by them may be missing
    from the predictions of a candidate. ``support`` (N, K) says how much the source speaks for each class of a sample
    (:func:`~vmt.validators.clusters.source_support`); without it, all changes count alike. Without ``averages``, one
    answers alone: of the kind that counts more, the one that fits best.
    """
    weighed = weigh(candidates, unadapted, prior, expected, support, rule)
    logits, fits, alarms, weights = weighed.logits, weighed.fits, weighed.alarms, weighed.weights
    adapting = {name: weight for name, weight in weighed.counts.items() if name not in unadapted}
    share = sum(weight for name, weight in weights.items() if name in adapting)
    doubt = None
    if adapting and share < 0.5:
        changed = _differing(_classes(logits, adapting), weighed.before)
        if changed >= MANY_CHANGED:
            doubt = (
                f"whether adapting helps is in doubt: it would change {changed:.0%} of the classes, and these do not "
                "fit the target well enough to be believed; label some samples of the target and compare with vmt "
                "evaluate"
            )
    if not averages:
        kind = [name for name in weights if (name in adapting) == (share >= 0.5)]
        weights = {max(kind, key=lambda name: fits[name]): 1.0}
    members = list(weights)
    found = {
        name: Finding(
            fits[name],
            fits[name],
            alarms[name],
            scores(evidence, leave_out=("dev",)),
            None if name in members else _left_out(alarms[name]),
        )
        for name, evidence in candidates.items()
    }
    others = sorted((name for name in candidates if name not in members), key=lambda name: -fits[name])
    ranking = (*members, *others)
    if len(members) > 1:
        mean_logits = _mean(logits, weights).clamp_min(1e-12).log()
        fit_of_mean = float(neighbour_agreement(weighed.neighbours, mean_logits))
        alarm = collapse_alarm(mean_logits, weighed.shares)
        of_mean = scores(Evidence(target=mean_logits, neighbours=weighed.neighbours))
        found[AVERAGE] = Finding(fit_of_mean, fit_of_mean, alarm, of_mean, None)
        ranking = (AVERAGE, *ranking)
    reason = _explained(weights, share, fits, found, others, doubt)
    return Together(tuple(members), tuple(weights.values()), doubt, Choice(ranking[0], ranking, reason, found))


def _lost_on_source(candidates: Mapping[str, Evidence], unadapted: Sequence[str]) -> dict[str, float]:
    """By how much the accuracy on held-out samples of the source is below the best; 0 without such samples."""
    parts = {name: (candidates[name].source, candidates[name].source_labels) for name in unadapted}
    known = {
        name: float(source_accuracy(logits, labels))
        for name, (logits, labels) in parts.items()
        if logits is not None and labels is not None
    }
    return {name: max(known.values()) - own for name, own in known.items()} | dict.fromkeys(parts.keys() - known, 0.0)


def _counts(worth: Mapping[str, float], temperature: float) -> dict[str, float]:
    """How much candidates count, beside the one that counts most."""
    best = max(worth.values())
    return {name: math.exp((value - best) / temperature) for name, value in worth.items()}


def _weights(counts: Mapping[str, float]) -> dict[str, float]:
    """The weights of the candidates that count enough, largest first. They sum to 1."""
    order = sorted(counts, key=lambda name: -counts[name])
    kept = [name for name in order if counts[name] >= LEAST_WEIGHT]
    return {name: counts[name] / sum(counts[each] for each in kept) for name in kept}


def _mean(logits: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """The mean probabilities of some candidates."""
    return torch.stack([weight * probabilities(logits[name]) for name, weight in weights.items()]).sum(0)


def _classes(logits: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """The classes that some candidates predict together."""
    return _mean(logits, weights).argmax(1)


def _differing(one: Tensor, other: Tensor, known: Tensor | float = 1.0) -> float:
    """The share of the samples for which the classes are different, where a sample counts as much as is ``known``."""
    return float((known * (one != other).double()).mean())


def _left_out(alarm: str | None) -> str:
    """Why a candidate is not part of the answer."""
    return "it counts much less" if alarm is None else f"it may have collapsed ({alarm})"


def _explained(
    weights: Mapping[str, float],
    share: float,
    fits: Mapping[str, float],
    found: Mapping[str, Finding],
    others: Sequence[str],
    doubt: str | None,
) -> str:
    """One paragraph on who answers."""
    parts = [f"{name} ({weight:.0%}, fit {fits[name]:.2f})" for name, weight in weights.items()]
    if len(parts) == 1:
        said = f"The answer is {next(iter(weights))}, whose classes fit the target by {fits[next(iter(weights))]:.2f}."
    else:
        said = (
            f"The answer is the weighted mean of {', '.join(parts[:-1])} and {parts[-1]}: the better the classes of a "
            "candidate fit the target, the more it counts, and the less, the more the source speaks against it. "
            f"Those that adapt have {share:.0%} of the weight."
        )
    if doubt is not None:
        said += f" {doubt[0].upper()}{doubt[1:]}."
    if others:
        said += f" Not part of it: {'; '.join(f'{name}: {found[name].doubt}' for name in others)}."
    return said


def _target(name: str, evidence: Evidence) -> Tensor:
    if evidence.target is None:
        raise InputError(f"the outputs of {name} lack target: evaluate it on the target samples.")
    return evidence.target
