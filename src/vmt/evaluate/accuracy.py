"""The outputs of a network for samples, batch by batch, and its accuracy on a domain."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from vmt.data.domains import Domain
from vmt.data.preprocess import Preprocess
from vmt.device import default_torch_settings
from vmt.errors import counted, printable
from vmt.nets.networks import Staged, evaluating
from vmt.notebook import html_table
from vmt.ranks.group import ALONE, Ranks

BATCH = 1000
# Values of a batch of network inputs at most: those of 1000 images of 32×32 in colour, whose activations take some
# hundred megabytes, and eight times as many on a GPU.
VALUES_ON_CPU, VALUES_ON_GPU = 1000 * 3 * 32 * 32, 8 * 1000 * 3 * 32 * 32


def batch_for(preprocess: Preprocess, device: torch.device) -> int:
    """The number of samples in a batch: 1000, or fewer if they are large, so that the memory stays bounded."""
    values = preprocess.channels * math.prod(preprocess.size or (1, 1))
    most = VALUES_ON_CPU if device.type == "cpu" else VALUES_ON_GPU
    return min(BATCH, max(1, most // values))


Reduce = Callable[..., tuple[Tensor, ...]]
"""A function of the outputs for a batch, each (B, …), that returns tensors with as many rows."""


def as_they_are(*outputs: Tensor) -> tuple[Tensor, ...]:
    """The outputs themselves."""
    return outputs


def logits_of(network: nn.Module, x: Tensor, preprocess: Preprocess, ranks: Ranks = ALONE) -> Tensor:
    """Logits (N, K) of stored samples (N, …); images may have any size."""
    (logits,) = outputs_of(network, x, preprocess, ("logits",), ranks=ranks)
    return logits


def outputs_of(
    network: nn.Module,
    x: Tensor,
    preprocess: Preprocess,
    taps: Sequence[str],
    batch: int | None = None,
    on_batch: Callable[[int], object] = lambda count: None,
    ranks: Ranks = ALONE,
    reduce: Reduce = as_they_are,
) -> tuple[Tensor, ...]:
    """The outputs (N, …) of a network at these taps for stored samples (N, …).

    ``on_batch`` is called with the number of samples of each batch that is done. Each of several ranks computes the
    outputs of its share of the samples, and gets all outputs. ``reduce`` may make smaller tensors of the outputs for a
    batch, and these are returned.
    """
    device, ranks = next(network.parameters()).device, ranks.for_samples(len(x))
    inputs = network_inputs(x, preprocess, device, batch, share=ranks.share(len(x)))
    return run_batches(network, inputs, len(x), taps, on_batch, ranks, reduce)


def network_inputs(
    x: Tensor,
    preprocess: Preprocess,
    device: torch.device,
    batch: int | None = None,
    order: Tensor | None = None,
    share: slice | None = None,
) -> Iterator[Tensor]:
    """Batches of a network's inputs from stored samples (N, …), in another order if ``order`` (N) is given.

    They are resized batch by batch, because all of them in float32 may take many times the memory of the samples. With
    ``share`` they are only those of these places in the order.
    """
    share = share or slice(0, len(x))
    batch = batch_for(preprocess, device) if batch is None else batch
    for start in range(share.start, share.stop, batch):
        rows = slice(start, min(start + batch, share.stop))
        part = x[rows] if order is None else x[order[rows].to(x.device)]
        yield preprocess(preprocess.fit(part).to(device))


@torch.inference_mode()
@default_torch_settings()
def run_batches(
    network: nn.Module,
    inputs: Iterable[Tensor],
    count: int,
    taps: Sequence[str],
    on_batch: Callable[[int], object] = lambda count: None,
    ranks: Ranks = ALONE,
    reduce: Reduce = as_they_are,
) -> tuple[Tensor, ...]:
    """The outputs at these taps for all batches of ``count`` inputs, in float32 and on the network's device.

    The mode of every layer is restored afterwards. On each of several ranks, the inputs are its share of them.
    """
    outputs: list[Tensor] = []
    done = ranks.share(count).start
    with evaluating(network):
        for x in inputs:
            by_tap = network(x)
            parts = reduce(*(by_tap[tap].float() for tap in taps))
            # Allocated once: small tensors that stay would fragment the memory that each batch takes and gives back.
            outputs = outputs or [part.new_zeros((count, *part.shape[1:])) for part in parts]
            for output, part in zip(outputs, parts, strict=True):
                output[done : done + len(x)] = part
            done += len(x)
            on_batch(len(x))
        ranks.complete_(outputs)
    return tuple(outputs)


def feature_tap(network: Staged) -> str:
    """The tap from which the last stage computes the logits; the logits themselves if there is only one stage."""
    return network.taps[-2] if len(network.taps) > 1 else network.taps[-1]


# A table of more classes shows those with the lowest accuracy only.
MOST_CLASSES = 20
MEASURED = ("samples", "accuracy", "per_class", "predicted_share", "entropy")


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What is measured of a network on one domain. The accuracies are None for a domain without labels.

    >>> Evaluation(40, 0.925, (0.95, 0.9), (0.525, 0.475), 0.31, ("ant", "bee"))
    Accuracy 92.5 % on 40 samples; mean entropy of the predictions 0.310 nats.
    class  accuracy  predicted
    ant      95.0 %     52.5 %
    bee      90.0 %     47.5 %
    """

    samples: int
    accuracy: float | None
    per_class: tuple[float | None, ...] | None
    """Accuracy on each true class; None for a class without samples."""
    predicted_share: tuple[float, ...]
    """The share of the samples that is predicted as each class."""
    entropy: float
    """Mean entropy of the predictions, in nats."""
    class_names: tuple[str, ...] = field(default=(), compare=False)
    """The names of the classes, if they are known."""

    def measured(self) -> dict[str, Any]:
        """Everything but the names of the classes, as the log of a run has it."""
        return {name: getattr(self, name) for name in MEASURED}

    @property
    def largest_share(self) -> float:
        """The share of the class that is predicted most often."""
        return max(self.predicted_share)

    @property
    def headline(self) -> str:
        """The accuracy, the number of samples and the entropy in one sentence."""
        samples = counted(self.samples, "sample")
        labelled = "" if self.accuracy is None else f"Accuracy {percent(self.accuracy)} on "
        return f"{labelled}{samples}; mean entropy of the predictions {self.entropy:.3f} nats."

    def rows(self) -> list[list[str]]:
        """A row for each class: its name, the accuracy on it if there are labels, and how often it is predicted.

        If there are many classes, these are the classes with the lowest accuracy, or those predicted most.
        """
        names = self.class_names or tuple(str(k) for k in range(len(self.predicted_share)))
        classes = list(range(len(names)))
        if len(classes) > MOST_CLASSES:
            order = self.per_class or [-share for share in self.predicted_share]
            keys = [math.inf if value is None else value for value in order]
            classes = sorted(classes, key=keys.__getitem__)[:MOST_CLASSES]
        measured = [] if self.per_class is None else [self.per_class]
        return [
            [printable(names[k]), *(percent(each[k]) for each in [*measured, self.predicted_share])] for k in classes
        ]

    @property
    def header(self) -> list[str]:
        """The headings of :meth:`rows`."""
        return ["class", "predicted"] if self.per_class is None else ["class", "accuracy", "predicted"]

    @property
    def note(self) -> str:
        """What a table leaves out; empty if it is complete."""
        classes = len(self.predicted_share)
        which = "predicted most" if self.per_class is None else "with the lowest accuracy"
        return f"These are {MOST_CLASSES} of {classes} classes, those {which}." if classes > MOST_CLASSES else ""

    def table(self) -> str:
        """The rows in aligned columns."""
        rows = [self.header, *self.rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.header))]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def __repr__(self) -> str:
        return f"{self.headline}\n{self.table()}"

    def _repr_html_(self) -> str:
        return html_table(self.headline, self.rows(), self.header, self.note)


def percent(share: float | None) -> str:
    return "no samples" if share is None else f"{share:.1%}".replace("%", " %")


def evaluate(network: nn.Module, domain: Domain, preprocess: Preprocess, ranks: Ranks = ALONE) -> Evaluation:
    """Evaluate a network on a domain; several ranks share the work."""
    classes = 0

    def predict(logits: Tensor) -> tuple[Tensor, Tensor]:
        """The predicted class of each sample, and the entropy of its prediction."""
        nonlocal classes
        classes, log_p = logits.shape[1], logits.log_softmax(1)
        return logits.argmax(1), -(log_p.exp() * log_p).sum(1)

    predicted, entropies = outputs_of(network, domain.x, preprocess, ("logits",), ranks=ranks, reduce=predict)
    share = predicted.bincount(minlength=classes).double() / len(domain)
    entropy = float(entropies.mean())
    if domain.y is None:
        return Evaluation(len(domain), None, None, tuple(share.tolist()), entropy)
    y = domain.y.to(predicted.device)
    right = (predicted == y).double()
    counts = y.bincount(minlength=classes)
    hits = torch.zeros(classes, dtype=torch.float64, device=y.device).index_add_(0, y, right)
    per_class = tuple(h / n if n else None for h, n in zip(hits.tolist(), counts.tolist(), strict=True))
    return Evaluation(len(domain), float(right.mean()), per_class, tuple(share.tolist()), entropy)
