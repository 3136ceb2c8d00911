"""vmt's Triton kernels access only their tensors and read no uninitialised memory, as :mod:`tests.memory` checks in
Triton's interpreter; and tensors that a captured graph reads stay in memory."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.kernels.test_kernels_in_a_step import STEPS, as_on_cuda
from tests.memory import Seen, nothing_beyond
from vmt.data.preprocess import Preprocess
from vmt.kernels import convolution
from vmt.kernels import normalisation as fused
from vmt.kernels.forward_call import call
from vmt.kernels.launch import have_triton
from vmt.kernels.normalisation import After, NormaliseActivate, NormaliseImages
from vmt.step.draws import SeededDraws

pytestmark = [
    pytest.mark.skipif(not have_triton(), reason="Triton is not installed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: Triton compiles for it"),
    pytest.mark.usefixtures("one_thread"),
]


@pytest.fixture
def seen() -> Iterator[Seen]:
    torch.manual_seed(0)
    call.seeds.clear()
    with as_on_cuda(), nothing_beyond() as seen:
        yield seen


def images(n: int, channels: int, height: int, width: int, layout: str = "channels_last") -> Tensor:
    """Dense images, grey ones that are tiled to several channels, or a part of larger ones."""
    if layout == "tiled":
        return torch.randn(n, 1, height, width).expand(-1, channels, -1, -1)
    if layout == "part":
        return torch.randn(n, channels + 2, height + 1, width + 3)[:, 1:-1, 1:, 2:-1]
    return torch.randn(n, channels, height, width).contiguous(memory_format=getattr(torch, layout))


def gradients(y: Tensor, inputs: list[Tensor], layout: str = "channels_last") -> list[Tensor]:
    """Gradients for one at y that is dense, a part, or has one value per image and channel, like that of a mean."""
    n, channels, height, width = y.shape
    if layout == "expanded":
        dy = torch.randn(n, channels, 1, 1).expand_as(y)
    else:
        dy = images(n, channels, height, width, layout)
    return list(torch.autograd.grad(y, inputs, dy.to(y.dtype)))


def finite(*tensors: Tensor) -> None:
    assert all(bool(tensor.isfinite().all()) for tensor in tensors), "uninitialised memory was read"


# The checker itself.


@pytest.mark.parametrize(
    ("x", "first", "n", "error"),
    [
        (torch.ones(5), 0, 5, None),
        (torch.ones(5), 0, 6, "reads 4 bytes beyond x; 1 of 6"),
        (torch.ones(8)[:5], 0, 6, "reads 4 bytes beyond x; 1 of 6"),
        (torch.ones(8)[3:], -1, 5, "reads 4 bytes before x; 1 of 5"),
        (torch.ones(3, 2).t(), 0, 6, None),
        (torch.ones(1).expand(5), 0, 5, "reads 4 bytes beyond x; 4 of 5"),
        (torch.ones(5, dtype=torch.bfloat16), 0, 6, "reads 2 bytes beyond x; 1 of 6"),
    ],
)
def test_checker_finds_reads_beyond(x: Tensor, first: int, n: int, error: str | None, seen: Seen) -> None:
    from tests.memory_kernels import copy

    out = torch.empty(8)
    if error is None:
        copy[(1,)](x, out, first, n, BLOCK=8)
        assert bool(out[:n].eq(1).all())
    else:
        with pytest.raises(Exception, match=f"copy {error}"):
            copy[(1,)](x, out, first, n, BLOCK=8)
    assert seen.launches == {"copy": 1}


def test_checker_finds_writes_beyond_and_into_the_next_tensor(seen: Seen) -> None:
    from tests.memory_kernels import copy

    both = torch.zeros(16)
    with pytest.raises(Exception, match="copy writes 4 bytes beyond out; 1 of 6"):
        copy[(1,)](both[8:], both[:5], 0, 6, BLOCK=8)
    with pytest.raises(Exception, match=r"copy writes \d+ bytes beyond out; 8 of 8"):
        copy[(2,)](torch.ones(16), torch.empty(8), 0, 16, BLOCK=8)


def test_memory_that_was_never_written_is_nan(seen: Seen) -> None:
    from tests.memory_kernels import copy

    out = torch.ones(2).new_empty(8)
    copy[(1,)](torch.ones(8), out, 0, 7, BLOCK=8)
    assert out.isnan().tolist() == [False] * 7 + [True]


# Norm, activation, pool, dropout, noise: sums in one part and in several, groups of one image and of one pixel.
NORMS = [
    (1, 1, 64, (8, 8), After(pool=True, dropout=0.5, noise=1.0), "bfloat16", "expanded"),
    (4, 2, 64, (4, 4), After(), "bfloat16", "channels_last"),
    (2, 9, 48, (7, 5), After(dropout=0.5), "float32", "part"),
    (2, 8, 16, (6, 10), After(pool=True), "float32", "contiguous_format"),
    (2, 1, 192, (5, 5), After(noise=1.0), "bfloat16", "channels_last"),
    (9, 1, 16, (1, 1), After(), "float32", "expanded"),
]


@pytest.mark.parametrize(("groups", "each", "channels", "size", "after", "dtype", "layout"), NORMS)
def test_norm_and_what_follows_it(
    groups: int, each: int, channels: int, size: tuple[int, int], after: After, dtype: str, layout: str, seen: Seen
) -> None:
    x = images(groups * each, channels, *size).to(getattr(torch, dtype)).requires_grad_()
    weight, bias = (torch.randn(channels, requires_grad=True) for _ in range(2))
    y, mean, var = NormaliseActivate.apply(x, weight, bias, groups, 1e-3, after)
    finite(y, mean, var, *gradients(y, [x, weight, bias], layout))
    assert set(seen.launches) == {"statistics", "forward_map", "gradient_sums", "backward_map"}


def test_sums_in_many_parts(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate kernel adds them up."""
    monkeypatch.setattr(fused, "FEW_PARTS", 2)
    x = images(16, 16, 6, 12).requires_grad_()
    weight, bias = (torch.randn(16, requires_grad=True) for _ in range(2))
    y, _, _ = NormaliseActivate.apply(x, weight, bias, 2, 1e-3, After(pool=True))
    finite(*gradients(y, [x, weight, bias]))
    assert seen.launches["add_parts"] == 1


@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last", "tiled", "part"])
@pytest.mark.parametrize(("n", "channels", "size"), [(2, 3, (8, 8)), (3, 1, (7, 5)), (1, 4, (1, 1))])
def test_instance_norm(n: int, channels: int, size: tuple[int, int], layout: str, seen: Seen) -> None:
    x = images(n, channels, *size, layout).requires_grad_()
    weight, bias = (torch.randn(channels, requires_grad=True) for _ in range(2))
    for at, of_y in ((x, "expanded"), (x.detach(), "part")):
        y = NormaliseImages.apply(at, weight, bias, 1e-3)
        finite(y, *gradients(y, [weight, bias, *([x] if at is x else [])], of_y))
    assert seen.launches == {"instance_forward": 2, "instance_backward": 2}


def test_norms_with_one_scale_for_all_channels(seen: Seen) -> None:
    """And with any other weights that are not contiguous in memory."""
    x = images(2, 16, 4, 4)
    one, every_other = torch.full((1,), 2.0).expand(16), torch.arange(32.0)[::2]
    for norm in (
        lambda weight, bias: NormaliseActivate.apply(x, weight, bias, 1, 1e-3, After())[0],
        lambda weight, bias: NormaliseImages.apply(x, weight, bias, 1e-3),
    ):
        assert torch.equal(norm(one, every_other), norm(one.clone(), every_other.clone()))


# Convolutions.


@pytest.mark.parametrize(
    ("n", "inputs", "outputs", "size", "layout"),
    [
        (1, 3, 64, (12, 12), "contiguous_format"),
        (3, 3, 96, (6, 10), "tiled"),
        (5, 1, 16, (7, 7), "channels_last"),
        (2, 2, 48, (1, 5), "part"),
    ],
)
def test_first_convolution(
    n: int, inputs: int, outputs: int, size: tuple[int, int], layout: str, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "PROGRAMS", 2)
    x = images(n, inputs, *size, layout).requires_grad_()
    dense = torch.randn(outputs, inputs, 3, 3)
    for weight in (dense, torch.randn(outputs, inputs + 1, 5, 4)[:, 1:, 1:4, :3]):
        weight = weight.detach().requires_grad_()
        y = convolution.Stem.apply(x, weight)
        finite(y, *gradients(y, [x, weight], "expanded"))
    assert set(seen.launches) == {"stem_forward", "spread", "collect", "stem_by_weight", "add_parts_of"}


CONVOLUTIONS = [(64, 64, (8, 8), (3, 1)), (16, 48, (5, 5), (1,)), (32, 16, (6, 10), (1, 7, 2)), (16, 32, (1, 1), (5,))]


@pytest.mark.parametrize(("inputs", "outputs", "size", "counts"), CONVOLUTIONS)
def test_gradients_by_the_weights(
    inputs: int, outputs: int, size: tuple[int, int], counts: tuple[int, ...], seen: Seen
) -> None:
    xs, dys = ([images(n, channels, *size).bfloat16() for n in counts] for channels in (inputs, outputs))
    found = convolution.by_weights(dys, xs)
    finite(found)
    assert found.shape == (len(counts), outputs, 3, 3, inputs)
    assert seen.launches == {"by_weights": 1, "add_parts_of": 1}


def test_too_many_gradients_for_one_launch_take_several(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels count values in 32 bits."""
    xs, dys = ([images(n, 16, 5, 5) for n in (3, 1, 2)] for _ in range(2))
    together = convolution.by_weights(dys, xs)
    monkeypatch.setattr(convolution, "MOST_VALUES", 16 * 9 * 16)
    monkeypatch.setattr(convolution, "processors", lambda _: 1)
    seen.launches.clear()
    torch.testing.assert_close(convolution.by_weights(dys, xs), together)
    assert seen.launches == {"by_weights": 3, "add_parts_of": 3}


# Random bits and zeros.


@pytest.mark.parametrize("n", [1, 512, 513])
def test_random_bits_and_zeros(n: int, seen: Seen) -> None:
    from vmt.kernels.triton_kernels import BLOCK, clear

    torch.ops.vmt.random_bits(torch.tensor(3), torch.tensor(5), n, False)
    memory = torch.empty(n, dtype=torch.int32)
    clear[(-(-n // BLOCK),)](memory, n, BLOCK=BLOCK)
    assert not memory.any()
    assert seen.launches == {"random_bits": 1, "clear": 1}


# Whole steps.


def test_step(seen: Seen) -> None:
    """In bfloat16, through kernels of every kind."""
    work = STEPS["source_only"](True)
    finite(*work.step().values(), *work.tensors().values())
    of_each_kind = {"random_bits", "by_weights", "stem_by_weight", "backward_map", "instance_backward"}
    assert of_each_kind <= set(seen.launches)


# What a captured graph reads.


class Read(TorchDispatchMode):
    """Records the tensors that operations read, without keeping them alive."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[weakref.ref[Tensor]] = []

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.tensors += [weakref.ref(tensor) for tensor in tree_leaves(args) if isinstance(tensor, Tensor)]
        return operation(*args, **(kwargs or {}))

    def alive(self) -> int:
        gc.collect()
        return sum(tensor() is not None for tensor in self.tensors)


def test_tables_of_draws_stay_in_memory() -> None:
    """However many tables of other runs are made after them."""
    draws = SeededDraws(0, torch.tensor(0))
    draws.beta("pairs", 0.5, 8)
    with Read() as read:
        draws.beta("pairs", 0.5, 8)
    kept = read.alive()
    assert kept >= 5  # the step, the key, the multiples of the golden ratio, and the quantiles twice
    for other in range(1, 1100):
        SeededDraws(other, torch.tensor(0)).bits("pairs", 1 + other % 100)
    for alpha in range(2, 20):
        SeededDraws(0, torch.tensor(0)).beta("pairs", alpha, 1)
    assert read.alive() == kept


def test_scales_stay_in_memory() -> None:
    """However many other tasks are prepared after this one."""
    x, zeros = torch.ones(1, 2), (0.0, 0.0)
    preprocess = Preprocess(2, None, (1.5, 2.5), zeros)
    preprocess(x)
    with Read() as read:
        preprocess(x)
    kept = read.alive()
    assert kept >= 3  # x, scale and shift
    for other in range(40):
        Preprocess(2, None, (other, 0.5), (0.5, other))(x)
    assert read.alive() == kept
