"""One training iteration: for each update, draw a batch, run the passes, add up the terms, take an optimiser step.

Everything happens in place on tensors of one device, without host synchronisation and without Python branches on data,
so that :mod:`vmt.engine` can compile or capture it unchanged. Shapes are written as in :mod:`vmt.losses`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from vmt.data.domains import Domain
from vmt.data.stored import StoredSamples
from vmt.data.task import Task
from vmt.errors import InputError
from vmt.kernels.convolution import bf16_weights
from vmt.losses import at_least_float32, slope
from vmt.methods.nodes import SLOPE, Batch, Draws, Node, Reversed, Schedule, Start, Tap, View, below
from vmt.methods.nouns import Method, Number, Phase, Update
from vmt.nets.adapter import xi_for
from vmt.nets.networks import Staged
from vmt.nets.norm import RUNNING_STATISTICS, passes
from vmt.ranks.group import ALONE, Ranks
from vmt.step.draws import SeededDraws
from vmt.step.feed import Feed
from vmt.step.plan import Pass, name_of_indices, plan, prefix_of
from vmt.step.state import Gradients, State, clipped, norm_of


@dataclass(frozen=True)
class StepContext:
    """What a step reads and does not change."""

    streams: Mapping[str, Domain]
    preprocess: Callable[[Tensor], Tensor]
    """From stored samples (B, …) to the network's input, (B, C, H, W) or (B, C)."""
    batch_size: Mapping[str, int]
    """Samples per batch of each stream."""
    draws: Draws
    xi: Mapping[str, float]
    """The length of VAT's first step, for each role for which the method does not set it."""
    scalars: Mapping[Schedule, Tensor]
    """The current value () of each schedule. The engine sets it before each step."""
    bfloat16: bool = False
    """Run the networks in bfloat16; statistics, logits, losses and optimiser state stay in float32."""
    ranks: Ranks = ALONE
    """The processes that train the same networks, each on batches of its own."""
    limits: tuple[float, float] | None = None
    """The smallest and the largest value that stored pictures can have, for their augmentation; None for vectors."""
    feed: Feed | None = None
    """Brings the batches of streams whose samples are not on the device. The engine loads it before each step."""

    def number(self, number: Number) -> float | Tensor:
        """The current value of a constant or of a schedule."""
        return self.scalars[number] if callable(number) else number


def make_context(
    task: Task, method: Method, state: State, *, seed: int, batch_size: int, bfloat16: bool, ranks: Ranks = ALONE
) -> StepContext:
    """The context of a run. It holds target labels only if the method trains on them, as the upper bound does."""
    target = task.target
    if not method.reads_labels_of("target"):
        target = target.without_labels()
    elif target.y is None:
        raise InputError(f"method {method.name!r} trains on target labels, but {target.name} has none.")
    streams = {"source": task.source, "target": target}
    if method.reads_labels_of("labelled target"):
        if task.target_labelled is None:
            raise InputError(f"method {method.name!r} trains on target labels, but no label of {target.name} is known.")
        streams["labelled target"] = task.target_labelled
    device = state.step.device
    sizes = {name: min(batch_size, len(domain)) for name, domain in streams.items()}
    draws = SeededDraws(seed, state.step, ranks.rank)
    fed = {name: domain for name, domain in streams.items() if is_streamed(domain, device)}
    few = task.preprocess(target.x[:8].to(device))
    return StepContext(
        streams=streams,
        preprocess=task.preprocess,
        batch_size=sizes,
        draws=draws,
        xi={role: xi_for(state.roles[role], few) for role in roles_with_open_xi(method, state)},
        scalars={schedule: torch.zeros((), dtype=torch.float32, device=device) for schedule in schedules_of(method)},
        limits=(task.preprocess.values.low, task.preprocess.values.high) if task.source.is_images else None,
        feed=Feed(fed, sizes, draws, device) if fed else None,
        bfloat16=bfloat16,
        ranks=ranks,
    )


def is_streamed(domain: Domain, device: torch.device) -> bool:
    """Whether the samples of a domain are brought to the device batch by batch."""
    return isinstance(domain.x, StoredSamples) or domain.x.device != device


def roles_with_open_xi(method: Method, state: State) -> set[str]:
    """Roles for which the method does not set the length ξ of VAT's first step."""
    taps = {name: module.taps for name, module in state.roles.items()}
    views = [view for update in method.updates() for each in plan(update, taps) for view in each.views]
    return {view.role for view in views if isinstance(view.input, Start) and view.input.xi is None}


def schedules_of(method: Method) -> set[Schedule]:
    """Every learning rate and weight of a method that is a schedule, and every weight of a reversed gradient."""
    numbers: list[Number] = [
        n for update in method.updates() for n in (update.optimiser.lr, *(t.weight for t in update.terms))
    ]
    nodes = (node for update in method.updates() for term in update.terms for node in term.reads)
    numbers += [each.weight for node in nodes for each in below(node) if isinstance(each, Reversed)]
    return {n for n in numbers if callable(n)}


Metrics = dict[str, Tensor]
"""Scalars () by name; a metric such as a histogram is a vector."""


def step(phase: Phase, state: State, context: StepContext) -> Metrics:
    """Do one iteration of a phase. Returns the value of each term and each gradient norm, on the device."""
    metrics: Metrics = {}
    taps = {name: module.taps for name, module in state.roles.items()}
    for update in phase.updates:
        for repeat in range(update.repeats):
            metrics |= apply(update, plan(update, taps), state, context, repeat)
    state.step += 1
    return metrics


def apply(update: Update, planned: tuple[Pass, ...], state: State, context: StepContext, repeat: int) -> Metrics:
    """Do one optimiser step of an update, and update the weight averages."""
    parameters = state.parameters(update.optimises)
    used = [state.roles[role] for role in dict.fromkeys(each.role for each in planned)]
    bfloat16_on_cuda = context.bfloat16 and state.step.is_cuda
    others = [module for role, module in state.roles.items() if role not in update.optimises]
    with without_gradients(others), bf16_weights(used) if bfloat16_on_cuda else nullcontext():
        values = NodeValues(update, state, context, repeat)
        for each in planned:
            values.run(each)
        total, metrics = objective(update, values, context)
        gradients: Gradients = torch.autograd.grad(total, parameters, allow_unused=True)
    gradients = mean_over_ranks_(gradients, running_statistics(planned, state), context.ranks)
    norm = None
    if update.optimiser.clip_norm is not None and any(g is not None for g in gradients):
        norm = norm_of([g for g in gradients if g is not None])
        gradients = clipped(gradients, norm, update.optimiser.clip_norm)
    lr = context.number(update.optimiser.lr)
    remaining = iter(gradients)
    for role in update.optimises:
        own = state.parameters((role,))
        own_gradients = list(islice(remaining, len(own)))
        if all(gradient is None for gradient in own_gradients):
            raise InputError(
                f"no term of the update {update.name!r} depends on the weights of the role {role!r}, which it "
                "optimises: add such a term, or take the role out of optimises."
            )
        rates = state.rates(role, update.optimiser)
        state.optimisers[f"{update.name}/{role}"].step_(own, own_gradients, update.optimiser, lr, rates)
    for average in update.averages:
        live = [p.detach() for p in state.roles[average.of].parameters()]
        torch._foreach_lerp_(list(state.roles[average.into].parameters()), live, 1 - average.decay)
    # Before clipping, because the size of the gradients that the terms have is of interest.
    metrics[f"{update.name}/gradient norm"] = norm_of([g for g in gradients if g is not None]) if norm is None else norm
    return metrics


def running_statistics(planned: tuple[Pass, ...], state: State) -> list[Tensor]:
    """The running statistics that the passes of an update have changed, each once."""
    changed = [each.role for each in planned if each.training and any(view.statistics for view in each.views)]
    buffers = [named for role in dict.fromkeys(changed) for named in state.roles[role].named_buffers()]
    return list({id(buffer): buffer for name, buffer in buffers if name.endswith(RUNNING_STATISTICS)}.values())


@torch.no_grad()
def mean_over_ranks_(gradients: Gradients, statistics: list[Tensor], ranks: Ranks) -> Gradients:
    """The mean gradients of all ranks, with one all-reduce. Running statistics are averaged with it, in place.

    So the state is the same on all ranks after each update, and the checkpoint of one rank serves all.
    """
    if not ranks.has_group:
        return gradients
    own = [gradient for gradient in gradients if gradient is not None]
    means = ranks.mean([*own, *statistics])
    if statistics:
        torch._foreach_copy_(statistics, means[len(own) :])
    remaining = iter(means)
    return tuple(None if gradient is None else next(remaining) for gradient in gradients)


def objective(update: Update, values: "NodeValues", context: StepContext) -> tuple[Tensor, Metrics]:
    """The weighted sum of the terms, (), and the value of each term. A term with the weight 0 is only measured."""
    total: Tensor | None = None
    metrics: Metrics = {}
    for term in update.terms:
        only_measured = not callable(term.weight) and term.weight == 0
        with torch.no_grad() if only_measured else nullcontext():
            value = sum_of_means(term.loss(*(values(node) for node in term.reads)))
        metrics[f"{update.name}/{term.name}"] = value.detach()
        if not only_measured:
            if value.dim():
                raise InputError(
                    f"the loss of the term {term.name!r} must return one number per sample, but it returns values of "
                    f"shape {tuple(value.shape)}."
                )
            weighted = context.number(term.weight) * value
            total = weighted if total is None else total + weighted
    if total is None:
        raise InputError(f"every term of the update {update.name!r} has the weight 0: give one of them another weight.")
    return total, metrics


def sum_of_means(parts: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The sum of the means over samples: (N, …), or several tensors of this kind → (…)."""
    if isinstance(parts, Tensor):
        return parts.mean(0)
    return torch.stack([part.mean(0) for part in parts]).sum(0)


class NodeValues:
    """The values of the nodes in one update. Each is computed when it is first read and kept until the end.

    This is the :class:`vmt.methods.nodes.NodeContext` that a node computes its value from.
    """

    def __init__(self, update: Update, state: State, context: StepContext, repeat: int) -> None:
        self.update, self.state, self.context, self.repeat = update, state, context, repeat
        self.draws = context.draws
        self.prefix = prefix_of(update, repeat)
        self.known: dict[Node, Tensor] = {}
        self.rows: dict[Batch, Tensor] = {}  # the indices of each batch in its stream, (N,) int64

    def __call__(self, node: Node) -> Tensor:
        if node not in self.known:
            self.known[node] = node.value(self)
        return self.known[node]

    def run(self, each: Pass) -> None:
        """Run the network of a pass on the inputs of all its views, and keep the outputs of each view."""
        module = self.state.roles[each.role]
        if module.training != each.training:
            module.train(each.training)
        inputs = [self(view.input) for view in each.views]  # (N, …) each
        device = inputs[0].device.type
        with (
            # Without the cache, which inside another autocast would still hold the weights from before the last update.
            torch.autocast(device, torch.bfloat16, enabled=self.context.bfloat16, cache_enabled=False),
            nullcontext() if each.gradient else without_gradients([module]),
        ):
            if module.separate_passes:
                for view, x in zip(each.views, inputs, strict=True):
                    with nullcontext() if view.statistics else statistics_unchanged(module):
                        self.call(each, (view,), module, x)
            else:
                self.call(each, each.views, module, torch.cat(inputs) if len(inputs) > 1 else inputs[0])

    def call(self, each: Pass, views: tuple[View, ...], module: Staged, x: Tensor) -> None:
        """Call a network once on the concatenated inputs of these views, (N₁ + N₂ + …, …)."""
        sizes = tuple(len(self(view.input)) for view in views)
        updating = tuple(i for i, view in enumerate(views) if view.statistics)
        if each.probing:
            x.requires_grad_()
        with passes(sizes, updating):
            taps: dict[str, Tensor] = module(x, each.entry, each.exit)
        if each.probing:
            clean = torch.cat([self(view.probe) for view in views if view.probe])  # (N₁ + N₂ + …, K)
            label = at_least_float32(clean.detach()).softmax(-1)
            taps = {SLOPE: slope(x, label, taps["logits"])}
        for name, tensor in taps.items():
            for view, part in zip(views, torch.split(tensor, list(sizes)), strict=True):
                self.known[Tap(view, name)] = part

    def name(self, draw: str) -> str:
        """The full name of a draw of this update."""
        return f"{self.prefix}/{draw}"

    def stream(self, batch: Batch) -> Domain:
        """The domain from which a batch is drawn."""
        if batch.stream not in self.context.streams:
            known = ", ".join(map(repr, self.context.streams))
            raise InputError(f"the method reads the stream {batch.stream!r}, but the streams are {known}.")
        return self.context.streams[batch.stream]

    def indices(self, batch: Batch) -> Tensor:
        """The rows of a batch in its stream: (N,) int64."""
        if batch not in self.rows:
            name = name_of_indices(self.update, self.repeat, batch)
            population = len(self.stream(batch))
            self.rows[batch] = self.draws.choice(name, population, self.context.batch_size[batch.stream])
        return self.rows[batch]

    def images(self, batch: Batch) -> Tensor:
        """The preprocessed samples of a batch: (N, …)."""
        feed = self.context.feed
        if feed is not None and feed.feeds(batch.stream):
            x = feed.batch(name_of_indices(self.update, self.repeat, batch))
        else:
            x = self.stream(batch).x[self.indices(batch)]
        return self.context.preprocess(x if batch.augment is None else self.augmented(batch, x))

    def augmented(self, batch: Batch, x: Tensor) -> Tensor:
        """Stored pictures of a batch, augmented, in the values in which they are stored: (N, C, H, W)."""
        assert batch.augment is not None
        if self.context.limits is None:
            raise InputError("only pictures can be augmented, not vectors: leave out the augmentation.")
        low, high = self.context.limits
        unit = (x.to(torch.float32) - low) / (high - low)
        return batch.augment(unit, self.draws, self.name(f"{batch.name}/augment")) * (high - low) + low

    def labels(self, batch: Batch) -> Tensor:
        """The labels of a batch: (N,) int64."""
        y = self.stream(batch).y
        assert y is not None, f"the stream {batch.stream!r} has no labels"
        return y[self.indices(batch)]

    def parameter(self, role: str, name: str) -> Tensor:
        """A parameter of a role's network."""
        return self.state.roles[role].get_parameter(name)

    def xi(self, role: str) -> float:
        """The length ξ of VAT's first step for a role."""
        return self.context.xi[role]

    def number(self, number: Number) -> float | Tensor:
        """The current value of a constant or of a schedule."""
        return self.context.number(number)


@contextmanager
def statistics_unchanged(module: nn.Module) -> Iterator[None]:
    """Keep the running statistics of a network unchanged, for normalisation layers that do not support passes.

    Copies of the buffers are updated instead. Copying the old values back afterwards would not work: autograd refuses
    a buffer that has changed since the pass that used it.
    """
    own = [(layer, name, buffer) for layer in module.modules() for name, buffer in layer._buffers.items()]
    for layer, name, buffer in own:
        layer._buffers[name] = None if buffer is None else buffer.clone()
    try:
        yield
    finally:
        for layer, name, buffer in own:
            layer._buffers[name] = buffer


@contextmanager
def without_gradients(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Compute no gradients for the parameters of these modules, which halves the cost of a backward pass."""
    wanted = [p for module in modules for p in module.parameters() if p.requires_grad]
    for p in wanted:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in wanted:
            p.requires_grad_(True)
