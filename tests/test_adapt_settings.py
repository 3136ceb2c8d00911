"""``vmt.adapt`` with one setting changed and the rest as chosen for the data; and with labels that are names."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmt
from vmt.data import domain, make_task
from vmt.data.domains import classes_in, encode_labels
from vmt.errors import InputError
from vmt.model import Model
from vmt.nets.factory import NetSpec
from vmt.runs.recipes import own_recipe, with_settings
from vmt.train import Config, train

Y = np.arange(60) % 3
X = np.random.default_rng(0).normal(size=(60, 4)) + 4 * Y[:, None]
NAMES = np.array(["dog", "ant", "bee"])  # not in alphabetical order
SHORT: dict[str, Any] = {"batch_size": 16, "validate_samples": 0, "progress": False}


def record(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "run.json").read_text())["identity"])


def test_one_setting_is_changed_and_the_rest_kept(tmp_path: Path) -> None:
    vmt.adapt((X, Y), X, iterations=4, out=tmp_path / "chosen", **SHORT)
    asked = {"lambda_t": 0.2, "dirt_t": True, "dirt_t_iterations": 3, "beta": 0.5}
    vmt.adapt((X, Y), X, iterations=4, out=tmp_path / "asked", **asked, **SHORT)
    chosen, other = record(tmp_path / "chosen"), record(tmp_path / "asked")
    assert other["method"] == "vmt+dirt_t"
    assert other["iterations"] == {"vmt": 4, "dirt_t": 3}
    assert other["events"]["dirt_t"] == [1]
    assert other["weights"]["dirt_t/classifier/teacher"] == "0.5"
    assert other["weights"]["dirt_t/classifier/L_c(target)"] == "0.2"
    of_vmt = {name: weight for name, weight in other["weights"].items() if name.startswith("vmt/")}
    differing = {name for name, weight in of_vmt.items() if weight != chosen["weights"][name]}
    assert differing == {f"vmt/classifier/{term}(target)" for term in ("L_m", "L_v", "L_c")}
    assert other["optimisers"]["vmt/classifier"] == chosen["optimisers"]["vmt/classifier"]


def test_the_estimator_trains_the_same_model_with_the_same_settings(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"lambda_t": 0.1, "warm_up": 0.5, "radius": 0.7, "lr": 1e-4, "iterations": 20}
    refined: dict[str, Any] = {"dirt_t": True, "beta": 0.3, "dirt_t_iterations": 30}
    estimator = vmt.VMTClassifier(**asked, **refined, batch_size=16, random_state=0).fit(X, Y, X_target=X + 0.5)
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    task = make_task(domain(X, Y, name="s"), domain(X + 0.5, name="t"), source_test=domain(X, Y, name="s"))
    method = with_settings(
        own_recipe(task, dirt_t=True, iterations=20), {**asked, "beta": 0.3, "dirt_t_iterations": 30}
    )
    net = NetSpec("mlp", (4,), 3, method.net_options)
    network = train(task, method.build(), net.build, Config(seed=seed, batch_size=16)).network
    expected = Model(network, net, task.preprocess, task.classes).predict_proba(X)
    assert np.array_equal(estimator.predict_proba(X), expected)


def test_a_run_is_resumed_only_with_the_same_settings(tmp_path: Path) -> None:
    def go(**settings: Any) -> vmt.Model:
        return vmt.adapt((X, Y), X, iterations=4, out=tmp_path / "run", **settings, **SHORT)

    go(lambda_t=0.1)
    with pytest.raises(InputError, match=r"weights vmt/classifier/L_m\(target\) .*0\.1.*0\.2"):
        go(lambda_t=0.2, resume=True)
    with pytest.raises(InputError, match=r"method vmt, not vmt\+dirt_t"):
        go(lambda_t=0.1, dirt_t=True, resume=True)
    assert go(lambda_t=np.float64(0.1), resume=True).about["iterations"] == 4


@pytest.mark.parametrize("kind", [list, np.array, lambda names: np.array(names, object), lambda n: np.array(n, "S")])
def test_labels_may_be_names(kind: Any) -> None:
    names = kind(NAMES[Y].tolist())
    model = vmt.adapt((X, names), X, iterations=60, target_test=(X, names), **SHORT)
    assert model.classes == ("ant", "bee", "dog")
    predicted = np.array(model.classes)[model.predict(X)]
    assert (predicted == NAMES[Y]).mean() > 0.9
    assert model.evaluate(X, names).accuracy == (predicted == NAMES[Y]).mean()


def test_the_order_of_classes_can_be_given(tmp_path: Path) -> None:
    by_name = vmt.adapt((X, NAMES[Y]), X, classes=NAMES.tolist(), iterations=5, **SHORT)
    by_number = vmt.adapt((X, Y), X, classes=NAMES.tolist(), iterations=5, **SHORT)
    assert by_name.classes == by_number.classes == ("dog", "ant", "bee")
    assert (by_name.predict_proba(X) == by_number.predict_proba(X)).all()
    by_name.save(tmp_path / "model.safetensors")
    assert vmt.load(tmp_path / "model.safetensors").classes == ("dog", "ant", "bee")


def test_names_of_the_target() -> None:
    some = [name if i < 9 else None for i, name in enumerate(NAMES[Y])]
    numbers = np.where(np.arange(60) < 9, Y, -1)
    by_name = vmt.adapt((X, NAMES[Y]), X, target_labels=some, classes=NAMES.tolist(), iterations=3, **SHORT)
    by_number = vmt.adapt((X, Y), X, target_labels=numbers, classes=NAMES.tolist(), iterations=3, **SHORT)
    assert (by_name.predict_proba(X) == by_number.predict_proba(X)).all()
    upper = vmt.adapt((X, NAMES[Y]), (X, NAMES[Y]), "target_only", iterations=60, **SHORT)
    assert (upper.evaluate(X, NAMES[Y]).accuracy or 0) > 0.9


@pytest.mark.parametrize(
    ("arguments", "offender"),
    [
        ({"source": (X, [None, *NAMES[Y[1:]]])}, "sample 0 of the source"),
        ({"source": (X, [float("nan"), *NAMES[Y[1:]]])}, "sample 0 of the source"),
        ({"target_test": (X, ["cow", *NAMES[Y[1:]]])}, "cow"),
        ({"target_labels": ["cow", *NAMES[Y[1:]]]}, "cow"),
        ({"source": (X, Y), "target_test": (X, NAMES[Y])}, "ant"),
        ({"classes": ["ant", "bee"]}, "dog"),
        ({"source": (X, ["ant"] * 60)}, "classes"),
    ],
)
def test_names_that_cannot_be_meant(arguments: dict[str, Any], offender: str) -> None:
    with pytest.raises(InputError, match=offender):
        vmt.adapt(**{"source": (X, NAMES[Y]), "target": X, "iterations": 2, **arguments, **SHORT})


def test_what_is_a_name_and_what_is_a_number() -> None:
    assert classes_in([1, 0]) is None
    assert classes_in(np.array([1, None], object)) is None
    assert classes_in(["10", "9", "9"]) == ("9", "10")
    assert encode_labels(np.array([2, 1]), ("a", "b"), "it").tolist() == [2, 1]
    assert encode_labels(["b", "-1", None, "", "a"], ("a", "b"), "it", partly=True).tolist() == [1, -1, -1, -1, 0]
    # A class may well be called what elsewhere marks one that is not known.
    assert encode_labels(["None", "a"], classes_in(["None", "a"]), "it").tolist() == [0, 1]
