"""Signs of a run's health that need no target labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from vmt.runs.record import RunRecord, last_phase_trains_on_source
from vmt.train.collapse import FALLEN, is_too_large
from vmt.validators.registry import DEFAULT

GOOD, WATCH, BAD, UNKNOWN = "good", "watch", "bad", "unknown"
TOO_SHORT = "too short"
# A model that gains so much in the last third of its run has not learned its task yet, or could be better.
RISING_SOURCE, RISING_SCORE = 0.1, 0.05


@dataclass(frozen=True)
class Sign:
    """An observation, and whether it is good, worth watching, bad or neither."""

    level: str
    text: str
    name: str = ""
    """A word or two for a bad sign, which then is the state of the run."""


def percent(value: float) -> str:
    return f"{100 * value:.1f}\u00a0%"


def signs_of(
    run: RunRecord, status: Mapping[str, str], source_shares: Sequence[float] | None, classes: Sequence[str]
) -> list[Sign]:
    """All signs in the log of a run."""
    signs = []
    if status["kind"] == "collapsed":
        signs.append(Sign(BAD, status["text"]))
    elif status["kind"] == "unfinished":
        signs.append(Sign(WATCH, status["text"]))
    if run.evaluations:
        signs += [*alarm_sign(run), *source_sign(run), *length_sign(run)]
        signs += [*share_signs(run, source_shares, classes), *entropy_sign(run)]
    return [*signs, *discriminator_sign(run)]


def alarm_sign(run: RunRecord) -> list[Sign]:
    """The alarm of the last evaluation, and the iteration of the model that was kept as the best."""
    alarm, best = run.last.get("alarm"), (run.summary or {}).get("best")
    signs = [Sign(BAD, f"The collapse alarm of the last evaluation: {alarm}.", "alarm")] if alarm else []
    if best:
        text = f"The best model by {best['by']} is that of iteration {best['step']:,} (score {best['score']:.4g})"
        signs.append(Sign(WATCH if best["alarm"] else GOOD, f"{text}; it was kept beside the last one."))
    return signs


def source_sign(run: RunRecord) -> list[Sign]:
    sources = [record["source"] for record in run.evaluations if record.get("source")]
    values = [source["accuracy"] for source in sources if source.get("accuracy") is not None]
    if not values:
        return []
    now, best = values[-1], max(values)
    if run.kind == "upper":
        return [Sign(UNKNOWN, f"Source accuracy is {percent(now)}; this method does not train on the source.")]
    if best <= 2 / len(run.last["target"]["predicted_share"]) and best < 0.5:
        text = f"Source accuracy never rose above {percent(best)}: the model has not learned its task."
        return [Sign(BAD, text, "not learned")]
    if now < best - 0.1 and not last_phase_trains_on_source(run):
        text = f"Source accuracy is {percent(now)}; DIRT-T does not train on the source and may forget it."
        return [Sign(UNKNOWN, text)]
    if now < FALLEN * best:
        text = f"Source accuracy fell from {percent(best)} to {percent(now)}: the model forgets its task."
        return [Sign(BAD, text, "forgets")]
    if now < best - 0.1:
        return [Sign(WATCH, f"Source accuracy is {percent(now)}, down from {percent(best)}.")]
    return [Sign(GOOD, f"Source accuracy is {percent(now)} on held-out samples and has not fallen.")]


def length_sign(run: RunRecord) -> list[Sign]:
    """Whether a run that has ended was still learning in its last third."""
    last = run.last
    of_phase = [record for record in run.evaluations if record["phase"] == last["phase"]]  # DIRT-T forgets the source
    before = [record for record in of_phase if record["step"] <= last["step"] * 2 / 3]
    if not run.ended or not before:
        return []
    then, now = ((record.get("source") or {}).get("accuracy") for record in (before[-1], last))
    if then is not None and now is not None and now - then > RISING_SOURCE:
        rise = f"from {percent(then)} to {percent(now)} in the last third of the run"
        return [Sign(BAD, f"The run is too short: source accuracy was still rising, {rise}.", TOO_SHORT)]
    then, now = ((record.get("validators") or {}).get(DEFAULT) for record in (before[-1], last))
    if then is not None and now is not None and now - then > RISING_SCORE:
        rise = f"from {then:.2f} to {now:.2f} in the last third of the run"
        return [Sign(WATCH, f"The label-free score was still rising, {rise}: a longer run may be better.")]
    return []


def share_signs(run: RunRecord, source_shares: Sequence[float] | None, classes: Sequence[str]) -> list[Sign]:
    shares = run.last["target"]["predicted_share"]
    if source_shares and len(source_shares) != len(shares):
        source_shares = None  # the data now have other classes than those that the run was trained on
    names = [*classes, *map(str, range(len(classes), len(shares)))]
    k = max(range(len(shares)), key=lambda i: shares[i])
    usual = max(source_shares) if source_shares else 1 / len(shares)
    text = f"The largest predicted class on the target is {names[k]} with {percent(shares[k])}"
    if is_too_large(shares[k], usual):
        signs = [Sign(BAD, f"{text}: almost everything is predicted as one class.", "one class")]
    elif shares[k] > 2 * usual:
        signs = [Sign(WATCH, f"{text}; the largest class of the source has {percent(usual)}.")]
    else:
        signs = [Sign(GOOD, f"{text}: the predictions are spread over the classes.")]
    never = [names[i] for i, share in enumerate(shares) if share == 0 and (not source_shares or source_shares[i] > 0)]
    if never:
        shown = ", ".join(never[:5]) + (" …" if len(never) > 5 else "")
        signs.append(Sign(WATCH, f"Never predicted on the target: {shown}. This is fine only if the target lacks it."))
    return signs


def entropy_sign(run: RunRecord) -> list[Sign]:
    values = [record["target"]["entropy"] for record in run.evaluations]
    if len(values) < 2:
        return []
    text = f"Mean entropy on the target went from {values[0]:.2f} to {values[-1]:.2f} nats"
    if values[-1] > values[0]:
        return [Sign(WATCH, f"{text}: the model has become less certain.")]
    return [Sign(GOOD, f"{text}: the model has become more certain, rightly or wrongly.")]


def discriminator_sign(run: RunRecord) -> list[Sign]:
    values = [record["discriminator/accuracy"] for record in run.log if "discriminator/accuracy" in record]
    if not values:
        return []
    last = mean(values[-max(1, len(values) // 10) :])
    text = f"At the end the discriminator recognises the domain of {percent(last)} of the samples"
    if last > 0.95:
        return [
            Sign(WATCH, f"{text}: it wins. This is common with a small λ_d; raise λ_d if the target accuracy is low.")
        ]
    if last < 0.52:
        return [Sign(WATCH, f"{text}: it guesses. Either the domains are aligned, or it has learned nothing.")]
    return [Sign(GOOD, f"{text}: neither side wins, as it should be.")]
