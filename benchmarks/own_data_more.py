"""Further tasks for choosing settings of ``auto``, beside the tasks for choosing of own_data_tasks.py.

They were made because the first rule of ``auto`` had two weaknesses on the tasks for reporting: it lost under covariate
shift, and it kept source only where nothing was at stake. A new rule has to be found on other tasks, which have enough
of both. None of these is for reporting, and none is on the page of the benchmark. Names, shifts and sizes were
committed before any run on them. Those of validators_tasks.py that are used here as well (PAIRS) were made to be hard
for DIRT-T.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator
from own_data_tasks import (
    BRIGHT,
    CHOOSING,
    TASKS,
    Array,
    BenchTask,
    Problem,
    blur,
    by_shares,
    by_side,
    clusters,
    digits,
    handwriting,
    moons,
    parts,
    pictures,
    sensor,
    shifted,
    side,
    table,
    turned,
    unequal,
    vectors,
    written,
)
from scipy.ndimage import gaussian_filter
from validators_tasks import PAIR_TASKS, turned_digits

MORE: dict[str, BenchTask] = {}


def more(name: str, family: str) -> Callable[[Callable[..., Problem]], Callable[..., Problem]]:
    """Enter a function into the table of further tasks; its docstring describes the task."""

    def enter(make: Callable[..., Problem]) -> Callable[..., Problem]:
        MORE[name] = BenchTask(name, family, (make.__doc__ or "").strip().rstrip("."), make)
        return make

    return enter


# --- Covariate shift: aligning the domains is wrong ---


def labelled(random: Generator, draw: Callable[[Generator, int], Array], rule: Callable[[Array], Array]) -> Any:
    """A function that draws samples and labels them by a rule that is the same in both domains."""

    def drawn(count: int, change: Callable[[Array], Array]) -> tuple[Array, Array]:
        x = change(draw(random, count))
        return x, rule(x)

    return drawn


def shells_of(x: Array) -> Array:
    return np.digitize((x**2).sum(1), [3.0, 6.0])


@more("shells-close", "covariate shift")
def shells_close(random: Generator) -> Problem:
    """Three shells about the origin of five dimensions; the centres of the domains are one unit apart."""
    draw = labelled(random, lambda r, n: r.normal(size=(n, 5)), lambda x: np.digitize((x**2).sum(1), [3.5, 6.5]))
    one, two = (lambda x: x + 0.5 * np.eye(5)[0]), (lambda x: x - 0.5 * np.eye(5)[0])
    return vectors(draw(500, one), draw(500, two), draw(500, two))


@more("chessboard-apart", "covariate shift")
def chessboard_apart(random: Generator) -> Problem:
    """A chessboard of three by three fields; the source prefers its left, the target its right."""
    draw = labelled(random, lambda r, n: r.uniform(0, 3, (n, 2)), lambda x: (x.astype(int).sum(1) % 2).astype(int))

    def prefer(sign: float) -> tuple[Array, Array]:
        x, y = draw(3000, lambda x: x)
        chosen = random.random(3000) < 1 / (1 + np.exp(-2.0 * sign * (x[:, 0] - 1.5)))
        return x[chosen][:500], y[chosen][:500]

    return vectors(prefer(-1), prefer(1), prefer(1))


@more("linear-apart", "covariate shift")
def linear_apart(random: Generator) -> Problem:
    """A linear rule with three classes in six features; the domains lie apart, mostly along the rule."""
    rule = random.normal(size=6)
    rule /= np.linalg.norm(rule)
    across = random.normal(size=6)
    across /= np.linalg.norm(across)
    move = 0.7 * rule + 0.7 * across
    draw = labelled(random, lambda r, n: r.normal(size=(n, 6)), lambda x: np.digitize(x @ rule, [-0.5, 0.5]))
    return vectors(draw(500, lambda x: x - move / 2), *(draw(500, lambda x: x + move / 2) for _ in range(2)))


@more("wine-covariate", "covariate shift")
def wine_covariate(random: Generator) -> Problem:
    """Wine; the source prefers one side of the second principal component, and the target is the rest."""
    return by_side(random, *table("wine"), 68, 50, 60)


@more("iris-covariate", "covariate shift")
def iris_covariate(random: Generator) -> Problem:
    """Iris; the source prefers one side of the second principal component, and the target is the rest."""
    return by_side(random, *table("iris"), 60, 40, 50)


@more("moons-covariate", "covariate shift")
def moons_covariate(random: Generator) -> Problem:
    """Two moons; the source prefers the left, and the target the right."""
    (x, y), (xt, yt), (xu, yu) = moons(random)

    def prefer(x: Array, y: Array, sign: float, count: int) -> tuple[Array, Array]:
        weight = 1 / (1 + np.exp(-1.5 * sign * (x[:, 0] - 0.5)))
        chosen = random.choice(len(x), count, replace=False, p=weight / weight.sum())
        return x[chosen], y[chosen]

    return vectors(prefer(x, y, -1, 150), prefer(xt, yt, 1, 150), prefer(xu, yu, 1, 250))


@more("subpopulations", "covariate shift")
def subpopulations(random: Generator) -> Problem:
    """Four classes of three clusters each in eight features; most samples of the domains are in other clusters."""
    x, group = clusters_of(random, 12, 8, 1.8, 3000)
    shares = np.array([random.permutation([0.8, 0.15, 0.05]) for _ in range(4)]) / 4
    other = np.stack([np.roll(row, 1) for row in shares])

    def draw(shares: Array, count: int, first: int) -> tuple[Array, Array]:
        part = slice(first, first + 1000)
        rows, groups = by_shares(random, (x[part], group[part]), shares.ravel(), count)
        return rows, groups // 3

    return vectors(draw(shares, 500, 0), draw(other, 500, 1000), draw(other, 500, 2000))


def clusters_of(random: Generator, groups: int, features: int, spread: float, count: int) -> tuple[Array, Array]:
    centres = spread * random.normal(size=(groups, features))
    group = np.arange(count) % groups
    return centres[group] + random.normal(size=(count, features)), group


@more("bins-apart", "covariate shift")
def bins_apart(random: Generator) -> Problem:
    """Three ranges of a smooth function of five features, with noise; each domain prefers one end of two features."""

    def function(x: Array) -> Array:
        return 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]

    def draw(a: float, b: float) -> tuple[Array, Array]:
        x = random.beta([a, 1, a, 1, 1], [b, 1, b, 1, 1], (500, 5))
        return x, np.digitize(function(x) + random.normal(size=500), [11.5, 17.0])

    return vectors(draw(1.2, 2.5), draw(2.5, 1.2), draw(2.5, 1.2))


@more("digits-first-component", "covariate shift")
def digits_first_component(random: Generator) -> Problem:
    """Digits as vectors; the source prefers one side of the first principal component, and the target is the rest."""
    x, y = handwriting()
    flat = x.reshape(len(x), -1)
    standard = (flat - flat.mean(0)) / (flat.std(0) + 1e-9)
    component = standard @ np.linalg.eigh(standard.T @ standard)[1][:, -1]
    component *= np.sign(component[np.abs(component).argmax()])
    weight = 1 / (1 + np.exp(-1.5 * component / component.std()))
    chosen = random.choice(len(x), 500, replace=False, p=weight / weight.sum())
    rest = random.permutation(np.setdiff1d(np.arange(len(x)), chosen))
    return vectors((x[chosen], y[chosen]), (x[rest[:500]], y[rest[:500]]), (x[rest[500:1000]], y[rest[500:1000]]))


# --- The opposite: classes without gaps between them, and sensors that have changed; aligning is right ---


@more("shells-sensor", "sensor")
def shells_sensor(random: Generator) -> Problem:
    """Three shells about the origin of four dimensions; the features of the target have other gains and offsets."""
    draw = labelled(random, lambda r, n: r.normal(size=(n, 4)), shells_of)
    three = [draw(500, lambda x: x) for _ in range(3)]
    return shifted(three, sensor(random, three[0][0], gain=0.2, offset=0.7))


@more("linear-sensor", "sensor")
def linear_sensor(random: Generator) -> Problem:
    """A linear rule with three classes in six features; the features of the target have other gains and offsets."""
    rule = random.normal(size=6)
    draw = labelled(random, lambda r, n: r.normal(size=(n, 6)), lambda x: np.digitize(x @ rule, [-1.0, 1.0]))
    three = [draw(500, lambda x: x) for _ in range(3)]
    return shifted(three, sensor(random, three[0][0], gain=0.2, offset=0.5))


@more("bins-sensor", "sensor")
def bins_sensor(random: Generator) -> Problem:
    """Three ranges of a smooth function of five features, with noise; the target's features have other gains."""
    x = random.random((1500, 5))
    value = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    three = parts(random, x, np.digitize(value + random.normal(size=1500), [11.5, 17.0]), 500, 500, 500)
    return shifted(three, sensor(random, three[0][0], gain=0.3, offset=0.5))


# --- No shift, or hardly any ---


@more("wine-no-shift", "no shift")
def wine_no_shift(random: Generator) -> Problem:
    """Wine; both domains are the same."""
    return shifted(parts(random, *table("wine"), 68, 50, 60), lambda x: x)


@more("shells-no-shift", "no shift")
def shells_no_shift(random: Generator) -> Problem:
    """Three shells about the origin of four dimensions; both domains are the same."""
    draw = labelled(random, lambda r, n: r.normal(size=(n, 4)), shells_of)
    return vectors(*(draw(500, lambda x: x) for _ in range(3)))


@more("letters-no-shift", "no shift")
def letters_no_shift(random: Generator) -> Problem:
    """The 26 letters as vectors of 12×12 values, in two fonts; both domains are the same."""
    return vectors(*(written(random, ["DejaVuSans", "DejaVuSerif"], count) for count in (390, 390, 520)))


@more("blobs-slight", "sensor")
def blobs_slight(random: Generator) -> Problem:
    """Six clusters in 15 features, 120 samples of each domain; the target's features have slightly other offsets."""
    three = clusters(random, 6, 15, 0.8, (120, 120, 480))
    return shifted(three, sensor(random, three[0][0], offset=0.2))


# --- Few samples, many classes ---


@more("digits-contrast-few", "few samples")
def digits_contrast_few(random: Generator) -> Problem:
    """Digits as vectors; 120 samples of each domain; the target has half the contrast and some noise."""
    three = digits(random, 120, 120, 500)
    return shifted(three, lambda x: 3 + 0.5 * x + random.normal(size=x.shape))


@more("cancer-gain-few", "few samples")
def cancer_gain_few(random: Generator) -> Problem:
    """Breast cancer; 60 samples of each domain; the features of the target have other gains."""
    three = parts(random, *table("breast_cancer"), 60, 60, 300)
    return shifted(three, sensor(random, three[0][0], gain=0.3))


@more("letters-blurred", "many classes")
def letters_blurred(random: Generator) -> Problem:
    """The 26 letters as vectors of 12×12 values, in two fonts; the target is blurred by 0.8 pixels."""
    three = [written(random, ["DejaVuSans", "DejaVuSerif"], count) for count in (780, 780, 520)]
    return shifted(three, blur(0.8))


@more("blobs-20-gain", "many classes")
def blobs_20_gain(random: Generator) -> Problem:
    """Twenty clusters in twelve features; the target's features have other gains."""
    three = clusters(random, 20, 12, 1.3, (500, 500, 500))
    return shifted(three, sensor(random, three[0][0], gain=0.3))


# --- Unequal classes ---


@more("digits-contrast-dirichlet-1", "unequal classes")
def digits_contrast_classes(random: Generator) -> Problem:
    """Digits as vectors; the target has half the contrast; its class shares are Dirichlet of 1."""
    return unequal(random, 1.0, lambda x: 4 + 0.5 * x)


@more("wine-unequal", "unequal classes")
def wine_unequal(random: Generator) -> Problem:
    """Wine; two thirds of the target are of one class; its sensors have offsets."""
    source, target, test = parts(random, *table("wine"), 68, 50, 60)
    shares = random.permutation([0.67, 0.22, 0.11])
    drawn = [source, *(by_shares(random, part, shares, count) for part, count in ((target, 80), (test, 150)))]
    return shifted(drawn, sensor(random, source[0], offset=0.4))


@more("moons-unequal", "unequal classes")
def moons_unequal(random: Generator) -> Problem:
    """Two moons; the target's are turned by 15°, and 80 % of it are of one class."""
    source, *target = moons(random)
    shares = random.permutation([0.8, 0.2])
    return shifted([source, *(by_shares(random, part, shares, 300) for part in target)], lambda x: turned(x, 15))


@more("cancer-unequal-slight", "unequal classes")
def cancer_unequal_slight(random: Generator) -> Problem:
    """Breast cancer; 85 % of the target are benign where the source has 63 %; its features have slight offsets."""
    source, target, test = parts(random, *table("breast_cancer"), 200, 169, 200)
    drawn = [source, *(by_shares(random, part, np.array([0.15, 0.85]), 169) for part in (target, test))]
    return shifted(drawn, sensor(random, source[0], offset=0.2))


@more("two-classes-reversed", "unequal classes")
def two_classes_reversed(random: Generator) -> Problem:
    """Two classes of three clusters in ten features; 80 % of the source are of one class, 80 % of the target of the
    other; features have offsets."""
    x, group = clusters_of(random, 6, 10, 1.0, 2400)
    three = parts(random, x, group // 3, 800, 800, 800)
    shares = random.permutation([0.8, 0.2])
    drawn = [by_shares(random, three[0], shares, 300)]
    drawn += [by_shares(random, part, shares[::-1], 300) for part in three[1:]]
    return shifted(drawn, sensor(random, x, offset=0.3))


# --- Pictures ---


@more("pictures-dim", "pictures")
def pictures_dim(random: Generator) -> Problem:
    """Digits of 8×8 pixels; the target is slightly blurred, dimmer and noisier."""
    three = [(x * BRIGHT, y) for x, y in digits(random)]
    return shifted(
        three, lambda x: 0.6 * gaussian_filter(x, (0, 0.6, 0.6)) + 12 * np.abs(random.normal(size=x.shape)), pictures
    )


@more("pictures-no-shift", "pictures")
def pictures_no_shift(random: Generator) -> Problem:
    """Digits of 8×8 pixels; both domains are the same."""
    return shifted([(x * BRIGHT, y) for x, y in digits(random)], lambda x: x, pictures)


# --- Pictures that are dark on bright in one domain and bright on dark in the other, and those of both kinds ---


@more("fonts-handwriting-inverted", "pictures")
def fonts_handwriting_inverted(random: Generator) -> Problem:
    """The embedded task at 16×16 pixels, 500 digits of each domain; those drawn with fonts are dark on bright."""
    whole = TASKS["fonts-handwriting"].make(random)
    return pictures((255 - whole.xs[:500], whole.ys[:500]), (whole.xt[:500], None), (whole.xt_test, whole.yt_test))


@more("pictures-inverted-blurred", "pictures")
def pictures_inverted_blurred(random: Generator) -> Problem:
    """Digits on 10×10 pixels; the target is blurred by 0.7 pixels and dark on bright."""
    framed = [(np.pad(x * BRIGHT, ((0, 0), (1, 1), (1, 1))), y) for x, y in digits(random)]
    return shifted(framed, lambda x: 255 - 1.2 * blur(0.7)(x), pictures)


@more("pictures-inverted-dirichlet-1", "pictures")
def pictures_inverted_classes(random: Generator) -> Problem:
    """Digits of 8×8 pixels; the target is dark on grey; its class shares are Dirichlet of 1."""

    def bright(*three: tuple[Array, Array]) -> Problem:
        return pictures(*((x * BRIGHT, y) for x, y in three))

    return unequal(random, 1.0, lambda x: 13 - 0.8 * x, bright)


@more("letters-pictures-inverted", "pictures")
def letters_pictures_inverted(random: Generator) -> Problem:
    """The 26 letters on 12×12 pixels, in two fonts; the target is turned by 10° and dark on bright."""
    three = [written(random, ["DejaVuSans", "DejaVuSerif"], count) for count in (520, 520, 520)]
    return shifted(three, lambda x: 230 - 0.9 * turned_digits(10)(x), pictures)


@more("pictures-either-way", "pictures")
def pictures_either_way(random: Generator) -> Problem:
    """Digits of 8×8 pixels; in both domains, every second picture is dark on bright; the target is blurred by 0.6."""

    def either(x: Array) -> Array:
        return np.where(random.random((len(x), 1, 1)) < 0.5, 255 - x, x)

    three = [(x * BRIGHT, y) for x, y in digits(random)]
    return shifted([(either(x), y) for x, y in three], blur(0.6), pictures)


PAIRS = (
    "shells-far",
    "digits-turned-20",
    "digits-sensor-0.8-1.0",
    "digits-noise-6",
    "digits-sensor-dirichlet-0.5",
    "digits-turned-25-five-absent",
    "digits-sensor-six-absent",
    "circle-turned-20-unequal",
    "two-moons-45-0.0",
    "clusters-10-moved-0.8",
    "clusters-8-half-absent",
    "clusters-8-moved-dirichlet-0.7",
    "wine-sensor-0.4-1.2",
    "cancer-rotated-60",
    "letters-turned",
    "small-pictures-noise",
    "small-pictures-faint",
    "final-pictures-thick",
    "final-wine-rotated",
    "final-iris-rotated",
)
"""Tasks of validators_tasks.py that are used here as well."""


def tasks_for_choosing() -> dict[str, BenchTask]:
    """Every task on which ``auto`` may be chosen: those of own_data_tasks.py, of this file, and PAIRS."""
    of_bench = {name: each for name, each in TASKS.items() if side(name) == CHOOSING and not each.sets}
    pairs = {name: replace(PAIR_TASKS[name]) for name in PAIRS}
    return of_bench | MORE | pairs
