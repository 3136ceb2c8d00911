"""How often a network is right about a domain, and how it spreads its predictions."""

from dataclasses import dataclass

import torch
from torch import nn

from vmt.data.domains import Domain
from vmt.data.preprocess import Preprocess
from vmt.evaluate.inference import logits_of


@dataclass(frozen=True)
class Evaluation:
    """Figures of a network on one domain. The accuracies are None for a domain without labels."""

    samples: int
    accuracy: float | None
    per_class: tuple[float | None, ...] | None
    """Accuracy on each true class; None for a class without samples."""
    predicted_share: tuple[float, ...]
    """The share of the samples that is predicted as each class."""
    entropy: float
    """Mean entropy of the predictions, in nats."""

    @property
    def largest_share(self) -> float:
        """The share of the class that is predicted most often."""
        return max(self.predicted_share)


def evaluate(network: nn.Module, domain: Domain, preprocess: Preprocess) -> Evaluation:
    """Evaluate a network on a domain."""
    logits = logits_of(network, domain.x, preprocess)
    classes = logits.shape[1]
    predicted = logits.argmax(1)
    log_p = logits.log_softmax(1)
    share = predicted.bincount(minlength=classes).double() / len(domain)
    entropy = float(-(log_p.exp() * log_p).sum(1).mean())
    if domain.y is None:
        return Evaluation(len(domain), None, None, tuple(share.tolist()), entropy)
    y = domain.y.to(predicted.device)
    right = (predicted == y).double()
    counts = y.bincount(minlength=classes)
    hits = torch.zeros(classes, dtype=torch.float64, device=y.device).index_add_(0, y, right)
    per_class = tuple(h / n if n else None for h, n in zip(hits.tolist(), counts.tolist(), strict=True))
    return Evaluation(len(domain), float(right.mean()), per_class, tuple(share.tolist()), entropy)
