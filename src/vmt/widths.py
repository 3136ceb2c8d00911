"""How wide numbers are where it matters."""

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """At least single precision: what a bfloat16 network produces is worked on in float32, doubles stay doubles."""
    return x if x.dtype == torch.float64 else x.float()
