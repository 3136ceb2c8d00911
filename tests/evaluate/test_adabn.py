"""AdaBN: batch-norm statistics of another domain, and what runs and reports say of it."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vmt
from vmt.data import Preprocess, domain
from vmt.data.preprocess import preprocess_for
from vmt.evaluate.adabn import adabn
from vmt.nets import Staged, cnn, from_module, mlp
from vmt.nets.factory import NetSpec

pytestmark = pytest.mark.usefixtures("one_thread")

UNCHANGED = Preprocess(4, None, scale=(1.0,), shift=(0.0,))


class WithOwnLayers(nn.Module):
    """Batch norms of torch that cannot become those of the package, because their average is cumulative."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.BatchNorm1d(4, momentum=None)
        self.dense = nn.Linear(4, 6)
        self.second = nn.BatchNorm1d(6, affine=False, momentum=None)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.drop(self.second(self.dense(self.first(x))).relu()))
        return result


def sorted_samples(n: int = 230) -> Tensor:
    """Vectors whose mean rises from the first to the last, as in files that are sorted by class."""
    random = torch.Generator().manual_seed(0)
    return torch.randn(n, 4, generator=random) + torch.linspace(-3, 5, n)[:, None]


@pytest.mark.parametrize("batch", [1000, 50])
def test_statistics_are_those_of_the_whole_domain(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmt.evaluate.accuracy.BATCH", batch)
    torch.manual_seed(0)
    network, x = WithOwnLayers(), sorted_samples()
    before = copy.deepcopy(network.state_dict())
    found = adabn(network, domain(x, name="target"), UNCHANGED)
    assert found is not None
    torch.testing.assert_close(found.first.running_mean, x.mean(0))
    torch.testing.assert_close(found.first.running_var, x.var(0))
    hidden = network.dense((x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()).detach()
    # Batches of 50 samples have other statistics than the domain, but in random order they are near.
    near = {"rtol": 1e-4, "atol": 1e-5} if batch >= len(x) else {"rtol": 0.1, "atol": 0.1}
    torch.testing.assert_close(found.second.running_mean, hidden.mean(0), **near)
    torch.testing.assert_close(found.second.running_var, hidden.var(0), **near)
    assert all(torch.equal(network.state_dict()[name], value) for name, value in before.items())
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), network.parameters(), strict=True))
    assert found.training
    again = found.state_dict()["first.running_mean"].clone()
    found.eval()(x[:5])
    assert torch.equal(found.first.running_mean, again), "nothing observes the copy any more"


@pytest.mark.parametrize("kind", ["mlp", "cnn", "adapted"])
def test_the_copy_predicts_as_a_training_pass_would(kind: str) -> None:
    """A pass in training mode normalises by the batch: on all samples at once, by the domain."""
    torch.manual_seed(0)
    x = sorted_samples()
    network: Staged
    if kind == "cnn":
        x = torch.randint(0, 256, (60, 1, 8, 8), dtype=torch.uint8)
        network = cnn((1, 8, 8), 3, widths=(4, 4, 4), dropout=0, noise=0)
    elif kind == "mlp":
        network = mlp((4,), 3, width=8, dropout=0, noise=0)
    else:
        own = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        network = from_module(own, 3)
    target = domain(x, name="target")
    preprocess = preprocess_for(target, target) if kind == "cnn" else UNCHANGED
    found = adabn(network, target, preprocess)
    assert found is not None
    inputs = preprocess(target.x)
    torch.testing.assert_close(found.eval()(inputs)["logits"], network.train()(inputs)["logits"], rtol=1e-4, atol=1e-4)


def test_without_batch_norm_there_is_nothing_to_do() -> None:
    network = NetSpec("mlp_layer_norm", (4,), 3).build()
    assert adabn(network, domain(sorted_samples(), name="target"), UNCHANGED) is None


def test_a_run_of_source_only_says_what_re_normalising_alone_gives(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = np.stack([4 * y - 2 + random.standard_normal(200), random.standard_normal(200)], 1)
    target = x + np.array([6.0, 0.0])

    def summary(folder: str, method: str, **settings: object) -> dict[str, object]:
        vmt.adapt(
            (x, y),
            target,
            method,
            target_test=(target, y),
            out=tmp_path / folder,
            progress=False,
            **{"net": "mlp", **settings},
            iterations=60,
        )
        read: dict[str, object] = json.loads((tmp_path / folder / "summary.json").read_text())
        return read

    lower = summary("lower", "source_only")
    measured = lower["adabn"]
    assert isinstance(measured, dict)
    assert measured["target_accuracy"] > 0.95
    assert float(str(lower["target_accuracy"])) < 0.8
    assert measured["validators"]["entropy"] is not None
    assert "adabn" not in summary("adapted", "adabn")
    assert summary("no batch norm", "source_only", net="mlp_layer_norm")["adabn"] is None
