"""From log records to charts: every logged number over the iterations, and what it should look like."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import log
from typing import Any

from vmt.train.collapse import PILED
from vmt.validators.registry import DEFAULT, VALIDATORS

Series = tuple[list[int], list[float]]
"""Iterations and values."""
LN2 = log(2)
EVALUATED = ("target", "source")


@dataclass(frozen=True)
class Chart:
    """A chart of a number over iterations, and how it looks in a healthy run."""

    key: str
    group: str
    title: str
    should: str
    percent: bool = False
    lines: tuple[tuple[float, str], ...] = ()
    """Levels to mark: value and name."""


KNOWN = (
    Chart(
        "target/accuracy",
        "accuracy",
        "Accuracy on the target",
        "Rises, then stays. A long fall after a rise is how a collapse begins. The model was not trained on the labels "
        "behind this curve; choosing its best point would be choosing on the test set.",
        percent=True,
    ),
    Chart(
        "source/accuracy",
        "accuracy",
        "Accuracy on held-out source samples",
        "Rises early and stays high. If it falls while the share of the largest class below grows, the run is "
        "collapsing. DIRT-T does not train on the source, so a slow fall there is normal.",
        percent=True,
    ),
    Chart(
        "target/largest share",
        "accuracy",
        "Largest predicted class on the target",
        "Settles near the share of the largest class that you expect. Above 80 % the run is reported as collapsed, "
        "unless one class dominates the source as well. High values before anything is learned mean nothing.",
        percent=True,
        lines=((PILED, "alarm"),),
    ),
    Chart(
        "target/entropy",
        "accuracy",
        "Uncertainty on the target (mean entropy, nats)",
        "Falls as the model becomes more certain. This proves nothing: a model that is certain and wrong has low "
        "entropy too.",
    ),
    Chart(
        "discriminator/accuracy",
        "discriminator",
        "Accuracy of the discriminator",
        "50 % means that it cannot tell the domains apart. Between 60 and 90 % the two sides compete. Near 100 % the "
        "discriminator wins and has little effect on the features; this is common with the paper's small λ_d = 0.01, "
        "where the other terms do the work. If accuracy on the target is poor as well, raise λ_d or train longer.",
        percent=True,
        lines=((0.5, "cannot tell"),),
    ),
    Chart(
        "discriminator/L_disc",
        "discriminator",
        "Loss of the discriminator",
        "ln 2 = 0.69 means guessing. It should move and settle. If it stays at exactly 0.69 from the start, the "
        "discriminator learns nothing; near 0, it recognises the domain of every sample.",
        lines=((LN2, "guessing"),),
    ),
    Chart(
        "classifier/L_d",
        "discriminator",
        "L_d: the classifier's side of the contest",
        "The same loss with the domains swapped: ln 2 when the discriminator guesses, large when it is certain. A slow "
        "rise means that the discriminator gets better. A steep rise without end means that the features stay apart.",
        lines=((LN2, "guessing"),),
    ),
    Chart(
        "classifier/L_y",
        "losses",
        "L_y: cross-entropy on labelled samples",
        "Falls fast, then slowly. If it rises again, the learning rate or a weight λ is too large.",
    ),
    Chart(
        "classifier/L_c(target)",
        "losses",
        "L_c: entropy of target predictions",
        "Falls steadily. A drop to nearly 0 within a few hundred iterations is the sign of a collapse: halve λ_t.",
    ),
    Chart(
        "classifier/teacher",
        "losses",
        "DIRT-T: distance to the teacher",
        "Small and falling, with a small step at each new teacher. A rise means that the student moves away.",
    ),
    Chart(
        "classifier/L_mcc(target)",
        "losses",
        "L_mcc: confusion between classes on the target",
        "Falls. It starts below 1 − 1/K for K classes, and 0 means that no batch has a sample between two classes.",
    ),
    Chart("classifier/MMD", "losses", "MMD: distance of the two domains' features", "Falls towards 0 and stays there."),
    Chart(
        "classifier/agreement",
        "losses",
        "Agreement loss of the two classifiers",
        "Falls, because the two learn to predict the same on the target.",
    ),
)
# Texts that the streams share.
FAMILIES = (
    (
        "classifier/entropy(",
        "Entropy of predictions on the {stream}, in training",
        "Falls as the model becomes more certain.",
    ),
    (
        "classifier/L_m(",
        "L_m: virtual mixup on the {stream}",
        "Falls slowly and stays above the entropy of a mixed prediction: a mix of two classes should be uncertain.",
    ),
    (
        "classifier/L_v(",
        "L_v: virtual adversarial loss on the {stream}",
        "Falls with the entropy of the {stream}. If it rises while others fall, the radius is too large for the data.",
    ),
)
SCORE = "Higher is better. It ranks checkpoints and runs without target labels; it is not an accuracy."
GRADIENT = "Keeps its order of magnitude. Spikes that grow mean that the learning rate is too high."
OTHER = "Another number that this method logs. A smooth curve without jumps is a good sign."


def curves_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Series]:
    """Every number of a log over the iterations, by name."""
    series: dict[str, Series] = {}
    for record in records:
        for name, value in numbers(record):
            steps, values = series.setdefault(name, ([], []))
            steps.append(int(record["step"]))
            values.append(value)
    repeated = ["classifier/L_disc"]  # another curve shows the same
    if any(name.startswith("classifier/L_c(target)") for name in series):
        repeated.append("classifier/entropy(")
    return {name: found for name, found in series.items() if not name.startswith(tuple(repeated))}


def numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The finite numbers of a log record, by the name of their curve."""
    for name, value in record.items():
        if name in EVALUATED:
            if isinstance(value, Mapping):
                for figure in ("accuracy", "entropy") if name == "target" else ("accuracy",):
                    if is_number(value.get(figure)):
                        yield f"{name}/{figure}", float(value[figure])
                if name == "target" and value.get("predicted_share"):
                    yield "target/largest share", float(max(value["predicted_share"]))
        elif isinstance(value, Mapping):
            # The scores of the validators.
            yield from ((f"{name}/{key}", float(inner)) for key, inner in value.items() if is_number(inner))
        elif "/" in name and is_number(value):
            yield name, float(value)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) < 1e300


def thinned(series: Series, points: int) -> Series:
    """At most ``points`` points: means over equal stretches, and the last value unchanged."""
    steps, values = series
    if len(steps) <= points:
        return steps, [rounded(v) for v in values]
    edges = [i * len(steps) // (points - 1) for i in range(points - 1)] + [len(steps)]
    pieces = [(a, b) for a, b in pairwise(edges) if b > a]
    short = [steps[b - 1] for _, b in pieces], [rounded(sum(values[a:b]) / (b - a)) for a, b in pieces]
    return [*short[0], steps[-1]], [*short[1], rounded(values[-1])]


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def charts_for(names: Sequence[str], classes: int | None) -> list[dict[str, Any]]:
    """A chart for every curve, the most important first."""
    known = {chart.key: chart for chart in KNOWN}
    order = {name: place for place, name in enumerate([*known, f"validators/{DEFAULT}"])}
    charts = [known.get(name) or chart_for(name) for name in names]
    charts.sort(key=lambda chart: (order.get(chart.key, len(order)), chart.key))
    made = [asdict(chart) for chart in charts]
    for chart in made:
        chart["should"] = re.sub(r"(\d) %", "\\1\u00a0%", chart["should"])
        if chart["key"] == "target/entropy" and classes:
            chart["lines"] = [(log(classes), "uniform")]
    return made


def chart_for(name: str) -> Chart:
    """A chart for a curve that is not among the known ones."""
    for prefix, title, should in FAMILIES:
        if name.startswith(prefix):
            stream = name.removeprefix(prefix).replace(")", "")
            return Chart(name, "losses", title.format(stream=stream), should.format(stream=stream))
    part, _, figure = name.partition("/")
    if figure.startswith("gradient norm"):
        return Chart(name, "gradients", f"Gradient norm of the {part}", GRADIENT)
    if part.startswith("discriminator"):
        return Chart(name, "discriminator", f"{part}: {figure}", OTHER)
    if part.startswith("classifier"):
        return Chart(name, "losses", figure or name, OTHER)
    text = VALIDATORS[figure].text if figure in VALIDATORS else "a score in the log of this run"
    return Chart(name, "scores", f"{figure or name}: {text}", SCORE)
