"""Any classifier as the staged network that the methods train, and its place on a device."""

import copy
import warnings
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vmt.errors import InputError
from vmt.losses import at_least_float32
from vmt.nets.networks import (
    Dropout,
    FullPrecision,
    LinearBeforeNorm,
    Staged,
    dense_block,
    evaluating,
    initialised,
    logits_layer,
)
from vmt.nets.norm import BatchNorm

# The length of VAT's first step. With dropout or noise the prediction changes by itself, so that a tiny step is
# enough. Without them the gradient vanishes at x, and in single precision the step must be longer.
XI_STOCHASTIC, XI_DETERMINISTIC = 1e-6, 0.5
# Of a bottleneck.
DROPOUT = 0.1


def from_module(
    module: nn.Module,
    classes: int,
    *,
    head: nn.Module | str | None = None,
    normalise_logits: bool = True,
    bottleneck: int = 0,
) -> Staged:
    """A copy of ``module``, split into an encoder and a last dense layer, with the taps of the paper's networks.

    ``head`` is the last layer: None takes the last ``nn.Linear`` out of the module, a name takes out that submodule,
    and your own module is appended unchanged. A dense layer with another number of outputs than ``classes``
    is replaced by a new one. ``normalise_logits`` puts a BatchNorm behind it, as the paper does. ``bottleneck`` is the
    width of a new dense layer with BatchNorm before it, which is part of the stage ``logits``; 0 adds none.

    The taps are ``features`` (the output of the encoder, which the discriminator reads), ``hidden`` (the same as
    vectors: feature maps are averaged over positions) and ``logits``.

    Each BatchNorm layer becomes one that keeps passes apart, with the same weights, running statistics, ε and momentum;
    from then on its running variance is the biased one (torch's is unbiased: n/(n-1) times as large). If another layer
    has batch or running statistics, the network is marked ``separate_passes``, which is slower and gives the same
    result.

    >>> own = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 9))
    >>> net = from_module(own, classes=3)
    >>> {tap: tuple(value.shape) for tap, value in net(torch.zeros(2, 5)).items()}
    {'features': (2, 16), 'hidden': (2, 16), 'logits': (2, 3)}
    """
    if any(nn.parameter.is_lazy(p) for p in module.parameters()):
        raise InputError("the module has lazy layers whose sizes are not known yet: run it on one batch first.")
    encoder = Encoder(copy.deepcopy(module))
    if isinstance(head, nn.Module):
        last = copy.deepcopy(head)
    else:
        name = last_dense(encoder.module) if head is None else head
        last = taken_out(encoder, name)
    logits = logits_stage(last, classes, normalise_logits, bottleneck)
    stages = {"features": encoder, "hidden": Vectors(), "logits": logits}
    network = Staged(stages)
    convert_batch_norms(network)
    network.separate_passes = any(keeps_statistics(layer) for layer in network.modules())
    return network


class Encoder(nn.Module):
    """A user's module. Its output must be one tensor."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        features = self.module(x)
        if not isinstance(features, Tensor) or features.dim() < 2:
            found = (
                f"a tensor of shape {tuple(features.shape)}"
                if isinstance(features, Tensor)
                else f"a {type(features).__name__}"
            )
            raise InputError(
                f"the module must return one tensor with a row per sample, but got {found}: wrap it so that it does."
            )
        return features


class Vectors(nn.Module):
    """One vector per sample: feature maps averaged over positions, anything else flattened."""

    def forward(self, x: Tensor) -> Tensor:
        return at_least_float32(x).mean((2, 3)) if x.dim() == 4 else x.flatten(1)


def last_dense(module: nn.Module) -> str:
    """The name of the last ``nn.Linear`` in the order of registration."""
    layers: list[tuple[str, nn.Module]] = list(module.named_modules())
    places = [i for i, (_, layer) in enumerate(layers) if isinstance(layer, nn.Linear)]
    if not places:
        raise InputError(
            "the module has no nn.Linear as its last layer: end it with one, or pass "
            "vmt.nets.from_module(module, classes, head=…)."
        )
    behind = [layer for _, layer in layers[places[-1] :] if isinstance(layer, nn.Softmax | nn.LogSoftmax)]
    if behind:
        kind = type(behind[0]).__name__
        raise InputError(f"the module has a {kind} behind its last nn.Linear: leave it out, so that it returns logits.")
    return layers[places[-1]][0]


def taken_out(encoder: Encoder, name: str) -> nn.Module:
    """Remove a submodule by name, leaving an identity wherever it is registered, and return it."""
    try:
        layer = encoder.get_submodule(f"module.{name}" if name else "module")
    except AttributeError:
        known = ", ".join(repr(n) for n, _ in encoder.module.named_children())
        raise InputError(f"head={name!r} is not a submodule of the module: use one of {known or 'none'}.") from None
    for holder in list(encoder.modules()):
        for called in [called for called, part in holder._modules.items() if part is layer]:
            setattr(holder, called, nn.Identity())
    return layer


def logits_stage(last: nn.Module, classes: int, normalise: bool, bottleneck: int) -> nn.Module:
    dense = [layer for layer in last.modules() if isinstance(layer, nn.Linear)]
    if bottleneck < 0:
        raise InputError(f"bottleneck must be a number of values, or 0 for none, but got {bottleneck}.")
    if bottleneck:
        if type(last) is not nn.Linear:
            raise InputError(
                f"a bottleneck replaces a last layer that is an nn.Linear, but it is a {type(last).__name__}: set "
                "bottleneck=0 (--bottleneck 0)."
            )
        before = [dense_block(last.in_features, bottleneck), Dropout(DROPOUT)]
        return FullPrecision(*before, logits_layer(bottleneck, classes, normalise)).to(
            last.weight.device, last.weight.dtype
        )
    if dense and dense[-1].out_features != classes:
        if dense[-1] is not last:
            raise InputError(
                f"the head has {dense[-1].out_features} outputs, but there are {classes} classes: "
                "pass a head with as many outputs as classes."
            )
        like = dense[-1].weight
        last = initialised(nn.Linear(dense[-1].in_features, classes)).to(like.device, like.dtype)
    if not normalise:
        return last
    if type(last) is nn.Linear:
        before_norm = LinearBeforeNorm(last.in_features, classes, last.bias is not None)
        before_norm.weight, before_norm.bias = last.weight, last.bias
        last = before_norm
    own = next(last.parameters(), torch.empty(0))
    return FullPrecision(last, BatchNorm(classes).to(own.device, own.dtype))


def convert_batch_norms(network: nn.Module) -> None:
    """Replace torch's BatchNorms by vmt's, in place; a layer that is used twice stays one layer."""
    converted: dict[nn.Module, BatchNorm] = {}
    for parent in list(network.modules()):
        for name, layer in parent._modules.items():
            if layer is not None and is_convertible(layer):
                setattr(parent, name, converted.setdefault(layer, group_aware(layer)))


def is_convertible(layer: nn.Module) -> bool:
    exact = type(layer) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return exact and layer.running_mean is not None and layer.momentum is not None


def group_aware(layer: nn.Module) -> BatchNorm:
    """vmt's BatchNorm with the weights, statistics and settings of torch's."""
    assert isinstance(layer, _BatchNorm)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    assert layer.momentum is not None
    norm = BatchNorm(layer.num_features, layer.eps, layer.momentum).to(layer.running_mean)
    norm.running_mean.copy_(layer.running_mean)
    norm.running_var.copy_(layer.running_var)
    if layer.affine:
        norm.weight, norm.bias = layer.weight, layer.bias
    else:
        # The layer has no learned scale and shift: constants in their place must not be parameters.
        for name in ("weight", "bias"):
            constant = getattr(norm, name).detach()
            delattr(norm, name)
            norm.register_buffer(name, constant)
    return norm.train(layer.training)


def keeps_statistics(layer: nn.Module) -> bool:
    """Whether a layer has batch or running statistics that cannot be kept apart for each pass."""
    has_statistics = isinstance(layer, _BatchNorm) or isinstance(getattr(layer, "running_mean", None), Tensor)
    return has_statistics and not isinstance(layer, BatchNorm)


@torch.no_grad()
def is_stochastic(network: Staged, x: Tensor) -> bool:
    """Whether two training passes on the same input differ, as with dropout, noise or stochastic depth.

    The network and torch's generators are not changed.
    """
    probe = copy.deepcopy(network).train()
    devices = [x.device] if x.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        first, second = (list(probe(x).values())[-1] for _ in range(2))
    # Well above the effect of another order of summation, and well below that of a random layer.
    return bool((first - second).abs().max() > 1e-5 * first.abs().max())


def check_gradient(network: Staged, x: Tensor) -> None:
    """Refuse a network without a gradient at its input, which VAT needs to find its direction.

    The network and torch's generators are not changed.
    """
    devices = [x.device] if x.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        last = list(copy.deepcopy(network).train()(x).values())[-1]
        found = last.requires_grad and torch.autograd.grad(last.sum(), x, allow_unused=True)[0] is not None
    if not found:
        raise InputError(
            "the network has no gradient at its input, which VAT needs: freeze layers by requires_grad_(False) and not "
            "by torch.no_grad() or detach(), or use a method without VAT, such as dann."
        )


def xi_for(network: Staged, x: Tensor) -> float:
    """The length ξ of VAT's first step: the paper's 1e-6, or a longer one with a warning if no layer is random."""
    check_gradient(network, x)
    if is_stochastic(network, x):
        return XI_STOCHASTIC
    warnings.warn(
        f"the network has no dropout or noise, so VAT's first step is ξ = {XI_DETERMINISTIC} instead of "
        f"{XI_STOCHASTIC:.0e}: add a stochastic layer, or set xi (--xi).",
        stacklevel=2,
    )
    return XI_DETERMINISTIC


def placed_on_device(network: Staged, shape: tuple[int, ...], device: torch.device) -> Staged:
    """The same network on a device, in the memory layout that is fastest there.

    Convolutions are fastest with channels_last weights, but not every network can run with them: not one that calls
    ``x.view(len(x), -1)`` after a convolution, nor one with weights of five dimensions. A network whose passes cannot
    share a batch is marked ``separate_passes``.
    """
    network.separate_passes = network.separate_passes or any(map(keeps_statistics, network.modules()))
    samples = torch.zeros(2, *shape, dtype=torch.float32, device=device)
    for layout in (torch.channels_last, torch.contiguous_format):
        with suppress(RuntimeError):  # if neither layout works, training raises the error
            network.to(device).to(memory_format=layout)  # type: ignore[call-overload]
            network.separate_passes = network.separate_passes or regroups(network, samples)
            break
    return network


@torch.no_grad()
def regroups(network: Staged, samples: Tensor) -> bool:
    """Whether a batch norm sees other rows than one per sample, such as one per patch.

    It is not known where a pass ends among such rows.
    """
    rows: set[int] = set()

    def note(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        rows.add(len(given[0]))

    hooks = [layer.register_forward_pre_hook(note) for layer in network.modules() if isinstance(layer, BatchNorm)]
    try:
        with evaluating(network):
            network(samples)
    finally:
        for hook in hooks:
            hook.remove()
    return bool(rows - {len(samples)})
