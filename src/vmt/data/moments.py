"""Mean and spread of columns, without a second copy of them in memory."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

VALUES = 2**19  # of a slice: few enough for a processor's cache


def moments(*parts: Tensor | NDArray[Any]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column, over the rows (N, F) of all parts together, in 64 bits.

    >>> mean, std = moments(np.array([[1.0, 5.0], [2.0, 5.0]]), torch.tensor([[3, 5]]))
    >>> mean.tolist(), std.square().tolist()
    ([2.0, 5.0], [0.6666666666666666, 0.0])
    """
    count = 0
    mean = squares = torch.zeros((), dtype=torch.float64)
    for part in parts:
        portion = max(1, VALUES // part.shape[1])
        for start in range(0, len(part), portion):
            rows = _in_64_bits(part[start : start + portion])
            n, own_mean = len(rows), rows.mean(0)
            apart = own_mean - mean
            # Sums of squares around two means make one around the mean of both.
            squares = squares + (rows - own_mean).square_().sum(0) + apart.square() * (count * n / (count + n))
            mean = mean + apart * (n / (count + n))
            count += n
    return mean, (squares / count).sqrt()


def _in_64_bits(rows: Tensor | NDArray[Any]) -> Tensor:
    return rows.to("cpu", torch.float64) if isinstance(rows, Tensor) else torch.from_numpy(rows.astype(np.float64))
