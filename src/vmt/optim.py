"""Adam in TensorFlow's form, in place, without a host synchronisation."""

import torch
from torch import Tensor

from vmt.method import Adam


class AdamState:
    r"""Moments and step count of one optimiser; :meth:`step_` applies

    .. math:: \theta \leftarrow \theta - lr\,\frac{\sqrt{1-\beta_2^t}}{1-\beta_1^t} \frac{m}{\sqrt v + \epsilon}
    """

    def __init__(self, parameters: list[Tensor]) -> None:
        self.m = [torch.zeros_like(p) for p in parameters]
        self.v = [torch.zeros_like(p) for p in parameters]
        # Double precision: 1 − β2ᵗ loses three digits in single.
        self.t = torch.zeros((), dtype=torch.float64, device=parameters[0].device)

    def tensors(self) -> dict[str, Tensor]:
        moments = {"m": self.m, "v": self.v}
        named = {f"{kind}.{i}": x for kind, xs in moments.items() for i, x in enumerate(xs)}
        return {"t": self.t, **named}

    @torch.no_grad()
    def step_(self, parameters: list[Tensor], gradients: list[Tensor], adam: Adam, lr: float | Tensor) -> None:
        self.t += 1
        torch._foreach_lerp_(self.m, gradients, 1 - adam.beta1)
        torch._foreach_mul_(self.v, adam.beta2)
        torch._foreach_addcmul_(self.v, gradients, gradients, 1 - adam.beta2)
        scale = lr * (1 - adam.beta2**self.t).sqrt() / (1 - adam.beta1**self.t)
        denominators = torch._foreach_sqrt(self.v)
        torch._foreach_add_(denominators, adam.eps)
        steps = torch._foreach_div(self.m, denominators)
        torch._foreach_mul_(steps, -scale.to(steps[0].dtype))
        torch._foreach_add_(parameters, steps)
