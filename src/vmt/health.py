"""Figures that show a run going wrong before its accuracy does."""

import torch
from torch import Tensor

from vmt import losses
from vmt.method import Term, measure
from vmt.penalties import batch_of
from vmt.views import View


def discriminator_accuracy(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The share of samples whose domain the discriminator tells; ½ means that it cannot."""
    return 0.5 * (source > 0).float().squeeze(-1), 0.5 * (target <= 0).float().squeeze(-1)


def predicted_share(logits: Tensor) -> Tensor:
    """One row per sample, one column per class: averaged, the share of each predicted class."""
    # Not `one_hot`: it looks at the values, which a traced step has not got.
    classes = torch.arange(logits.shape[-1], device=logits.device)
    return (logits.argmax(-1, keepdim=True) == classes).float()


def health(clean: View) -> tuple[Term, ...]:
    """Entropy and class shares of a stream's clean predictions."""
    stream = batch_of(clean).name
    return (
        measure(f"entropy({stream})", losses.conditional_entropy, clean.logits),
        measure(f"predicted share({stream})", predicted_share, clean.logits),
    )
