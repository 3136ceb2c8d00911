"""The Triton kernels compared with PyTorch: on a CUDA device if there is one, else in Triton's interpreter on a CPU.

python -m pytest -m gpu tests/kernels/test_kernels.py
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vmt.kernels import convolution
from vmt.kernels.convolution import by_weights
from vmt.kernels.forward_call import call
from vmt.kernels.launch import have_triton
from vmt.kernels.normalisation import After, NormaliseActivate, NormaliseImages, reference
from vmt.kernels.random_bits import multiples, random_bits_in_torch
from vmt.nets import norm
from vmt.nets.networks import ConvBlock, Dropout, GaussianNoise, Stage
from vmt.step.draws import key_on

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
pytestmark = [
    pytest.mark.skipif(not have_triton(), reason="Triton is not installed"),
    *([pytest.mark.gpu] if GPU else []),
]
# Triton's interpreter truncates bfloat16 where a GPU rounds to the nearest.
ROUNDING = 1 if GPU else 2


def sizes(gpu: list[Any], interpreter: list[Any]) -> list[Any]:
    """The interpreter takes a hundredth of a second for each program of a kernel."""
    return gpu if GPU else interpreter


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
    call.seeds.clear()


@pytest.fixture
def products_of_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter keeps bfloat16 as 16-bit integers, and would multiply matrices of those as integers."""
    if GPU:
        return
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def widened(values: TensorHandle) -> TensorHandle:
        if values.dtype.scalar != tl.bfloat16:
            return values
        return TensorHandle((values.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    plain = InterpreterBuilder.create_dot
    monkeypatch.setattr(
        InterpreterBuilder, "create_dot", lambda self, a, b, *rest: plain(self, widened(a), widened(b), *rest)
    )


def images(n: int, channels: int, side: int, layout: str = "channels_last", mean: float = 0, std: float = 1) -> Tensor:
    """Images with values of bfloat16: contiguous, channels_last, or grey ones tiled to channels that share memory.

    They have two more columns than rows, so that the two cannot be confused.
    """
    x = mean + std * torch.randn(n, 1 if layout == "tiled" else channels, side, side + 2, device=DEVICE)
    x = x.bfloat16().float()
    if layout == "tiled":
        return x.expand(-1, channels, -1, -1)
    return x.contiguous(memory_format=getattr(torch, layout))


def in_double(*tensors: Tensor) -> list[Tensor]:
    return [t.detach().double().contiguous().requires_grad_() for t in tensors]


def close(ours: Tensor, theirs: Tensor, tolerance: float = 2e-5) -> None:
    ours, theirs = ours.detach().double(), theirs.detach().double()
    difference = (ours - theirs).norm() / theirs.norm()
    assert float(difference) < tolerance, f"relative difference {float(difference):.2e}"


def all_close(ours: Sequence[Tensor], theirs: Sequence[Tensor], tolerance: float = 2e-5) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        close(a, b, tolerance)


# Norm, activation, pool, dropout, noise.


# One group and several, sizes that are not multiples of tiles, and sums in one part, in a few, and in so many that they
# are added up in two stages.
SHAPES = sizes(
    [(1, 64, 64, 32), (4, 64, 64, 32), (2, 5, 96, 6), (3, 64, 192, 8)], [(1, 3, 16, 4), (2, 5, 96, 6), (3, 2, 16, 18)]
)
CASES = [(*shape, pool, dtype) for shape in SHAPES for pool in (False, True) for dtype in ("float32", "bfloat16")]


@pytest.mark.parametrize(
    ("groups", "each", "channels", "side", "pool", "dtype"), CASES + sizes([], [(1, 8, 16, 32, True, "float32")])
)
def test_norm_and_what_follows_it(groups: int, each: int, channels: int, side: int, pool: bool, dtype: str) -> None:
    tolerance = {"float32": 2e-5, "bfloat16": 4e-3}[dtype]
    x = images(groups * each, channels, side) * torch.linspace(0.5, 2, groups * each, device=DEVICE).view(-1, 1, 1, 1)
    x = (x + 0.5).to(getattr(torch, dtype)).requires_grad_()
    weight, bias = (torch.randn(channels, device=DEVICE, requires_grad=True) for _ in range(2))
    after = After(pool=pool)
    wanted = in_double(x, weight, bias)
    theirs = reference(*wanted, groups, 1e-3, after)
    gradient = torch.randn_like(theirs).to(x.dtype)
    ours, mean, var = NormaliseActivate.apply(x, weight, bias, groups, 1e-3, after)
    close(ours, theirs, tolerance)
    close(mean, torch.stack([part.mean((0, 2, 3)) for part in x.double().chunk(groups)]))
    close(var, torch.stack([part.var((0, 2, 3), correction=0) for part in x.double().chunk(groups)]))
    found = torch.autograd.grad(ours, [x, weight, bias], gradient)
    all_close(found, torch.autograd.grad(theirs, wanted, gradient.double()), tolerance)


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize(("n", "channels", "side"), sizes([(8, 64, 16)], [(6, 32, 8)]))
def test_dropout_has_the_same_mask_forward_and_backward(n: int, channels: int, side: int, pool: bool) -> None:
    x = images(n, channels, side).requires_grad_()
    weight, bias = torch.ones(channels, device=DEVICE), torch.full((channels,), 5.0, device=DEVICE)
    y, _, _ = NormaliseActivate.apply(x, weight, bias, 2, 1e-3, After(slope=1.0, pool=pool, dropout=0.25))
    mask = y != 0
    assert abs(float(mask.double().mean()) - 0.75) < 4 * (0.75 * 0.25 / y.numel()) ** 0.5
    gradient = torch.randn_like(y)
    (found,) = torch.autograd.grad(y, x, gradient)
    plain = reference(x, weight, bias, 2, 1e-3, After(slope=1.0, pool=pool))
    close(y, plain * mask / 0.75)
    (wanted,) = torch.autograd.grad(plain, x, gradient * mask / 0.75)
    close(found, wanted)


@pytest.mark.parametrize("n", sizes([64], [4]))
def test_noise_is_standard_normal(n: int) -> None:
    x = images(n, 64, 16)
    ones, zeros = torch.ones(64, device=DEVICE), torch.zeros(64, device=DEVICE)
    plain = reference(x, ones, zeros, 2, 1e-3, After())

    def noise() -> Tensor:
        return (NormaliseActivate.apply(x, ones, zeros, 2, 1e-3, After(noise=1.0))[0] - plain).double().flatten()

    first, second = noise(), noise()
    error = len(first) ** -0.5
    for power, wanted, spread in ((1, 0, 1), (2, 1, 2), (4, 3, 96)):
        assert abs(float(first.pow(power).mean()) - wanted) < 5 * error * spread**0.5, f"moment {power}"
    for other in (second, first.roll(1), first.roll(64)):
        assert abs(float((first * other).mean())) < 5 * error


@pytest.mark.parametrize("side", [8, 7])
def test_the_end_of_a_block(side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The max-pool leaves out the last row and column of an odd map, but the norm's statistics include them."""
    monkeypatch.setattr(norm, "fusable", lambda *_: True)
    stage = Stage(ConvBlock(3, 16), nn.MaxPool2d(2), Dropout(0.0), GaussianNoise(0.0)).to(DEVICE)
    layers = nn.Sequential(*stage)
    x = images(4, 3, side).requires_grad_()
    inputs = [x, stage[0].convolution.weight, stage[0].norm.weight, stage[0].norm.bias]
    ours, theirs = stage(x), layers(x)
    gradient = torch.randn_like(theirs)
    close(ours, theirs)
    all_close(torch.autograd.grad(ours, inputs, gradient), torch.autograd.grad(theirs, inputs, gradient))


# Instance norm.


@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last", "tiled"])
@pytest.mark.parametrize(("channels", "side"), sizes([(3, 32), (1, 28), (4, 7)], [(3, 8), (1, 6), (4, 7)]))
def test_instance_norm(channels: int, side: int, layout: str) -> None:
    x = images(5, channels, side, layout, mean=2, std=3).requires_grad_()
    weight, bias = (torch.randn(channels, device=DEVICE, requires_grad=True) for _ in range(2))
    wanted = in_double(x, weight, bias)
    theirs = F.instance_norm(wanted[0], weight=wanted[1], bias=wanted[2], eps=1e-3)
    ours = NormaliseImages.apply(x, weight, bias, 1e-3)
    close(ours, theirs)
    gradient = torch.randn_like(theirs)
    gradients = torch.autograd.grad(theirs, wanted, gradient)
    all_close(torch.autograd.grad(ours, [x, weight, bias], gradient.float()), gradients)
    without_x = NormaliseImages.apply(x.detach(), weight, bias, 1e-3)
    all_close(torch.autograd.grad(without_x, [weight, bias], gradient.float()), gradients[1:])


# Convolutions.


@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last", "tiled"])
@pytest.mark.parametrize(
    ("n", "inputs", "outputs", "side"),
    sizes([(24, 3, 64, 32), (24, 3, 96, 32), (24, 1, 64, 32)], [(9, 3, 96, 7), (5, 1, 16, 9)]),
)
@pytest.mark.usefixtures("products_of_bfloat16")
def test_first_convolution(
    n: int, inputs: int, outputs: int, side: int, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not GPU:
        monkeypatch.setattr(convolution, "PROGRAMS", 2)  # so that each has several tiles to add up
    x = images(n, inputs, side, layout).requires_grad_()
    weight = torch.randn(outputs, inputs, 3, 3, device=DEVICE).bfloat16().float()
    weight = weight.contiguous(memory_format=torch.channels_last).requires_grad_()
    wanted = in_double(x, weight)
    theirs = F.conv2d(wanted[0], wanted[1], padding=1)
    gradient = torch.randn_like(theirs).bfloat16()
    ours = convolution.Stem.apply(x, weight)
    close(ours, theirs, 3e-3 * ROUNDING)
    found = torch.autograd.grad(ours, [x, weight], gradient)
    all_close(found, torch.autograd.grad(theirs, wanted, gradient.double()), 6e-3 * ROUNDING)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16][GPU:])
@pytest.mark.parametrize(
    ("inputs", "outputs", "side", "counts"),
    sizes(
        [(i, o, side, (100, 7, 256)) for i, o, side in ((64, 64, 8), (64, 64, 16), (96, 192, 8), (16, 32, 5))],
        [(64, 64, 4, (3,)), (32, 96, 4, (5, 1)), (16, 32, 5, (10, 1, 20))],
    ),
)
@pytest.mark.usefixtures("products_of_bfloat16")
def test_gradients_by_the_weights(
    inputs: int, outputs: int, side: int, counts: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Convolutions with different numbers of images in one launch."""
    xs, dys = ([images(n, channels, side).to(dtype) for n in counts] for channels in (inputs, outputs))
    weight = torch.zeros(outputs, inputs, 3, 3, device=DEVICE, dtype=torch.float64, requires_grad=True)
    for x, dy, found in zip(xs, dys, by_weights(dys, xs), strict=True):
        (wanted,) = torch.autograd.grad(F.conv2d(x.double(), weight, padding=1), weight, dy.double())
        close(found.permute(0, 3, 1, 2), wanted)


# Random bits and zeros.


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("n", [1, 512, 700])
def test_random_bits(n: int, frozen: bool) -> None:
    for at in (0, 1, 2**40):
        step, key = torch.tensor(at, device=DEVICE), key_on(at, "pairs", str(DEVICE))
        wanted = random_bits_in_torch(step, key, multiples(n, str(DEVICE)), frozen)
        assert torch.equal(torch.ops.vmt.random_bits(step, key, n, frozen), wanted)


@pytest.mark.parametrize("words", [1, 512, 700])
def test_clearing(words: int) -> None:
    from vmt.kernels.triton_kernels import BLOCK, clear

    memory = torch.ones(1024, dtype=torch.int32, device=DEVICE)
    clear[(-(-words // BLOCK),)](memory, words, BLOCK=BLOCK)
    assert not memory[:words].any()
    assert memory[words:].all()
