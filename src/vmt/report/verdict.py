"""The verdict on runs: did adaptation help, and how certain is that?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

from vmt.report.intervals import difference, wilson
from vmt.report.signs import BAD, GOOD, UNKNOWN, WATCH, percent
from vmt.report.standing import Standing, baseline_of, to_use
from vmt.report.without_labels import verdict_without_labels, verdict_without_labels_on_all
from vmt.runs.record import RunRecord

SEED_NOTE = (
    "The intervals cover the choice of the test samples. They do not cover the choice of the seed: train with two or "
    "three more seeds before you rely on a small difference."
)

# What the headline says about one run, and about several, with a verdict of this tone.
ABOUT_ONE = {GOOD: "helped", WATCH: "is uncertain", BAD: "failed", UNKNOWN: "cannot be judged"}
ABOUT_SEVERAL = {**ABOUT_ONE, WATCH: "are uncertain"}


def verdict_on_all(standings: Sequence[Standing], chosen: Standing | None) -> dict[str, Any]:
    """The verdict at the top of the page: that on the only adapted run, or one on all of them.

    ``chosen`` is the run to use, if one is usable.
    """
    runs = [each.run for each in standings]
    adapted = [each for each in standings if each.run.kind == "adapted"] or list(standings)
    if not any(accuracy_of(each.run) for each in adapted):
        return verdict_without_labels_on_all(standings, chosen)
    notes = [*means_over_seeds(runs), SEED_NOTE]
    verdicts = [verdict_on(each, standings) for each in adapted]
    if len(adapted) == 1:
        return {**verdicts[0], "sentences": [*verdicts[0]["sentences"], *notes]}
    tones = [verdict["tone"] for verdict in verdicts]
    counts = {tone: tones.count(tone) for tone in ABOUT_ONE if tone in tones}
    pairs = list(zip(adapted, verdicts, strict=True))[:8]
    each = [f"{standing.run.method} in {standing.name}: {verdict['headline']}" for standing, verdict in pairs]
    counted = ", ".join(f"{n} {ABOUT_ONE[tone] if n == 1 else ABOUT_SEVERAL[tone]}" for tone, n in counts.items())
    notes.append("The best of several runs, chosen by this accuracy, looks better than it is.")
    tone = tones[0] if set(tones) in ({GOOD}, {BAD}) else UNKNOWN
    return {"headline": f"Of {len(adapted)} runs, {counted}.", "tone": tone, "sentences": [*each, *notes]}


def run_to_use(standings: Sequence[Standing]) -> Standing | None:
    """The run to use: by its score and, as far as accuracies are known, not one that is worse than another kind.

    If adaptation helped some runs, it is one of them; and never one that adaptation made worse.
    """
    runs = [each.run for each in standings]
    gains = {id(each): gain for each in standings if (gain := gain_of(each.run, runs)) is not None}
    helped = [replace(each, fit=None) for each in standings if id(each) in gains and gains[id(each)]["low"] > 0]
    not_worse = [each for each in standings if id(each) not in gains or gains[id(each)]["high"] >= 0]
    found = to_use(helped) or to_use(not_worse)
    return None if found is None else next(each for each in standings if each.run is found.run)


def verdict_on(standing: Standing, others: Sequence[Standing]) -> dict[str, Any]:
    """A headline, its tone, and sentences about one run."""
    run, runs = standing.run, [each.run for each in others]
    accuracy, gain = accuracy_of(run), gain_of(run, runs)
    if accuracy is None:
        return verdict_without_labels(standing, others)
    sentences = [standing.reason] if standing.reason else []
    on = f" of {run.tested['name']}" if run.tested else ""
    sentences.append(
        f"{run.method} has an accuracy of {percent(accuracy['value'])} on the target (95\u00a0% interval "
        f"{percent(accuracy['low'])} to {percent(accuracy['high'])}, {accuracy['samples']:,} labelled samples{on})."
    )
    if gain is not None:
        base = gain["base"]
        sentences.append(
            f"Without adaptation it is {percent(base['value'])} ({percent(base['low'])} to {percent(base['high'])}): a "
            f"difference of {points(gain['value'])} points ({points(gain['low'])} to {points(gain['high'])})."
        )
        sentences += renormalised_alone(gain["adabn"])
        sentences += share_of_the_way(run, gain, runs)
    elif run.kind == "lower":
        sentences += renormalised_alone(adabn_of(run))
    elif run.kind == "adapted":
        sentences.append("Whether adaptation helped is unknown until a run without adaptation is beside it.")
    head, tone = headline(standing, accuracy, gain)
    return {"headline": head, "tone": tone, "sentences": sentences}


def headline(standing: Standing, accuracy: Mapping[str, Any], gain: Mapping[str, Any] | None) -> tuple[str, str]:
    run = standing.run
    if standing.state == "collapsed":
        return "No: the run collapsed.", BAD
    so_far = " so far" if standing.state == "unfinished" else ""
    if run.kind == "lower":
        return "The lower bound: trained without the target.", UNKNOWN
    if run.kind == "upper":
        return "The upper bound: trained on target labels.", UNKNOWN
    if accuracy["low"] <= 1 / max(2, len(run.last["target"]["predicted_share"])):
        return f"No{so_far}: it is no better than guessing.", BAD
    if gain is None:
        return f"{percent(accuracy['value'])} accuracy on the target{so_far}, and nothing to compare it with.", UNKNOWN
    if gain["low"] > 0 and not (standing.usable or so_far):
        return f"Yes, adaptation helped, but there is a warning sign: {standing.state}.", WATCH
    if gain["low"] > 0:
        return f"Yes{so_far}: adaptation helped.", GOOD
    if gain["high"] < 0:
        return f"No{so_far}: adaptation made it worse.", BAD
    return f"Uncertain{so_far}: the difference may be chance.", WATCH


def accuracy_of(run: RunRecord) -> dict[str, Any] | None:
    """The last accuracy on labelled target samples, with its interval; None without labels."""
    target = run.tested or run.last.get("target") or {}
    if target.get("accuracy") is None:
        return None
    low, high = wilson(target["accuracy"], target["samples"])
    return {"value": target["accuracy"], "samples": target["samples"], "low": low, "high": high}


def gain_of(run: RunRecord, others: Sequence[RunRecord]) -> dict[str, Any] | None:
    """The difference to source only on the same data; None without it."""
    mine = accuracy_of(run)
    lower = baseline_of(run, [other for other in others if accuracy_of(other)])
    if mine is None or run.kind == "lower" or lower is None:
        return None
    base = accuracy_of(lower)
    assert base is not None
    low, high = difference(mine["value"], mine["samples"], base["value"], base["samples"])
    return {"base": base, "value": mine["value"] - base["value"], "low": low, "high": high, "adabn": adabn_of(lower)}


def adabn_of(run: RunRecord) -> float | None:
    """The accuracy of a lower bound after AdaBN; None if it was not measured, or on other samples than ``--test``."""
    measured = {} if run.tested else (run.summary or {}).get("adabn") or {}
    accuracy: float | None = measured.get("target_accuracy")
    return accuracy


def renormalised_alone(accuracy: float | None) -> list[str]:
    """What batch-norm statistics of the target give without adaptation of the weights."""
    if accuracy is None:
        return []
    return [
        f"Re-normalising alone gives {percent(accuracy)}: the same weights as without adaptation, and batch-norm "
        "statistics of the target (AdaBN)."
    ]


def share_of_the_way(run: RunRecord, gain: Mapping[str, Any], others: Sequence[RunRecord]) -> list[str]:
    """How much of the distance between the lower and the upper bound a run has covered."""
    upper = [other for other in others if other.kind == "upper" and other.data_key == run.data_key]
    top = accuracy_of(upper[0]) if upper else None
    if top is None or run.kind != "adapted" or gain["value"] <= 0 or top["value"] <= gain["base"]["value"]:
        return []
    covered = gain["value"] / (top["value"] - gain["base"]["value"])
    if covered > 1:
        return [f"That is more than a model trained on target labels has ({percent(top['value'])})."]
    way = f"{100 * covered:.0f}\u00a0% of the way"
    return [f"That is {way} to a model trained on target labels ({percent(top['value'])})."]


def means_over_seeds(runs: Sequence[RunRecord]) -> list[str]:
    """Mean and standard deviation over the seeds of each method with the same settings on the same data."""
    groups: dict[tuple[str, str, str], dict[int, float]] = {}
    for run in runs:
        if accuracy := accuracy_of(run):
            seed = run.spec.recipe.config.seed
            groups.setdefault((run.method, run.settings_key, run.data_key), {})[seed] = accuracy["value"]
    return [
        f"{method}: {100 * mean(values.values()):.1f} ± {100 * stdev(values.values()):.1f} % on the target "
        f"(mean and standard deviation of {len(values)} seeds)."
        for (method, _, _), values in groups.items()
        if len(values) > 1
    ]


def points(value: float) -> str:
    """Percentage points with a sign."""
    return f"{100 * value:+.1f}".replace("-", "−")
