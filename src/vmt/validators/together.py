"""Which of the candidates of ``method="auto"`` answer together, without target labels.

Candidates are classifiers of two kinds: those that know the source alone, and those that adapt to the target. The
answer is an average of candidates, because they err on different samples. Which ones is decided by how well their
classes fit the neighbourhoods of target samples, among the samples themselves, which no candidate can change.

Smooth classes fit neighbourhoods better also where they are wrong, and one candidate may have found other clusters than
the classes. So candidates that adapt are credible if they fit better *on average*, by a :class:`Rule`. Where they
change few classes, nothing is at stake, and an average of all is better than any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vmt.errors import InputError
from vmt.validators.choice import Choice, Finding, neighbourhoods
from vmt.validators.clusters import neighbour_agreement
from vmt.validators.evidence import Evidence, scores
from vmt.validators.predictions import collapse_alarm, probabilities


@dataclass(frozen=True)
class Rule:
    """When candidates that adapt are believed, and which of them answer."""

    about_as_well: float
    """A candidate that adapts is part of the answer if it fits worse than the best by at most this."""
    gain: float
    """Those that adapt must fit better than source only by this; if it is negative, they may fit worse by as much."""
    gain_by_changed: float = 0.0
    """Beside that, they must fit better by this part of the share of the samples whose classes they change."""
    few_changed: float = 0.0
    """If adapting changes the classes of a smaller share of the samples, all candidates answer together."""
    among_samples: bool = False
    """Whether samples are always compared by their own values, and never in the features of source only."""
    by_kind: bool = False
    """Whether candidates of each kind, networks and kernel classifiers, have the same weight together."""


# By tasks for choosing of benchmarks/own_data.py and of benchmarks/own_data_more.py (docs/auto.md).
OF_SAMPLES = Rule(about_as_well=0.05, gain=0.0, gain_by_changed=0.2, few_changed=1 / 8)
# By benchmarks/styled_pictures.py (docs/photographs.md): on features of a pretrained network, adapting nearly always
# helps. These features have neighbourhoods of their own, whatever source only makes of them.
OF_FEATURES = Rule(about_as_well=0.2, gain=-0.2, among_samples=True, by_kind=True)
UNADAPTED_ABOUT_AS_WELL = 0.1
"""As ``about_as_well``, for candidates that do not adapt, of which there are only two."""
AVERAGE = "average"
"""The name of the mean of several candidates."""


@dataclass(frozen=True)
class Together:
    """Who answers, and why."""

    members: tuple[str, ...]
    """The candidates whose mean probabilities are the answer."""
    weights: tuple[float, ...]
    """Their weights in that mean."""
    adapted: bool
    """Whether a candidate that adapts is among them."""
    choice: Choice
    """What is known about each candidate; the one ``chosen`` is the first of the members, or AVERAGE of several."""


def answer_together(
    candidates: Mapping[str, Evidence],
    unadapted: Sequence[str],
    prior: Tensor,
    expected: Tensor | None = None,
    rule: Rule = OF_SAMPLES,
    averages: bool = True,
    kernels: Sequence[str] = (),
) -> Together:
    """Decide between the candidates that know the source alone, the ``unadapted``, and the others.

    ``candidates`` are the outputs of each on the same target samples. The first of the ``unadapted`` also says where
    neighbours are, as in :func:`~vmt.validators.choose`. ``prior`` has the shares of the classes in the source, and
    ``expected`` those in the target, if they are estimated to be others; a class that is absent by them may be missing
    from the predictions of a candidate. Without ``averages``, the best of the members answers alone. ``kernels`` are
    the candidates that are kernel classifiers.
    """
    if not unadapted or any(name not in candidates for name in unadapted):
        raise InputError(f"the candidates that do not adapt must be among {', '.join(candidates)}, not {unadapted}.")
    logits = {name: _target(name, evidence) for name, evidence in candidates.items()}
    first = candidates[unadapted[0]]
    neighbours = first.neighbours
    if neighbours is None or not rule.among_samples:
        neighbours = neighbourhoods(neighbours, logits[unadapted[0]], first.target_features)
    if neighbours is None:
        raise InputError(f"the outputs of {unadapted[0]} lack target_features: evaluate it on the target samples.")
    fits = {name: float(neighbour_agreement(neighbours, each)) for name, each in logits.items()}
    shares = prior if expected is None else expected
    alarms = {name: collapse_alarm(each, shares) for name, each in logits.items()}
    usable = [name for name in candidates if name not in unadapted and alarms[name] is None]
    cautious, bold = _best(fits, unadapted, UNADAPTED_ABOUT_AS_WELL), _best(fits, usable, rule.about_as_well)
    if not bold:
        members, why = cautious, "No candidate that adapts can be used, so source only is kept"
    else:
        one, other = (_mean(logits, each, _weights(each, kernels, rule)).argmax(1) for each in (bold, cautious))
        changed = float((one != other).double().mean())
        reached = max(fits[name] for name in unadapted)
        mean = sum(fits[name] for name in usable) / len(usable)
        fit = f"{mean:.2f} on average against {reached:.2f}, with {changed:.0%} of the classes changed"
        if changed < rule.few_changed:
            members, why = [*cautious, *bold], f"Adapting changes {changed:.0%} of the classes, so nothing is at stake"
        elif mean > reached + rule.gain + rule.gain_by_changed * changed:
            how = "clearly better" if rule.gain >= 0 else "well enough"
            members, why = bold, f"The classes of candidates that adapt fit the target {how} ({fit})"
        else:
            how = "do not fit the target clearly better" if rule.gain >= 0 else "fit the target clearly worse"
            members, why = cautious, f"Candidates that adapt {how} ({fit}), so source only is kept"
    members = sorted(members, key=lambda name: -fits[name])
    if not averages:
        members = members[:1]
    weights = _weights(members, kernels, rule)
    doubts = {name: _doubt(name, members, unadapted, fits, alarms) for name in candidates}
    found = {
        name: Finding(fits[name], fits[name], alarms[name], scores(evidence, leave_out=("dev",)), doubts[name])
        for name, evidence in candidates.items()
    }
    others = sorted((name for name in candidates if name not in members), key=lambda name: -fits[name])
    ranking = (*members, *others)
    if len(members) > 1:
        mean_logits = _mean(logits, members, weights).clamp_min(1e-12).log()
        fit_of_mean, alarm = float(neighbour_agreement(neighbours, mean_logits)), collapse_alarm(mean_logits, shares)
        of_mean = scores(Evidence(target=mean_logits, neighbours=neighbours))
        found[AVERAGE] = Finding(fit_of_mean, fit_of_mean, alarm, of_mean, None)
        ranking = (AVERAGE, *ranking)
    what = f"the mean of {_listed(members)}" if len(members) > 1 else members[0]
    rejected = [f"{name}: {doubts[name]}" for name in others]
    reason = f"{why}: the answer is {what}." + (f" Not part of it: {'; '.join(rejected)}." if rejected else "")
    adapted = any(name not in unadapted for name in members)
    return Together(tuple(members), tuple(weights), adapted, Choice(ranking[0], ranking, reason, found))


def _best(fits: Mapping[str, float], names: Sequence[str], worse: float) -> list[str]:
    """Those of the names that fit about as well as the best of them."""
    return [name for name in names if fits[name] >= max(fits[each] for each in names) - worse]


def _weights(names: Sequence[str], kernels: Sequence[str], rule: Rule) -> list[float]:
    """The weights of some candidates in their mean."""
    if not rule.by_kind:
        return [1.0] * len(names)
    alike = {name: [each for each in names if (each in kernels) == (name in kernels)] for name in names}
    return [1.0 / len(alike[name]) for name in names]


def _mean(logits: Mapping[str, Tensor], names: Sequence[str], weights: Sequence[float]) -> Tensor:
    """The mean probabilities of some candidates."""
    weighted = [weight * probabilities(logits[name]) for name, weight in zip(names, weights, strict=True)]
    return torch.stack(weighted).sum(0) / sum(weights)


def _doubt(
    name: str,
    members: Sequence[str],
    unadapted: Sequence[str],
    fits: Mapping[str, float],
    alarms: Mapping[str, str | None],
) -> str | None:
    """Why a candidate is not part of the answer; None if it is."""
    if name in members:
        return None
    if alarms[name] is not None and name not in unadapted:
        return f"it may have collapsed ({alarms[name]})"
    same_kind = [each for each in members if (each in unadapted) == (name in unadapted)]
    if same_kind:
        best = max(same_kind, key=lambda each: fits[each])
        return f"its classes fit the target less well than those of {best} ({fits[name]:.2f} against {fits[best]:.2f})"
    return f"it {'does not adapt' if name in unadapted else 'adapts'} (its classes fit the target by {fits[name]:.2f})"


def _target(name: str, evidence: Evidence) -> Tensor:
    if evidence.target is None:
        raise InputError(f"the outputs of {name} lack target: evaluate it on the target samples.")
    return evidence.target


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
