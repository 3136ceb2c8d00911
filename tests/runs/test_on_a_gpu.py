"""What compares several models on samples in the memory of the host works with models on a CUDA device.

python -m pytest -m gpu tests/runs/test_on_a_gpu.py
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import vmt

pytestmark = pytest.mark.gpu
SHORT: dict[str, Any] = {"iterations": 40, "device": "cuda"}


@pytest.fixture(scope="module")
def samples() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y = make_blobs(300, n_features=5, centers=3, random_state=0)
    return x.astype(np.float32), y, (x + 0.5).astype(np.float32)


@pytest.mark.parametrize("memory", ["auto", "1KiB"])
def test_auto_answers(samples: tuple[np.ndarray, ...], memory: str) -> None:
    xs, ys, xt = samples
    model = vmt.adapt((xs, ys), xt, method="auto", memory=memory, progress=False, **SHORT)
    assert (model.predict(xt) == ys).mean() > 0.8
    assert model.about["choice"]


def test_a_search_names_a_model(samples: tuple[np.ndarray, ...], tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    xs, ys, xt = samples
    found = vmt.search((xs, ys), xt, trials=2, out=tmp_path / "search", progress=False, **SHORT)
    assert found.model.predict(xt).shape == ys.shape


def test_a_fitted_estimator_is_scored_without_labels(samples: tuple[np.ndarray, ...]) -> None:
    xs, ys, xt = samples
    classifier = vmt.VMTClassifier(**SHORT).fit(xs, ys, X_target=xt)
    assert np.isfinite(vmt.label_free_score(classifier, xs, ys, X_target=xt))
