"""Networks that need a certain memory layout, or a batch for each pass, train correctly."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.small import CLASSES, build, context, recorded
from vmt import methods
from vmt.data import Domain, Preprocess
from vmt.errors import InputError
from vmt.evaluate.accuracy import logits_of
from vmt.nets import Staged, cnn, from_module
from vmt.nets.norm import BatchNorm, normalised_together, passes
from vmt.step.iteration import StepContext, step
from vmt.step.state import build_state

pytestmark = pytest.mark.usefixtures("one_thread")

SHAPE = (3, 8, 8)
CPU = torch.device("cpu")
METHOD = methods.dirt_t(methods.vmt(xi=0.5), xi=0.5)


class Flattened(nn.Module):
    """Flattens with ``view``, which fails for a channels_last map."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4 * 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.convolution(x))), 2)
        return self.fc(x.view(x.size(0), -1))


class Deep(nn.Module):
    """A convolution over three dimensions after one over two."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.deep, self.norm = nn.Conv2d(3, 4, 3), nn.Conv3d(1, 2, 3), nn.BatchNorm3d(2)
        self.fc = nn.Linear(2, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.norm(self.deep(self.flat(x)[:, None])).mean((2, 3, 4)))


class Patches(nn.Module):
    """Its norm has one row per pixel: the pixels of a sample follow each other, or the samples of a pixel do."""

    def __init__(self, pixels_first: bool) -> None:
        super().__init__()
        self.pixels_first = pixels_first
        self.norm, self.fc = nn.BatchNorm1d(3), nn.Linear(3 * 64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        order = (2, 3, 0, 1) if self.pixels_first else (0, 2, 3, 1)
        rows = x.permute(*order)
        normalised = self.norm(rows.reshape(-1, 3)).view(rows.shape)
        back = (2, 0, 1, 3) if self.pixels_first else (0, 1, 2, 3)
        return self.fc(F.leaky_relu(normalised).permute(*back).flatten(1))


def images() -> StepContext:
    random = torch.Generator().manual_seed(0)
    streams = {
        name: Domain(
            torch.randn(20, *SHAPE, generator=random, dtype=torch.float64),
            torch.randint(0, CLASSES, (20,), generator=random),
            name,
        )
        for name in ("source", "target")
    }
    return context(streams, recorded(shape=SHAPE))


@pytest.mark.parametrize("module", [Flattened, Deep], ids=lambda module: module.__name__)
def test_a_network_that_cannot_be_channels_last_trains(module: type[nn.Module]) -> None:
    state = build(METHOD, lambda: from_module(module(), CLASSES), SHAPE)
    for phase in METHOD.phases:
        assert all(torch.isfinite(value).all() for value in step(phase, state, images()).values())


def test_other_networks_are_channels_last() -> None:
    roles = build_state(METHOD, lambda: cnn(SHAPE, CLASSES, (8, 8, 8)), SHAPE, 0, CPU).roles
    for role in ("classifier", "ema", "teacher"):
        convolutions = [layer for layer in roles[role].modules() if isinstance(layer, nn.Conv2d)]
        assert all(layer.weight.is_contiguous(memory_format=torch.channels_last) for layer in convolutions)
        assert not roles[role].separate_passes


@pytest.mark.parametrize("pixels_first", [False, True])
def test_a_batch_norm_over_patches_keeps_passes_apart(pixels_first: bool) -> None:
    """Both orders of rows are the same network, so that the step must be the same."""
    states = [build(METHOD, lambda first=first: patches(first), SHAPE) for first in (False, pixels_first)]
    assert all(state.roles["classifier"].separate_passes for state in states)
    with normalised_together():
        expected, found = (step(METHOD.phases[0], state, images()) for state in states)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    alone = from_module(Patches(pixels_first), CLASSES).double()
    with pytest.raises(InputError, match=r"256 rows.*4 samples.*separate_passes"), passes((2, 2), ()):
        alone(torch.zeros(4, *SHAPE, dtype=torch.float64))


def patches(pixels_first: bool) -> Staged:
    torch.manual_seed(0)
    return from_module(Patches(pixels_first), CLASSES)


def test_stages_with_norms_of_torch_need_separate_passes() -> None:
    """These stages have not gone through the adapter, which would convert the norms."""

    def stages() -> Staged:
        dense = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 6), nn.BatchNorm1d(6), nn.Tanh())
        return Staged({"features": dense, "hidden": nn.Identity(), "logits": nn.Linear(6, CLASSES)})

    state = build(METHOD, stages, SHAPE)
    norm = state.roles["classifier"].get_submodule("stages.features.2")
    step(METHOD.phases[0], state, images())
    assert int(norm.get_buffer("num_batches_tracked")) == 2  # the clean target passes of both updates


def test_an_evaluation_leaves_each_layer_in_its_mode() -> None:
    """Two roles that predict together may be in different modes from the network that is made of them."""
    layers = {"features": nn.Linear(3, 3), "logits": nn.Sequential(nn.Linear(3, 3), BatchNorm(3))}
    layers["logits"].eval()
    network = Staged(layers)
    logits_of(network, torch.randn(5, 3), Preprocess(3, None, (1.0,), (0.0,)))
    assert network.training
    assert not layers["logits"].training
    assert not layers["logits"][1].training  # type: ignore[index]


@pytest.mark.parametrize("cut", [{"after": "feature"}, {"until": "feature"}], ids=str)
def test_a_missing_tap_is_named(cut: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"'feature'.*features, hidden, logits"):
        cnn(SHAPE, CLASSES, (8, 8, 8)).part(**cut)
