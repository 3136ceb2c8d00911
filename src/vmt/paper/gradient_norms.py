"""How steep a classifier is in between samples: an indicator of its local Lipschitzness."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vmt.data import Preprocess
from vmt.nets.staged import Staged

LAMBDAS = tuple(i / 10 for i in range(11))
# Each sample keeps the activations of a forward pass until all classes have been differentiated.
BATCH = 100


def gradient_norm(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    r"""‖∂f/∂x‖_F = sqrt(Σ_k ‖∇_x f_k(x)‖²) for each sample, where f gives the probabilities of the classes.

    The paper speaks of the gradient norm of the classifier; for a classifier of K outputs this is our reading. Samples
    must not see each other in f (evaluation mode), so that the gradient of a sum over samples is each sample's own.
    """
    x = x.detach().requires_grad_()
    outputs = f(x)
    squares = torch.zeros(len(x), dtype=outputs.dtype, device=x.device)
    for k in range(outputs.shape[1]):
        (gradient,) = torch.autograd.grad(outputs[:, k].sum(), x, retain_graph=True)
        squares += gradient.flatten(1).square().sum(1)
    return squares.sqrt()


def norms_in_between(
    f: Callable[[Tensor], Tensor], x_i: Tensor, x_j: Tensor, lambdas: Sequence[float] = LAMBDAS
) -> Tensor:
    """The gradient norm at x̃ = λ x_i + (1 − λ) x_j for every λ and pair: (λ, pairs)."""
    return torch.stack([gradient_norm(f, lam * x_i + (1 - lam) * x_j) for lam in lambdas])


def norms_of_network(network: Staged, x: Tensor, preprocess: Preprocess) -> Tensor:
    """The same for a trained network and stored samples, each paired with a random other one: (λ, samples)."""
    network.eval()
    device = next(network.parameters()).device
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))

    def probabilities(inputs: Tensor) -> Tensor:
        logits: Tensor = network(inputs)["logits"]
        return logits.float().softmax(1)

    parts = []
    for pairs in torch.split(torch.stack([order, order.roll(1)], dim=1), BATCH):
        x_i, x_j = (preprocess(x[chosen].to(device)) for chosen in pairs.unbind(1))
        parts.append(norms_in_between(probabilities, x_i, x_j).cpu())
    return torch.cat(parts, dim=1)
