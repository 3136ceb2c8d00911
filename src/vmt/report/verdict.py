"""Did it help, and how sure are we: in words."""

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Any

from vmt.report.signs import BAD, GOOD, UNKNOWN, WATCH, Sign, percent
from vmt.runs.record import RunRecord

Z = 1.959963984540054  # of 95 %


def wilson(share: float, samples: int) -> tuple[float, float]:
    """Wilson's interval of a binomial share: honest near 0 and 1, where share ± error is not."""
    if samples < 1:
        return 0.0, 1.0
    weight = Z * Z / samples
    centre = (share + weight / 2) / (1 + weight)
    half = sqrt(share * (1 - share) * weight + weight * weight / 4) / (1 + weight)
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def difference(a: float, samples_a: int, b: float, samples_b: int) -> tuple[float, float]:
    """Newcombe's interval of a - b, from the two Wilson intervals.

    It takes the two as measured on different samples. On the same samples it is on the wide side.
    """
    low_a, high_a = wilson(a, samples_a)
    low_b, high_b = wilson(b, samples_b)
    below = sqrt((a - low_a) ** 2 + (high_b - b) ** 2)
    above = sqrt((high_a - a) ** 2 + (b - low_b) ** 2)
    return a - b - below, a - b + above


SEED = (
    "The intervals say how far the choice of test samples may move these numbers. They do not cover the luck of the "
    "seed: train two or three more seeds before you rely on a small difference."
)

# What is said of runs by the tone of their verdicts.
OF_ONE = {GOOD: "helped", WATCH: "is unsure", BAD: "failed", UNKNOWN: "has nothing to be compared with"}
OF_SEVERAL = {**OF_ONE, WATCH: "are unsure", UNKNOWN: "have nothing to be compared with"}


def points(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-", "−")


def accuracy_of(run: RunRecord) -> dict[str, Any] | None:
    """The last measured accuracy on labelled target samples, with its interval; None without labels."""
    target = run.last.get("target") or {}
    if target.get("accuracy") is None:
        return None
    low, high = wilson(target["accuracy"], target["samples"])
    return {"value": target["accuracy"], "samples": target["samples"], "low": low, "high": high}


def against(run: RunRecord, others: Sequence[RunRecord]) -> dict[str, Any] | None:
    """The difference to the run that never saw the target, on the same data: the seed of the run itself, if there."""
    mine = accuracy_of(run)
    lower = [o for o in others if o.kind == "lower" and o.same_data == run.same_data and accuracy_of(o)]
    if mine is None or run.kind == "lower" or not lower:
        return None
    seed = run.spec.recipe.config.seed
    base = next((o for o in lower if o.spec.recipe.config.seed == seed), lower[0])
    theirs = accuracy_of(base)
    assert theirs is not None
    low, high = difference(mine["value"], mine["samples"], theirs["value"], theirs["samples"])
    return {"base": theirs, "value": mine["value"] - theirs["value"], "low": low, "high": high}


def judge_run(
    run: RunRecord, others: Sequence[RunRecord], status: Mapping[str, str], signs: Sequence[Sign]
) -> dict[str, Any]:
    """A headline and sentences about one run."""
    mine, gain = accuracy_of(run), against(run, others)
    said: list[str] = []
    if status["kind"] != "finished":
        said.append(status["text"])
    if mine is not None:
        said.append(
            f"{run.method} is right on {percent(mine['value'])} of the target (95\u00a0% interval "
            f"{percent(mine['low'])} to {percent(mine['high'])}, {mine['samples']:,} labelled samples)."
        )
    if gain is not None:
        base = gain["base"]
        said.append(
            f"Without adaptation it is {percent(base['value'])} ({percent(base['low'])} to {percent(base['high'])}): a "
            f"difference of {points(gain['value'])} points ({points(gain['low'])} to {points(gain['high'])})."
        )
        said += gap(run, gain, others)
    head, tone = headline(run, status, mine, gain, signs)
    if mine is None:
        said += without_labels(signs)
    elif gain is None and run.kind == "adapted":
        said.append("Whether adaptation helped needs its lower bound: train the same with --method source_only.")
    return {"headline": head, "tone": tone, "sentences": said}


def headline(
    run: RunRecord,
    status: Mapping[str, str],
    mine: Mapping[str, Any] | None,
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
    if mine is not None and mine["low"] <= 1 / max(2, len(run.last["target"]["predicted_share"])):
        return f"No{so_far}: it is no better than guessing.", BAD
    if gain is not None:
        if gain["low"] > 0:
            return f"Yes{so_far}: adaptation helped.", GOOD
        if gain["high"] < 0:
            return f"No{so_far}: adaptation made it worse.", BAD
        return f"Cannot tell{so_far}: the difference may be chance.", WATCH
    if mine is not None:
        return f"Right on {percent(mine['value'])} of the target{so_far}; nothing to compare with.", UNKNOWN
    if any(sign.level == BAD for sign in signs):
        return "No labels, and there are warning signs.", BAD
    return "Without target labels nobody can say; here are the signs.", UNKNOWN


def gap(run: RunRecord, gain: Mapping[str, Any], others: Sequence[RunRecord]) -> list[str]:
    upper = [o for o in others if o.kind == "upper" and o.same_data == run.same_data]
    top = accuracy_of(upper[0]) if upper else None
    if top is None or run.kind != "adapted" or gain["value"] <= 0 or top["value"] <= gain["base"]["value"]:
        return []
    closed = gain["value"] / (top["value"] - gain["base"]["value"])
    if closed > 1:
        return [f"That is more than a model trained on target labels has ({percent(top['value'])})."]
    way = f"{100 * closed:.0f}\u00a0% of the way"
    return [f"That is {way} to a model trained on target labels ({percent(top['value'])})."]


def without_labels(signs: Sequence[Sign]) -> list[str]:
    bad = sum(sign.level == BAD for sign in signs)
    watch = sum(sign.level == WATCH for sign in signs)
    low, high = wilson(0.85, 200)
    told = "No sign is alarming"
    if bad + watch:
        found = ((bad, "alarming"), (watch, "worth a look"))
        signs_are = " and ".join(f"{count} {'is' if count == 1 else 'are'} {what}" for count, what in found if count)
        told = f"Of the signs {signs_are}"
    return [
        f"There are no labels for the target, so its accuracy is unknown. {told}: see the list of signs. Good signs "
        "rule out the known ways to fail; they do not prove that the classes are the right ones.",
        "To know: label 200 target samples drawn at random and pass them with --target-test. At an accuracy of 85 % "
        f"that gives an interval of {percent(low)} to {percent(high)}.",
    ]


def over_seeds(runs: Sequence[RunRecord]) -> list[str]:
    """Mean and spread where there are several seeds of the same settings on the same data."""
    groups: dict[tuple[str, str, str], dict[int, float]] = {}
    for run in runs:
        if found := accuracy_of(run):
            seed = run.spec.recipe.config.seed
            groups.setdefault((run.method, run.settings, run.same_data), {})[seed] = found["value"]
    return [
        f"{method}: {100 * mean(values.values()):.1f} ± {100 * stdev(values.values()):.1f} % on the target "
        f"(mean and standard deviation of {len(values)} seeds)."
        for (method, _, _), values in groups.items()
        if len(values) > 1
    ]


def judge_all(runs: Sequence[RunRecord], judged: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The head of the page: of the one adapted run, or of all of them together."""
    adapted = [i for i, run in enumerate(runs) if run.kind == "adapted"] or list(range(len(runs)))
    notes = over_seeds(runs)
    if any(accuracy_of(run) for run in runs):
        notes.append(SEED)
    if len(adapted) == 1:
        only = judged[adapted[0]]
        return {**only, "sentences": [*only["sentences"], *notes]}
    tones = [judged[i]["tone"] for i in adapted]
    counts = {tone: tones.count(tone) for tone in OF_ONE if tone in tones}
    each = [f"{runs[i].method} in {runs[i].folder.name}: {judged[i]['headline']}" for i in adapted[:8]]
    told = ", ".join(f"{count} {OF_ONE[tone] if count == 1 else OF_SEVERAL[tone]}" for tone, count in counts.items())
    if any(accuracy_of(runs[i]) for i in adapted):
        notes.append("Taking the best of several runs by this accuracy makes it look better than it is.")
    tone = tones[0] if set(tones) in ({GOOD}, {BAD}) else UNKNOWN
    return {"headline": f"Of {len(adapted)} runs, {told}.", "tone": tone, "sentences": [*each, *notes]}
