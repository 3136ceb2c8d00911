"""How well a share is known from so many samples."""

from math import sqrt

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
