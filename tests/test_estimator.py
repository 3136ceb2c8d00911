"""The library as a scikit-learn classifier."""

import pickle
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_moons
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import vmt
from vmt import VMTClassifier
from vmt.methods.nouns import WarmUp
from vmt.runs.recipes import defaults_for, with_settings

# A high learning rate makes up for few iterations.
FAST = VMTClassifier(iterations=25, batch_size=32, lr=2e-2, device="cpu")
BRIEF = VMTClassifier(iterations=5, batch_size=16, random_state=0)

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


@parametrize_with_checks([FAST])
def test_scikit_learns_own_checks(estimator: Any, check: Any, one_thread: None) -> None:
    """All of them; none is expected to fail."""
    check(estimator)


@pytest.fixture(scope="module")
def moved() -> Arrays:
    """Source samples, string labels and target samples."""
    random = np.random.default_rng(0)
    y = np.arange(80) % 3
    x = 3 * random.standard_normal((3, 4))[y] + random.standard_normal((80, 4))
    return x, np.array(["left", "middle one", "右"])[y], x[::-1] + 0.5


def moons(angle: float, seed: int, moved: tuple[float, float] = (0, 0)) -> tuple[np.ndarray, np.ndarray]:
    x, y = make_moons(300, noise=0.08, random_state=seed)
    c, s = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    return (x - x.mean(0)) @ np.array([[c, s], [-s, c]]) + moved, y


def test_it_adapts_to_moons_that_are_turned_and_moved(one_thread: None) -> None:
    (xs, ys), (xt, _), (x_test, y_test) = moons(0, 0), moons(30, 1, (1, 0.5)), moons(30, 2, (1, 0.5))
    # Mixing on the source is left out: a line between two ends of one moon crosses the other moon.
    model = VMTClassifier(lambda_s=0, lambda_t=0.3, radius=0.2, iterations=300, lr=3e-3, random_state=0)
    adapted = model.fit(xs, ys, X_target=xt).score(x_test, y_test)
    unadapted = clone(model).set_params(method="source_only").fit(xs, ys, X_target=xt).score(x_test, y_test)
    assert adapted > 0.9
    assert adapted > unadapted + 0.15


@pytest.mark.parametrize(("asked", "share"), [(None, 0.125), (0.5, 0.5), (0.0, None)])
def test_lambda_t_is_warmed_up_unless_told_otherwise(asked: float | None, share: float | None) -> None:
    chosen = defaults_for((5,), 100)
    method = with_settings(chosen.recipe(), VMTClassifier(warm_up=asked)._settings()).build()
    (weight,) = {term.weight for update in method.updates() for term in update.terms if term.name == "L_c(target)"}
    assert weight == (chosen.lambda_t if share is None else WarmUp(chosen.lambda_t, share))


@pytest.mark.filterwarnings("ignore:.*collapsed")  # as source-only does here
def test_it_adapts_a_table_in_a_pipeline(one_thread: None) -> None:
    """Breast cancer, the target measured by an instrument that reads too high."""
    table = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(table.data))
    x, y = table.data[order], np.array(["malignant", "benign"])[table.target[order]]
    is_source = np.arange(len(x)) % 2 == 0
    x[~is_source] = 1.3 * x[~is_source] + x.std(0)
    masked = np.where(is_source, y, "unknown")
    domains = np.where(is_source, 1, -2)
    scores = {}
    for method in ("source_only", "vmt"):
        pipeline = make_pipeline(StandardScaler(), VMTClassifier(method, iterations=150, lr=3e-3, random_state=0))
        pipeline.fit(x, masked, vmtclassifier__sample_domain=domains)
        assert list(pipeline.classes_) == ["benign", "malignant"]
        scores[method] = pipeline.score(x[~is_source], y[~is_source])
    assert scores["vmt"] > 0.9
    assert scores["vmt"] > scores["source_only"] + 0.1


def test_the_three_ways_to_say_what_the_target_is(moved: Arrays) -> None:
    xs, ys, xt = moved
    by_target = clone(BRIEF).fit(xs, ys, X_target=xt).predict_proba(xt)
    masked = np.concatenate([ys, np.full(len(xt), "-1")])
    domains = np.repeat([1, -1], [len(xs), len(xt)])
    by_domain = clone(BRIEF).fit(np.concatenate([xs, xt]), masked, sample_domain=domains)
    np.testing.assert_array_equal(by_domain.predict_proba(xt), by_target)
    assert list(by_domain.classes_) == ["left", "middle one", "右"]
    assert by_domain.n_features_in_ == 4
    by_itself = clone(BRIEF).fit(xs, ys).predict_proba(xs)
    np.testing.assert_array_equal(by_itself, clone(BRIEF).fit(xs, ys, X_target=xs).predict_proba(xs))
    assert (by_target != clone(BRIEF).set_params(random_state=1).fit(xs, ys, X_target=xt).predict_proba(xt)).any()


@pytest.mark.filterwarnings("ignore:.*collapsed")  # five iterations are few
def test_numeric_labels_with_gaps(moved: Arrays) -> None:
    xs, ys, xt = moved
    numbers = np.where(ys == "left", -7, 40)
    model = clone(BRIEF).fit(xs, numbers, X_target=xt)
    assert set(model.predict(xt)) <= {-7, 40}
    masked = np.concatenate([numbers.astype(float), np.full(len(xt), np.nan)])
    domains = np.repeat([1, -1], [len(xs), len(xt)])
    again = clone(BRIEF).fit(np.concatenate([xs, xt]), masked, sample_domain=domains)
    np.testing.assert_array_equal(again.predict(xt), model.predict(xt))


@pytest.mark.parametrize("shape", [(40, 9, 8), (40, 9, 8, 3), (40, 3, 9, 8)])
def test_images(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    y = np.array(["cat", "dog"])[np.arange(40) % 2]
    model = clone(BRIEF).set_params(iterations=2, net="tiny").fit(x, y, X_target=torch.from_numpy(x))
    assert model.predict_proba(x).shape == (40, 2)
    assert model.n_features_in_ == np.prod(shape[1:])
    assert model.model_.classes == ("cat", "dog")
    with pytest.raises(ValueError, match="trained on images"):
        model.predict(x.reshape(40, -1))


def test_copies_on_disk_predict_the_same(moved: Arrays, tmp_path: Any) -> None:
    xs, ys, xt = moved
    model = clone(BRIEF).set_params(dirt_t=True).fit(xs, ys, X_target=xt)
    assert model.n_iter_ == 10
    joblib.dump(model, tmp_path / "model.joblib")
    for again in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib")):
        np.testing.assert_array_equal(again.predict_proba(xt), model.predict_proba(xt))
        assert again.get_params() == model.get_params()
    assert not hasattr(clone(model), "model_")


def test_grid_search_over_both_domains(moved: Arrays) -> None:
    """The split takes sample_domain along with the rows."""
    xs, ys, xt = moved
    x, y = np.concatenate([xs, xt]), np.concatenate([ys, ys])
    domains = np.where(np.arange(len(x)) % 2, 1, -1)
    search = GridSearchCV(clone(BRIEF), {"lambda_t": [0.01, 0.1], "method": ["dann", "vmt"]}, cv=2)
    search.fit(x, y, sample_domain=domains)
    assert set(search.best_params_) == {"lambda_t", "method"}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


class NAType:
    """As pandas marks a missing text; it refuses to say what it equals."""

    def __repr__(self) -> str:
        return "<NA>"

    def __eq__(self, other: object) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = object.__hash__


def test_score_ignores_samples_without_a_label(moved: Arrays) -> None:
    """Or a search over both domains, the target's labels being −1, would find every model half as good as it is."""
    xs, names, xt = moved
    ys = np.arange(len(xs)) % 3
    x, domains = np.concatenate([xs, xt]), np.repeat([1, -1], [len(xs), len(xt)])
    for labels, unknown in ((ys, -1), (names, ""), (ys.astype(float), -1.0), (names.astype(object), NAType())):
        y = np.concatenate([labels, np.full(len(xt), unknown, labels.dtype)])
        model = clone(BRIEF).fit(x, y, sample_domain=domains)
        expected = (model.predict(xs) == labels).mean()
        assert expected > 0
        assert model.score(x, y) == model.score(xs, labels) == expected
        assert model.score(x, y, np.r_[1.0, np.zeros(len(x) - 1)]) in (0, 1)
    signs = np.where(ys == 1, 1, -1)  # here −1 is a class like the other
    model = clone(BRIEF).fit(xs, signs, X_target=xt)
    assert model.score(xs, signs) == (model.predict(xs) == signs).mean()
    with pytest.raises(vmt.InputError, match="y"):
        clone(BRIEF).fit(xs, ys).score(xt, np.full(len(xt), -1))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.score(xs, np.r_[signs, 0, -1.0, np.nan])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.score(xs, np.r_[signs[1:], np.nan], [1.0])


def test_a_method_of_ones_own(moved: Arrays) -> None:
    xs, ys, xt = moved
    vada = vmt.methods.vada(lambda_t=0.1, iterations=3)
    for iterations, done in ((None, 3), (4, 4)):
        model = clone(BRIEF).set_params(method=vada, iterations=iterations).fit(xs, ys, X_target=xt)
        assert (model.model_.about["method"], model.n_iter_) == ("vada", done)


@pytest.mark.parametrize(
    ("fit", "params", "offender"),
    [
        ({"sample_domain": [1, 0]}, {}, "sample_domain"),
        ({"sample_domain": [0] * 80}, {}, "sample_domain"),
        ({"sample_domain": [1, np.nan] * 40}, {}, "sample_domain"),
        ({"sample_domain": ["source", "target"] * 40}, {}, "sample_domain.*source"),
        ({"sample_domain": [2] * 80}, {}, "sample_domain"),
        ({"sample_domain": [-2] * 80}, {}, "sample_domain"),
        ({"sample_domain": [1] * 80, "X_target": [[0.0] * 4]}, {}, "sample_domain.*X_target"),
        ({"X_target": np.zeros((5, 3))}, {}, "3 features"),
        ({"X_target": np.zeros((5, 9, 9))}, {}, "dim 3"),
        ({}, {"method": "vtm"}, "vtm"),
        ({}, {"method": "target_only"}, "target labels"),
        ({}, {"net": "mpl"}, "mpl"),
        ({}, {"iterations": 0}, "iterations"),
        ({}, {"batch_size": 1}, "batch_size"),
        ({}, {"device": "abacus"}, "abacus"),
    ],
)
def test_bad_arguments_are_named(moved: Arrays, fit: Any, params: Any, offender: str) -> None:
    xs, ys, _ = moved
    with pytest.raises(ValueError, match=offender):
        clone(BRIEF).set_params(**params).fit(xs, ys, **fit)


def test_auto_answers_without_target_labels() -> None:
    random = np.random.default_rng(0)
    centres, k = 3 * random.normal(size=(3, 5)), np.arange(150) % 3
    y = np.array(["a", "b", "c"])[k]
    source = centres[k] + random.normal(size=(150, 5))
    found = VMTClassifier("auto", iterations=20, random_state=0).fit(source, y, X_target=source + 0.7)
    assert found.score(source + 0.7, y) > 0.9
    assert "average_of" in found.model_.about or found.model_.about["method"] in found.model_.about["choice"]
    with pytest.raises(vmt.InputError, match="dirt_t"):
        VMTClassifier("auto", dirt_t=True).fit(source, y, X_target=source)
