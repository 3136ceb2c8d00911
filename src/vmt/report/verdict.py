"""The verdict on runs: did adaptation help, and how certain is that?"""

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Any

from vmt.report.signs import BAD, GOOD, UNKNOWN, WATCH, Sign, percent
from vmt.runs.record import RunRecord

SEED_NOTE = (
    "The intervals cover the choice of the test samples. They do not cover the choice of the seed: train with two or "
    "three more seeds before you rely on a small difference."
)

# What the headline says about one run, and about several, with a verdict of this tone.
ABOUT_ONE = {GOOD: "helped", WATCH: "is uncertain", BAD: "failed", UNKNOWN: "has nothing to be compared with"}
ABOUT_SEVERAL = {**ABOUT_ONE, WATCH: "are uncertain", UNKNOWN: "have nothing to be compared with"}


def verdict_on_all(runs: Sequence[RunRecord], verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The verdict at the top of the page: that on the only adapted run, or one on all of them."""
    adapted = [i for i, run in enumerate(runs) if run.kind == "adapted"] or list(range(len(runs)))
    notes = means_over_seeds(runs)
    if any(accuracy_of(run) for run in runs):
        notes.append(SEED_NOTE)
    if len(adapted) == 1:
        only = verdicts[adapted[0]]
        return {**only, "sentences": [*only["sentences"], *notes]}
    tones = [verdicts[i]["tone"] for i in adapted]
    counts = {tone: tones.count(tone) for tone in ABOUT_ONE if tone in tones}
    each = [f"{runs[i].method} in {runs[i].folder.name}: {verdicts[i]['headline']}" for i in adapted[:8]]
    counted = ", ".join(f"{n} {ABOUT_ONE[tone] if n == 1 else ABOUT_SEVERAL[tone]}" for tone, n in counts.items())
    if any(accuracy_of(runs[i]) for i in adapted):
        notes.append("The best of several runs, chosen by this accuracy, looks better than it is.")
    tone = tones[0] if set(tones) in ({GOOD}, {BAD}) else UNKNOWN
    return {"headline": f"Of {len(adapted)} runs, {counted}.", "tone": tone, "sentences": [*each, *notes]}


def verdict_on(
    run: RunRecord, others: Sequence[RunRecord], status: Mapping[str, str], signs: Sequence[Sign]
) -> dict[str, Any]:
    """A headline, its tone, and sentences about one run."""
    accuracy, gain = accuracy_of(run), gain_of(run, others)
    sentences: list[str] = []
    if status["kind"] != "finished":
        sentences.append(status["text"])
    if accuracy is not None:
        sentences.append(
            f"{run.method} has an accuracy of {percent(accuracy['value'])} on the target (95\u00a0% interval "
            f"{percent(accuracy['low'])} to {percent(accuracy['high'])}, {accuracy['samples']:,} labelled samples)."
        )
    if gain is not None:
        base = gain["base"]
        sentences.append(
            f"Without adaptation it is {percent(base['value'])} ({percent(base['low'])} to {percent(base['high'])}): a "
            f"difference of {points(gain['value'])} points ({points(gain['low'])} to {points(gain['high'])})."
        )
        sentences += renormalised_alone(gain["adabn"])
        sentences += share_of_the_way(run, gain, others)
    elif run.kind == "lower":
        sentences += renormalised_alone(adabn_of(run))
    head, tone = headline(run, status, accuracy, gain, signs)
    if accuracy is None:
        sentences += without_labels(signs)
    elif gain is None and run.kind == "adapted":
        sentences.append(
            "To see whether adaptation helped, train the same run with --method source_only, and report both."
        )
    return {"headline": head, "tone": tone, "sentences": sentences}


def headline(
    run: RunRecord,
    status: Mapping[str, str],
    accuracy: Mapping[str, Any] | None,
    gain: Mapping[str, Any] | None,
    signs: Sequence[Sign],
) -> tuple[str, str]:
    if status["kind"] == "collapsed":
        return "No: the run collapsed.", BAD
    so_far = " so far" if status["kind"] == "unfinished" else ""
    if not run.evaluations:
        return "Nothing has been measured yet.", UNKNOWN
    if run.kind == "lower":
        return "The lower bound: trained without the target.", UNKNOWN
    if run.kind == "upper":
        return "The upper bound: trained on target labels.", UNKNOWN
    if accuracy is not None and accuracy["low"] <= 1 / max(2, len(run.last["target"]["predicted_share"])):
        return f"No{so_far}: it is no better than guessing.", BAD
    if gain is not None:
        if gain["low"] > 0:
            return f"Yes{so_far}: adaptation helped.", GOOD
        if gain["high"] < 0:
            return f"No{so_far}: adaptation made it worse.", BAD
        return f"Uncertain{so_far}: the difference may be chance.", WATCH
    if accuracy is not None:
        return f"{percent(accuracy['value'])} accuracy on the target{so_far}, and nothing to compare it with.", UNKNOWN
    if any(sign.level == BAD for sign in signs):
        return "No target labels, and there are warning signs.", BAD
    return "Unknown without target labels; here are the signs.", UNKNOWN


def accuracy_of(run: RunRecord) -> dict[str, Any] | None:
    """The last accuracy on labelled target samples, with its interval; None without labels."""
    target = run.last.get("target") or {}
    if target.get("accuracy") is None:
        return None
    low, high = wilson(target["accuracy"], target["samples"])
    return {"value": target["accuracy"], "samples": target["samples"], "low": low, "high": high}


def gain_of(run: RunRecord, others: Sequence[RunRecord]) -> dict[str, Any] | None:
    """The difference to a lower bound on the same data, with the same seed if there is one; None without any."""
    mine = accuracy_of(run)
    lower = [other for other in others if other.kind == "lower" and other.data_key == run.data_key]
    lower = [other for other in lower if accuracy_of(other)]
    if mine is None or run.kind == "lower" or not lower:
        return None
    seed = run.spec.recipe.config.seed
    bound = next((other for other in lower if other.spec.recipe.config.seed == seed), lower[0])
    base = accuracy_of(bound)
    assert base is not None
    low, high = difference(mine["value"], mine["samples"], base["value"], base["samples"])
    return {"base": base, "value": mine["value"] - base["value"], "low": low, "high": high, "adabn": adabn_of(bound)}


def adabn_of(run: RunRecord) -> float | None:
    """The accuracy of a lower bound after AdaBN; None if it was not measured."""
    measured = (run.summary or {}).get("adabn") or {}
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


def without_labels(signs: Sequence[Sign]) -> list[str]:
    bad = sum(sign.level == BAD for sign in signs)
    watch = sum(sign.level == WATCH for sign in signs)
    low, high = wilson(0.85, 200)
    summary = "No sign is bad"
    if bad + watch:
        counts = ((bad, "bad"), (watch, "worth watching"))
        summary = "Among the signs, " + " and ".join(
            f"{n} {'is' if n == 1 else 'are'} {what}" for n, what in counts if n
        )
    return [
        f"There are no labels for the target, so its accuracy is unknown. {summary}: see the list of signs. Good signs "
        "rule out the known ways to fail; they do not prove that the classes are the right ones.",
        "To find out, label 200 random target samples and pass them with --target-test. At an accuracy of 85 % the "
        f"interval would be {percent(low)} to {percent(high)}.",
    ]


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


def wilson(share: float, samples: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a binomial share, which is accurate near 0 and 1 as well."""
    from scipy.stats import binomtest

    if samples < 1:
        return 0.0, 1.0
    interval = binomtest(round(share * samples), samples).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def difference(a: float, samples_a: int, b: float, samples_b: int) -> tuple[float, float]:
    """Newcombe's 95 % interval of a - b, from the two Wilson intervals.

    It treats the two shares as measured on different samples. If they are of the same samples, it is too wide.
    """
    low_a, high_a = wilson(a, samples_a)
    low_b, high_b = wilson(b, samples_b)
    below = sqrt((a - low_a) ** 2 + (high_b - b) ** 2)
    above = sqrt((high_a - a) ** 2 + (b - low_b) ** 2)
    return a - b - below, a - b + above
