"""Networks as named stages, their layers, and those of the package: the paper's CNNs, an MLP and the discriminator."""

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vmt.errors import InputError
from vmt.kernels.convolution import Stem, convolve, serves_stem
from vmt.kernels.normalisation import After
from vmt.losses import at_least_float32
from vmt.nets.norm import BatchNorm, InstanceNorm

INPUT = "input"


class Staged(nn.Module):
    """Stages applied in order; each is named by what it produces (its *tap*).

    The paper's classifier f = h ∘ g has the taps ``features`` (the output of g, which the discriminator reads),
    ``hidden`` (the input of the last dense layer) and ``logits``.

    ``separate_passes`` marks a network whose passes must not share a batch, because it has normalisation layers that
    do not know where one pass ends and the next begins.

    >>> net = Staged({"features": nn.Linear(5, 4), "logits": nn.Linear(4, 3)})
    >>> net.part(after="features").taps
    ('logits',)
    """

    def __init__(
        self, stages: Mapping[str, nn.Module], separate_passes: bool = False, *, one_by_one: bool | None = None
    ) -> None:
        super().__init__()
        self.stages = nn.ModuleDict(stages)
        self.separate_passes = separate_passes
        if one_by_one is not None:
            self.one_by_one = one_by_one

    @property
    def taps(self) -> tuple[str, ...]:
        return tuple(self.stages)

    def forward(self, x: Tensor, entry: str = INPUT, exit: str | None = None) -> dict[str, Tensor]:
        """Run from the tap ``entry`` to the tap ``exit`` (default: the last) and return every tap on the way."""
        outputs = {}
        for name in self.between(entry, exit):
            x = outputs[name] = self.stages[name](x)
        return outputs

    def part(self, after: str = INPUT, until: str | None = None) -> "Staged":
        """The stages after one tap and up to another as a network that shares their modules."""
        return Staged({name: self.stages[name] for name in self.between(after, until)}, self.separate_passes)

    def between(self, after: str, until: str | None) -> tuple[str, ...]:
        """The taps after one and up to another."""
        names = self.taps
        for tap in (after, until):
            if tap not in (INPUT, None, *names):
                raise InputError(f"the network has no tap {tap!r}: use one of {', '.join(names)}.")
        first = 0 if after == INPUT else names.index(after) + 1
        last = len(names) if until is None else names.index(until) + 1
        return names[first:last]

    @property
    def one_by_one(self) -> bool:
        """The earlier name of ``separate_passes``."""
        warn_of_earlier_name()
        return self.separate_passes

    @one_by_one.setter
    def one_by_one(self, value: bool) -> None:
        warn_of_earlier_name()
        self.separate_passes = value

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Estimators that were pickled by earlier versions hold the earlier name."""
        if "one_by_one" in state:
            state = {**state, "separate_passes": state["one_by_one"]}
            del state["one_by_one"]
        super().__setstate__(state)  # type: ignore[no-untyped-call]


def warn_of_earlier_name() -> None:
    warnings.warn("Staged.one_by_one has a new name: use separate_passes.", DeprecationWarning, stacklevel=3)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Use evaluation mode inside, and restore each layer's mode afterwards, which may differ from the network's."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


SLOPE = 0.1
BATCH = "batch"
# Group norm has this many groups of channels, or fewer if the channels cannot be divided so.
GROUPS = 8
# A dense layer with at most this many outputs and inputs is multiplied out on a CUDA device.
FEW_OUTPUTS, FEW_INPUTS = 32, 256

Weighted = TypeVar("Weighted", nn.Linear, nn.Conv2d)


# --- Layers ---


class GaussianNoise(nn.Module):
    """Adds N(0, σ²) while training."""

    def __init__(self, std: float) -> None:
        super().__init__()
        self.std = std

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.std <= 0:
            return x
        if x.device.type != "cpu":
            return x + self.std * torch.randn_like(x)
        # On a CPU, torch needs eight times as long to fill a channels_last tensor with normal numbers as a flat one.
        noise = torch.randn(x.numel(), dtype=torch.promote_types(x.dtype, torch.float32)).to(x.dtype)
        return x + self.std * laid_out(noise, x)

    def extra_repr(self) -> str:
        return f"std={self.std}"


class Dropout(nn.Dropout):
    """Dropout. On a CPU it draws sixteen random bits for each value instead of a random double."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not 0 < self.p < 1 or x.device.type != "cpu":
            return super().forward(x)
        words = torch.randint(-(2**63), 2**63 - 1, (-(-x.numel() // 4),))
        dropped = round(self.p * 2**16)
        kept = words.view(torch.int16)[: x.numel()] >= dropped - 2**15
        return x * laid_out(kept.to(x.dtype) * (2**16 / (2**16 - dropped)), x)


def laid_out(flat: Tensor, like: Tensor) -> Tensor:
    """Flat values in the shape of a tensor, and in its memory order if the tensor has no gaps in memory."""
    dense = like.is_contiguous() or (like.dim() == 4 and like.is_contiguous(memory_format=torch.channels_last))
    return flat.as_strided(like.shape, like.stride()) if dense else flat.view(like.shape)


class GlobalAveragePool(nn.Module):
    """The mean over all positions per channel, in full precision even for a bfloat16 map."""

    def forward(self, x: Tensor) -> Tensor:
        return at_least_float32(x).mean((2, 3))


def initialised(layer: Weighted) -> Weighted:
    """The authors' initialisation: a normal of std √(1.3·2/fan_in), truncated at two standard deviations; bias 0."""
    std = math.sqrt(1.3 * 2 / layer.weight[0].numel())
    nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class ConvolutionBeforeNorm(nn.Conv2d):
    """A 3×3 convolution that a batch norm follows.

    The norm cancels the bias, so that the gradient of the bias is zero apart from rounding. Adam would turn
    that rounding into full steps. Here the bias gets no gradient, which also saves a pass over the activations. The
    running means include it, as in the authors' program.
    """

    def forward(self, x: Tensor) -> Tensor:
        assert self.bias is not None
        return self.without_bias(x) + self.bias.detach()[:, None, None] if x.is_cuda else self.plain(x)

    def plain(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, None if self.bias is None else self.bias.detach(), padding=1)

    def without_bias(self, x: Tensor) -> Tensor:
        """The convolution without its bias, by vmt's kernels on a CUDA device."""
        y: Tensor
        if serves_stem(x, self):
            y = Stem.apply(x, self.weight)  # type: ignore[no-untyped-call]
            return y
        return convolve(x, self.weight)


class LinearBeforeNorm(nn.Linear):
    """A dense layer that a batch norm follows. Its bias gets no gradient, as in :class:`ConvolutionBeforeNorm`."""

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.detach()
        small = self.out_features <= FEW_OUTPUTS and self.in_features <= FEW_INPUTS
        if x.is_cuda and x.dtype == torch.float32 and small:
            # Fused with its neighbours, this takes less time than starting a matrix product. If nothing is fused, all
            # products are held in memory, so the layer must be small.
            y = (x.unsqueeze(1) * self.weight).sum(-1)
            return y if bias is None else y + bias
        return F.linear(x, self.weight, bias)


class FullPrecision(nn.Sequential):
    """Layers that run in single precision, or in double, inside a bfloat16 network."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            x = at_least_float32(x)
            for layer in self:
                x = layer(x)
            return x


class ConvBlock(nn.Sequential):
    """conv 3×3 → BN → LeakyReLU 0.1."""

    def __init__(self, inputs: int, outputs: int) -> None:
        convolution = initialised(ConvolutionBeforeNorm(inputs, outputs, 3, padding=1))
        super().__init__(convolution, BatchNorm(outputs), nn.LeakyReLU(SLOPE))

    @property
    def convolution(self) -> ConvolutionBeforeNorm:
        convolution = self[0]
        assert isinstance(convolution, ConvolutionBeforeNorm)
        return convolution

    @property
    def norm(self) -> BatchNorm:
        norm = self[1]
        assert isinstance(norm, BatchNorm)
        return norm


class Stage(nn.Sequential):
    """Layers in order. On a CUDA device, all that follows a convolution up to the next one runs as one kernel."""

    def forward(self, x: Tensor) -> Tensor:
        layers = list(self)
        while layers:
            layer = layers.pop(0)
            if not isinstance(layer, ConvBlock):
                x = layer(x)
                continue
            convolution, norm = layer.convolution, layer.norm
            if not norm.fuses(x):
                x = layer(x)
                continue
            ending = end_of_block(layers, x)
            del layers[: 3 if ending else 0]
            assert convolution.bias is not None
            x = norm.activated(convolution.without_bias(x), ending or After(SLOPE), convolution.bias)
        return x


def end_of_block(layers: list[nn.Module], x: Tensor) -> After | None:
    """Max-pool 2, dropout and noise, if these layers come next and the pool leaves out no row or column of x."""
    if x.shape[2] % 2 or x.shape[3] % 2:
        return None
    match layers[:3]:
        case [nn.MaxPool2d(kernel_size=2), nn.Dropout(p=dropout), GaussianNoise(std=noise)] if dropout < 1:
            return After(SLOPE, True, dropout, noise)
    return None


def conv_block(inputs: int, outputs: int, norm: str) -> nn.Sequential:
    """conv 3×3 → norm → LeakyReLU 0.1, for images."""
    if norm == BATCH:
        return ConvBlock(inputs, outputs)
    convolution = initialised(nn.Conv2d(inputs, outputs, 3, padding=1))
    return nn.Sequential(convolution, sample_norm(outputs, norm), nn.LeakyReLU(SLOPE))


def dense_block(inputs: int, outputs: int, norm: str = "batch") -> nn.Sequential:
    """dense → norm → LeakyReLU 0.1, for vectors."""
    if norm == BATCH:
        return nn.Sequential(initialised(LinearBeforeNorm(inputs, outputs)), BatchNorm(outputs), nn.LeakyReLU(SLOPE))
    return nn.Sequential(initialised(nn.Linear(inputs, outputs)), sample_norm(outputs, norm), nn.LeakyReLU(SLOPE))


def sample_norm(channels: int, norm: str) -> nn.GroupNorm:
    """Layer norm (``layer``) or group norm (``group``), which normalise each sample by itself.

    They have no batch statistics and no running ones, so the shares of the classes in a domain do not affect them.
    """
    if norm not in ("layer", "group"):
        raise InputError(f"norm must be 'batch', 'layer' or 'group', but got {norm!r}.")
    return nn.GroupNorm(1 if norm == "layer" else math.gcd(GROUPS, channels), channels)


def logits_layer(inputs: int, classes: int, norm: bool = True) -> nn.Sequential:
    """The last layer: dense, then BN. The paper's logits are batch-normalised; ``norm=False`` leaves BN out."""
    if not norm:
        return FullPrecision(initialised(nn.Linear(inputs, classes)))
    return FullPrecision(initialised(LinearBeforeNorm(inputs, classes)), BatchNorm(classes))


# --- Networks ---

# Two max-pools of 2 must leave at least one pixel for the last three convolutions.
SMALLEST_SIDE = 4


def cnn(
    shape: tuple[int, ...],
    classes: int,
    widths: tuple[int, int, int] = (64, 64, 64),
    instance_norm: bool = False,
    dropout: float = 0.5,
    noise: float = 1.0,
    depth: int = 3,
    norm: str = "batch",
    logit_norm: bool = True,
) -> Staged:
    """Nine convolutions in three blocks; ``widths`` 64-64-64 is the paper's small net, 96-192-192 its large one.

    ``depth`` is the number of convolutions in a block; the paper's is 3. The first two blocks end with max-pool,
    dropout and Gaussian noise; the discriminator reads the output of the second (``features``).

    The paper's networks have batch norm after each convolution and on the logits. ``norm="group"`` or ``"layer"``
    normalises each sample by itself instead, and ``logit_norm=False`` leaves the logits as they are. Batch norm on the
    logits of the target favours equal shares of the classes.

    >>> import torch
    >>> net = cnn((3, 32, 32), classes=10, instance_norm=True)
    >>> {tap: tuple(value.shape) for tap, value in net(torch.zeros(2, 3, 32, 32)).items()}
    {'features': (2, 64, 8, 8), 'hidden': (2, 64), 'logits': (2, 10)}
    """
    if len(shape) != 3 or min(shape[1:]) < SMALLEST_SIDE:
        raise InputError(
            f"a CNN needs images of at least {SMALLEST_SIDE}×{SMALLEST_SIDE} pixels, but a sample has shape {shape}: "
            "use net='mlp' for vectors, or larger images."
        )
    channels = shape[0]

    def block(inputs: int, width: int) -> list[nn.Module]:
        return [conv_block(width if i else inputs, width, norm) for i in range(depth)]

    def pool() -> list[nn.Module]:
        return [nn.MaxPool2d(2), Dropout(dropout), GaussianNoise(noise)]

    first, second, third = widths
    normalise: list[nn.Module] = [InstanceNorm(channels)] if instance_norm else []
    encoder = [*normalise, *block(channels, first), *pool(), *block(first, second), *pool()]
    return Staged(
        {
            "features": Stage(*encoder),
            "hidden": Stage(*block(second, third), GlobalAveragePool()),
            "logits": logits_layer(third, classes, logit_norm),
        }
    )


def mlp(
    shape: tuple[int, ...],
    classes: int,
    width: int = 64,
    dropout: float = 0.1,
    noise: float = 0.1,
    norm: str = "batch",
    logit_norm: bool = True,
) -> Staged:
    """Four dense layers of ``width``; dropout and Gaussian noise after the second (``features``); BN on the logits.

    ``norm`` and ``logit_norm`` are those of :func:`cnn`.

    >>> mlp((5,), classes=3).taps
    ('features', 'hidden', 'logits')
    """
    inputs = math.prod(shape)
    regularise: list[nn.Module] = [Dropout(dropout), GaussianNoise(noise)]

    def block(inputs: int) -> nn.Sequential:
        return dense_block(inputs, width, norm)

    return Staged(
        {
            "features": nn.Sequential(nn.Flatten(), block(inputs), block(width), *regularise),
            "hidden": nn.Sequential(block(width), block(width)),
            "logits": logits_layer(width, classes, logit_norm),
        }
    )


def discriminator(features: int, hidden: int = 100) -> Staged:
    """The discriminator d: flattened features → dense ReLU → one logit, positive for source, without batch norm.

    >>> discriminator(features=4096).taps
    ('domain',)
    """
    return domain_stage(nn.Flatten(), features, hidden)


def conditional_discriminator(features: int, classes: int, hidden: int = 100) -> Staged:
    """CDAN's discriminator: the same on the product of features and predictions, which it reads side by side.

    >>> import torch
    >>> conditional_discriminator(features=12, classes=3)(torch.zeros(2, 12 + 3))["domain"].shape
    torch.Size([2, 1])
    """
    product = Product(features, classes)
    return domain_stage(product, product.values, hidden)


def domain_stage(first: nn.Module, values: int, hidden: int) -> Staged:
    """A first layer that gives vectors of ``values`` numbers, then dense ReLU and one logit."""
    return Staged(
        {
            "domain": nn.Sequential(
                first, initialised(nn.Linear(values, hidden)), nn.ReLU(), initialised(nn.Linear(hidden, 1))
            )
        }
    )


# A product with more values than this is replaced by a random one with fewer values, as in the paper on CDAN.
LARGEST_PRODUCT, RANDOM_VALUES = 4096, 1024


class Product(nn.Module):
    """All products of a feature and a predicted probability, which are read side by side: (N, F + K) → (N, F·K).

    If that would be many, (R f) ⊙ (S g) / √d of d values, where R and S are random matrices that never change. Its
    inner products have those of the whole product as their expectation.
    """

    of_features: Tensor
    of_predictions: Tensor

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.features, self.classes = features, classes
        self.randomised = features * classes > LARGEST_PRODUCT
        self.values = RANDOM_VALUES if self.randomised else features * classes
        if self.randomised:
            self.register_buffer("of_features", torch.randn(features, self.values))
            self.register_buffer("of_predictions", torch.randn(classes, self.values))

    def forward(self, x: Tensor) -> Tensor:
        f, g = x[:, : self.features], x[:, self.features :]
        if self.randomised:
            return (f @ self.of_features) * (g @ self.of_predictions) / math.sqrt(self.values)
        return (f[:, :, None] * g[:, None, :]).flatten(1)

    def extra_repr(self) -> str:
        return f"{self.features}, {self.classes}" + (", randomised" if self.randomised else "")
