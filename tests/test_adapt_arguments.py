"""Arguments of ``vmt.adapt``: invalid ones, functions that build a network, and methods by name or as values."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

import vmt
from vmt.errors import InputError
from vmt.runs.recipes import defaults_for

Array = NDArray[np.float64]
SHORT = {"iterations": 40, "progress": False}


@pytest.fixture(scope="module")
def moved() -> tuple[Array, NDArray[np.int64], Array]:
    random = np.random.default_rng(0)
    y = np.arange(120) % 2
    x = random.normal(size=(120, 3)) + np.array([4, 0, -4]) * y[:, None]
    return x, y, x + 0.3


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ({"method": "Co-DA"}, "'Co-DA' .*co_da"),
        ({"method": "dirt_t"}, "DIRT-T"),
        ({"method": vmt.methods.dann}, "vmt.methods.vada"),
        ({"method": vmt.methods.vmt(), "lambda_t": 0.1}, "lambda_t"),
        ({"method": vmt.methods.vmt(), "dirt_t": True}, "dirt_t"),
        ({"dirt_t": "yes"}, "dirt_t .*'yes'"),
        ({"lamda_t": 0.1}, "'lamda_t' .*lambda_t"),
        ({"iteration": 5}, "'iteration' .*iterations"),
        ({"method": "dann", "lambda_t": 0.1}, "dann .*lambda_t"),
        ({"beta": 0.1}, "beta .*dirt_t=True"),
        ({"net": nn.Linear(3, 2)}, "net is a Linear"),
        ({"resume": True}, "out="),
        ({"batchsize": 8}, "'batchsize' .*batch_size"),
        ({"callbacks": vmt.Callback()}, "callbacks is .*Callback"),
        ({"callbacks": ["mlruns"]}, "callbacks is .*'mlruns'"),
    ],
)
def test_invalid_arguments(
    moved: tuple[Array, NDArray[np.int64], Array], arguments: dict[str, object], output: str
) -> None:
    xs, y, xt = moved
    with pytest.raises(InputError, match=output):
        vmt.adapt((xs, y), xt, **arguments, **SHORT)  # type: ignore[arg-type]


def test_a_target_that_is_none(moved: tuple[Array, NDArray[np.int64], Array]) -> None:
    xs, y, _ = moved
    with pytest.raises(InputError, match="x of the target is None"):
        vmt.adapt((xs, y), None, **SHORT)  # type: ignore[arg-type]


def plain_network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))


def test_a_function_may_build_any_module(moved: tuple[Array, NDArray[np.int64], Array], tmp_path: Path) -> None:
    xs, y, xt = moved
    model = vmt.adapt((xs, y), xt, net=plain_network, iterations=2, progress=False)
    model.save(tmp_path / "own.safetensors")
    again = vmt.load(tmp_path / "own.safetensors", network=plain_network)
    assert (again.predict_proba(xt) == model.predict_proba(xt)).all()
    classifier = vmt.VMTClassifier(net=plain_network, iterations=2).fit(xs, y, X_target=xt)
    assert classifier.predict(xt).shape == (120,)


def test_a_method_by_its_name_has_the_settings_of_the_command_line(
    moved: tuple[Array, NDArray[np.int64], Array],
) -> None:
    xs, y, xt = moved
    by_name = vmt.adapt((xs, y), xt, "dann", seed=3, **SHORT)
    chosen = replace(defaults_for(xs.shape[1:], len(xs)), iterations=40)
    by_value = vmt.adapt((xs, y), xt, chosen.recipe("dann").build(), seed=3, **SHORT)
    assert by_name.about["method"] == "dann"
    np.testing.assert_array_equal(by_name.predict_proba(xt), by_value.predict_proba(xt))
    assert not np.array_equal(by_name.predict_proba(xt), vmt.adapt((xs, y), xt, seed=3, **SHORT).predict_proba(xt))
