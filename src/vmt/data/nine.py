"""The nine classes that CIFAR-10 and STL-10 share: frog and monkey are left out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NINE = ("airplane", "car", "bird", "cat", "deer", "dog", "horse", "ship", "truck")
ALIASES = {"automobile": "car"}


def shared_classes(
    images: NDArray[Any], labels: NDArray[np.int64], names: Sequence[str]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The samples of the nine classes, their labels by name in the order of ``NINE``.

    By name, because the two sets number them differently: car and bird change places.
    """
    known = [ALIASES.get(name, name) for name in names]
    new = np.array([NINE.index(name) if name in NINE else -1 for name in known], np.int64)[labels]
    return images[new >= 0], new[new >= 0]
