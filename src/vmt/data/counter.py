"""Random numbers that are a pure function of (seed, stream, index, place).

Whoever draws them, in whatever order and in however many processes, gets the same. Each index has a sequence of its
own: SplitMix64, started from a hash of seed, stream and index.
"""

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

STEP = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's, 2⁶⁴ over the golden ratio


def uniforms(seed: int, stream: int, indices: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """(len(indices), count) numbers in [0, 1)."""
    return (words(seed, stream, indices, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def words(seed: int, stream: int, indices: NDArray[np.int64], count: int) -> Words:
    """(len(indices), count) words of 64 bits."""
    key = np.array([seed, stream], np.uint64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴ is the point
        start = _mixed(_mixed(_mixed(key[:1]) + key[1:] * STEP) + indices.astype(np.uint64) * STEP)
        places = np.arange(1, count + 1, dtype=np.uint64) * STEP
        return _mixed(start[:, None] + places)


def _mixed(z: Words) -> Words:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
