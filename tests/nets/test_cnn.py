"""The package's networks: shapes, sizes, initialisation, taps."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from vmt.errors import InputError
from vmt.nets import Staged, cnn, discriminator, mlp
from vmt.nets.factory import NetSpec
from vmt.nets.networks import GaussianNoise, Product, conv_block, initialised, logits_layer
from vmt.nets.norm import BatchNorm, InstanceNorm

pytestmark = pytest.mark.usefixtures("one_thread")


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_small_net_by_hand() -> None:
    net = cnn((3, 32, 32), 10)
    convolutions = (3 * 64 * 9 + 64) + 8 * (64 * 64 * 9 + 64)
    norms = 9 * 2 * 64
    last = (64 * 10 + 10) + 2 * 10
    assert count(net) == convolutions + norms + last == 299_038
    assert count(cnn((3, 32, 32), 10, instance_norm=True)) == 299_038 + 2 * 3
    taps = net(torch.zeros(2, 3, 32, 32))
    assert {name: tuple(t.shape) for name, t in taps.items()} == {
        "features": (2, 64, 8, 8),
        "hidden": (2, 64),
        "logits": (2, 10),
    }


def test_large_net_by_hand() -> None:
    net = cnn((3, 32, 32), 9, widths=(96, 192, 192))
    first = (3 * 96 * 9 + 96) + 2 * (96 * 96 * 9 + 96)
    second = (96 * 192 * 9 + 192) + 2 * (192 * 192 * 9 + 192)
    third = 3 * (192 * 192 * 9 + 192)
    norms = 3 * 2 * 96 + 6 * 2 * 192
    last = (192 * 9 + 9) + 2 * 9
    assert count(net) == first + second + third + norms + last == 1_999_323
    assert net(torch.zeros(2, 3, 32, 32), exit="features")["features"].shape == (2, 192, 8, 8)


def test_discriminator_by_hand() -> None:
    net = discriminator(8 * 8 * 64)
    assert count(net) == (4096 * 100 + 100) + (100 + 1)
    assert net(torch.zeros(3, 64, 8, 8))["domain"].shape == (3, 1)
    assert not any(isinstance(m, BatchNorm) for m in net.modules())
    kinds = [type(m) for m in net.modules() if not list(m.children())]
    assert kinds == [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear]


def kind(module: nn.Module) -> type[nn.Module]:
    """The plain layer that a module is a kind of."""
    return next((plain for plain in (nn.Conv2d, nn.Linear, nn.Dropout) if isinstance(module, plain)), type(module))


def test_a_random_product_keeps_inner_products() -> None:
    """In expectation, those of all products of a feature and a probability, which a small product has exactly."""
    torch.manual_seed(0)
    f, g = torch.randn(30, 1400), torch.randn(30, 3).softmax(1)
    wanted = (f @ f.T) * (g @ g.T)
    product = Product(1400, 3)
    found = product(torch.cat([f, g], 1))
    assert found.shape == (30, 1024)
    error = (found @ found.T - wanted).diagonal() / wanted.diagonal()
    assert float(error.abs().mean()) < 0.1
    small = Product(1300, 3)
    assert not list(small.buffers())
    exact = small(torch.cat([f[:, :1300], g], 1))
    torch.testing.assert_close(exact @ exact.T, (f[:, :1300] @ f[:, :1300].T) * (g @ g.T), rtol=1e-3, atol=1e-2)


def test_layers_in_the_order_of_the_paper() -> None:
    net = cnn((3, 32, 32), 10, instance_norm=True)
    block = [nn.Conv2d, BatchNorm, nn.LeakyReLU] * 3
    pool = [nn.MaxPool2d, nn.Dropout, GaussianNoise]
    leaves = {tap: [m for m in stage.modules() if not list(m.children())] for tap, stage in net.stages.named_children()}
    kinds = {tap: [kind(m) for m in stage] for tap, stage in leaves.items()}
    assert kinds["features"] == [InstanceNorm, *block, *pool, *block, *pool]
    assert kinds["hidden"][:-1] == block
    assert kinds["logits"] == [nn.Linear, BatchNorm]
    assert [m.p for m in leaves["features"] if isinstance(m, nn.Dropout)] == [0.5, 0.5]
    assert [m.std for m in leaves["features"] if isinstance(m, GaussianNoise)] == [1.0, 1.0]
    for m in net.modules():
        if isinstance(m, nn.LeakyReLU):
            assert m.negative_slope == 0.1
        if isinstance(m, BatchNorm):
            assert (m.eps, m.momentum) == (1e-3, 0.01)
        if isinstance(m, InstanceNorm):
            assert m.eps == 1e-3
        if isinstance(m, nn.Conv2d):
            assert m.kernel_size == (3, 3)
            assert m.bias is not None


@pytest.mark.parametrize(
    ("shape", "features"),
    [((1, 16, 16), (4, 4)), ((3, 28, 28), (7, 7)), ((5, 40, 24), (10, 6)), ((1, 4, 4), (1, 1)), ((2, 5, 9), (1, 2))],
    ids=str,
)
@pytest.mark.parametrize("instance_norm", [False, True])
def test_any_size_and_channel_count_that_fits(
    shape: tuple[int, ...], features: tuple[int, int], instance_norm: bool
) -> None:
    net = cnn(shape, 4, widths=(4, 6, 5), instance_norm=instance_norm)
    taps = net(torch.randn(3, *shape))
    assert taps["features"].shape == (3, 6, *features)
    assert taps["hidden"].shape == (3, 5)
    assert taps["logits"].shape == (3, 4)


@pytest.mark.parametrize("shape", [(3, 3, 32), (3, 32, 2), (12,), (1, 3, 32, 32)], ids=str)
def test_too_small_is_refused_with_the_remedy(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"4×4.*mlp"):
        cnn(shape, 10)


@pytest.mark.parametrize("layer", [nn.Linear(200, 300), nn.Conv2d(24, 200, 3)], ids=["dense", "convolution"])
def test_initialisation_is_truncated_at_two_standard_deviations(layer: nn.Linear | nn.Conv2d) -> None:
    torch.manual_seed(0)
    initialised(layer)  # type: ignore[type-var]
    fan_in = 200 if isinstance(layer, nn.Linear) else 24 * 9
    std = math.sqrt(1.3 * 2 / fan_in)
    w = layer.weight.detach()
    assert 1.99 * std < w.abs().max() <= 2 * std
    # A normal cut at ±2σ has the standard deviation 0.8796 σ.
    assert abs(float(w.std()) / (0.87962566 * std) - 1) < 0.02
    assert abs(float(w.mean())) < 0.02 * std
    assert layer.bias is not None
    assert not layer.bias.any()


def test_every_layer_of_a_net_is_initialised_so() -> None:
    torch.manual_seed(0)
    for net in (cnn((3, 8, 8), 10), discriminator(256), mlp((64,), 10)):
        for m in net.modules():
            if isinstance(m, nn.Linear | nn.Conv2d):
                std = math.sqrt(1.3 * 2 / m.weight[0].numel())
                assert m.weight.abs().max() <= 2 * std
                assert 0.6 < float(m.weight.detach().std()) / (0.88 * std) < 1.4


@pytest.mark.parametrize("shape", [(1, 8, 8), (9,)], ids=["cnn", "mlp"])
def test_logits_are_batch_normalised(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    net = cnn(shape, 4, widths=(4, 4, 4)) if len(shape) == 3 else mlp(shape, 4)
    z = net.train()(10 + 5 * torch.randn(64, *shape))["logits"]
    torch.testing.assert_close(z.mean(0), torch.zeros(4), rtol=0, atol=1e-5)
    torch.testing.assert_close(z.var(0, unbiased=False), torch.ones(4), rtol=0, atol=0.1)
    norm = list(net.stages["logits"].modules())[-1]
    assert isinstance(norm, BatchNorm)
    assert norm.weight.requires_grad
    assert norm.bias.requires_grad


@pytest.mark.parametrize("name", ["tiny_group_norm", "small_group_norm", "mlp_layer_norm"])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_a_net_without_batch_statistics_treats_each_sample_by_itself(name: str, bfloat16: bool) -> None:
    """So the predictions for one sample do not depend on the classes of the others."""
    torch.manual_seed(0)
    shape = (9,) if name.startswith("mlp") else (3, 8, 8)
    net = NetSpec(name, shape, 4, {"dropout": 0, "noise": 0}).build().train()
    assert not list(net.buffers())
    x = torch.randn(6, *shape)
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        together, alone = net(x)["logits"], net(x[:1])["logits"]
    assert together.dtype == torch.float32
    torch.testing.assert_close(together[:1], alone, rtol=1e-4, atol=1e-2 if bfloat16 else 1e-5)
    assert float(together.detach().mean(0).abs().max()) > 0.05, "nothing centres the logits of a batch"
    together.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_a_group_of_channels_is_normalised_over_its_positions() -> None:
    torch.manual_seed(0)
    block = conv_block(3, 24, "group")
    x = torch.randn(2, 3, 5, 5)
    groups = block[0](x).view(2, 8, 3, 5, 5)
    mean, var = groups.mean((2, 3, 4), keepdim=True), groups.var((2, 3, 4), unbiased=False, keepdim=True)
    normalised = ((groups - mean) / (var + 1e-5).sqrt()).view(2, 24, 5, 5)
    torch.testing.assert_close(block(x), torch.where(normalised > 0, normalised, 0.1 * normalised))


@pytest.mark.parametrize("build", [cnn, mlp])
def test_only_the_norm_of_the_logits_can_be_left_out(build: Callable[..., Staged]) -> None:
    whole, without = build((1, 8, 8), 3), build((1, 8, 8), 3, logit_norm=False)
    left_out = set(whole.state_dict()) - set(without.state_dict())
    assert {name.rpartition(".")[0] for name in left_out} == {"stages.logits.1"}
    assert set(without.state_dict()) <= set(whole.state_dict())


def test_an_unknown_norm_is_named() -> None:
    with pytest.raises(InputError, match="'batchnorm'"):
        mlp((5,), 3, norm="batchnorm")


def test_biases_are_cancelled_in_the_output_and_kept_in_the_running_mean() -> None:
    torch.manual_seed(0)
    layer = logits_layer(3, 2)
    dense, norm = layer[0], layer[1]
    x = torch.randn(8, 3)
    plain = layer(x)
    without = norm.running_mean.clone()
    norm.running_mean.zero_()
    with torch.no_grad():
        dense.bias.copy_(torch.tensor([5.0, -7.0]))
    torch.testing.assert_close(layer(x), plain, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm.running_mean - without, 0.01 * torch.tensor([5.0, -7.0]))


def test_a_pass_enters_and_leaves_at_any_tap() -> None:
    net = mlp((5,), 3, width=4, dropout=0, noise=0).eval()
    x = torch.randn(6, 5)
    whole = net(x)
    assert list(whole) == ["features", "hidden", "logits"] == list(net.taps)
    assert list(net(x, exit="hidden")) == ["features", "hidden"]
    torch.testing.assert_close(net(whole["hidden"], entry="hidden"), {"logits": whole["logits"]})
    torch.testing.assert_close(net(whole["features"], "features", "hidden"), {"hidden": whole["hidden"]})


def test_parts_share_their_modules_with_the_whole() -> None:
    net = mlp((5,), 3, width=4, dropout=0, noise=0).eval()
    encoder, head = net.part(until="features"), net.part(after="features")
    assert encoder.taps == ("features",)
    assert head.taps == ("hidden", "logits")
    x = torch.randn(6, 5)
    torch.testing.assert_close(head(encoder(x)["features"])["logits"], net(x)["logits"])
    assert {id(p) for p in net.parameters()} == {id(p) for part in (encoder, head) for p in part.parameters()}


@pytest.mark.parametrize("build", [cnn, mlp])
def test_dropout_and_noise_can_be_switched_off(build: type[Staged]) -> None:
    shape = (1, 8, 8)
    x = torch.randn(4, *shape)

    def twice(net: Staged) -> tuple[Tensor, Tensor]:
        return net(x)["logits"], net(x)["logits"]

    off: Staged = build(shape, 3, dropout=0, noise=0)
    for options in ({"dropout": 0.5, "noise": 0}, {"dropout": 0, "noise": 1.0}):
        first, second = twice(build(shape, 3, **options))
        assert not torch.equal(first, second)
        first, second = twice(build(shape, 3, **options).eval())
        assert torch.equal(first, second)
    first, second = twice(off)
    assert torch.equal(first, second)


def test_noise_has_the_stated_spread() -> None:
    torch.manual_seed(0)
    noise = GaussianNoise(0.3)
    z = noise(torch.zeros(100_000))
    assert abs(float(z.std()) - 0.3) < 0.005
    assert torch.equal(noise.eval()(z), z)
