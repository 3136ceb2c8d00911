"""Everything that training changes: the networks, what their optimisers remember, and the step counter.

The optimisers are Adam as TensorFlow defines it, AdamW and SGD. They work in place on the tensors of one device. A
learning rate may be a tensor, which a captured graph reads anew at each replay.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn

from vmt.errors import InputError
from vmt.methods.nouns import (
    SGD,
    Adam,
    AdamW,
    AnyOptimiser,
    ConditionalDiscriminator,
    Copy,
    Discriminator,
    Method,
    Network,
    Own,
)
from vmt.nets.adapter import placed_on_device
from vmt.nets.networks import Staged, conditional_discriminator, discriminator, evaluating
from vmt.step.draws import key, seed_generators

Gradients = Sequence[Tensor | None]
Rates = Sequence[float] | None
"""A factor of the learning rate for each parameter; None stands for 1 throughout."""


class OptimiserState(Protocol):
    """What an optimiser remembers of earlier steps, and its step."""

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by the name that a checkpoint gives it."""
        ...

    def step_(
        self,
        parameters: Sequence[Tensor],
        gradients: Gradients,
        optimiser: AnyOptimiser,
        lr: float | Tensor,
        rates: Rates,
    ) -> None:
        """Take one step. Parameters whose gradient is None stay as they are, and so does what is remembered of them."""
        ...


class AdamState:
    r"""The moments and the step count of one Adam or AdamW. Each moment has the shape of its parameter.

    Adam: .. math:: \theta \leftarrow \theta - lr\,\frac{\sqrt{1-\beta_2^t}}{1-\beta_1^t} \frac{m}{\sqrt v + \epsilon}

    AdamW: .. math:: \theta \leftarrow \theta - lr\,\Bigl(\frac{m / (1-\beta_1^t)}{\sqrt{v / (1-\beta_2^t)} + \epsilon}
        + \text{decay} \cdot \theta\Bigr)
    """

    def __init__(self, parameters: list[Tensor]) -> None:
        self.m = [torch.zeros_like(p) for p in parameters]
        self.v = [torch.zeros_like(p) for p in parameters]
        # In double precision, because 1 − β2ᵗ loses three digits in single precision.
        self.t = torch.zeros((), dtype=torch.float64, device=parameters[0].device)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by the name that a checkpoint gives it."""
        moments = {"m": self.m, "v": self.v}
        named = {f"{kind}.{i}": x for kind, xs in moments.items() for i, x in enumerate(xs)}
        return {"t": self.t, **named}

    @torch.no_grad()
    def step_(
        self,
        parameters: Sequence[Tensor],
        gradients: Gradients,
        adam: AnyOptimiser,
        lr: float | Tensor,
        rates: Rates = None,
    ) -> None:
        """Take one step. Parameters whose gradient is None stay as they are, and so do their moments."""
        assert isinstance(adam, Adam | AdamW)
        used = [i for i, g in enumerate(gradients) if g is not None]
        p, g = [parameters[i] for i in used], [g for g in gradients if g is not None]
        m, v = [self.m[i] for i in used], [self.v[i] for i in used]
        self.t += 1
        torch._foreach_lerp_(m, g, 1 - adam.beta1)
        torch._foreach_mul_(v, adam.beta2)
        torch._foreach_addcmul_(v, g, g, 1 - adam.beta2)
        if isinstance(adam, AdamW):
            denominators = torch._foreach_sqrt(v)
            torch._foreach_div_(denominators, (1 - adam.beta2**self.t).sqrt().to(v[0].dtype))
            torch._foreach_add_(denominators, adam.eps)
            steps = torch._foreach_div(m, denominators)
            torch._foreach_div_(steps, (1 - adam.beta1**self.t).to(v[0].dtype))
            torch._foreach_add_(steps, p, alpha=adam.weight_decay)
            scale = lr * torch.ones_like(self.t)
        else:
            scale = lr * (1 - adam.beta2**self.t).sqrt() / (1 - adam.beta1**self.t)
            denominators = torch._foreach_sqrt(v)
            torch._foreach_add_(denominators, adam.eps)
            steps = torch._foreach_div(m, denominators)
        torch._foreach_mul_(steps, -scale.to(steps[0].dtype))
        if rates is not None:
            torch._foreach_mul_(steps, [rates[i] for i in used])
        torch._foreach_add_(p, steps)


class SGDState:
    """The velocity of each parameter under one SGD."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.velocity = [torch.zeros_like(p) for p in parameters]

    def tensors(self) -> dict[str, Tensor]:
        return {f"velocity.{i}": v for i, v in enumerate(self.velocity)}

    @torch.no_grad()
    def step_(
        self,
        parameters: Sequence[Tensor],
        gradients: Gradients,
        sgd: AnyOptimiser,
        lr: float | Tensor,
        rates: Rates = None,
    ) -> None:
        assert isinstance(sgd, SGD)
        used = [i for i, g in enumerate(gradients) if g is not None]
        p, g = [parameters[i] for i in used], [g for g in gradients if g is not None]
        velocity = [self.velocity[i] for i in used]
        g = list(torch._foreach_add(g, p, alpha=sgd.weight_decay)) if sgd.weight_decay else g
        torch._foreach_mul_(velocity, sgd.momentum)
        torch._foreach_add_(velocity, g)
        along = torch._foreach_add(g, velocity, alpha=sgd.momentum) if sgd.nesterov else velocity
        steps = torch._foreach_mul(along, -lr.to(p[0].dtype) if isinstance(lr, Tensor) else -lr)
        if rates is not None:
            torch._foreach_mul_(steps, [rates[i] for i in used])
        torch._foreach_add_(p, steps)


def state_for(optimiser: AnyOptimiser, parameters: list[Tensor]) -> OptimiserState:
    """What an optimiser remembers before its first step."""
    return SGDState(parameters) if isinstance(optimiser, SGD) else AdamState(parameters)


def clipped(gradients: Gradients, norm: Tensor, largest: float) -> list[Tensor | None]:
    """Gradients scaled so that their joint norm, which is ``norm`` (), is at most ``largest``."""
    factor = (largest / (norm + 1e-6)).clamp_max(1.0)
    scaled = iter(torch._foreach_mul([g for g in gradients if g is not None], factor))
    return [None if g is None else next(scaled) for g in gradients]


def norm_of(tensors: list[Tensor]) -> Tensor:
    """The L2 norm of all values of all tensors: ()."""
    return fused_norm(tensors) if tensors[0].is_cuda else plain_norm(tensors)


def plain_norm(tensors: list[Tensor]) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(torch.stack(list(torch._foreach_norm(tensors))))
    return norm


@torch.library.custom_op("vmt::norm_of", mutates_args=())
def fused_norm(tensors: list[Tensor]) -> Tensor:
    """The same as one operator, because a compiler would launch a kernel for each tensor."""
    return plain_norm(tensors)


@fused_norm.register_fake
def _(tensors: list[Tensor]) -> Tensor:
    return tensors[0].new_empty(())


NetworkFactory = Callable[[], Staged]
BACKBONE = ("features", "hidden")
"""The stages of a classifier before its logits, which may have a learning rate of their own."""


class State:
    """The networks by role, the optimisers by update and role, and the number of steps that are done, () int64."""

    def __init__(self, roles: dict[str, Staged], step: Tensor) -> None:
        self.roles = roles
        self.optimisers: dict[str, OptimiserState] = {}
        self.step = step

    def parameters(self, roles: tuple[str, ...]) -> list[Tensor]:
        """The weights of these roles that an update may change, without those that require no gradient."""
        return [p for name in roles for p in self.roles[name].parameters() if p.requires_grad]

    def rates(self, role: str, optimiser: AnyOptimiser) -> Rates:
        """The factor of the learning rate of each of these weights; None if it is 1 for all of them."""
        backbone = [tap for tap in self.roles[role].taps if tap in BACKBONE]
        if optimiser.backbone_rate == 1 or not backbone:
            return None
        owned = {id(p) for tap in backbone for p in self.roles[role].stages[tap].parameters()}
        return [optimiser.backbone_rate if id(p) in owned else 1.0 for p in self.parameters((role,))]

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name. A buffer that two roles share is listed once, with the first role."""
        named: dict[str, Tensor] = {"step": self.step}
        for role, module in self.roles.items():
            named |= {f"roles/{role}/{name}": tensor for name, tensor in module.state_dict(keep_vars=True).items()}
        for update, optimiser in self.optimisers.items():
            named |= {f"optimisers/{update}/{name}": tensor for name, tensor in optimiser.tensors().items()}
        unique: dict[int, str] = {}
        for name, tensor in named.items():
            unique.setdefault(id(tensor), name)
        return {name: named[name].detach() for name in unique.values()}

    @torch.no_grad()
    def restore_(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy saved values in place, so that captured graphs and shared buffers stay valid."""
        own = self.tensors()
        alike = {name for name in own.keys() & tensors.keys() if own[name].shape == tensors[name].shape}
        if different := sorted((own.keys() | tensors.keys()) - alike):
            raise InputError(
                f"the saved state is from another network or method: it differs in {different[0]!r} ({len(different)} "
                f"of {len(own)} tensors). Resume with the method and network of the saved run."
            )
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def build_state(
    method: Method, network: NetworkFactory, shape: tuple[int, ...], seed: int, device: torch.device
) -> State:
    """New networks for every role, initialised from the seed and the name of the role alone.

    ``shape`` is that of one sample, (C, H, W) or (F,).
    """
    roles: dict[str, Staged] = {}
    for name, role in method.roles.items():
        with seeded(key(seed, f"initialise/{name}") >> 1, device):
            if isinstance(role, Network):
                module = placed_on_device(network(), shape, device).part(role.after, role.until)
            elif isinstance(role, Discriminator):
                module = discriminator(features_of(roles[role.of], shape, role.tap), role.hidden)
            elif isinstance(role, ConditionalDiscriminator):
                features, classes = (features_of(roles[role.of], shape, tap) for tap in (role.tap, "logits"))
                module = conditional_discriminator(features, classes, role.hidden)
            elif isinstance(role, Own):
                module = role.build(tap_shape(roles[role.of], shape, role.tap), shape)
            else:
                module = copy.deepcopy(roles[role.of])
        roles[name] = module.to(device)
        if isinstance(role, Copy):
            roles[name].requires_grad_(False)
            if role.shared_statistics:
                share_buffers(roles[role.of], roles[name])
    state = State(roles, torch.zeros((), dtype=torch.int64, device=device))
    state.optimisers = fresh_optimisers(method, state)
    return state


@contextmanager
def seeded(value: int, device: torch.device) -> Iterator[None]:
    """Seed the generators from which weights are drawn, and restore them afterwards."""
    own = [device] if device.type == "cuda" else []
    with torch.cuda.device(device) if own else nullcontext(), torch.random.fork_rng(own):
        seed_generators(value, device)
        yield


def fresh_optimisers(method: Method, state: State) -> dict[str, OptimiserState]:
    """One optimiser per update and role. Updates of the same name in two phases share it, with what it remembers."""
    made: dict[str, OptimiserState] = {}
    for update in method.updates():
        for role in update.optimises:
            if not state.parameters((role,)):
                raise InputError(
                    f"the method {method.name!r} optimises the role {role!r}, but none of its weights requires a "
                    "gradient: set requires_grad on some of them."
                )
            new, name = state_for(update.optimiser, state.parameters((role,))), f"{update.name}/{role}"
            if type(made.setdefault(name, new)) is not type(new):
                raise InputError(
                    f"the update {update.name!r} of the method {method.name!r} has another optimiser in a later phase, "
                    f"{update.optimiser!r}: give the later update another name."
                )
    return made


def share_buffers(of: nn.Module, into: nn.Module) -> None:
    """Make ``into`` use the same buffers as ``of``."""
    for theirs, ours in zip(of.modules(), into.modules(), strict=True):
        ours._buffers.update(theirs._buffers)


def predictor_of(method: Method, state: State) -> Staged:
    """The network that predicts: the method's predictor roles, one after the other."""
    parts = [state.roles[name] for name in method.predictor]
    if len(parts) == 1:
        return parts[0]
    return Staged({name: stage for part in parts for name, stage in part.stages.items()})


def features_of(module: Staged, shape: tuple[int, ...], tap: str) -> int:
    """The number of values that a network produces at a tap for one sample."""
    return math.prod(tap_shape(module, shape, tap))


@torch.no_grad()
def tap_shape(module: Staged, shape: tuple[int, ...], tap: str) -> tuple[int, ...]:
    """The shape of what a network produces at a tap for one sample."""
    device = next(module.parameters()).device
    with evaluating(module):
        taps: dict[str, Tensor] = module(torch.zeros(2, *shape, device=device), exit=tap)
    return tuple(taps[tap].shape[1:])
