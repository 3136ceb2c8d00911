"""Choose one of several trained candidates without target labels, with source only as the answer when in doubt.

A validator ranks adapted models, but it cannot say whether adapting was right at all: a network that was trained on
the target is certain and clustered there, also where it is wrong. So a guard compares each candidate with the
*reference*, a model that was trained on the source alone, by how well their classes fit neighbourhoods of target
samples. The neighbourhoods are those among the samples themselves or in the reference's features. Neither was trained
on the target, so no candidate could make them agree with itself.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from vmt.errors import InputError
from vmt.validators.clusters import nearest_neighbours, neighbour_agreement
from vmt.validators.evidence import Evidence, scores
from vmt.validators.predictions import collapse_alarm
from vmt.validators.refinement import refined_scores
from vmt.validators.registry import INFORMATIVE, check_name

REFERENCE = "source_only"
"""The method that does not adapt, with which every candidate is compared."""
NEIGHBOURS = "neighbours"
# If a candidate predicts other classes than the reference for at least this share of the samples, the domains differ
# enough for the neighbourhoods to decide. Below it, smoother classes fit neighbourhoods better without being right more
# often, so a candidate must fit clearly better, the more so the fewer samples there are. Chosen, like the two parts of
# the margin, on tasks for choosing of benchmarks/own_data.py and on tasks of benchmarks/validators_tasks.py.
MANY_CHANGED = 1 / 8
MARGIN, MARGIN_BY_SAMPLES = 0.03, 0.8
# A candidate that predicts other classes for many samples must fit better by this part of their share. Under covariate
# shift alone, aligning the domains changes many classes, and the new ones fit neighbourhoods hardly better.
GAIN_BY_CHANGED = 0.2


@dataclass(frozen=True)
class Fit:
    """How well the classes of a candidate, and those of the reference, fit neighbourhoods of target samples."""

    candidate: float
    """Its :func:`~vmt.validators.neighbour_agreement`."""
    reference: float
    changed: float
    """The share of samples for which the two predict different classes."""
    samples: int

    @property
    def margin(self) -> float:
        """By how much a candidate must fit better to be credible."""
        if self.changed >= MANY_CHANGED:
            return GAIN_BY_CHANGED * self.changed
        return MARGIN + MARGIN_BY_SAMPLES / math.sqrt(self.samples)

    @property
    def credible(self) -> bool:
        """Whether the candidate is credibly better than the reference."""
        return self.candidate > self.reference + self.margin


def neighbourhoods(neighbours: Tensor | None, logits: Tensor, features: Tensor | None) -> Tensor | None:
    """The neighbourhoods to compare candidates by, given those among the samples, and the reference's outputs.

    Where those among the samples say too little about classes, they are the ones in the reference's features.
    """
    if neighbours is not None and (features is None or neighbour_agreement(neighbours, logits) >= INFORMATIVE):
        return neighbours
    return None if features is None else nearest_neighbours(features)


def fit_of(neighbours: Tensor, candidate: Tensor, reference: Tensor) -> Fit:
    """Compare the logits (N, K) of a candidate and of the reference, given the ``neighbours`` of each sample."""
    return Fit(
        float(neighbour_agreement(neighbours, candidate)),
        float(neighbour_agreement(neighbours, reference)),
        float((candidate.argmax(1) != reference.argmax(1)).double().mean()),
        len(candidate),
    )


@dataclass(frozen=True)
class Finding:
    """What is known about one candidate."""

    score: float | None
    """Its score by the validator."""
    neighbours: float
    """How well its classes fit the neighbourhoods (:func:`~vmt.validators.neighbour_agreement`)."""
    alarm: str | None
    scores: Mapping[str, float | None]
    """Every validator; after DIRT-T, those of :func:`~vmt.validators.refined_scores`."""
    doubt: str | None
    """Why it is not credibly better than the reference; None if it is, and for the reference itself."""


@dataclass(frozen=True)
class Choice:
    """The answer of :func:`choose`."""

    chosen: str
    ranking: tuple[str, ...]
    """Credible candidates by their score, then the reference, then the others by their score."""
    reason: str
    """One paragraph for the user."""
    findings: Mapping[str, Finding]


def choose(
    candidates: Mapping[str, Evidence],
    prior: Tensor,
    *,
    reference: str = REFERENCE,
    refines: Mapping[str, str] | None = None,
    shares: Tensor | None = None,
    by: str = NEIGHBOURS,
) -> Choice:
    """Choose a candidate if it is credibly better than the reference, and otherwise the reference.

    ``candidates`` are the outputs of each on the same samples, with ``target`` at least, and ``neighbours`` or
    ``target_features`` for the reference. ``prior`` has the shares of the classes in the source, and ``shares`` an
    estimate of those in the target, if there is one; a class that is absent by it may be missing from the predictions.
    ``refines`` names, for each candidate that ends with DIRT-T, the candidate that it began from.

    A candidate is credible if it has no alarm and its classes fit the neighbourhoods of target samples better than the
    reference's own classes do; if it predicts the same classes for nearly all samples, they must fit clearly better.
    The neighbourhoods are those of the reference's evidence or, if it has none or they say little about classes, those
    in the reference's features. If it predicts other classes for many samples, they must fit better in proportion to
    their share. Credible candidates are ranked by the validator ``by``.
    """
    check_name(by)
    if reference not in candidates:
        raise InputError(f"there is no candidate {reference!r}: choose the reference from {', '.join(candidates)}.")
    refines = refines or {}
    for after, before in refines.items():
        if before not in candidates:
            raise InputError(f"{after} refines {before!r}, which is not a candidate: add its outputs.")
    of_reference, evidence = _part(candidates, reference, "target"), candidates[reference]
    neighbours = neighbourhoods(evidence.neighbours, of_reference, evidence.target_features)
    if neighbours is None:
        raise InputError(f"the outputs of {reference} lack target_features: evaluate it on the target samples.")
    for name in candidates:
        if len(_part(candidates, name, "target")) != len(neighbours):
            raise InputError(f"{name} has outputs for other target samples than {reference}: give the same to all.")
    raw = {name: scores(evidence, leave_out=() if by == "dev" else ("dev",)) for name, evidence in candidates.items()}
    fits = {name: fit_of(neighbours, _part(candidates, name, "target"), of_reference) for name in candidates}
    findings: dict[str, Finding] = {}
    for name, fit in fits.items():
        own = refined_scores(raw[refines[name]], raw[name]) if name in refines else raw[name]
        score = fit.candidate if by == NEIGHBOURS else own.get(by)
        alarm = collapse_alarm(_part(candidates, name, "target"), prior if shares is None else shares)
        doubt = None
        if name != reference:
            if score is None:
                doubt = f"it has no score by {by}"
            elif alarm is not None:
                doubt = f"it may have collapsed ({alarm})"
            elif not fit.credible:
                clearly = "not clearly" if fit.margin else "no"
                doubt = (
                    f"its classes fit the neighbourhoods of the target {clearly} better than those of {reference} "
                    f"({fit.candidate:.2f} against {fit.reference:.2f}, {fit.changed:.0%} of the classes changed)"
                )
        findings[name] = Finding(score, fit.candidate, alarm, own, doubt)
    others = sorted((n for n in candidates if n != reference), key=lambda n: _key(findings[n]), reverse=True)
    credible = [name for name in others if findings[name].doubt is None]
    ranking = (*credible, reference, *(name for name in others if name not in credible))
    return Choice(ranking[0], ranking, _reason(ranking[0], credible, findings, reference, by), findings)


def _part(candidates: Mapping[str, Evidence], name: str, part: str) -> Tensor:
    value: Tensor | None = getattr(candidates[name], part)
    if value is None:
        raise InputError(f"the outputs of {name} lack {part}: evaluate it on the target samples.")
    return value


def _key(finding: Finding) -> tuple[bool, float]:
    return finding.score is not None, finding.score or 0.0


def _reason(chosen: str, credible: list[str], findings: Mapping[str, Finding], reference: str, by: str) -> str:
    """Why this candidate was chosen, and why others were not."""
    rejected = [f"{name}: {finding.doubt}" for name, finding in findings.items() if finding.doubt]
    if chosen == reference:
        if not rejected:
            return f"{reference} is the only candidate."
        return f"No candidate is credibly better than {reference}, so {reference} is kept. {'; '.join(rejected)}."
    mine = findings[chosen]
    text = (
        f"{chosen} is chosen: its classes fit the neighbourhoods of the target better than those of {reference} "
        f"({mine.neighbours:.2f} against {findings[reference].neighbours:.2f}), and "
    )
    if len(credible) > 1:
        second = findings[credible[1]]
        if by == NEIGHBOURS:
            text += f"better than those of {len(credible) - 1} other candidates ({credible[1]}: {second.score:.2f})."
        else:
            text += f"its {by} is the highest of {len(credible)} credible candidates ({mine.score:.3f}; "
            text += f"{credible[1]} has {second.score:.3f})."
    else:
        text += "no other candidate is credible."
    return text + (f" Not credible: {'; '.join(rejected)}." if rejected else "")
