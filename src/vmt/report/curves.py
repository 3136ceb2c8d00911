"""From log records to curves, each with a few words on what it should look like."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import log
from typing import Any

from vmt.train.collapse import PILED
from vmt.validators.registry import DEFAULT, VALIDATORS

Series = tuple[list[int], list[float]]
LN2 = log(2)
EVALUATED = ("target", "source")


@dataclass(frozen=True)
class Chart:
    """A figure over iterations: what it is, and what a healthy run looks like in it."""

    key: str
    group: str
    title: str
    should: str
    percent: bool = False
    lines: tuple[tuple[float, str], ...] = ()
    """Levels worth knowing: value and name."""


KNOWN = (
    Chart(
        "target/accuracy",
        "accuracy",
        "Accuracy on the target",
        "Rises, then stays. A long fall after a rise is how a collapse begins. The labels behind this curve were not "
        "trained on; choosing the best point of it would be choosing on the test set.",
        percent=True,
    ),
    Chart(
        "source/accuracy",
        "accuracy",
        "Accuracy on held-out source",
        "Rises early and stays high. If it falls while the largest share below grows, the run is collapsing. DIRT-T "
        "no longer trains on the source, so a slow loss there is normal.",
        percent=True,
    ),
    Chart(
        "target/largest share",
        "accuracy",
        "Largest predicted class on the target",
        "Settles near the share of the largest class you expect. Above 80 % the run is reported as collapsed, unless "
        "one class rules the source as well. High values before anything is learned mean nothing.",
        percent=True,
        lines=((PILED, "alarm"),),
    ),
    Chart(
        "target/entropy",
        "accuracy",
        "Uncertainty on the target (mean entropy, nats)",
        "Falls as the model makes up its mind. It is no proof: a model that is sure and wrong has low entropy too.",
    ),
    Chart(
        "discriminator/accuracy",
        "discriminator",
        "How often the discriminator tells the domains apart",
        "50 % means that it cannot. Between 60 and 90 % is a contest. Near 100 % it wins and its pull on the features "
        "is weak; with the paper's small λ_d = 0.01 that is common, and the other terms still do the work. If the "
        "target does badly as well, raise λ_d or train it longer.",
        percent=True,
        lines=((0.5, "cannot tell"),),
    ),
    Chart(
        "discriminator/L_disc",
        "discriminator",
        "The discriminator's own loss",
        "ln 2 = 0.69 is guessing. It should move and settle; stuck at exactly 0.69 from the start, the discriminator "
        "learns nothing; near 0, it tells every sample.",
        lines=((LN2, "guessing"),),
    ),
    Chart(
        "classifier/L_d",
        "discriminator",
        "L_d: the classifier's side of the contest",
        "The same loss with the domains swapped: ln 2 when the discriminator guesses, large when it is sure. A slow "
        "rise is the discriminator getting better. A steep climb without end means that the features stay apart.",
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
        "Falls steadily. A plunge to nearly 0 within a few hundred iterations is the sign of a collapse: halve λ_t.",
    ),
    Chart(
        "classifier/teacher",
        "losses",
        "DIRT-T: distance to the teacher",
        "Small and falling; a little step each time that the teacher is refreshed. A rise means the student runs away.",
    ),
    Chart("classifier/MMD", "losses", "MMD: distance of the two domains' features", "Falls towards 0, and stays."),
    Chart(
        "classifier/agreement",
        "losses",
        "Agreement of the two classifiers",
        "Falls: the two should come to say the same on the target.",
    ),
)
# Several streams share one text.
FAMILIES = (
    (
        "classifier/entropy(",
        "Entropy of predictions on the {stream}, in training",
        "Falls as the model makes up its mind.",
    ),
    (
        "classifier/L_m(",
        "L_m: virtual mixup on the {stream}",
        "Falls slowly and stays above the entropy of a mixed prediction: mixing two classes is meant to be uncertain.",
    ),
    (
        "classifier/L_v(",
        "L_v: virtual adversarial loss on the {stream}",
        "Falls with the entropy of the {stream}. Rising while others fall: the radius is too large for the data.",
    ),
)
SCORE = "Higher is better. It ranks checkpoints and runs without target labels; it is not an accuracy."
GRADIENT = "Same order of magnitude all along. Spikes that come back larger mean that the learning rate is too high."
OTHER = "A further figure of this method; a smooth course without jumps is a good sign."


def curves_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Series]:
    """Every number in a log over its iterations, by name."""
    series: dict[str, Series] = {}
    for record in records:
        for name, value in numbers(record):
            steps, values = series.setdefault(name, ([], []))
            steps.append(int(record["step"]))
            values.append(value)
    said_again = ["classifier/L_disc"]  # by another curve
    if any(name.startswith("classifier/L_c(target)") for name in series):
        said_again.append("classifier/entropy(")
    return {name: found for name, found in series.items() if not name.startswith(tuple(said_again))}


def numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The curves that a record adds to. A figure that is absent or not a number is left out."""
    for name, value in record.items():
        if name in EVALUATED:
            if isinstance(value, Mapping):
                for figure in ("accuracy", "entropy") if name == "target" else ("accuracy",):
                    if is_number(value.get(figure)):
                        yield f"{name}/{figure}", float(value[figure])
                if name == "target" and value.get("predicted_share"):
                    yield "target/largest share", float(max(value["predicted_share"]))
        elif isinstance(value, Mapping):
            # Label-free scores, under whatever key the loop keeps them.
            yield from ((f"{name}/{key}", float(inner)) for key, inner in value.items() if is_number(inner))
        elif "/" in name and is_number(value):
            yield name, float(value)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) < 1e300


def thinned(series: Series, points: int) -> Series:
    """At most so many points: means over equal stretches, and the last value as it is."""
    steps, values = series
    if len(steps) <= points:
        return steps, [shorter(v) for v in values]
    edges = [i * len(steps) // (points - 1) for i in range(points - 1)] + [len(steps)]
    pieces = [(a, b) for a, b in pairwise(edges) if b > a]
    short = [steps[b - 1] for _, b in pieces], [shorter(sum(values[a:b]) / (b - a)) for a, b in pieces]
    return [*short[0], steps[-1]], [*short[1], shorter(values[-1])]


def shorter(value: float) -> float:
    return float(f"{value:.4g}")


def charts_for(names: Sequence[str], classes: int | None = None) -> list[dict[str, Any]]:
    """A chart for every curve, in the order in which to look at them."""
    known = {chart.key: chart for chart in KNOWN}
    places = {name: place for place, name in enumerate([*known, f"validators/{DEFAULT}"])}
    charts = [known.get(name) or described(name) for name in names]
    charts.sort(key=lambda chart: (places.get(chart.key, len(places)), chart.key))
    made = [asdict(chart) for chart in charts]
    for chart in made:
        chart["should"] = re.sub(r"(\d) %", "\\1\u00a0%", chart["should"])
        if chart["key"] == "target/entropy" and classes:
            chart["lines"] = [(log(classes), "knows nothing")]
    return made


def described(name: str) -> Chart:
    """A chart for a curve that has no text of its own."""
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
    text = VALIDATORS[figure].text if figure in VALIDATORS else "a score of this run's log"
    return Chart(name, "scores", f"{figure or name}: {text}", SCORE)
