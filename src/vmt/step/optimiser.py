"""Adam in TensorFlow's form, in place, without a host synchronisation."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vmt.methods.nouns import Adam


class AdamState:
    r"""The moments and the step count of one optimiser. Each moment has the shape of its parameter.

    .. math:: \theta \leftarrow \theta - lr\,\frac{\sqrt{1-\beta_2^t}}{1-\beta_1^t} \frac{m}{\sqrt v + \epsilon}
    """

    def __init__(self, parameters: list[Tensor]) -> None:
        self.m = [torch.zeros_like(p) for p in parameters]
        self.v = [torch.zeros_like(p) for p in parameters]
        # In double precision, because 1 − β2ᵗ loses three digits in single precision.
        self.t = torch.zeros((), dtype=torch.float64, device=parameters[0].device)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by the name that a checkpoint gives it."""
        moments = {"m": self.m, "v": self.v}
        named = {f"{kind}.{i}": x for kind, xs in moments.items() for i, x in enumerate(xs)}
        return {"t": self.t, **named}

    @torch.no_grad()
    def step_(
        self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None], adam: Adam, lr: float | Tensor
    ) -> None:
        """Take one step. Parameters whose gradient is None stay as they are, and so do their moments."""
        used = [i for i, g in enumerate(gradients) if g is not None]
        p, g = [parameters[i] for i in used], [g for g in gradients if g is not None]
        m, v = [self.m[i] for i in used], [self.v[i] for i in used]
        self.t += 1
        torch._foreach_lerp_(m, g, 1 - adam.beta1)
        torch._foreach_mul_(v, adam.beta2)
        torch._foreach_addcmul_(v, g, g, 1 - adam.beta2)
        scale = lr * (1 - adam.beta2**self.t).sqrt() / (1 - adam.beta1**self.t)
        denominators = torch._foreach_sqrt(v)
        torch._foreach_add_(denominators, adam.eps)
        steps = torch._foreach_div(m, denominators)
        torch._foreach_mul_(steps, -scale.to(steps[0].dtype))
        torch._foreach_add_(p, steps)


def norm_of(tensors: list[Tensor]) -> Tensor:
    """The L2 norm of all values of all tensors: ()."""
    return fused_norm(tensors) if tensors[0].is_cuda else plain_norm(tensors)


def plain_norm(tensors: list[Tensor]) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(torch.stack(list(torch._foreach_norm(tensors))))
    return norm


@torch.library.custom_op("vmt::norm_of", mutates_args=())
def fused_norm(tensors: list[Tensor]) -> Tensor:
    """The same as one operator, because a compiler would launch a kernel for each tensor."""
    return plain_norm(tensors)


@fused_norm.register_fake
def _(tensors: list[Tensor]) -> Tensor:
    return tensors[0].new_empty(())
