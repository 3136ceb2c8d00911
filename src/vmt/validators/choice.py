"""Choose one of several trained candidates without target labels, with source only as the answer when in doubt.

A validator ranks adapted models, but it cannot say whether adapting was right at all: a network that was trained on
the target is certain and clustered there, also where it is wrong. So a guard compares each candidate with the
*reference*, a model that was trained on the source alone, by how well their classes fit neighbourhoods of target
samples: in the reference's own features, or among the samples themselves. Neither was trained on the target, so no
candidate could make them agree with itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from vmt.errors import InputError
from vmt.validators.clusters import neighbour_agreement
from vmt.validators.evidence import Evidence, scores
from vmt.validators.predictions import collapse_alarm
from vmt.validators.refinement import refined_scores
from vmt.validators.registry import DEFAULT, check_name

REFERENCE = "source_only"
NEIGHBOURS = "neighbours"
"""Ranks the credible candidates by the fit to neighbourhoods, too, in place of a validator."""


@dataclass(frozen=True)
class Finding:
    """What is known about one candidate."""

    score: float | None
    """Its score by the validator."""
    neighbours: float
    """How well its classes fit the neighbourhoods in the reference's features
    (:func:`~vmt.validators.neighbour_agreement`)."""
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
    by: str = DEFAULT,
    space: Tensor | None = None,
    margin: float = 0.0,
) -> Choice:
    """Choose a candidate if it is credibly better than the reference, and otherwise the reference.

    ``candidates`` are the outputs of each on the same samples, with ``target`` and ``target_features`` at least.
    ``prior`` has the shares of the classes in the source, and ``shares`` an estimate of those in the target, if there
    is one; a class that is absent by it may be missing from the predictions. ``refines`` names, for each candidate that
    ends with DIRT-T, the candidate that it began from.

    A candidate is credible if it has no alarm and its classes agree better with the neighbourhoods of target samples
    than the reference's own classes do, by more than ``margin``. The neighbourhoods are those in ``space`` (N, …), such
    as the samples themselves, or in the reference's features. Credible candidates are ranked by the validator ``by``,
    or with ``by="neighbours"`` by this agreement.
    """
    if by != NEIGHBOURS:
        check_name(by)
    if reference not in candidates:
        raise InputError(f"there is no candidate {reference!r}: choose the reference from {', '.join(candidates)}.")
    refines = refines or {}
    for after, before in refines.items():
        if before not in candidates:
            raise InputError(f"{after} refines {before!r}, which is not a candidate: add its outputs.")
    space = _part(candidates, reference, "target_features") if space is None else space
    for name in candidates:
        if len(_part(candidates, name, "target")) != len(space):
            raise InputError(f"{name} has outputs for other target samples than {reference}: give the same to all.")
    raw = {name: scores(evidence, leave_out=() if by == "dev" else ("dev",)) for name, evidence in candidates.items()}
    agreed = {name: float(neighbour_agreement(space, _part(candidates, name, "target"))) for name in candidates}
    findings: dict[str, Finding] = {}
    for name in candidates:
        known = refined_scores(raw[refines[name]], raw[name]) if name in refines else raw[name]
        score = agreed[name] if by == NEIGHBOURS else known.get(by)
        alarm = collapse_alarm(_part(candidates, name, "target"), prior if shares is None else shares)
        doubt = None
        if name != reference:
            if score is None:
                doubt = f"it has no score by {by}"
            elif alarm is not None:
                doubt = f"it may have collapsed ({alarm})"
            elif not agreed[name] > agreed[reference] + margin:
                clearly = "not clearly" if margin else "no"
                doubt = (
                    f"its classes fit the neighbourhoods of the target {clearly} better than those of {reference} "
                    f"({agreed[name]:.2f} against {agreed[reference]:.2f})"
                )
        findings[name] = Finding(score, agreed[name], alarm, known, doubt)
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
