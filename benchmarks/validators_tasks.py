"""Tasks that are harder than those of own_data_tasks.py, on which DIRT-T helps in some runs and does harm in others.

They are for the comparison of models with and without DIRT-T in validators_choice.py. The names, the shifts, the seeds
and the rule that divides them were committed before any run on them: by the rule of the other tasks
(:func:`own_data_tasks.side`), the tasks for choosing are those on which a score may be designed (DESIGN), and the tasks
for reporting are those on which it is judged, once (JUDGING). Shifts are weak and strong, with equal, unequal and
absent classes of the target.

The first score was judged on JUDGING, where only one pair differed enough to tell, and it was wrong there. The score
that replaced it (validators/refinement.py) was designed on tasks of both parts and on the tasks for choosing of
own_data_tasks.py. On that file's tasks for reporting, seeds 0 and 1, it was right on 22 of 25 pairs; on the others,
DIRT-T changed hardly any prediction of the samples that were trained on. It therefore now leaves such changes out, and
was judged on FINAL, once: it was right on 9 of 9 pairs.
"""

from typing import Any

import numpy as np
from numpy.random import Generator
from own_data_tasks import (
    BRIGHT,
    CHOOSING,
    Array,
    BenchTask,
    Change,
    Problem,
    blur,
    by_shares,
    clusters,
    digits,
    handwriting,
    parts,
    pictures,
    rotation,
    sensor,
    shifted,
    side,
    table,
    turned,
    unequal,
    vectors,
    written,
)
from scipy.ndimage import affine_transform, grey_dilation, rotate, shift
from sklearn import datasets

# A pair is one run of a method and of DIRT-T after it, from the same seed. Odd seeds have five times the default λ_t in
# both phases and leave the class shares of the source as they are, so that some pairs go wrong.
SEEDS = (0, 1, 2)
STRONGER = 5.0
# Accuracies that differ by at most this many points are equal: either model is a right choice.
EQUAL = 5.0

PAIR_TASKS: dict[str, BenchTask] = {}


def pair_task(name: str, family: str, description: str) -> Any:
    def enter(make: Any) -> Any:
        PAIR_TASKS[name] = BenchTask(name, family, description, make)
        return make

    return enter


def turned_digits(degrees: float) -> Change:
    return lambda x: rotate(x, degrees, axes=(1, 2), reshape=False, order=1)


def some_absent(random: Generator, present: int, change: Change) -> Problem:
    """Digits whose target has only the first ``present`` digits, in equal shares."""
    source, target, test = digits(random, 500, 650, 647)
    shares = np.where(np.arange(10) < present, 1 / present, 0)
    return shifted([source, *(by_shares(random, part, shares, 400) for part in (target, test))], change)


def circle(random: Generator, degrees: float, shares: Array | None = None) -> Problem:
    """Six clusters on a circle, 60° apart, with eight features of noise; the target's circle is turned."""
    y = np.arange(1500) % 6
    angle = np.radians(60) * y
    plane = 3 * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.5 * random.normal(size=(1500, 2))
    three = parts(random, np.hstack([plane, random.normal(size=(1500, 8))]), y, 500, 500, 500)
    if shares is not None:
        three = [three[0], *(by_shares(random, part, shares, 500) for part in three[1:])]
    return shifted(three, lambda x: np.hstack([turned(x[:, :2], degrees), x[:, 2:]]))


def two_moons(random: Generator, degrees: float, move: float = 0.0) -> Problem:
    x, y = datasets.make_moons(1100, noise=0.1, random_state=int(random.integers(2**31)))
    return shifted(parts(random, x, y, 300, 300, 500), lambda values: turned(values, degrees) + move)


def moved_clusters(random: Generator, classes: int, spread: float, offset: float, shares: Array | None) -> Problem:
    source, target, test = clusters(random, classes, 10, spread, (500, 1000, 1000))
    if shares is None:
        shares = np.full(classes, 1 / classes)
    drawn = [source, *(by_shares(random, part, shares, 500) for part in (target, test))]
    return shifted(drawn, sensor(random, source[0], offset=offset))


def small_pictures(random: Generator, change: Change) -> Problem:
    return shifted([(x * BRIGHT, y) for x, y in digits(random)], change, pictures)


# Digits as vectors. "noise" is drawn anew for the target and its test part, as the generator continues.
for degrees in (20, 30, 40, 55):
    pair_task(f"digits-turned-{degrees}", "turned", f"Digits as vectors; the target is turned by {degrees}°")(
        lambda random, degrees=degrees: shifted(digits(random), turned_digits(degrees))
    )
for width in (1.3, 1.7):
    pair_task(f"digits-blurred-{width}", "recording", f"Digits as vectors; the target is blurred by {width} pixels")(
        lambda random, width=width: shifted(digits(random), blur(width))
    )
for gain, offset in ((0.8, 1.0), (1.0, 1.5), (0.5, 2.0)):
    pair_task(f"digits-sensor-{gain}-{offset}", "sensor", f"Digits; pixels with gain {gain} and offset {offset}")(
        lambda random, gain=gain, offset=offset: shifted(
            digits(random), sensor(random, handwriting()[0], gain=gain, offset=offset)
        )
    )
for strength in (6, 9):
    pair_task(f"digits-noise-{strength}", "recording", f"Digits as vectors; the target has noise of {strength} of 16")(
        lambda random, strength=strength: shifted(digits(random), lambda x: x + strength * random.normal(size=x.shape))
    )
pair_task("digits-moved", "moved", "Digits as vectors; the target is moved by one pixel to the right")(
    lambda random: shifted(digits(random), lambda x: shift(x, (0, 0, 1), order=1))
)
pair_task(
    "digits-moved-two-ways", "moved", "Digits as vectors; the target is moved by one pixel to the right and down"
)(lambda random: shifted(digits(random), lambda x: shift(x, (0, 1, 1), order=1)))
pair_task("digits-inverted", "recording", "Digits as vectors; the target is dark on bright")(
    lambda random: shifted(digits(random), lambda x: 16 - x)
)
pair_task("digits-turned-25-dirichlet-0.5", "unequal classes", "Digits turned by 25°, class shares Dirichlet of 0.5")(
    lambda random: unequal(random, 0.5, turned_digits(25))
)
pair_task("digits-blurred-1-dirichlet-0.3", "unequal classes", "Digits blurred by 1, class shares Dirichlet of 0.3")(
    lambda random: unequal(random, 0.3, blur(1.0))
)
pair_task("digits-sensor-dirichlet-0.5", "unequal classes", "Digits with other pixels, class shares Dirichlet of 0.5")(
    lambda random: unequal(random, 0.5, sensor(random, handwriting()[0], gain=0.5, offset=0.7))
)
pair_task("digits-turned-25-five-absent", "absent classes", "Digits turned by 25°; the target has only 0 to 4")(
    lambda random: some_absent(random, 5, turned_digits(25))
)
pair_task("digits-blurred-1-three-absent", "absent classes", "Digits blurred by 1; the target has only 0 to 6")(
    lambda random: some_absent(random, 7, blur(1.0))
)
pair_task("digits-sensor-six-absent", "absent classes", "Digits with other pixels; the target has only 0 to 3")(
    lambda random: some_absent(random, 4, sensor(random, handwriting()[0], gain=0.4, offset=0.5))
)

# Tables and clusters.
for degrees in (20, 27, 33):
    pair_task(f"circle-turned-{degrees}", "turned", f"Six clusters on a circle; the target's is turned by {degrees}°")(
        lambda random, degrees=degrees: circle(random, degrees)
    )
pair_task("circle-turned-20-unequal", "unequal classes", "Six clusters on a circle, turned by 20°, unequal shares")(
    lambda random: circle(random, 20, np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.04]))
)
for degrees, move in ((45, 0.0), (60, 0.0), (40, 0.5), (20, 1.0)):
    pair_task(
        f"two-moons-{degrees}-{move}", "turned", f"Two moons; the target's turned by {degrees}°, moved by {move}"
    )(lambda random, degrees=degrees, move=move: two_moons(random, degrees, move))
for classes, offset in ((5, 1.0), (10, 0.8), (10, 1.3), (20, 0.7)):
    pair_task(
        f"clusters-{classes}-moved-{offset}", "sensor", f"{classes} clusters; features moved by {offset} spreads"
    )(lambda random, classes=classes, offset=offset: moved_clusters(random, classes, 1.5, offset, None))
pair_task("clusters-8-half-absent", "absent classes", "Eight clusters, moved by 0.6 spreads; four are absent")(
    lambda random: moved_clusters(random, 8, 1.5, 0.6, np.array([0.25] * 4 + [0.0] * 4))
)
pair_task("clusters-8-moved-dirichlet-0.7", "unequal classes", "Eight clusters, moved by 0.6; shares Dirichlet of 0.7")(
    lambda random: moved_clusters(random, 8, 1.5, 0.6, random.dirichlet(np.full(8, 0.7)))
)
for gain, offset in ((0.4, 1.2), (0.2, 2.0)):
    pair_task(f"wine-sensor-{gain}-{offset}", "sensor", f"Wine; gain {gain}, offset {offset}")(
        lambda random, gain=gain, offset=offset: shifted(
            three := parts(random, *table("wine"), 68, 50, 60), sensor(random, three[0][0], gain=gain, offset=offset)
        )
    )
for degrees in (60, 80):
    pair_task(f"cancer-rotated-{degrees}", "turned", f"Breast cancer; features rotated by up to {degrees}°")(
        lambda random, degrees=degrees: shifted(
            three := parts(random, *table("breast_cancer"), 200, 169, 200), rotation(random, three[0][0], degrees)
        )
    )


@pair_task("shells-far", "covariate shift", "Three shells; source and target far apart on either side of the origin")
def shells_far(random: Generator) -> Problem:
    def draw(count: int, centre: float) -> tuple[Array, Array]:
        x = random.normal(size=(count, 4)) + np.array([centre, 0, 0, 0])
        return x, np.digitize((x**2).sum(1), [3.0, 6.0])

    return vectors(draw(500, -1.3), draw(500, 1.3), draw(500, 1.3))


@pair_task("letters-turned", "many classes", "The 26 letters as vectors; the target is turned by 25°")
def letters_turned(random: Generator) -> Problem:
    three = [written(random, ["DejaVuSans", "DejaVuSerif"], count) for count in (780, 780, 520)]
    return shifted(three, turned_digits(25))


# Small pictures.
pair_task("small-pictures-turned-35", "pictures", "Digits of 8×8 pixels; the target is turned by 35°")(
    lambda random: small_pictures(random, turned_digits(35))
)
pair_task("small-pictures-noise", "pictures", "Digits of 8×8 pixels; the target has noise of a third of the range")(
    lambda random: small_pictures(random, lambda x: x + 85 * random.normal(size=x.shape))
)
pair_task("small-pictures-faint", "pictures", "Digits of 8×8 pixels; the target is dark on bright, at half contrast")(
    lambda random: small_pictures(random, lambda x: 255 - x / 2)
)
pair_task("small-pictures-moved", "pictures", "Digits of 8×8 pixels; the target is moved by two pixels")(
    lambda random: small_pictures(random, lambda x: shift(x, (0, 0, 2), order=1))
)

# Committed before any run on them, for the score that the others had helped to design.
FINAL: list[str] = []


def final(name: str, family: str, description: str) -> Any:
    FINAL.append(name)
    return pair_task(name, family, description)


def sheared(x: Array, by: float = 0.35) -> Array:
    """Pictures (N, H, W) whose rows are moved sideways, the more so the farther they are from the middle."""
    middle = (x.shape[1] - 1) / 2
    return np.stack([affine_transform(each, [[1, 0], [by, 1]], [0, -by * middle], order=1) for each in x])


def stretched(x: Array, by: float = 1.4) -> Array:
    """Pictures (N, H, W) that are wider about their middle."""
    middle = (x.shape[2] - 1) / 2
    return np.stack([affine_transform(each, [1, 1 / by], [0, middle * (1 - 1 / by)], order=1) for each in x])


final("final-pictures-sheared", "pictures", "Digits of 8×8 pixels; the target is sheared")(
    lambda random: small_pictures(random, sheared)
)
final("final-pictures-stretched", "pictures", "Digits of 8×8 pixels; the target is wider by 40 %")(
    lambda random: small_pictures(random, stretched)
)
final("final-pictures-thick", "pictures", "Digits of 8×8 pixels; the strokes of the target are thicker")(
    lambda random: small_pictures(random, lambda x: grey_dilation(x, (1, 2, 2)))
)
final("final-pictures-turned-faint", "pictures", "Digits of 8×8 pixels; the target is turned by 22° and fainter")(
    lambda random: small_pictures(random, lambda x: 0.6 * turned_digits(22)(x))
)
final("final-pictures-moved-down", "pictures", "Digits of 8×8 pixels; the target is moved down by 1.5 pixels")(
    lambda random: small_pictures(random, lambda x: shift(x, (0, 1.5, 0), order=1))
)
final(
    "final-pictures-gamma", "pictures", "Digits of 8×8 pixels; the target has other grey values and is turned by 15°"
)(lambda random: small_pictures(random, lambda x: 255 * (turned_digits(15)(x).clip(0, 255) / 255) ** 0.4))
final("final-iris-rotated", "turned", "Iris; the target's standardised features are rotated by up to 50°")(
    lambda random: shifted(three := parts(random, *table("iris"), 50, 50, 50), rotation(random, three[0][0], 50))
)
final("final-wine-rotated", "turned", "Wine; the target's standardised features are rotated by up to 45°")(
    lambda random: shifted(three := parts(random, *table("wine"), 68, 50, 60), rotation(random, three[0][0], 45))
)
final("final-circle-turned-23", "turned", "Six clusters on a circle; the target's is turned by 23°")(
    lambda random: circle(random, 23)
)
final("final-moons", "turned", "Two moons; the target's turned by 35° and moved by -0.4")(
    lambda random: two_moons(random, 35, -0.4)
)
final("final-digits-sheared", "moved", "Digits as vectors; the target is sheared")(
    lambda random: shifted(digits(random), sheared)
)
final("final-cancer-sensor", "sensor", "Breast cancer; gain 0.6, offset 1")(
    lambda random: shifted(
        three := parts(random, *table("breast_cancer"), 200, 169, 200),
        sensor(random, three[0][0], gain=0.6, offset=1.0),
    )
)
final("final-clusters-12-moved", "sensor", "Twelve clusters; features moved by one spread")(
    lambda random: moved_clusters(random, 12, 1.5, 1.0, None)
)

DESIGN = tuple(name for name in PAIR_TASKS if side(name) == CHOOSING and name not in FINAL)
JUDGING = tuple(name for name in PAIR_TASKS if side(name) != CHOOSING and name not in FINAL)
