"""One domain: samples, with or without labels, in the one layout that the rest of the library relies on."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vmt.errors import InputError


@dataclass(frozen=True, eq=False, repr=False)
class Domain:
    """Samples of one domain, resident on one device.

    Build it with :func:`vmt.data.domain`, which checks and converts; the constructor trusts its arguments.

    >>> measured = Domain(torch.randn(20, 3), torch.arange(20) % 2, "measured")
    >>> kept, held_out = measured.split(0.2, seed=0)
    >>> len(kept), len(held_out), held_out.y.bincount().tolist()
    (16, 4, [2, 2])
    """

    x: Tensor  # (N, C, H, W) images, uint8 or float32; or (N, F) float32 vectors
    y: Tensor | None  # (N,) int64 labels
    name: str
    features: tuple[str, ...] = ()  # names of the columns of vectors; empty if they have no names

    def __len__(self) -> int:
        return self.x.shape[0]

    def __repr__(self) -> str:
        labels = "without labels" if self.y is None else "labelled"
        return f"<domain {self.name}: {len(self)} samples of shape {tuple(self.x.shape[1:])}, {labels}>"

    @property
    def is_images(self) -> bool:
        return self.x.ndim == 4

    def to(self, device: torch.device | str) -> "Domain":
        y = None if self.y is None else self.y.to(device)
        return replace(self, x=self.x.to(device), y=y)

    def subset(self, indices: Tensor) -> "Domain":
        indices = indices.to(self.x.device)
        y = None if self.y is None else self.y[indices]
        return replace(self, x=self.x[indices], y=y)

    def without_labels(self) -> "Domain":
        return replace(self, y=None)

    def split(self, fraction: float, seed: int) -> "tuple[Domain, Domain]":
        """Two disjoint domains ``(kept, held_out)`` in the original order; ``held_out`` has about `fraction`.

        With labels, the split is stratified; a class of two samples or more is in both parts.
        """
        if not 0 < fraction < 1:
            raise InputError(f"fraction must be between 0 and 1, but got {fraction}.")
        # The draw is on the CPU so that the parts do not depend on the device of the domain.
        generator = torch.Generator().manual_seed(seed)
        groups = torch.zeros(len(self), dtype=torch.int64) if self.y is None else self.y.cpu()
        held = torch.zeros(len(self), dtype=torch.bool)
        for group in sorted(set(groups.tolist())):
            members = torch.nonzero(groups == group).squeeze(1)
            count = len(members)
            take = min(max(round(count * fraction), 1), count - 1)
            held[members[torch.randperm(count, generator=generator)[:take]]] = True
        if not held.any():
            raise InputError(
                f"{self.name} has too few samples ({len(self)}) to split: give it two samples or more of a class."
            )
        return self.subset(torch.nonzero(~held).squeeze(1)), self.subset(torch.nonzero(held).squeeze(1))
