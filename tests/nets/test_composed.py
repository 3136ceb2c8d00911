"""The kernel classifier and the average of networks: what they compute, and that they are saved and exported."""

from pathlib import Path

import numpy as np
import pytest
import torch

import vmt
from vmt.data.domains import domain
from vmt.data.task import Task, make_task
from vmt.evaluate.accuracy import logits_of
from vmt.evaluate.kernel import adapted_kernel
from vmt.nets.composed import average, kernel
from vmt.nets.factory import NetSpec
from vmt.nets.registry import AVERAGE, KERNEL
from vmt.validators.class_shares import ClassShares

CLASSES = ("a", "b", "c")


def spec_of_average(*members: NetSpec) -> NetSpec:
    return NetSpec(AVERAGE, (4,), 3, {"members": [member.to_dict() for member in members]})


def test_an_average_has_the_mean_probabilities_of_its_members() -> None:
    members = [NetSpec("mlp", (4,), 3).build().eval(), NetSpec("mlp_layer_norm", (4,), 3).build().eval()]
    x = torch.randn(7, 4)
    mean = torch.stack([member(x)["logits"].softmax(1) for member in members]).mean(0)
    torch.testing.assert_close(average(members, 3)(x)["logits"].softmax(1), mean)


def test_members_may_have_weights_which_are_part_of_the_saved_network() -> None:
    members = [NetSpec("mlp", (4,), 3), NetSpec("mlp_layer_norm", (4,), 3)]
    options = {"members": [each.to_dict() for each in members], "weights": [1.0, 3.0]}
    net = NetSpec(AVERAGE, (4,), 3, options).build().eval()
    x = torch.randn(7, 4)
    one, other = net.stages["features"](x).view(7, 2, 3).exp().unbind(1)
    torch.testing.assert_close(net(x)["logits"].softmax(1), (one + 3 * other) / 4)
    for wrong in ([1.0], [1.0, -1.0], [1.0, "a"], "ab"):
        with pytest.raises(ValueError, match="weights"):
            NetSpec(AVERAGE, (4,), 3, {**options, "weights": wrong}).build()


@pytest.mark.parametrize("shape", [(4,), (3, 8, 8), (1, 16, 28), (3, 40, 40)])
def test_a_kernel_classifier_reads_vectors_and_pictures_of_any_size(shape: tuple[int, ...]) -> None:
    network = NetSpec(KERNEL, shape, 3, {"centres": 5}).build()
    assert network(torch.randn(2, *shape))["logits"].shape == (2, 3)
    assert network(torch.randn(2, *shape))["features"].shape[1] <= 3 * 12 * 12


def test_a_model_with_an_average_is_saved_and_loaded(tmp_path: Path) -> None:
    spec = spec_of_average(NetSpec("mlp", (4,), 3), NetSpec(KERNEL, (4,), 3, {"centres": 5}))
    x = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    task = make_task(domain(x, np.arange(20) % 3, name="source"), domain(x, None, name="target"), classes=CLASSES)
    model = vmt.Model(spec.build(), spec, task.preprocess, CLASSES)
    model.save(tmp_path / "model.safetensors")
    again = vmt.load(tmp_path / "model.safetensors", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))


@pytest.mark.parametrize("name", ["os.path:join", "module", "timm:resnet18", AVERAGE])
def test_an_average_holds_networks_of_this_package_alone(name: str) -> None:
    """Its file may come from elsewhere, and must not import code that it names."""
    with pytest.raises(vmt.InputError, match=name):
        spec_of_average(NetSpec(name, (4,), 3, {"members": []})).build()


def test_members_that_read_other_samples_are_refused() -> None:
    with pytest.raises(vmt.InputError, match="same samples"):
        spec_of_average(NetSpec("mlp", (5,), 3)).build()


def units_task(shares: tuple[int, int, int]) -> tuple[Task, torch.Tensor, torch.Tensor]:
    """Three clusters; every feature of the target has another unit, and its classes have these counts."""
    random = np.random.default_rng(1)
    centres = 3 * random.normal(size=(3, 6))
    y, yt = np.arange(150) % 3, np.repeat(np.arange(3), shares)
    xs, xt = (centres[labels] + random.normal(size=(len(labels), 6)) for labels in (y, yt))
    xt = xt * random.uniform(0.5, 2, 6) + random.normal(size=6) * 4
    source, target = domain(xs, y, name="source"), domain(xt, None, name="target")
    return make_task(source, target, classes=CLASSES), target.x, torch.from_numpy(yt)


def test_the_kernel_classifier_undoes_other_units() -> None:
    task, x, y = units_task((50, 50, 50))
    predicted = logits_of(adapted_kernel(task, None), x, task.preprocess).argmax(1)
    assert (predicted == y).double().mean() > 0.95


def test_the_kernel_classifier_uses_class_shares_that_differ() -> None:
    task, x, y = units_task((110, 30, 10))
    shares = ClassShares((1 / 3, 1 / 3, 1 / 3), (110 / 150, 30 / 150, 10 / 150), 0.02)
    right = [
        (logits_of(adapted_kernel(task, given), x, task.preprocess).argmax(1) == y).double().mean()
        for given in (None, shares)
    ]
    assert right[1] > max(0.95, right[0])


def test_an_absurd_number_of_centres_is_refused() -> None:
    with pytest.raises(ValueError, match="centres"):
        NetSpec(KERNEL, (4,), 3, {"centres": 10**9}).build()
    assert kernel((4,), 3, 2).taps == ("features", "logits")
