"""Do two scores put models in the same order?"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """1 for the smallest; equal values share the mean of their places."""
    _, which, equal = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    result: NDArray[np.float64] = (equal.cumsum() - (equal - 1) / 2)[which]
    return result


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's rank correlation, the correlation of the :func:`ranks`; None where one of them does not vary."""
    if len(a) < 2:
        return None
    x, y = ranks(a) - (len(a) + 1) / 2, ranks(b) - (len(b) + 1) / 2
    size = float(np.sqrt((x @ x) * (y @ y)))
    return None if size == 0 else float(x @ y) / size


def spearman_of_known(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    """The same over the pairs of which both values are known."""
    known = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    return spearman([x for x, _ in known], [y for _, y in known])
