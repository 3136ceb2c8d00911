"""Any module as the classifier."""

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.small import CLASSES, FEATURES, build, context
from tests.user_modules import OwnNorm, Residual, Vectors
from vmt import methods
from vmt.errors import InputError
from vmt.methods.nouns import Method
from vmt.nets import Staged, from_module
from vmt.nets.adapter import is_stochastic, xi_for
from vmt.nets.norm import BatchNorm, normalised_together, passes
from vmt.step.iteration import step

pytestmark = pytest.mark.usefixtures("one_thread")


def images(n: int = 6) -> Tensor:
    return torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def trained(module: nn.Module, x: Tensor) -> nn.Module:
    """Running statistics, scales and shifts away from their initial values."""
    with torch.no_grad():
        for m in module.modules():
            if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.affine:
                nn.init.uniform_(m.weight, 0.5, 1.5)
                nn.init.uniform_(m.bias)
    for _ in range(3):
        module(x)
    return module


def test_the_taps_and_the_users_last_layer() -> None:
    torch.manual_seed(0)
    user = trained(Residual(CLASSES), images())
    before = copy.deepcopy(user.state_dict())
    net = from_module(user, CLASSES, normalise_logits=False)
    taps = net.eval()(images())
    assert {name: tuple(t.shape) for name, t in taps.items()} == {
        "features": (6, 4),
        "hidden": (6, 4),
        "logits": (6, 3),
    }
    torch.testing.assert_close(taps["logits"], user.eval()(images()))
    # The adapted network is a copy: training it leaves the user's alone.
    net.train()(images())
    assert all(torch.equal(before[name], tensor) for name, tensor in user.state_dict().items())
    assert isinstance(user.stem[1], nn.BatchNorm2d)  # type: ignore[index]
    assert not net.separate_passes


def test_another_number_of_classes_gets_a_fresh_normalised_layer() -> None:
    net = from_module(Residual(7), 2)
    dense, norm = net.stages["logits"].children()
    assert isinstance(dense, nn.Linear)
    assert (dense.in_features, dense.out_features) == (4, 2)
    assert not dense.bias.any()
    assert isinstance(norm, BatchNorm)
    z = net.train()(images())["logits"]
    torch.testing.assert_close(z.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert net(images())["logits"].dtype == torch.float32


@pytest.mark.parametrize("head", [None, "fc"])
def test_the_head_is_found_or_named(head: str | None) -> None:
    user = Residual(CLASSES)
    net = from_module(user, CLASSES, head=head)
    assert torch.equal(net.stages["logits"][0].weight, user.fc.weight)  # type: ignore[index]
    assert not any(isinstance(m, nn.Linear) for m in net.stages["features"].modules())


def test_a_users_head_goes_behind_the_module_as_it_is() -> None:
    encoder = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    net = from_module(encoder, CLASSES, head=nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, CLASSES)))
    taps = net(images())
    assert taps["features"].shape == (6, 4, 6, 6)
    torch.testing.assert_close(taps["hidden"], taps["features"].mean((2, 3)))
    assert taps["logits"].shape == (6, CLASSES)


def test_three_dimensional_features_are_flattened() -> None:
    encoder = nn.Conv1d(2, 3, 3)
    net = from_module(encoder, CLASSES, head=nn.Linear(3 * 4, CLASSES))
    taps = net(torch.randn(5, 2, 6))
    assert taps["features"].shape == (5, 3, 4)
    assert taps["hidden"].shape == (5, 12)


def test_batch_norms_keep_weights_statistics_eps_and_momentum() -> None:
    user = trained(Residual(CLASSES), images())
    net = from_module(user, CLASSES, normalise_logits=False)
    theirs = [m for m in user.modules() if isinstance(m, nn.BatchNorm2d)]
    ours = [m for m in net.modules() if isinstance(m, BatchNorm)]
    assert [(m.eps, m.momentum) for m in ours] == [(1e-5, 0.1), (1e-4, 0.2)]
    for a, b in zip(ours, theirs, strict=True):
        for name in ("weight", "bias", "running_mean", "running_var"):
            torch.testing.assert_close(getattr(a, name), getattr(b, name))
    # One more training pass moves the means alike; vmt's variance is the biased one.
    user.train()(images())
    net.train()(images())
    torch.testing.assert_close(ours[0].running_mean, theirs[0].running_mean)
    assert (ours[0].running_var < theirs[0].running_var).all()


def test_passes_of_an_adapted_network_are_apart() -> None:
    net = from_module(trained(Residual(CLASSES), images()), CLASSES).double().train()
    a, b = images(4).double(), 3 * images(5).double() + 1
    start = {name: t.clone() for name, t in net.named_buffers()}
    with passes((4, 5), ()):
        together = net(torch.cat([a, b]))["logits"]
    assert all(torch.equal(start[name], t) for name, t in net.named_buffers())
    torch.testing.assert_close(together, torch.cat([net(a)["logits"], net(b)["logits"]]))


def test_each_batch_norm_moves_by_its_own_momentum_however_passes_are_normalised() -> None:
    """The toy network's norms have the momenta 0.1 and 0.2, ours on the logits 0.01."""
    one, other = (from_module(Residual(CLASSES), CLASSES).double().train() for _ in range(2))
    other.load_state_dict(one.state_dict())
    x = images(8).double()
    with passes((4, 4), (1,)):
        one(x)
    with normalised_together(), passes((4, 4), (1,)):
        other(x)
    for name, buffer in one.named_buffers():
        torch.testing.assert_close(other.get_buffer(name), buffer)


def test_a_shared_batch_norm_stays_one_layer() -> None:
    norm = nn.BatchNorm1d(FEATURES)
    net = from_module(nn.Sequential(norm, nn.Tanh(), norm, nn.Linear(FEATURES, CLASSES)), CLASSES)
    layers = [m for m in net.stages["features"].modules() if isinstance(m, BatchNorm)]
    assert len(layers) == 1
    assert not any(isinstance(m, nn.BatchNorm1d) for m in net.modules())


def test_without_learned_scale_and_shift_there_is_nothing_to_optimise() -> None:
    user = nn.Sequential(nn.BatchNorm1d(FEATURES, affine=False), nn.Linear(FEATURES, CLASSES))
    x = torch.randn(8, FEATURES)
    user(x)
    net = from_module(user, CLASSES, normalise_logits=False)
    assert [name for name, _ in net.named_parameters()] == ["stages.logits.weight", "stages.logits.bias"]
    assert not net.separate_passes
    torch.testing.assert_close(net.eval()(x)["logits"], user.eval()(x))


@pytest.mark.parametrize(
    "norm",
    [
        OwnNorm,
        nn.SyncBatchNorm,
        lambda n: nn.BatchNorm1d(n, track_running_stats=False),
        lambda n: nn.BatchNorm1d(n, momentum=None),
    ],
    ids=["subclass", "sync", "no running statistics", "cumulative"],
)
def test_norms_that_cannot_be_converted_need_separate_passes(norm: Callable[[int], nn.Module]) -> None:
    assert from_module(Vectors(norm), CLASSES).separate_passes


def test_layer_norm_needs_no_separate_passes() -> None:
    net = from_module(Vectors(nn.LayerNorm), CLASSES)
    assert not net.separate_passes
    assert sum(isinstance(m, nn.LayerNorm) for m in net.modules()) == 2


def adapted(norm: Callable[[int], nn.Module]) -> Callable[[], Staged]:
    def factory() -> Staged:
        torch.manual_seed(5)
        return from_module(Vectors(norm), CLASSES)

    return factory


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, OwnNorm, nn.LayerNorm], ids=lambda n: n.__name__)
@pytest.mark.parametrize("method", [methods.vmt(xi=0.5, lambda_t=1.0), methods.vmt(mix="hidden", xi=0.5)])
def test_a_step_on_an_adapted_network_equals_one_with_separate_passes(
    norm: Callable[[int], nn.Module], method: Method
) -> None:
    grouped, separate = (build(method, adapted(norm)) for _ in range(2))
    for module in separate.roles.values():
        module.separate_passes = True
    for _ in range(2):
        ours, theirs = (step(method.phases[0], state, context()) for state in (grouped, separate))
    assert ours["classifier/L_v(target)"] > 0
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value)
    for name, tensor in separate.tensors().items():
        torch.testing.assert_close(grouped.tensors()[name], tensor)


def test_separate_passes_move_the_statistics_only_when_they_should() -> None:
    """After a step, the running mean of the first norm has moved by the two clean target passes alone."""
    method = methods.vmt(xi=0.5)
    state = build(method, adapted(OwnNorm))
    classifier = state.roles["classifier"]
    dense, norm = (classifier.get_submodule(f"stages.features.module.body.{i}") for i in (0, 1))
    assert isinstance(norm, OwnNorm)
    assert norm.running_mean is not None
    expected = norm.running_mean.clone()
    here = context()
    weight, bias = dense.weight.detach().clone(), dense.bias.detach().clone()
    for update in ("discriminator", "classifier"):  # the classifier's weights change only at the end
        rows = here.draws.choice(f"{update}/target/indices", 20, 6)
        batch = here.streams["target"].x[rows] @ weight.T + bias
        expected = 0.9 * expected + 0.1 * batch.mean(0)
    step(method.phases[0], state, here)
    torch.testing.assert_close(norm.running_mean, expected)
    assert state.roles["ema"].get_submodule("stages.features.module.body.1").running_mean is norm.running_mean


def test_weights_that_the_user_froze_stay_as_they_are() -> None:
    def factory() -> Staged:
        torch.manual_seed(5)
        user = Vectors(nn.BatchNorm1d)
        user.body[0].requires_grad_(False)
        return from_module(user, CLASSES, normalise_logits=False)

    method = methods.vmt(xi=0.5)
    state = build(method, factory)
    before = {name: p.detach().clone() for name, p in state.roles["classifier"].named_parameters()}
    step(method.phases[0], state, context())
    same = [name for name, p in state.roles["classifier"].named_parameters() if torch.equal(p, before[name])]
    assert same == [f"stages.features.module.body.0.{name}" for name in ("weight", "bias")]


@pytest.mark.parametrize(
    ("module", "stochastic"),
    [
        (Vectors(nn.BatchNorm1d), False),
        (Vectors(nn.LayerNorm), False),
        (Vectors(nn.LayerNorm, dropout=0.3), True),  # a functional dropout, which is not a layer
        (nn.Sequential(nn.Dropout(0.2), nn.Linear(FEATURES, CLASSES)), True),
    ],
)
def test_stochastic_or_not_and_nothing_changes(module: nn.Module, stochastic: bool) -> None:
    net = from_module(module, CLASSES).eval()
    before, rng = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    assert is_stochastic(net, torch.randn(8, FEATURES, generator=torch.Generator().manual_seed(1))) is stochastic
    assert torch.equal(torch.get_rng_state(), rng)
    assert not net.training
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


def test_xi_and_its_warning() -> None:
    x = torch.randn(8, FEATURES)
    with pytest.warns(UserWarning, match="dropout or noise"):
        assert xi_for(from_module(Vectors(nn.LayerNorm), CLASSES), x) == 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert xi_for(from_module(Vectors(nn.LayerNorm, dropout=0.5), CLASSES), x) == 1e-6


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


def test_errors_name_the_offender() -> None:
    with pytest.raises(InputError, match=r"no nn\.Linear.*head="):
        from_module(nn.Conv2d(3, 4, 3), CLASSES)
    with pytest.raises(InputError, match=r"'classifier'.*'stem', 'branch', 'fc'"):
        from_module(Residual(), CLASSES, head="classifier")
    with pytest.raises(InputError, match="one tensor"):
        from_module(Pair(), CLASSES, head=nn.Linear(4, CLASSES))(torch.zeros(2, 4))
    with pytest.raises(InputError, match=r"7 outputs.*3 classes"):
        from_module(nn.Flatten(), CLASSES, head=nn.Sequential(nn.Linear(4, 7)))
    with pytest.raises(InputError, match="lazy"):
        from_module(nn.Sequential(nn.LazyLinear(3)), CLASSES)
