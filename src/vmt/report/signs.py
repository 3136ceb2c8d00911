"""What can be seen of a run's health without a single target label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from vmt.runs.record import RunRecord, on_source
from vmt.train.collapse import FALLEN, piled

GOOD, WATCH, BAD, UNKNOWN = "good", "watch", "bad", "unknown"


@dataclass(frozen=True)
class Sign:
    """One observation and how to take it."""

    level: str
    text: str


def percent(value: float) -> str:
    return f"{100 * value:.1f}\u00a0%"


def signs_of(
    run: RunRecord, status: Mapping[str, str], source_shares: Sequence[float] | None, classes: Sequence[str]
) -> list[Sign]:
    """What the log says about health without a target label."""
    signs = []
    if status["kind"] == "collapsed":
        signs.append(Sign(BAD, status["text"]))
    elif status["kind"] == "unfinished":
        signs.append(Sign(WATCH, status["text"]))
    if run.evaluations:
        signs += [*alarm_sign(run), *source_sign(run), *share_signs(run, source_shares, classes), *entropy_sign(run)]
    return [*signs, *discriminator_sign(run)]


def alarm_sign(run: RunRecord) -> list[Sign]:
    """What the validators said of the last look, and where the kept model is from."""
    alarm, best = run.last.get("alarm"), (run.summary or {}).get("best")
    signs = [Sign(WATCH, f"The validators' alarm at the last look: {alarm}")] if alarm else []
    if best:
        text = f"The best look by {best['by']} was at iteration {best['step']:,} (score {best['score']:.4g})"
        signs.append(Sign(WATCH if best["alarm"] else GOOD, f"{text}; that model was kept as well."))
    return signs


def source_sign(run: RunRecord) -> list[Sign]:
    values = [
        r["source"]["accuracy"] for r in run.evaluations if r.get("source") and r["source"].get("accuracy") is not None
    ]
    if not values:
        return []
    now, best = values[-1], max(values)
    if run.kind == "upper":
        return [Sign(UNKNOWN, f"Source accuracy {percent(now)}; this method is not trained on the source.")]
    if best <= 2 / len(run.last["target"]["predicted_share"]) and best < 0.5:
        return [Sign(BAD, f"Source accuracy never rose above {percent(best)}: the model has not learned its task.")]
    if now < best - 0.1 and not on_source(run):
        return [Sign(UNKNOWN, f"Source accuracy is {percent(now)}; DIRT-T, not trained on the source, may forget it.")]
    if now < FALLEN * best:
        return [Sign(BAD, f"Source accuracy fell from {percent(best)} to {percent(now)}: the model forgets its task.")]
    if now < best - 0.1:
        return [Sign(WATCH, f"Source accuracy is {percent(now)}, down from {percent(best)}.")]
    return [Sign(GOOD, f"Source accuracy is {percent(now)} on held-out samples, and has not fallen.")]


def share_signs(run: RunRecord, source_shares: Sequence[float] | None, classes: Sequence[str]) -> list[Sign]:
    shares = run.last["target"]["predicted_share"]
    if source_shares and len(source_shares) != len(shares):
        source_shares = None  # of data with other classes than those that the run was made on
    names = [*classes, *map(str, range(len(classes), len(shares)))]
    k = max(range(len(shares)), key=lambda i: shares[i])
    usual = max(source_shares) if source_shares else 1 / len(shares)
    text = f"The largest predicted class on the target is {names[k]} with {percent(shares[k])}"
    if piled(shares[k], usual):
        signs = [Sign(BAD, f"{text}: predictions pile on one class.")]
    elif shares[k] > 2 * usual:
        signs = [Sign(WATCH, f"{text}, against {percent(usual)} for the largest class of the source.")]
    else:
        signs = [Sign(GOOD, f"{text}: predictions are spread.")]
    never = [names[i] for i, share in enumerate(shares) if share == 0 and (not source_shares or source_shares[i] > 0)]
    if never:
        shown = ", ".join(never[:5]) + (" …" if len(never) > 5 else "")
        signs.append(Sign(WATCH, f"Never predicted on the target: {shown}. Fine only if the target lacks it."))
    return signs


def entropy_sign(run: RunRecord) -> list[Sign]:
    values = [r["target"]["entropy"] for r in run.evaluations]
    if len(values) < 2:
        return []
    text = f"Mean entropy on the target went from {values[0]:.2f} to {values[-1]:.2f} nats"
    if values[-1] > values[0]:
        return [Sign(WATCH, f"{text}: the model grew less sure.")]
    return [Sign(GOOD, f"{text}: the model made up its mind (rightly or not).")]


def discriminator_sign(run: RunRecord) -> list[Sign]:
    values = [r["discriminator/accuracy"] for r in run.log if "discriminator/accuracy" in r]
    if not values:
        return []
    last = mean(values[-max(1, len(values) // 10) :])
    text = f"The discriminator ended telling {percent(last)} of the samples' domains"
    if last > 0.95:
        return [Sign(WATCH, f"{text}: it wins. Common with a small λ_d; if the target does badly, raise λ_d.")]
    if last < 0.52:
        return [Sign(WATCH, f"{text}: it guesses. Either the domains are aligned, or it never learned.")]
    return [Sign(GOOD, f"{text}: a contest, as it should be.")]
