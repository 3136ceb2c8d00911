"""Intervals of accuracies and of their differences."""

from math import sqrt


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
