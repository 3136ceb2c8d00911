"""Predictions to score, ordinary and degenerate ones."""

import pytest
import torch
from torch import Tensor


def random_logits(n: int, k: int, scale: float = 3.0, seed: int = 0) -> Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(seed)) * scale


def one_class(n: int, k: int) -> Tensor:
    """A collapse: always the same class, with certainty."""
    return torch.eye(k)[1].repeat(n, 1) * 60


CASES: dict[str, Tensor] = {
    "random": random_logits(60, 7),
    "few samples": random_logits(4, 9),
    "one sample": random_logits(1, 5),
    "two samples": random_logits(2, 3),
    "two classes": random_logits(40, 2),
    "uniform": torch.zeros(30, 6),
    "one class": one_class(30, 6),
    "one class, N < K": one_class(3, 8),
    "certain": torch.eye(5).repeat(6, 1) * 80,
    "large logits": random_logits(20, 4, 500.0),
    "all equal": torch.tensor([[0.3, -0.2, 0.1]]).repeat(12, 1),
}
each_case = pytest.mark.parametrize("logits", CASES.values(), ids=CASES.keys())
