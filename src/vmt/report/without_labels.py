"""The verdict on runs whose accuracy is unknown: what their scores and predictions say, and what they do not."""

from collections.abc import Mapping, Sequence
from typing import Any

from vmt.errors import few
from vmt.report.intervals import wilson
from vmt.report.signs import BAD, UNKNOWN, WATCH, percent
from vmt.report.standing import Standing, baseline_among, best_first, to_use
from vmt.runs.ranking import any_refined
from vmt.validators.choice import Fit
from vmt.validators.registry import DEFAULT, VALIDATORS

LISTED = 8


def verdict_without_labels_on_all(standings: Sequence[Standing], chosen: Standing | None) -> dict[str, Any]:
    """A headline that names the run to use or says that there is none, its tone, and what is known about all runs."""
    if len({each.run.data_key for each in standings}) > 1:
        return on_several_data_sets(standings)
    head, tone = headline(standings, chosen)
    base = None if chosen is None else baseline_among(chosen, standings)
    sentences = []
    if chosen is not None:
        sentences += [*compared_with_source_only(chosen, base), *what_a_score_is(standings)]
    others = [each for each in best_first(standings) if each is not chosen and each is not base]
    sentences += [about_another(each) for each in others[:LISTED]]
    return {"headline": head, "tone": tone, "sentences": [*sentences, what_labels_would_tell()]}


def headline(standings: Sequence[Standing], chosen: Standing | None) -> tuple[str, str]:
    """What can be said about all runs on one data set."""
    if chosen is None:
        if all(each.state == "unfinished" for each in standings):
            return nothing_yet(standings), UNKNOWN
        if len(standings) == 1:
            return f"{standings[0].name} is not usable: {standings[0].state}.", BAD
        return f"None of these {len(standings)} runs is usable.", BAD
    adapted = [each for each in standings if each.run.kind == "adapted"]
    if chosen.run.kind == "lower" and adapted:
        if not any(each.usable for each in adapted):
            return f"No adapted run is usable; {chosen.name}, without adaptation, remains.", BAD
        return f"Accuracy unknown; no adapted run is credibly better than {chosen.name}{scores(chosen, None)}.", WATCH
    tone = WATCH if chosen.warnings or chosen.reason else UNKNOWN
    if chosen.score is None:
        return f"Accuracy unknown, and no label-free score: {chosen.name} has no bad sign.", tone
    highest = max(each.score or 0.0 for each in standings if each.usable)
    which = "best label-free score" if chosen.score == highest else "best credible score"
    which = "label-free score" if len(standings) == 1 else which
    return f"Accuracy unknown; {which}: {chosen.name}{scores(chosen, baseline_among(chosen, standings))}.", tone


def nothing_yet(standings: Sequence[Standing]) -> str:
    if not any(each.run.evaluations for each in standings):
        return "Nothing has been measured yet."
    return f"{standings[0].name} has not finished." if len(standings) == 1 else "None of these runs has finished."


def scores(standing: Standing, base: Standing | None) -> str:
    """The score of a run and, in the same brackets, that of source only."""
    if standing.score is None:
        return ""
    beside = "" if base is None or base.score is None else f", source only {base.score:.2f}"
    return f" ({standing.score:.2f}{beside})"


def compared_with_source_only(chosen: Standing, base: Standing | None) -> list[str]:
    """What is known of the difference between a run and source only, and what is not."""
    if chosen.run.kind == "lower":
        return [f"{chosen.name} was trained without the target."]
    if base is None:
        return ["There is no source-only run to compare it with, so it is unknown what adaptation changed."]
    sentences = []
    if chosen.score is not None and base.score is not None:
        more = chosen.score - base.score
        sentences.append(
            f"{base.name} (source only) is what the other runs are compared with: {chosen.name} scores "
            f"{abs(more):.2f} {'more' if more >= 0 else 'less'}."
        )
    elif chosen.score is not None:
        sentences.append("Source only is among the runs, but has no score.")
    if chosen.fit is not None:
        sentences.append(how_it_fits(chosen.fit))
    if chosen.agreement is not None:
        sentences.append(
            f"Both predict the same class for {percent(chosen.agreement)} of the target samples. It is not known which "
            f"of the two is right about the other {percent(1 - chosen.agreement)}."
        )
    return [" ".join(sentences)] if sentences else []


def how_it_fits(fit: Fit) -> str:
    """Whether neighbouring samples have equal classes."""
    better = "better than" if fit.credible else "not clearly better than" if fit.margin else "no better than"
    return (
        f"Neighbouring target samples should have equal classes: its classes fit {better} those of source only "
        f"({fit.candidate:.2f} against {fit.reference:.2f}; they differ for {percent(fit.changed)} of the samples)."
    )


def what_a_score_is(standings: Sequence[Standing]) -> list[str]:
    models = [each.model for each in standings if each.model is not None and each.score is not None]
    if not models:
        return []
    text = (
        f"The score is {DEFAULT}: {VALIDATORS[DEFAULT].text}. Higher is better. It ranks runs and is not an accuracy."
    )
    if any_refined(models, DEFAULT):
        text += " After DIRT-T, it is that of the model before it plus what DIRT-T changed on the target."
    return [text]


def about_another(standing: Standing) -> str:
    """One line about a run that is not the one to use."""
    if standing.usable and standing.fit is not None and not standing.credible:
        return f"{standing.name}{scores(standing, None)} is usable, but in doubt. {how_it_fits(standing.fit)}"
    if standing.usable:
        return f"{standing.name} is usable as well{scores(standing, None)}. {standing.reason}".rstrip()
    return f"{standing.name} is not usable. {standing.reason}"


def what_labels_would_tell() -> str:
    low, high = wilson(0.85, 200)
    return (
        f"With 200 labelled target samples, the accuracy would be known to about ± {100 * (high - low) / 2:.0f} "
        f"points: for 85\u00a0%, the interval is {percent(low)} to {percent(high)}."
    )


def on_several_data_sets(standings: Sequence[Standing]) -> dict[str, Any]:
    """The verdict on runs on different data, whose scores cannot be compared."""
    groups: dict[str, list[Standing]] = {}
    for each in standings:
        groups.setdefault(each.run.data_key, []).append(each)
    verdicts = [verdict_without_labels_on_all(group, to_use(group)) for group in groups.values()]
    names = [chosen.name for group in groups.values() if (chosen := to_use(group)) is not None]
    best = f"use {few(names)}" if names else "none of these runs is usable"
    return {
        "headline": f"Accuracy unknown on {len(groups)} data sets; {best}.",
        "tone": UNKNOWN if names else BAD,
        "sentences": [
            "These runs are on different data, so their scores are compared only within each data set.",
            *(verdict["headline"] for verdict in verdicts),
            what_labels_would_tell(),
        ],
    }


def verdict_without_labels(standing: Standing, others: Sequence[Standing]) -> dict[str, Any]:
    """A headline, its tone, and sentences about one run."""
    head, tone = headline_of_one(standing, baseline_among(standing, others))
    sentences = [standing.reason] if standing.reason else []
    if standing.run.kind == "adapted" and standing.usable:
        sentences += compared_with_source_only(standing, baseline_among(standing, others))
    return {"headline": head, "tone": tone, "sentences": [*sentences, *count_of_signs(standing)]}


def headline_of_one(standing: Standing, base: Standing | None) -> tuple[str, str]:
    if not standing.run.evaluations:
        return "Nothing has been measured yet.", UNKNOWN
    if standing.state == "unfinished":
        return f"Not finished; accuracy unknown, label-free score so far{scores(standing, base) or ': none'}.", UNKNOWN
    if not standing.usable:
        return f"Not usable: {standing.state}.", BAD
    tone = WATCH if standing.reason or standing.warnings else UNKNOWN
    if standing.run.kind == "lower":
        return f"Source only{scores(standing, None)}: what the other runs are compared with.", tone
    if standing.score is None:
        return "Accuracy unknown, and no label-free score.", tone
    return f"Accuracy unknown; label-free score{scores(standing, base)}.", tone


def count_of_signs(standing: Standing) -> list[str]:
    """How many of the signs are bad or worth watching."""
    levels: Mapping[str, str] = {BAD: "bad", WATCH: "worth watching"}
    counts = {level: sum(sign.level == level for sign in standing.signs) for level in levels}
    found = " and ".join(f"{n} {'is' if n == 1 else 'are'} {levels[level]}" for level, n in counts.items() if n)
    summary = f"Among the signs, {found}." if found else "No sign is bad."
    return [f"{summary} Good signs rule out the known ways to fail; they do not prove that the classes are right."]
