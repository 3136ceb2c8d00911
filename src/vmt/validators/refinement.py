"""Scores of a model after DIRT-T, which does not train on the source.

DIRT-T may forget the source and be better for it on the target, so scores that read the source are too low afterwards.
The source could last say whether the classes have the right names at the end of the phase before. What DIRT-T did to
them since then is visible on the target alone: where it does harm, neighbouring samples get different classes, or some
classes swallow others.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from vmt.validators.registry import INFORMATIVE, VALIDATORS

REFINEMENT = "dirt_t"
"""The phase that does not train on the source."""
NOTICED = 0.02
"""The least change of the agreement with neighbourhoods that speaks for DIRT-T."""
CERTAINTY = 0.1
"""The weight of certainty beside even use of the classes, where ``neighbours`` is not known. DIRT-T makes every model
more certain, good or bad."""


def change_on_target(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> float | None:
    """What a phase changed on the target: the change of ``neighbours`` less 0.02.

    A smaller change does not count as a gain. DIRT-T then repeats what the model before it says about the samples that
    it trains on, and it may lose on new ones.

    Logs of earlier versions do not have ``neighbours``, and where it is below :data:`INFORMATIVE`, neighbours among the
    samples say nothing about classes. There, it is the change of ``diversity`` plus a tenth of that of ``entropy``.

    >>> change_on_target({"neighbours": 0.81}, {"neighbours": 0.88})
    0.05
    """
    agreed_before, agreed = before.get("neighbours"), after.get("neighbours")
    if agreed_before is not None and agreed is not None and max(agreed_before, agreed) >= INFORMATIVE:
        return float(f"{agreed - agreed_before - NOTICED:.6g}")
    parts = [scores.get(name) for name in ("diversity", "entropy") for scores in (before, after)]
    if None in parts:
        return None
    diversity_before, diversity, entropy_before, entropy = (part or 0.0 for part in parts)
    return float(f"{diversity - diversity_before + CERTAINTY * (entropy - entropy_before):.6g}")


def refined_scores(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> dict[str, float | None]:
    """The scores after DIRT-T, comparable with those of models without it.

    A score that reads the source is that of the model before DIRT-T plus :func:`change_on_target`. The others are
    unchanged. So no single part decides, and not one that is as high as it can be before and after.
    """
    change = change_on_target(before, after)
    refined = dict(after)
    for name in after:
        if change is not None and name in VALIDATORS and "source" in VALIDATORS[name].needs:
            score = before.get(name)
            refined[name] = None if score is None else float(f"{score + change:.6g}")
    return refined


def comparable_scores(evaluation: Mapping[str, Any], earlier: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """The scores to rank the model of an evaluation by; ``earlier`` are the evaluations of its run before it."""
    if evaluation["phase"] == REFINEMENT:
        before = [each for each in earlier if "validators" in each and each["phase"] != REFINEMENT]
        if before:
            return refined_scores(before[-1]["validators"], evaluation["validators"])
    return dict(evaluation["validators"])
