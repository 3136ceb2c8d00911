"""Functions that build networks: they get their arguments, and the network is trained, saved, loaded and exported."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vmt
from vmt.export import export, load_exported

SHORT: dict[str, Any] = {"iterations": 3, "batch_size": 8}
Y = np.arange(30) % 3
PICTURES = np.random.default_rng(0).integers(0, 256, (30, 3, 16, 16), dtype=np.uint8)
VECTORS = np.random.default_rng(0).standard_normal((30, 4)) + 2 * Y[:, None]


class Attention(nn.Module):
    """Patches through torch's transformer layer. Exporters have trouble with ``len(x)`` and the fused layer."""

    def __init__(self, classes: int, shape: tuple[int, ...], width: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(shape[0], width, 4, 4)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.layer = nn.TransformerEncoderLayer(width, 2, 16, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(tokens), -1, -1), tokens], 1)
        return self.head(self.layer(tokens)[:, 0])


def convolution(classes: int, shape: tuple[int, ...], width: int = 8) -> nn.Module:
    layers = nn.Conv2d(shape[0], width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Dropout(0.1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


class Viewed(nn.Module):
    """Flattens with ``view``, which needs contiguous memory."""

    def __init__(self, classes: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.maps = nn.Sequential(nn.Conv2d(shape[0], 4, 3, 2, 1), nn.Dropout(0.1))
        self.head = nn.Linear(shape[1] * shape[2], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.maps(x).view(x.size(0), -1))


def dense(classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, classes))


def from_a_library(*, dropout: float = 0.1, **options: Any) -> nn.Module:
    """As in torchvision: another name for the number of classes, and further arguments are passed on."""

    def make(num_classes: int = 1000) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.Dropout(dropout), nn.ReLU(), nn.Linear(8, num_classes))

    return make(**options)


def adapted(net: Any, x: Any = PICTURES, **more: Any) -> vmt.Model:
    return vmt.adapt((x, Y), x, net=net, progress=False, **SHORT, **more)


@pytest.mark.parametrize("net", [Attention, Viewed, convolution])
@pytest.mark.parametrize("format", ["onnx", "pt2"])
def test_all_copies_of_a_model_agree(net: Any, format: str, tmp_path: Path) -> None:
    model = adapted(net)
    expected = model.predict_proba(PICTURES)
    model.save(tmp_path / "model.safetensors")
    loaded = vmt.load(tmp_path / "model.safetensors", network=net)
    np.testing.assert_array_equal(loaded.predict_proba(PICTURES), expected)  # layouts of weights round differently
    pytest.importorskip("onnxruntime")
    export(model, tmp_path / f"model.{format}")
    np.testing.assert_allclose(
        load_exported(tmp_path / f"model.{format}", trust=True).predict_proba(PICTURES), expected, atol=1e-5
    )


def test_a_function_gets_what_it_has_a_parameter_for(tmp_path: Path) -> None:
    """One function serves ``--net``, Python, and an estimator that does not know the classes yet."""
    for net, width in ((convolution, 8), (functools.partial(convolution, width=4), 4)):
        model = adapted(net)
        assert (model.network.stages["logits"][0].in_features, len(model.classes)) == (width, 3)
    assert adapted(dense, VECTORS).predict(VECTORS).shape == (30,)
    for net in (lambda: dense(3), functools.partial(from_a_library, num_classes=3)):
        assert adapted(net, VECTORS).predict(VECTORS).shape == (30,)
    library = vmt.VMTClassifier(net=from_a_library, net_options={"num_classes": 3}, **SHORT).fit(VECTORS, Y)
    assert library.predict(VECTORS).shape == (30,)
    model = vmt.VMTClassifier(net=convolution, net_options={"width": 5}, **SHORT).fit(PICTURES, Y).model_
    model.save(tmp_path / "model.safetensors")
    again = vmt.load(tmp_path / "model.safetensors", network=convolution)
    np.testing.assert_array_equal(again.predict(PICTURES), model.predict(PICTURES))


class Gated(nn.Module):
    """Its head is registered twice, neither time as the last layer."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(3, classes)
        self.whole = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.1), self.head)
        self.gate = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.whole(x * self.gate(x))


class Attending(Gated):
    """Has a softmax behind its last dense layer, but not behind its head."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.gate = nn.Sequential(self.gate, nn.Softmax(1))


def test_a_softmax_elsewhere_is_no_softmax_behind_the_head() -> None:
    assert adapted(Attending, VECTORS).predict(VECTORS).shape == (30,)


def test_the_head_is_the_layer_that_gives_the_output() -> None:
    """It is replaced wherever it is registered; otherwise it would be applied twice."""
    network = adapted(Gated, VECTORS).network
    encoder = network.stages["features"].module
    assert [type(part) for part in (encoder.head, encoder.whole[2])] == [nn.Identity, nn.Identity]
    assert type(encoder.gate) is nn.Linear


class Extracted(nn.Module):
    """Features of a frozen network, without a gradient."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Sequential(nn.Dropout(0.1), nn.Linear(6, classes))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            features = self.body(x)
        return self.head(features)


def test_a_network_without_a_gradient_at_its_input_suits_some_methods() -> None:
    with pytest.raises(vmt.InputError, match=r"gradient at its input.*requires_grad_"):
        adapted(Extracted, VECTORS)
    assert adapted(Extracted, VECTORS, method="dann").predict(VECTORS).shape == (30,)


def test_signals_come_flattened() -> None:
    signals = np.random.default_rng(0).standard_normal((30, 3, 20))

    def net(classes: int) -> nn.Module:
        layers = nn.Unflatten(1, (3, 20)), nn.Conv1d(3, 6, 5), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.1)
        return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, classes))

    with pytest.raises(vmt.InputError, match=r"shape \(30, 3, 20\).*as vectors \(N, F\)"):
        adapted(net, signals)
    assert adapted(net, signals.reshape(30, -1)).predict(signals.reshape(30, -1)).shape == (30,)


def test_a_model_is_loaded_with_its_own_function_alone(tmp_path: Path) -> None:
    adapted(Viewed).save(tmp_path / "model.safetensors")
    with pytest.raises(vmt.InputError, match=r"--net package\.module:function"):
        vmt.load(tmp_path / "model.safetensors")
    with pytest.raises(vmt.InputError, match="network") as refused:
        vmt.load(tmp_path / "model.safetensors", network=Attention)
    assert len(str(refused.value)) < 300 + len(str(tmp_path)), "a network has hundreds of layers"


class Scaled(nn.Module):
    """Changes the output of its head in place."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)).mul_(3)


@pytest.mark.parametrize(
    ("net", "options", "says"),
    [
        (nn.Linear, None, r"net .*missing 2 required positional arguments"),
        (dense, {"widht": 3}, r"net .*'widht'"),
        (dense, [3], r"net_options.*\[3\]"),
        (lambda: nn.Sequential(dense(3), nn.Softmax(1)), None, "Softmax"),
        (dense(3), None, "net is a Sequential"),
        (5, None, "net is 5"),
        (lambda: dense(3).double(), None, r"torch\.float64"),
        (lambda: nn.Sequential(nn.ReLU(inplace=True), dense(3)), None, "input in place"),
        (dense, {"norm": nn.BatchNorm1d}, "net_options.*saved"),
        (lambda: nn.Sequential(dense(3), nn.BatchNorm1d(3)), None, r"nn\.Linear.*from_module"),
        (Scaled, None, r"nn\.Linear.*from_module"),
        (lambda: nn.Flatten(), None, r"no nn\.Linear.*from_module"),
    ],
)
def test_invalid_networks_are_refused(net: Any, options: Any, says: str) -> None:
    with pytest.raises(vmt.InputError, match=says):
        adapted(net, VECTORS, net_options=options)
    with pytest.raises(vmt.InputError, match=says):
        vmt.VMTClassifier(net=net, net_options=options, **SHORT).fit(VECTORS, Y)


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(2 * x if x.sum() > 0 else x)


class Eigenvalues(nn.Module):
    """ONNX has no operator for them."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + torch.linalg.eigvalsh(x[:, :, None] * x[:, None, :]))


@pytest.mark.parametrize(("net", "says"), [(Branch, "avoid branches"), (Eigenvalues, "_linalg_eigh.*format pt2")])
@pytest.mark.filterwarnings("ignore:the network has no dropout")
def test_export_of_an_unsupported_network_raises_a_clear_error(
    net: Any, says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxscript")
    model = adapted(net, VECTORS)
    with pytest.raises(vmt.InputError, match=says):
        export(model, tmp_path / "model.onnx")
    assert capfd.readouterr() == ("", "")
