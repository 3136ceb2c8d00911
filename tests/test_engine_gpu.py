"""Engines and kernels on a CUDA device: the captured, the compiled and the plain step do the same.

python -m pytest -m gpu tests/test_engine_gpu.py
"""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vmt.engine.captured import captured
from vmt.engine.prepare import captured_graph, compiled, eager
from vmt.engine.running import Engine, Prepare
from vmt.engine.workload import Workload, workload
from vmt.nets.convolution import by_weights
from vmt.nets.fused import After, NormaliseActivate, reference
from vmt.nets.instance import NormaliseImages
from vmt.nets.stem import Stem

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")


@pytest.fixture
def exact() -> Iterator[None]:
    """Kernels that give the same result each time, in full single precision."""
    flags = torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = True, False
    yield
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = flags


def small(bfloat16: bool = False, **changes: object) -> Workload:
    return workload((16, 16, 16), bfloat16, CUDA, batch_size=16, samples=2_000, side=16, **changes)  # type: ignore[arg-type]


def tensors(work: Workload) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in work.state.tensors().items()}


def engine(work: Workload, prepare: Prepare) -> Engine:
    return Engine("", "", prepare, work.state, work.setting, work.seed)


def quiet(message: str) -> None:
    pass


def largest_difference(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in a)


@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.usefixtures("exact")
def test_captured_is_bit_identical_to_eager(phase: int, bfloat16: bool) -> None:
    results = []
    for prepare in (eager(""), captured_graph("", quiet, compile=False)):
        work = small(bfloat16)
        run = engine(work, prepare)
        run.run(work.method.phases[phase], 0, 5, 0)
        results.append({**tensors(work), **run.metrics()})
    assert run.name == "captured (eager)"
    for name, tensor in results[0].items():
        assert torch.equal(tensor, results[1][name]), name


@pytest.mark.usefixtures("exact")
def test_compiled_stays_close_to_eager_in_single_precision() -> None:
    with torch._inductor.config.patch(fallback_random=True):
        after: dict[str, list[dict[str, Tensor]]] = {"eager": [], "compiled": []}
        for prepare in (eager(""), captured_graph("", quiet, compile=True)):
            work = small()
            run = engine(work, prepare)
            phase = work.method.phases[0]
            for first, count in ((0, 1), (1, 19)):
                run.run(phase, first, count, first)
                weights = {name: t for name, t in tensors(work).items() if name.startswith("roles/")}
                after["eager" if run.name == "eager" else "compiled"].append(weights)
    assert run.name == "captured (compiled)"
    assert largest_difference(after["eager"][0], after["compiled"][0]) < 1e-5
    assert largest_difference(after["eager"][1], after["compiled"][1]) < 1e-2


@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.parametrize("compile", [False, True])
def test_gradients_in_bfloat16_point_where_those_in_single_precision_do(phase: int, compile: bool) -> None:
    """Of a whole iteration with the paper's network: all kernels together, as only a bfloat16 network uses them.
    Dropout and noise are the same in both; on a CPU the cosines are 0.999, 0.98 and, for DIRT-T, 0.97."""
    found = []
    for bfloat16 in (False, True):
        work = workload("small", bfloat16, CUDA, batch_size=32, samples=500)
        prepare = captured_graph("", quiet, compile=True) if compile and bfloat16 else eager("")
        engine(work, prepare).run(work.method.phases[phase], 0, 1, 0)
        found.append(tensors(work))
    for role in ("discriminator", "classifier") if phase == 0 else ("classifier",):
        first = f"optimisers/{role}/{role}/m."  # after one step, a moment is half the gradient
        wanted, ours = (torch.cat([t.flatten() for n, t in each.items() if n.startswith(first)]) for each in found)
        alike = float(F.cosine_similarity(wanted, ours, dim=0))
        assert alike > 0.93, f"{role}: {alike:.3f}"
        assert abs(float(ours.norm() / wanted.norm()) - 1) < 0.05, role


@pytest.mark.parametrize("compile", [False, True])
def test_preparing_leaves_no_trace(compile: bool) -> None:
    work = small(bfloat16=True)
    before, generator = tensors(work), torch.cuda.get_rng_state()
    prepared = captured_graph("", quiet, compile)(work.method.phases[0], work.state, work.setting)
    assert prepared.name.startswith("captured")
    for name, tensor in tensors(work).items():
        assert torch.equal(tensor, before[name]), name
    assert torch.equal(generator, torch.cuda.get_rng_state())
    assert prepared.tally.means() == {}


def test_replays_draw_anew() -> None:
    work = small()
    drawn: dict[str, Tensor] = {}

    def advance() -> None:
        found = {
            "lambda": work.setting.draws.beta("pairs", 1.0, 8),
            "noise": torch.randn(8, device=CUDA),
            "dropout": F.dropout(torch.ones(64, device=CUDA), 0.5),
        }
        for name, tensor in found.items():
            drawn.setdefault(name, tensor.clone()).copy_(tensor)
        work.state.step += 1

    advance()
    replay = captured(advance, work.state)
    seen = []
    for seed in (1, 2, 1):
        torch.cuda.manual_seed(seed)
        replay()
        seen.append({name: tensor.clone() for name, tensor in drawn.items()})
    for name in drawn:
        assert not torch.equal(seen[0][name], seen[1][name]), name
    assert torch.equal(seen[0]["noise"], seen[2]["noise"])
    assert torch.equal(seen[0]["dropout"], seen[2]["dropout"])
    assert not torch.equal(seen[0]["lambda"], seen[2]["lambda"])  # by the step, not by the generator


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize(("groups", "each", "channels", "side"), [(4, 64, 64, 32), (2, 5, 96, 6), (3, 64, 192, 8)])
def test_fused_kernels_against_pytorch(pool: bool, groups: int, each: int, channels: int, side: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(groups * each, channels, side, side, device=CUDA, dtype=torch.float64)
    x = (x * torch.linspace(0.5, 2, len(x), device=CUDA).view(-1, 1, 1, 1) + 0.5).float()
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(channels, device=CUDA, requires_grad=True)
    bias = torch.randn(channels, device=CUDA, requires_grad=True)
    after = After(pool=pool)
    wanted = [t.detach().double().requires_grad_() for t in (x, weight, bias)]
    theirs = reference(*wanted, groups, 1e-3, after)
    gradient = torch.randn_like(theirs)
    ours, mean, var = NormaliseActivate.apply(x, weight, bias, groups, 1e-3, after)
    close(ours, theirs)
    close(mean, torch.stack([part.mean((0, 2, 3)) for part in x.double().chunk(groups)]))
    close(var, torch.stack([part.var((0, 2, 3), correction=0) for part in x.double().chunk(groups)]))
    found = torch.autograd.grad(ours, [x, weight, bias], gradient.float())
    for a, b in zip(found, torch.autograd.grad(theirs, wanted, gradient), strict=True):
        close(a, b)


def test_dropout_of_the_fused_kernels_is_the_same_both_ways() -> None:
    x = torch.randn(8, 64, 16, 16, device=CUDA).contiguous(memory_format=torch.channels_last).requires_grad_()
    weight, bias = torch.ones(64, device=CUDA), torch.full((64,), 5.0, device=CUDA)
    kept = After(slope=1.0, dropout=0.25)
    y, _, _ = NormaliseActivate.apply(x, weight, bias, 2, 1e-3, kept)
    mask = y != 0
    assert abs(float(mask.double().mean()) - 0.75) < 0.01
    gradient = torch.randn_like(y)
    (found,) = torch.autograd.grad(y, x, gradient)
    plain = reference(x, weight, bias, 2, 1e-3, After(slope=1.0))
    close(y, plain * mask / 0.75)
    (wanted,) = torch.autograd.grad(plain, x, gradient * mask / 0.75)
    close(found, wanted)


def test_noise_of_the_fused_kernels_is_standard_normal() -> None:
    x = torch.randn(64, 64, 16, 16, device=CUDA).contiguous(memory_format=torch.channels_last)
    ones, zeros = torch.ones(64, device=CUDA), torch.zeros(64, device=CUDA)
    plain = reference(x, ones, zeros, 2, 1e-3, After())
    noise = (NormaliseActivate.apply(x, ones, zeros, 2, 1e-3, After(noise=1.0))[0] - plain).flatten()
    again = (NormaliseActivate.apply(x, ones, zeros, 2, 1e-3, After(noise=1.0))[0] - plain).flatten()
    for value, wanted in ((noise.mean(), 0), (noise.var(), 1), (noise.pow(4).mean(), 3)):
        assert abs(float(value) - wanted) < 0.05
    for other in (again, noise.roll(1), noise.roll(64)):
        assert abs(float((noise * other).mean())) < 0.01


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 28), (4, 7)])
def test_instance_norm_against_pytorch(channels: int, side: int, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    x = (3 * torch.randn(5, channels, side, side, device=CUDA) + 2).contiguous(memory_format=layout).requires_grad_()
    weight, bias = (torch.randn(channels, device=CUDA, requires_grad=True) for _ in range(2))
    wanted = [t.detach().double().requires_grad_() for t in (x, weight, bias)]
    theirs = F.instance_norm(wanted[0], weight=wanted[1], bias=wanted[2], eps=1e-3)
    ours = NormaliseImages.apply(x, weight, bias, 1e-3)
    close(ours, theirs)
    gradient = torch.randn_like(theirs)
    found = torch.autograd.grad(ours, [x, weight, bias], gradient.float(), retain_graph=True)
    for a, b in zip(found, torch.autograd.grad(theirs, wanted, gradient), strict=True):
        close(a, b)
    close(torch.autograd.grad(ours, weight, gradient.float())[0], found[1])


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 64), (3, 96), (1, 64)])
def test_first_convolution_against_pytorch(inputs: int, outputs: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(24, inputs, 32, 32, device=CUDA).bfloat16().float().requires_grad_()
    weight = torch.randn(outputs, inputs, 3, 3, device=CUDA).bfloat16().float()
    weight = weight.contiguous(memory_format=torch.channels_last).requires_grad_()
    wanted = [x.detach().double().requires_grad_(), weight.detach().double().requires_grad_()]
    theirs = F.conv2d(wanted[0], wanted[1], padding=1)
    gradient = torch.randn_like(theirs).bfloat16()
    ours = Stem.apply(x, weight)
    close(ours, theirs, 3e-3)
    found = torch.autograd.grad(ours, [x, weight], gradient)
    for a, b in zip(found, torch.autograd.grad(theirs, wanted, gradient.double()), strict=True):
        close(a, b, 6e-3)


@pytest.mark.parametrize(("inputs", "outputs", "side"), [(64, 64, 8), (64, 64, 16), (96, 192, 8), (16, 32, 5)])
def test_gradients_by_the_weights_against_pytorch(inputs: int, outputs: int, side: int) -> None:
    """Of three convolutions with different numbers of images in one launch."""
    torch.manual_seed(0)
    counts = (100, 7, 256)

    def images(channels: int) -> list[Tensor]:
        some = [torch.randn(n, channels, side, side, device=CUDA, dtype=torch.bfloat16) for n in counts]
        return [x.contiguous(memory_format=torch.channels_last) for x in some]

    xs, dys = images(inputs), images(outputs)
    weight = torch.zeros(outputs, inputs, 3, 3, device=CUDA, dtype=torch.float64, requires_grad=True)
    for x, dy, found in zip(xs, dys, by_weights(dys, xs), strict=True):
        (wanted,) = torch.autograd.grad(F.conv2d(x.double(), weight, padding=1), weight, dy.double())
        close(found.permute(0, 3, 1, 2), wanted)


def test_compiled_engine_says_what_it_did() -> None:
    work = small(bfloat16=True)
    run = engine(work, compiled("as asked", quiet))
    run.run(work.method.phases[0], 0, 2, 0)
    assert (run.name, run.why) == ("compiled", "as asked")
    assert all(bool(value.isfinite().all()) for value in run.metrics().values())


def close(ours: Tensor, theirs: Tensor, tolerance: float = 2e-5) -> None:
    difference = (ours.double() - theirs.double()).norm() / theirs.double().norm()
    assert float(difference) < tolerance, f"relative difference {float(difference):.2e}"
