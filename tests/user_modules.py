"""Networks as a user of the package might bring them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.small import CLASSES, FEATURES


class Residual(nn.Module):
    """A toy residual network for images, in the shape of torchvision's: convolutions, pool, ``fc``."""

    def __init__(self, outputs: int = 7) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.branch = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4, eps=1e-4, momentum=0.2)
        )
        self.fc = nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.fc(F.relu(x + self.branch(x)).mean((2, 3)))


class OwnNorm(nn.BatchNorm1d):
    """A batch norm that an adapter cannot know."""


class Vectors(nn.Module):
    """A toy network for vectors, with a normalisation of choice."""

    def __init__(self, norm: Callable[[int], nn.Module], outputs: int = CLASSES, dropout: float = 0) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 6), norm(6), nn.Tanh(), nn.Linear(6, 5), norm(5), nn.Tanh())
        self.dropout = dropout
        self.fc = nn.Linear(5, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.dropout(self.body(x), self.dropout, self.training))


def still(classes: int, shape: tuple[int, ...]) -> nn.Module:
    """A network without anything random, for ``--net``."""
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))


class Frozen(nn.Module):
    """A toy network whose weights count as pretrained, with what they expect of pictures as attributes."""

    size, mean, std, interpolation = 12, (0.4, 0.5, 0.6), (0.2, 0.25, 0.3), "bicubic"

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.maps = nn.Conv2d(3, 20, 4, stride=4)
        self.norm = nn.BatchNorm2d(20)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.2, generator=draw)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.maps(x))).flatten(1)


def frozen() -> nn.Module:
    """A ready network for ``--features``."""
    return Frozen()
