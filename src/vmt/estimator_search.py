"""A search of settings without target labels as a scikit-learn estimator."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils.validation import check_is_fitted

from vmt.errors import InputError
from vmt.estimator import VMTClassifier
from vmt.runs.search import check_method, require_optuna
from vmt.runs.search_result import search_around
from vmt.validators.choice import REFERENCE
from vmt.validators.registry import DEFAULT


class VMTSearch(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Searches the settings of a :class:`vmt.VMTClassifier` without target labels, on Optuna.

    A tenth of the source is held out for the scores, in every trial. The result is the model of the best trial; it is
    not trained again. ``GridSearchCV`` with :func:`vmt.label_free_score` is the way to cross-validate a few settings.

    Parameters
    ----------
    estimator
        The classifier. Its parameters are the settings of the first trial.
    trials
        How many settings to try.
    space
        The ranges of the parameters, as for :func:`vmt.search`. By default, weights, radius and learning rate are
        varied around their defaults.
    by
        The validator to maximise.
    minutes
        Stop after this time. None: as long as it takes.
    jobs
        The number of processes. In a script, call ``fit`` below ``if __name__ == "__main__":``.
    out
        A folder in which the search is kept. The same call continues an interrupted search there; it needs an int as
        ``random_state`` of the estimator. By default nothing is kept.
    verbose
        Whether to show progress.

    Attributes
    ----------
    best_estimator_
        The classifier with the best settings, fitted.
    best_params_, best_score_
        Its settings, as far as they were searched, and its score. If no trial is credibly better than source only, the
        settings are ``{"method": "source_only"}`` and the score is NaN.
    results_
        A table of the trials, best first, as a dict of columns for ``pandas.DataFrame``: ``trial``, ``state``,
        ``score`` and ``param_…`` for each setting.
    reason_, importances_
        Why this trial was chosen, and the share of each setting in the differences between good and bad trials.
    classes_, n_features_in_
        As in the classifier.

    Examples
    --------
    >>> import numpy as np, vmt
    >>> ys = np.arange(90) % 3
    >>> Xs = np.random.default_rng(0).normal(size=(90, 5)) + 3 * np.eye(3, 5)[ys]
    >>> search = vmt.VMTSearch(vmt.VMTClassifier(iterations=30, random_state=0), trials=2)
    >>> search = search.fit(Xs, ys, X_target=Xs + 0.5)
    >>> search.predict(Xs).shape, list(search.results_)[:3]
    ((90,), ['trial', 'state', 'score'])
    """

    def __init__(
        self,
        estimator: VMTClassifier,
        trials: int = 20,
        *,
        space: str | Path | Mapping[str, Any] | None = None,
        by: str = DEFAULT,
        minutes: float | None = None,
        jobs: int = 1,
        out: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.trials = trials
        self.space = space
        self.by = by
        self.minutes = minutes
        self.jobs = jobs
        self.out = out
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_domain: Any = None, X_target: Any = None, y_target: Any = None) -> Self:
        """Search the settings. The arguments are those of :meth:`vmt.VMTClassifier.fit`."""
        require_optuna()
        if not isinstance(self.estimator, VMTClassifier):
            raise InputError(f"VMTSearch needs a VMTClassifier, not a {type(self.estimator).__name__}.")
        check_method(self.estimator.method)
        fitted = clone(self.estimator)
        source, labels, target, known = fitted._domains(X, y, sample_domain, X_target, y_target)
        task = fitted._task(source, labels, target, known, held_out=True)
        lower = clone(self.estimator).set_params(method=REFERENCE, dirt_t=False)
        run = fitted._run(task, known)
        run = replace(run, recipe=replace(run.recipe, target_labels=None if known is None else 1.0))
        given = {} if fitted.evaluate_every is None else {"evaluate_every": fitted.evaluate_every}
        with nullcontext(self.out) if self.out is not None else TemporaryDirectory() as folder:
            found = search_around(
                run,
                lower._run(task, None),
                Path(folder),
                self.space,
                minutes=self.minutes,
                jobs=self.jobs,
                progress=self.verbose,
                given=given,
                known=fitted.get_params(deep=False),
                by=self.by,
                trials=self.trials,
                net=fitted.net if callable(fitted.net) else None,
            )
        self.best_params_ = {"method": REFERENCE} if found.chosen == REFERENCE else dict(found.params)
        self.best_score_ = float("nan") if found.score is None else found.score
        fitted.model_ = found.model
        fitted.n_iter_ = int(found.model.about["step"])
        self.best_estimator_ = fitted.set_params(**self.best_params_)
        self.classes_, self.n_features_in_ = fitted.classes_, fitted.n_features_in_
        if hasattr(fitted, "feature_names_in_"):
            self.feature_names_in_ = fitted.feature_names_in_
        self.results_ = columns_of(found.trials)
        self.reason_, self.importances_ = found.reason, dict(found.importances)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each sample, by the best classifier."""
        check_is_fitted(self)
        labels: NDArray[Any] = self.best_estimator_.predict(X)
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The probability of each class, in the order of ``classes_``: (N, classes)."""
        check_is_fitted(self)
        probabilities: NDArray[np.float32] = self.best_estimator_.predict_proba(X)
        return probabilities

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on the samples whose label is known."""
        check_is_fitted(self)
        return float(self.best_estimator_.score(X, y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.estimator.__sklearn_tags__().input_tags.allow_nan
        return tags


def columns_of(trials: Any) -> dict[str, list[Any]]:
    """The trials as columns of a table."""
    names = list(dict.fromkeys(name for trial in trials for name in trial["settings"]))
    columns: dict[str, list[Any]] = {name: [trial[key] for trial in trials] for name, key in COLUMNS.items()}
    return columns | {f"param_{name}": [trial["settings"].get(name) for trial in trials] for name in names}


COLUMNS = {"trial": "number", "state": "state", "score": "score"}
