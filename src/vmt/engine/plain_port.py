"""The plain port that the engines are compared with: a first version in PyTorch, without any tuning.

It uses nn.BatchNorm2d, one forward pass per term, torch's Adam and float32, and neither a compiler nor a CUDA graph. It
does the arithmetic of one VMT or DIRT-T iteration and is not used for training. On request it runs in bfloat16 with
channels_last weights, as a careful user would write it.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vmt.data.domains import Domain

Batch = tuple[Tensor, Tensor]


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x) if self.training else x


class Parts(nn.Module):
    """A classifier in three parts; a discriminator reads what the encoder gives."""

    encoder: nn.Module
    head: nn.Module
    logits: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.logits(self.head(self.encoder(x)))
        return y


class Classifier(Parts):
    """A CNN of the paper."""

    def __init__(self, widths: tuple[int, int, int], classes: int = 10) -> None:
        super().__init__()
        first, second, third = widths

        def block(inputs: int, width: int) -> list[nn.Module]:
            layers: list[nn.Module] = []
            for i in range(3):
                layers += [nn.Conv2d(width if i else inputs, width, 3, padding=1)]
                layers += [nn.BatchNorm2d(width, 1e-3, 0.01), nn.LeakyReLU(0.1)]
            return layers

        def pool() -> list[nn.Module]:
            return [nn.MaxPool2d(2), nn.Dropout(0.5), Noise()]

        self.encoder = nn.Sequential(
            nn.InstanceNorm2d(3, 1e-3, affine=True), *block(3, first), *pool(), *block(first, second), *pool()
        )
        self.head = nn.Sequential(*block(second, third), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.logits = nn.Sequential(nn.Linear(third, classes), nn.BatchNorm1d(classes, 1e-3, 0.01))


def soft(label: Tensor, logits: Tensor) -> Tensor:
    return -(label * logits.log_softmax(-1)).sum(-1).mean()


def entropy(logits: Tensor) -> Tensor:
    return soft(logits.softmax(-1), logits)


def unit(d: Tensor) -> Tensor:
    return d * d.flatten(1).square().sum(1).clamp_min(1e-12).rsqrt().view(-1, 1, 1, 1)


def vat(f: nn.Module, x: Tensor, clean: Tensor) -> Tensor:
    label = clean.detach().softmax(-1)
    near = (x + 1e-6 * unit(torch.randn_like(x))).requires_grad_()
    (slope,) = torch.autograd.grad(soft(label, f(near)), near)
    return soft(label, f(x + 3.5 * unit(slope)))


def mixup(f: nn.Module, x: Tensor, clean: Tensor) -> Tensor:
    lam, partner = torch.rand(len(x), 1, device=x.device), torch.randperm(len(x), device=x.device)
    mixed = lam.view(-1, 1, 1, 1) * x + (1 - lam).view(-1, 1, 1, 1) * x[partner]
    label = (lam * clean + (1 - lam) * clean[partner]).detach().softmax(-1)
    return soft(label, f(mixed))


def plain_steps(
    streams: dict[str, Domain],
    make: Callable[[], Parts],
    features: int,
    batch_size: int,
    device: torch.device,
    bfloat16: bool = False,
) -> tuple[Callable[[], None], Callable[[], None]]:
    """One VMT iteration and one DIRT-T iteration, as functions.

    ``make`` builds a classifier, whose encoder gives that many ``features``. ``bfloat16`` also means channels_last.
    """
    layout = torch.channels_last if bfloat16 else torch.contiguous_format

    def network() -> Parts:
        return make().to(device).to(memory_format=layout)  # type: ignore[call-overload,no-any-return]

    f, average, teacher = network(), network(), network().eval()
    d = nn.Sequential(nn.Flatten(), nn.Linear(features, 100), nn.ReLU(), nn.Linear(100, 1)).to(device)
    of_f = torch.optim.Adam(f.parameters(), 1e-3, (0.5, 0.999))
    of_d = torch.optim.Adam(d.parameters(), 1e-3, (0.5, 0.999))

    def batch(name: str) -> Batch:
        domain = streams[name]
        rows = torch.randint(len(domain), (batch_size,), device=device)
        x = domain.x[rows].float() * (2 / 255) - 1
        assert domain.y is not None
        return x.expand(-1, 3, -1, -1).contiguous(memory_format=layout), domain.y[rows]

    def finish(loss: Tensor, optimiser: torch.optim.Adam) -> None:
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    def move_average() -> None:
        with torch.no_grad():
            for mean, live in zip(average.parameters(), f.parameters(), strict=True):
                mean.lerp_(live, 0.002)

    def domains(source: Tensor, target: Tensor) -> Tensor:
        of_source, of_target = d(source), d(target)
        one = F.binary_cross_entropy_with_logits(of_source, torch.ones_like(of_source))
        zero = F.binary_cross_entropy_with_logits(of_target, torch.zeros_like(of_target))
        return 0.5 * (one + zero)

    def vmt() -> None:
        (xs, _), (xt, _) = batch("source"), batch("target")
        with torch.no_grad():
            features = f.encoder(xs), f.encoder(xt)
        finish(domains(*features), of_d)
        (xs, ys), (xt, _) = batch("source"), batch("target")
        source, target = f.encoder(xs), f.encoder(xt)
        zs, zt = f.logits(f.head(source)), f.logits(f.head(target))
        loss = F.cross_entropy(zs, ys) + 0.01 * domains(target, source)
        loss = loss + mixup(f, xs, zs) + vat(f, xs, zs)
        finish(loss + 0.06 * (mixup(f, xt, zt) + vat(f, xt, zt) + entropy(zt)), of_f)
        move_average()

    def dirt_t() -> None:
        (taught, _), (xt, _) = batch("target"), batch("target")
        with torch.no_grad():
            label = teacher(taught).softmax(-1)
        zt = f(xt)
        loss = 0.01 * soft(label, f(taught))
        finish(loss + 0.06 * (mixup(f, xt, zt) + vat(f, xt, zt) + entropy(zt)), of_f)
        move_average()

    def in_bfloat16(step: Callable[[], None]) -> None:
        with torch.autocast(device.type, torch.bfloat16):
            step()

    return (partial(in_bfloat16, vmt), partial(in_bfloat16, dirt_t)) if bfloat16 else (vmt, dirt_t)
