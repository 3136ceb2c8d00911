"""The inputs of a recording, and how its variables lie in the package's networks.

A recording is two iterations of the authors' TensorFlow program with dropout and noise switched off. Every input is a
draw named by a string, so the file holds results only.
"""

import zlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from vmt.data import Domain
from vmt.nets import Staged
from vmt.nets.norm import BatchNorm, InstanceNorm

N = 64
CONVOLUTIONS = ("l1", "l2", "l3", "l7", "l8", "l9", "l13", "l14", "l15")


def draw(name: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(name.encode()))


def value_of(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The initial value of a variable of the authors' program."""
    random = draw(name)
    kind = name.rsplit("/", 1)[1]
    if kind == "weights":
        value = random.randn(*shape) * np.sqrt(2 / np.prod(shape[:-1]))
    elif kind == "gamma":
        value = 1 + 0.2 * random.randn(*shape)
    elif kind == "var":
        value = 1 + 0.3 * random.rand(*shape)
    else:
        value = 0.1 * random.randn(*shape)
    return value.astype(np.float32)


def variables(classifier: Staged, discriminator: Staged | None) -> Iterator[tuple[str, Tensor, tuple[int, ...]]]:
    """Name, tensor and TensorFlow shape of every variable that the recording may hold."""

    def normalised(layer: str, module: nn.Module, bn: BatchNorm) -> Iterator[tuple[str, Tensor, tuple[int, ...]]]:
        c = bn.weight.numel()
        shape = (1, 1, 1, c) if isinstance(module, nn.Conv2d) else (1, c)
        yield f"{layer}/weights", module.weight, tf_shape(module)
        yield f"{layer}/biases", module.bias, (c,)
        yield f"{layer}/bn/mean", bn.running_mean, shape
        yield f"{layer}/bn/var", bn.running_var, shape
        yield f"{layer}/bn/gamma", bn.weight, shape
        yield f"{layer}/bn/beta", bn.bias, shape

    for module in classifier.modules():
        if isinstance(module, InstanceNorm):
            yield "class/l0/instance_norm/gamma", module.weight, (1, 1, 1, 3)
            yield "class/l0/instance_norm/beta", module.bias, (1, 1, 1, 3)
    convolutions = [m for m in classifier.modules() if isinstance(m, nn.Conv2d)]
    norms = [m for m in classifier.modules() if isinstance(m, BatchNorm)]
    dense = next(m for m in classifier.modules() if isinstance(m, nn.Linear))
    for layer, conv, bn in zip(CONVOLUTIONS, convolutions, norms[:-1], strict=True):
        yield from normalised(f"class/{layer}/conv2d", conv, bn)
    yield from normalised("class/l17/dense", dense, norms[-1])
    if discriminator is not None:
        layers = [m for m in discriminator.modules() if isinstance(m, nn.Linear)]
        for name, layer in zip(("dense", "dense_1"), layers, strict=True):
            yield f"disc/feat/{name}/weights", layer.weight, tf_shape(layer)
            yield f"disc/feat/{name}/biases", layer.bias, (layer.bias.numel(),)


def tf_shape(module: nn.Module) -> tuple[int, ...]:
    weight = module.weight
    return (3, 3, weight.shape[1], weight.shape[0]) if weight.dim() == 4 else (weight.shape[1], weight.shape[0])


def to_torch(value: np.ndarray, like: Tensor, name: str) -> Tensor:
    """From TensorFlow's layout: HWIO convolutions, in×out dense layers, features flattened as H, W, C."""
    tensor = torch.from_numpy(value)
    if name.endswith("feat/dense/weights"):
        tensor = tensor.view(8, 8, -1, value.shape[1]).permute(2, 0, 1, 3).reshape(value.shape)
    if name.endswith("weights"):
        tensor = tensor.permute(3, 2, 0, 1) if tensor.dim() == 4 else tensor.T
    return tensor.reshape(like.shape)


def to_tf(tensor: Tensor, name: str) -> np.ndarray:
    tensor = tensor.detach()
    if name.endswith("weights"):
        tensor = tensor.permute(2, 3, 1, 0) if tensor.dim() == 4 else tensor.T
    if name.endswith("feat/dense/weights"):
        tensor = tensor.reshape(-1, 8, 8, tensor.shape[1]).permute(1, 2, 0, 3).reshape(tensor.shape)
    return tensor.numpy()


def recorded_form(value: np.ndarray) -> np.ndarray:
    """The whole array when it is small; otherwise 64 entries, the mean and the norm."""
    flat = value.reshape(-1)
    if flat.size <= 128:
        return flat
    at = np.linspace(0, flat.size - 1, 64).astype(int)
    return np.concatenate([flat[at], [flat.mean()], [np.sqrt(np.square(flat, dtype=np.float64).sum())]])


def recorded_values(name: str, iteration: int) -> Tensor:
    """What the step draws, by its name for it. A batch is a row of indices into the pool of all images."""
    update, stream, kind = name.split("/")
    if kind == "indices":
        return torch.arange(N) + N * POOL.index(place(update, stream, iteration))
    if kind == "lambda":
        return torch.from_numpy(draw(f"lambda/{stream}").beta(1, 1, N).astype(np.float32))
    if kind == "partner":
        return torch.from_numpy(draw(f"iteration{iteration}/permutation/{stream}").permutation(N))
    direction = draw(f"iteration{iteration}/direction/{stream}").randn(N, 32, 32, 3).astype(np.float32)
    return torch.from_numpy(direction).permute(0, 3, 1, 2).contiguous()


def place(update: str, stream: str, iteration: int) -> str:
    if update == "discriminator":
        return f"iteration{iteration}/disc/{stream}"
    stream = "source" if stream == "target.teacher" else stream
    return f"iteration{iteration}/{stream}"


POOL = [f"iteration{i}/{name}" for i in (0, 1) for name in ("disc/source", "disc/target", "source", "target")]


def pool() -> Domain:
    """All images of a recording, one after the other, with the labels where they belong."""
    images = [draw(name).randint(0, 256, (N, 32, 32, 3)) / 255 * 2 - 1 for name in POOL]
    x = torch.from_numpy(np.concatenate(images).astype(np.float32)).permute(0, 3, 1, 2).contiguous()
    y = torch.zeros(len(x), dtype=torch.int64)
    for i in (0, 1):
        at = N * POOL.index(f"iteration{i}/source")
        y[at : at + N] = torch.from_numpy(draw(f"iteration{i}/y").randint(0, 10, N))
    return Domain(x, y, "recorded")
