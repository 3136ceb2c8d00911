"""The terms of the cluster assumption, L_v and L_m, for any stream: each from its clean view and a weight."""

import math
from collections.abc import Callable

from vmt import losses
from vmt.errors import InputError
from vmt.method import Term
from vmt.schedules import Number
from vmt.views import SLOPE, Adversarial, Batch, Lam, Mix, Node, Pairs, Partner, Start, View

Penalty = Callable[[View, Number], Term]
"""A term of the cluster assumption on one stream: from its clean view and its weight."""


def vat(radius: float = 3.5, xi: float | None = None) -> Penalty:
    """L_v: the prediction must hold at radius ε around each sample."""
    for name, length in (("radius", radius), ("xi", xi)):
        if length is not None and not 0 < length < math.inf:
            raise InputError(f"{name}={length} is no length of a step: give a positive number.")

    def term(clean: View, weight: Number) -> Term:
        batch = batch_of(clean)
        near = View(clean.role, Start(batch, clean.role, batch.name, xi), gradient=False, probe=clean.logits)
        attacked = View(clean.role, Adversarial(batch, near.tap(SLOPE), radius))
        return Term(f"L_v({batch.name})", losses.virtual_adversarial, (clean.logits, attacked.logits), weight)

    return term


def mixup(
    mix: str = "logits", alpha: float = 1.0, fresh: bool = True, weight_on_target: Number | None = None
) -> Penalty:
    """L_m: the prediction at a mix of two samples must be the same mix of their predictions."""
    if mix not in ("logits", "probabilities", "hidden"):
        raise InputError(f"mix={mix!r} is not one of 'logits', 'probabilities', 'hidden'")
    if not alpha > 0:
        raise InputError(f"alpha={alpha} is no parameter of Beta(α, α): give a positive number.")

    def term(clean: View, weight: Number) -> Term:
        batch = batch_of(clean)
        pairs = Pairs(batch, alpha, fresh)
        of_mixed = View(clean.role, Mix(batch, pairs)).logits
        if batch.stream == "target" and weight_on_target is not None:
            weight = weight_on_target
        name = f"L_m({batch.name})"
        if mix == "hidden":
            label = View(clean.role, Mix(clean.tap("hidden"), pairs), entry="hidden", gradient=False).logits
            return Term(name, losses.teacher_cross_entropy, (label, of_mixed), weight)
        loss = losses.virtual_mixup if mix == "logits" else losses.virtual_mixup_on_probabilities
        return Term(name, loss, (clean.logits, of_mixed, Lam(pairs), Partner(pairs)), weight)

    return term


def batch_of(view: View) -> Batch:
    batch: Node = view.input
    if not isinstance(batch, Batch):
        raise InputError("a penalty needs the view of a plain batch")
    return batch
