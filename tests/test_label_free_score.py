"""A search with scikit-learn that needs no target labels."""

from functools import partial

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import vmt
from vmt.errors import InputError
from vmt.validators import class_ami

pytestmark = pytest.mark.usefixtures("one_thread")

RNG = np.random.default_rng(0)
YS = np.arange(120) % 3
XS = 4 * np.eye(3, 4)[YS] + RNG.normal(size=(120, 4))
XT = XS[::-1] + 0.5
X, Y = np.r_[XS, XT], np.r_[YS, np.full(120, -1)]
DOMAINS = np.where(Y < 0, -1, 1)
QUICK = vmt.VMTClassifier("source_only", iterations=60, batch_size=32, random_state=0, device="cpu")


def test_a_search_over_both_domains() -> None:
    """The hopeless learning rate loses, and no score is that of the source."""
    search = GridSearchCV(QUICK, {"lr": [1e-9, 1e-2]}, scoring=vmt.label_free_score, cv=2)
    search.fit(X, Y, sample_domain=DOMAINS)
    assert search.best_params_ == {"lr": 1e-2}
    assert search.best_score_ > 0.5


def test_in_a_pipeline_and_with_another_validator() -> None:
    pipeline = make_pipeline(StandardScaler(), QUICK)
    pipeline.fit(X, Y, vmtclassifier__sample_domain=DOMAINS)
    score = partial(vmt.label_free_score, validator="class_ami")
    model = pipeline[-1].model_
    logits, features = model_outputs(model, pipeline[0].transform(XT))
    assert score(pipeline, X, Y) == pytest.approx(float(class_ami(features, logits)), abs=1e-6)
    assert score(pipeline, X, np.r_[YS, YS[::-1]], sample_domain=DOMAINS) == score(pipeline, X, Y)
    assert score(pipeline, XS, YS, X_target=XT) == score(pipeline, X, Y)


def model_outputs(model: vmt.Model, x: np.ndarray):  # type: ignore[no-untyped-def,type-arg]
    from vmt.evaluate.accuracy import feature_tap, outputs_of

    samples = vmt.data.domain(x, name="x").x
    return outputs_of(model.network, samples, model.preprocess, ("logits", feature_tap(model.network)))


def test_what_cannot_be_scored_is_refused() -> None:
    classifier = QUICK.fit(XS, YS, X_target=XT)
    with pytest.raises(InputError, match="no target samples"):
        vmt.label_free_score(classifier, XS, YS)
    with pytest.raises(InputError, match="agreement"):
        vmt.label_free_score(classifier, X, Y, validator="agreement")
    with pytest.raises(InputError, match="'best'"):
        vmt.label_free_score(classifier, X, Y, validator="best")
    with pytest.raises(InputError, match="StandardScaler"):
        vmt.label_free_score(StandardScaler().fit(X), X, Y)


def test_a_collapsed_model_scores_nan() -> None:
    classifier = QUICK.fit(XS, YS, X_target=XT)
    with pytest.warns(UserWarning, match="collapsed"):
        assert np.isnan(vmt.label_free_score(classifier, XS, YS, X_target=XS[YS == 0]))


def test_a_fit_without_target_warns() -> None:
    with pytest.warns(UserWarning, match="no target"):
        QUICK.fit(XS, YS)
