"""One training iteration: for each update, draw a batch, run the passes, add the terms, take the step.

Everything happens in place on tensors of one device, with no host synchronisation and no Python branch on data, so that
:mod:`vmt.engine` can compile or capture it as it is.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice

import torch
from torch import Tensor, nn

from vmt.data.domains import Domain
from vmt.errors import InputError
from vmt.kernels.convolution import bf16_weights
from vmt.losses import at_least_float32, slope
from vmt.methods.nodes import SLOPE, Batch, Node, Tap, View
from vmt.methods.nouns import Phase, Update
from vmt.nets.norm import passes
from vmt.nets.staged import Staged
from vmt.step.context import StepContext
from vmt.step.optimiser import norm_of
from vmt.step.plan import Pass, plan
from vmt.step.state import State

Metrics = dict[str, Tensor]


def step(phase: Phase, state: State, context: StepContext) -> Metrics:
    """One iteration of a phase. Returns every term's value and every gradient norm, on the device."""
    metrics: Metrics = {}
    for update in phase.updates:
        passes_ = plan(update, {name: module.taps for name, module in state.roles.items()})
        for repeat in range(update.repeats):
            metrics |= apply(update, passes_, state, context, repeat)
    state.step += 1
    return metrics


def apply(update: Update, planned: tuple[Pass, ...], state: State, context: StepContext, repeat: int) -> Metrics:
    """One optimiser step of an update."""
    parameters = state.parameters(update.optimises)
    used = [state.roles[role] for role in dict.fromkeys(each.role for each in planned)]
    bfloat16_on_cuda = context.bfloat16 and state.step.is_cuda
    others = [module for role, module in state.roles.items() if role not in update.optimises]
    with frozen(others), bf16_weights(used) if bfloat16_on_cuda else nullcontext():
        values = NodeValues(update, state, context, repeat)
        for each in planned:
            values.run(each)
        total, metrics = objective(update, values, context)
        found = torch.autograd.grad(total, parameters, allow_unused=True)
    lr = context.number(update.optimiser.lr)
    left = iter(found)
    for role in update.optimises:
        own = state.parameters((role,))
        gradients = list(islice(left, len(own)))
        if all(gradient is None for gradient in gradients):
            raise InputError(
                f"no term of update {update.name!r} depends on the weights of the role {role!r}, which it optimises: "
                "add such a term, or take the role out of optimises."
            )
        state.optimisers[f"{update.name}/{role}"].step_(own, gradients, update.optimiser, lr)
    for average in update.averages:
        live = [p.detach() for p in state.roles[average.of].parameters()]
        torch._foreach_lerp_(list(state.roles[average.into].parameters()), live, 1 - average.decay)
    metrics[f"{update.name}/gradient norm"] = norm_of([g for g in found if g is not None])
    return metrics


def objective(update: Update, values: "NodeValues", context: StepContext) -> tuple[Tensor, Metrics]:
    """The weighted sum of the terms, and each term's own value."""
    total: Tensor | None = None
    metrics: Metrics = {}
    for term in update.terms:
        only_measured = not callable(term.weight) and term.weight == 0
        with torch.no_grad() if only_measured else nullcontext():
            parts = term.loss(*(values(node) for node in term.reads))
            value = sum_of_means(parts)
        metrics[f"{update.name}/{term.name}"] = value.detach()
        if not only_measured:
            if value.dim():
                raise InputError(
                    f"the loss of the term {term.name!r} gives values of shape {tuple(value.shape)} for each example: "
                    "return one number for each."
                )
            weighted = context.number(term.weight) * value
            total = weighted if total is None else total + weighted
    if total is None:
        raise InputError(f"update {update.name!r} has no term with a weight: give one of its terms a weight.")
    return total, metrics


def sum_of_means(parts: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Over examples, dimension 0; a figure such as a histogram keeps its other dimensions."""
    if isinstance(parts, Tensor):
        return parts.mean(0)
    return torch.stack([part.mean(0) for part in parts]).sum(0)


class NodeValues:
    """The values of nodes in one update: computed when first asked for, kept until the update ends."""

    def __init__(self, update: Update, state: State, context: StepContext, repeat: int) -> None:
        self.update, self.state, self.context = update, state, context
        self.draws = context.draws
        self.prefix = update.name + (f"#{repeat}" if repeat else "")
        self.batch_prefix = update.batch or self.prefix
        self.known: dict[Node, Tensor] = {}
        self.rows: dict[Batch, Tensor] = {}

    def __call__(self, node: Node) -> Tensor:
        if node not in self.known:
            self.known[node] = node.value(self)
        return self.known[node]

    def run(self, each: Pass) -> None:
        """Send the inputs of all views of a pass through its network, and keep what comes out for each."""
        module = self.state.roles[each.role]
        if module.training != each.training:
            module.train(each.training)
        inputs = [self(view.input) for view in each.views]
        device = inputs[0].device.type
        with (
            # Without its cache: inside a further autocast, weights of before the last update would stay in it.
            torch.autocast(device, torch.bfloat16, enabled=self.context.bfloat16, cache_enabled=False),
            nullcontext() if each.gradient else frozen([module]),
        ):
            if module.separate_passes:
                for view, x in zip(each.views, inputs, strict=True):
                    with statistics_kept(module, view.statistics):
                        self.keep(each, (view,), module, x)
            else:
                self.keep(each, each.views, module, torch.cat(inputs) if len(inputs) > 1 else inputs[0])

    def keep(self, each: Pass, views: tuple[View, ...], module: Staged, x: Tensor) -> None:
        """One call of a network, on a concatenation of the inputs of these views."""
        sizes = tuple(len(self(view.input)) for view in views)
        updating = tuple(i for i, view in enumerate(views) if view.statistics)
        if each.probing:
            x.requires_grad_()
        with passes(sizes, updating):
            taps: dict[str, Tensor] = module(x, each.entry, each.exit)
        if each.probing:
            clean = torch.cat([self(view.probe) for view in views if view.probe])
            label = at_least_float32(clean.detach()).softmax(-1)
            taps = {SLOPE: slope(x, label, taps["logits"])}
        for name, tensor in taps.items():
            for view, part in zip(views, torch.split(tensor, list(sizes)), strict=True):
                self.known[Tap(view, name)] = part

    def name(self, draw: str) -> str:
        return f"{self.prefix}/{draw}"

    def stream(self, batch: Batch) -> Domain:
        if batch.stream not in self.context.streams:
            known = ", ".join(map(repr, self.context.streams))
            raise InputError(f"the method reads the stream {batch.stream!r}, but there are only {known}: correct it.")
        return self.context.streams[batch.stream]

    def indices(self, batch: Batch) -> Tensor:
        if batch not in self.rows:
            name = f"{self.batch_prefix}/{batch.name}/indices"
            population = len(self.stream(batch))
            self.rows[batch] = self.draws.choice(name, population, self.context.batch_size[batch.stream])
        return self.rows[batch]

    def images(self, batch: Batch) -> Tensor:
        x = self.stream(batch).x[self.indices(batch)]
        return self.context.preprocess(x)

    def labels(self, batch: Batch) -> Tensor:
        y = self.stream(batch).y
        assert y is not None, f"the stream {batch.stream!r} has no labels"
        return y[self.indices(batch)]

    def parameter(self, role: str, name: str) -> Tensor:
        return self.state.roles[role].get_parameter(name)

    def xi(self, role: str) -> float:
        return self.context.xi[role]


@contextmanager
def statistics_kept(module: nn.Module, update: bool) -> Iterator[None]:
    """For a network whose normalisation layers know nothing of passes: unwanted statistics go into copies.

    Copying old values back would not do: autograd refuses a buffer that changed after the pass that used it.
    """
    layers = () if update else module.modules()
    own = [(layer, name, buffer) for layer in layers for name, buffer in layer._buffers.items()]
    for layer, name, buffer in own:
        layer._buffers[name] = None if buffer is None else buffer.clone()
    try:
        yield
    finally:
        for layer, name, buffer in own:
            layer._buffers[name] = buffer


@contextmanager
def frozen(modules: Iterable[nn.Module]) -> Iterator[None]:
    """No gradient to the parameters of these modules: for a single pass, the input's gradient alone costs half."""
    wanted = [p for module in modules for p in module.parameters() if p.requires_grad]
    for p in wanted:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in wanted:
            p.requires_grad_(True)
