"""``keep_best`` in Python: the fitted model is the best by a validator, and says which it is."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils import estimator_checks

import vmt
from vmt import VMTClassifier
from vmt.methods.nouns import Adam
from vmt.validators import VALIDATORS

pytestmark = pytest.mark.usefixtures("one_thread")

# Of scikit-learn's checks those of a fit and its model; test_estimator.py has them all, without the choice.
CHECKS = (
    "classifiers_train",
    "dict_unchanged",
    "dont_overwrite_parameters",
    "estimators_pickle",
    "fit2d_1sample",
    "fit_idempotent",
    "methods_sample_order_invariance",
    "n_features_in",
)
CHOOSING = VMTClassifier(iterations=25, batch_size=32, lr=2e-2, device="cpu", keep_best="ami_source")
# A rate that is far too high: the scores go up and down.
ROUGH = VMTClassifier(method="source_only", iterations=60, batch_size=16, lr=0.1, random_state=0, keep_best="snd")

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


@pytest.mark.filterwarnings("ignore:.*collapsed")  # of three held-out samples one is soon lost
@pytest.mark.parametrize("check", CHECKS)
def test_scikit_learns_own_checks(check: str) -> None:
    getattr(estimator_checks, f"check_{check}")("VMTClassifier", clone(CHOOSING))


@pytest.fixture(scope="module")
def moved() -> Arrays:
    """Source samples, string labels and target samples."""
    random = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = 3 * random.standard_normal((3, 4))[y] + random.standard_normal((120, 4))
    return x, np.array(["left", "middle one", "右"])[y], x[::-1] + 0.5


def rough(iterations: int) -> vmt.methods.nouns.Method:
    return vmt.methods.source_only(optimiser=Adam(lr=0.1), iterations=iterations).with_decay(0.0)


def test_the_best_is_the_model_of_a_fit_that_stops_there(moved: Arrays) -> None:
    """Looks at a fixed interval, so that the shorter fit is the beginning of the longer."""
    xs, ys, xt = moved

    def fitted(iterations: int, by: str) -> VMTClassifier:
        given = {"method": rough(iterations), "iterations": None, "keep_best": by, "evaluate_every": 5}
        model: VMTClassifier = clone(ROUGH).set_params(**given)
        return model.fit(xs, ys, X_target=xt)

    best = fitted(60, "snd")
    about = best.model_.about["best"]
    assert about["step"] < 60, "or nothing is shown"
    assert (about["by"], about["step"] % 5, best.n_iter_) == ("snd", 0, 60)
    assert np.isfinite(about["score"])
    stopped = fitted(about["step"], "snd")
    assert stopped.model_.about["best"] == about
    np.testing.assert_array_equal(best.predict_proba(xt), stopped.predict_proba(xt))
    others = [fitted(60, by).model_.about["best"]["step"] for by in ("source_accuracy", "entropy")]
    assert set(others) != {about["step"]}, "the validator decides"


def test_without_it_the_model_is_the_last_and_nothing_is_held_out(moved: Arrays) -> None:
    xs, ys, xt = moved
    plain = clone(ROUGH).set_params(keep_best=None).fit(xs, ys, X_target=xt)
    assert "best" not in plain.model_.about
    again = clone(ROUGH).set_params(keep_best="", evaluate_every=7).fit(xs, ys, X_target=xt)
    np.testing.assert_array_equal(plain.predict_proba(xt), again.predict_proba(xt))


def test_copies_and_searches_keep_it(moved: Arrays) -> None:
    xs, ys, xt = moved
    model = clone(ROUGH).fit(xs, ys, X_target=xt)
    again = pickle.loads(pickle.dumps(model))
    assert again.model_.about["best"] == model.model_.about["best"]
    assert clone(model).get_params()["keep_best"] == "snd"
    search = GridSearchCV(clone(ROUGH).set_params(iterations=6), {"keep_best": [None, "im"]}, cv=2).fit(xs, ys)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.keep_best in (None, "im")


def test_a_short_run_of_adapt_has_several_models_to_choose_from(moved: Arrays, tmp_path: Any) -> None:
    xs, ys, xt = moved
    labels = np.unique(ys, return_inverse=True)[1]

    def looks(**config: Any) -> list[str]:
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        vmt.adapt((xs, labels), xt, rough(60), batch_size=16, out=out, progress=False, **config)
        return [line for line in (out / "log.jsonl").read_text().splitlines() if "validators" in line]

    assert len(looks(keep_best="im")) == 6
    assert len(looks(keep_best="im", evaluate_every=20)) == 3
    assert len(looks()) == 1


def test_a_score_that_is_never_there_is_said(moved: Arrays) -> None:
    """Where no weight average predicts, there is nothing for it to agree with."""
    xs, ys, xt = moved
    without = replace(rough(6), predictor=("classifier",))
    with pytest.warns(UserWarning, match="agreement"):
        model = clone(ROUGH).set_params(method=without, keep_best="agreement").fit(xs, ys, X_target=xt)
    assert "best" not in model.model_.about


@pytest.mark.parametrize("name", ["accuracy", True])
def test_a_bad_name_is_told_the_good_ones(moved: Arrays, name: Any) -> None:
    xs, ys, xt = moved
    with pytest.raises(vmt.InputError, match="validator") as told:
        clone(ROUGH).set_params(keep_best=name).fit(xs, ys, X_target=xt)
    assert all(known in str(told.value) for known in VALIDATORS)
    with pytest.raises(vmt.InputError, match="evaluate_every"):
        clone(ROUGH).set_params(evaluate_every=0).fit(xs, ys, X_target=xt)
