"""The outputs of a model that validators read, and all scores of these outputs."""

import math
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from vmt.validators.registry import VALIDATORS


@dataclass(frozen=True)
class Evidence:
    """The outputs of a model on samples of both domains, in evaluation mode. Any of them may be missing."""

    target: Tensor | None = None
    """Logits of target samples, without labels."""
    target_features: Tensor | None = None
    student: Tensor | None = None
    """Logits of the same samples by the network whose weight average predicts."""
    mixed: Tensor | None = None
    """Logits of each target sample mixed with its partner."""
    partner: Tensor | None = None
    source: Tensor | None = None
    """Logits of labelled source samples that were not trained on."""
    source_features: Tensor | None = None
    source_labels: Tensor | None = None
    trained_features: Tensor | None = None
    """Features of source samples that were trained on."""
    neighbours: Tensor | None = None
    """For each target sample, the rows of the samples nearest to it (:func:`~vmt.validators.nearest_neighbours`)."""

    def on(self, device: torch.device) -> "Evidence":
        """The same with every tensor on a device."""
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: part.to(device) for name, part in parts.items() if part is not None})


def scores(evidence: Evidence, leave_out: tuple[str, ...] = ()) -> dict[str, float | None]:
    """Every validator for which the evidence is complete, as numbers: two transfers from the device for all of them.

    A score that is not finite is None. So is a score of evidence that is not finite, which might look like a good one.
    """
    have = {f.name: value for f in fields(evidence) if (value := getattr(evidence, f.name)) is not None}
    able = {n: v for n, v in VALIDATORS.items() if n not in leave_out and all(part in have for part in v.needs)}
    if not able:
        return {}
    finite = dict(zip(have, torch.stack([part.isfinite().all() for part in have.values()]).tolist(), strict=True))
    usable = {n: v for n, v in able.items() if all(finite[part] for part in v.needs)}
    values = [v.score(*(have[part] for part in v.needs)) for v in usable.values()]
    computed = dict(zip(usable, torch.stack(values).tolist() if values else (), strict=True))
    return {name: computed[name] if math.isfinite(computed.get(name, math.nan)) else None for name in able}
