"""What a network says about a domain, and how often it is right."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vmt.data.domains import Domain
from vmt.data.preprocess import Preprocess
from vmt.device import default_torch_settings
from vmt.nets.staged import evaluating

BATCH = 1000


@dataclass(frozen=True)
class Evaluation:
    """Figures of one domain; the accuracies are None where there are no labels."""

    samples: int
    accuracy: float | None
    per_class: tuple[float | None, ...] | None
    """Accuracy on each true class; None for a class without samples."""
    predicted_share: tuple[float, ...]
    """How much of the domain is predicted as each class."""
    entropy: float
    """Mean entropy of the predictions, in nats."""

    @property
    def largest_share(self) -> float:
        return max(self.predicted_share)


@torch.inference_mode()
@default_torch_settings()
def logits_of(network: nn.Module, x: Tensor, preprocess: Preprocess) -> Tensor:
    """Logits of stored samples, images of any size, in evaluation mode; the mode of each layer is put back."""
    device = next(network.parameters()).device
    logits: Tensor | None = None
    with evaluating(network):
        for start in range(0, len(x), BATCH):
            # Resized batch by batch: in float32, all of them at once may take many times the memory of the samples.
            batch = preprocess.fit(x[start : start + BATCH]).to(device)
            part = network(preprocess(batch))["logits"].float()
            if logits is None:
                # One place for all: small tensors that stay would lie between what each batch takes and gives back.
                logits = part.new_empty((len(x), *part.shape[1:]))
            logits[start : start + BATCH] = part
    assert logits is not None  # a domain is never empty
    return logits


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
