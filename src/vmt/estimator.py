"""The library as a scikit-learn classifier."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils import assert_all_finite, check_array, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from vmt.data.domains import UNKNOWN_LABELS, domain, is_missing, labelled_part
from vmt.data.task import Task, check_digits, make_task
from vmt.device import default_torch_settings, torch_device
from vmt.errors import InputError
from vmt.evaluate.probe import Probe
from vmt.methods.nouns import Method
from vmt.methods.settings import AUTO
from vmt.nets.backbone import expected_format
from vmt.progress import Progress
from vmt.runs.auto import Portfolio, carry_out_auto, check_arguments_of_auto
from vmt.runs.recipes import OF_AUGMENTATION, OF_OPTIMISER, settings_of
from vmt.runs.run import Run, carry_out, make_run
from vmt.runs.spec import DataSpec
from vmt.train.config import Config
from vmt.validators.evidence import scores
from vmt.validators.predictions import collapse_alarm, partners
from vmt.validators.registry import DEFAULT, check_name


class VMTClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier for an unlabelled target domain, trained on a labelled source domain as well.

    Samples are vectors (N, F) or images (N, H, W), (N, H, W, C) or (N, C, H, W). Parameters that the method does not
    take are ignored.

    Parameters
    ----------
    method
        A name that ``vmt methods`` lists, or a :class:`vmt.methods.nouns.Method`, whose own settings then hold.
        ``"auto"`` trains several methods and answers with one of them or with the mean of some, without target labels
        (docs/auto.md); ``model_.about["choice"]`` says why.
    lambda_d, lambda_s, lambda_t
        Weights of the domain-adversarial loss, of the other losses on the source that use no labels, and of the losses
        on the target. None, here and below, chooses a value for the kind of samples
        (:func:`vmt.runs.recipes.defaults_for`).
    lambda_mcc, temperature
        The weight of minimum class confusion, and its temperature.
    warm_up
        The share of the iterations over which λ_t grows from 0.
    radius
        The radius of virtual adversarial training (VAT).
    iterations, batch_size, lr
        Length of the training, samples per domain in a batch, and the learning rate.
    optimiser, lr_schedule, momentum, weight_decay, clip_norm, backbone_rate
        ``"adam"`` as in the paper, ``"adamw"`` or ``"sgd"``; how the learning rate falls (``"constant"``, ``"cosine"``
        or ``"inverse"``); the optimiser's momentum and weight decay; the norm at which gradients are clipped; and the
        learning rate of the stages before the logits as a share of ``lr``.
    head_first
        The share of the iterations in which the stages before the logits stay as they are.
    augment_crop, augment_flip, augment_colour, augment_strength, augment_invert
        Train on random crops that keep at least a share of the area, on mirrored pictures, on changed colours, on
        distortions as RandAugment has them, and on negatives (:class:`vmt.methods.augment.Augmentation`).
    use_target_labels
        Whether to train on known labels of target samples as well. −1, NaN, None and an empty string stand for an
        unknown label.
    dirt_t, beta, interval, dirt_t_iterations
        Whether to refine with DIRT-T, the weight of its teacher, the iterations between two teachers (None: a tenth of
        the phase) and its length (None: as many as before).
    keep_best, evaluate_every
        A validator such as ``"ami_source"``, to keep the best model by it instead of the last, and the iterations
        between evaluations (None: at least six in a phase). For this, a tenth of the source is not trained on.
    match_shares
        Whether to draw the source in the class shares of the target, if these are estimated to be very different. None
        does so for methods that align the domains and are given by name.
    impute, standardise_per_domain
        ``"mean"`` or ``"median"``, to replace missing values (NaN) by those of their feature in their domain; and
        whether to standardise vectors in each domain by itself. Predictions use the values of the target.
    net, net_options
        ``"auto"`` (an MLP for vectors, a CNN for images: the paper's small one on a GPU, a thin one on a CPU), a name
        that ``vmt train --net`` takes, or a function that builds a network, from ``classes`` and ``shape`` if it has
        such parameters; and further arguments of the network.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    random_state
        An int makes ``fit`` repeatable.
    verbose
        Whether to show a progress bar.

    Attributes
    ----------
    model_
        The :class:`vmt.Model`, to save or to export. With ``keep_best``, ``model_.about["best"]`` has its iteration
        (``step``) and its ``score``.
    classes_, n_features_in_
        The labels in the order of ``predict_proba``'s columns, and the number of values in a sample.

    Examples
    --------
    >>> import numpy as np
    >>> from vmt import VMTClassifier
    >>> ys = np.array(["cat", "dog"])[np.arange(60) % 2]
    >>> Xs = np.random.default_rng(0).normal(size=(60, 5)) + 3 * (ys == "dog")[:, None]
    >>> classifier = VMTClassifier(iterations=60, random_state=0).fit(Xs, ys, X_target=Xs + 0.5)
    >>> classifier.score(Xs + 0.5, ys) > 0.9
    True
    """

    def __init__(
        self,
        method: str | Method = "vmt",
        *,
        lambda_d: float | None = None,
        lambda_s: float | None = None,
        lambda_t: float | None = None,
        lambda_mcc: float | None = None,
        temperature: float | None = None,
        warm_up: float | None = None,
        radius: float | None = None,
        iterations: int | None = None,
        batch_size: int = 64,
        lr: float | None = None,
        optimiser: str | None = None,
        lr_schedule: str | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        clip_norm: float | None = None,
        backbone_rate: float | None = None,
        head_first: float | None = None,
        augment_crop: float | None = None,
        augment_flip: bool | None = None,
        augment_colour: float | None = None,
        augment_strength: float | None = None,
        augment_invert: float | None = None,
        use_target_labels: bool = False,
        dirt_t: bool = False,
        beta: float = 1e-2,
        interval: int | None = None,
        dirt_t_iterations: int | None = None,
        keep_best: str | None = None,
        evaluate_every: int | None = None,
        match_shares: bool | None = None,
        impute: str | None = None,
        standardise_per_domain: bool = False,
        net: str | Callable[..., torch.nn.Module] = "auto",
        net_options: dict[str, Any] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.lambda_d = lambda_d
        self.lambda_s = lambda_s
        self.lambda_t = lambda_t
        self.lambda_mcc = lambda_mcc
        self.temperature = temperature
        self.warm_up = warm_up
        self.radius = radius
        self.iterations = iterations
        self.batch_size = batch_size
        self.lr = lr
        self.optimiser = optimiser
        self.lr_schedule = lr_schedule
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.backbone_rate = backbone_rate
        self.head_first = head_first
        self.augment_crop = augment_crop
        self.augment_flip = augment_flip
        self.augment_colour = augment_colour
        self.augment_strength = augment_strength
        self.augment_invert = augment_invert
        self.use_target_labels = use_target_labels
        self.dirt_t = dirt_t
        self.beta = beta
        self.interval = interval
        self.dirt_t_iterations = dirt_t_iterations
        self.keep_best = keep_best
        self.evaluate_every = evaluate_every
        self.match_shares = match_shares
        self.impute = impute
        self.standardise_per_domain = standardise_per_domain
        self.net = net
        self.net_options = net_options
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_domain: Any = None, X_target: Any = None, y_target: Any = None) -> Self:
        """Train the classifier.

        Parameters
        ----------
        X, y
            Samples and labels of the source; without the arguments below, of the target as well.
        sample_domain
            One number per sample of X: positive for the source, negative for the target. Labels of target samples
            are ignored, except with ``use_target_labels``. Use this argument in a ``Pipeline``, where both domains
            must go through all steps.
        X_target, y_target
            Samples of the target, which need no labels; and labels for ``use_target_labels``.
        """
        source, labels, target, known = self._domains(X, y, sample_domain, X_target, y_target)
        if isinstance(self.method, str) and self.method == AUTO:
            return self._choose(self._task(source, labels, target, known, held_out=True))
        task = self._task(source, labels, target, known, held_out=bool(self.keep_best))
        run = self._run(task, known)
        result = carry_out(run, progress=Progress(run.method.name, self.verbose))
        if not result.outcome.finished:
            # The loop stops cleanly on Ctrl-C, but an incomplete fit must not look complete.
            raise KeyboardInterrupt
        if result.outcome.loop_state.collapsed:
            warnings.warn(result.outcome.loop_state.collapsed, ConvergenceWarning, stacklevel=2)
        for sentence in result.summary["warnings"]:
            warnings.warn(sentence, stacklevel=2)
        self.n_iter_ = result.outcome.step
        self.model_ = result.model
        return self

    def _choose(self, task: Task) -> Self:
        """Train several methods, and keep the answer."""
        of_one_run = {"keep_best": self.keep_best} if self.keep_best else {}
        check_arguments_of_auto(AUTO, None, self.dirt_t, self.match_shares, self.use_target_labels or None, of_one_run)
        net = None if self.net == "auto" else self.net
        portfolio = Portfolio(task, DataSpec(), self._config(), net, self.net_options, iterations=self.iterations)
        result = carry_out_auto(portfolio, show=self.verbose)
        for sentence in result.summary["warnings"]:
            warnings.warn(sentence, stacklevel=3)
        self.n_iter_ = result.summary["iterations"]
        self.model_ = result.model
        return self

    def _domains(
        self, X: Any, y: Any, sample_domain: Any, X_target: Any, y_target: Any
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        """Samples and class numbers of the source, samples of the target, and its class numbers if they are used."""
        if y is None:
            raise InputError("VMTClassifier requires y to be passed, but the target y is None: give the labels.")
        if sample_domain is not None and X_target is not None:
            raise InputError("sample_domain and X_target both define the target: give one of them.")
        X = self._checked(X, reset=True)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        source, target = X, X
        of_target = y_target
        if X_target is not None:
            target = self._checked(X_target, reset=False)
        elif sample_domain is None:
            warnings.warn(
                "there is no target, so nothing is adapted: pass X_target, or sample_domain with negative numbers for "
                "the target.",
                stacklevel=3,
            )
        else:
            is_source = source_rows(sample_domain, len(X))
            source, target, y, of_target = X[is_source], X[~is_source], y[is_source], y[~is_source]
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"the labels have only one class, {self.classes_[0]}: give samples of two classes or more."
            )
        known = target_numbers(of_target, self.classes_, len(target)) if self.use_target_labels else None
        return source, labels, target, known

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The probability of each class, in the order of ``classes_``: (N, classes)."""
        check_is_fitted(self)
        return self.model_.to(torch_device(self.device)).predict_proba(self._checked(X, reset=False))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each sample."""
        check_is_fitted(self)
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(1)]
        return labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on the samples whose label is known, so that a search over both domains is scored on the source.

        −1, NaN, None and an empty string stand for an unknown label, unless they are classes.
        """
        check_is_fitted(self)
        check_consistent_length(X, y, sample_weight)
        known = known_labels(y, self.classes_)
        if known.all():
            return float(super().score(X, y, sample_weight))
        if not known.any():
            raise InputError("y has no known label, so there is no accuracy: give the labels of some samples.")
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        labels = np.array(np.asarray(y, object).ravel()[known].tolist())
        return float(accuracy_score(labels, self.predict(X)[known], sample_weight=weight))

    def _task(
        self,
        source: NDArray[Any],
        labels: NDArray[Any],
        target: NDArray[Any],
        known: NDArray[Any] | None,
        held_out: bool,
    ) -> Task:
        """The samples as the library takes them. ``held_out`` says whether a tenth of the source is not trained on."""
        features = () if self._reads_images else tuple(getattr(self, "feature_names_in_", ()))
        with default_torch_settings():
            check_digits(source, target, features)
            missing = self.impute is not None
            labelled = domain(source, labels, name="the source", features=features, missing=missing)
            unlabelled = domain(target, name="the target", features=features, missing=missing)
            # Only scores need held-out samples. Otherwise small data sets keep all of their labels for training.
            expected = expected_format(self.net, self.net_options or {}) if self._reads_images else None
            return make_task(
                labelled,
                unlabelled,
                source_test=None if held_out else labelled,
                target_labelled=None if known is None else labelled_part(unlabelled, known),
                classes=[str(label) for label in self.classes_],
                format=expected,
                impute=self.impute,
                standardise_per_domain=self.standardise_per_domain,
            )

    def _run(self, task: Task, known: NDArray[Any] | None) -> Run:
        return make_run(
            task,
            self.method,
            dirt_t=self.dirt_t,
            asked=self._settings(),
            iterations=self.iterations,
            target_labels=None if known is None else 1.0,
            net=None if self.net == "auto" else self.net,
            net_options=self.net_options,
            config=self._config(),
            match_shares=self.match_shares,
            evaluate_often=bool(self.keep_best) and self.evaluate_every is None,
        )

    def _settings(self) -> dict[str, Any]:
        """The parameters that were set and that the method takes."""
        if isinstance(self.method, Method):
            if self.dirt_t:
                raise InputError(
                    "dirt_t=True needs a method given by name: pass method=vmt.methods.dirt_t(the method)."
                )
            return {}
        names = (
            "lambda_d",
            "lambda_s",
            "lambda_t",
            "lambda_mcc",
            "temperature",
            "warm_up",
            "radius",
            *OF_OPTIMISER,
            *OF_AUGMENTATION,
        )
        # A classifier that was pickled by an earlier version lacks the attributes that are newer.
        set_ = {name: value for name in names if (value := getattr(self, name, None)) is not None}
        takes = settings_of(self.method)
        of_dirt_t = {"beta": self.beta, "interval": self.interval, "dirt_t_iterations": self.dirt_t_iterations}
        refined = {name: value for name, value in of_dirt_t.items() if self.dirt_t and value is not None}
        shared = {"lambda_t", "radius"} if self.dirt_t else set()
        return {name: value for name, value in set_.items() if name in takes or name in shared} | refined

    def _config(self) -> Config:
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        config = Config(seed=seed, batch_size=self.batch_size, device=self.device)
        if self.keep_best:
            every = Config.evaluate_every if self.evaluate_every is None else self.evaluate_every
            config = replace(config, keep_best=self.keep_best, evaluate_every=every)
        return config

    def _checked(self, X: Any, reset: bool) -> NDArray[Any]:
        """Check for finite numbers of the right shape, with the errors that users of scikit-learn expect."""
        if isinstance(X, torch.Tensor):
            X = (X.float() if X.dtype == torch.bfloat16 else X).numpy(force=True)  # NumPy has no bfloat16
        if reset:
            self._reads_images = getattr(X, "ndim", 2) in (3, 4)
        if not self._reads_images:
            # A classifier that was pickled by an earlier version has no attribute impute.
            finite: Any = True if getattr(self, "impute", None) is None else "allow-nan"
            vectors: NDArray[Any] = validate_data(self, X, reset=reset, ensure_all_finite=finite)
            return vectors
        images: NDArray[Any] = check_array(X, allow_nd=True)
        if images.ndim == 2:
            raise InputError(f"the classifier was trained on images, but X has shape {images.shape}: pass images.")
        if reset:
            self.n_features_in_ = int(np.prod(images.shape[1:]))
        return images

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = getattr(self, "impute", None) is not None
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the model on the CPU, so that the pickle opens on a machine without a GPU."""
        state: dict[str, Any] = dict(super().__getstate__())
        model = state.get("model_")
        if model is not None and next(model.network.parameters()).device.type != "cpu":
            state["model_"] = copy.deepcopy(model).to("cpu")
        return state


def label_free_score(
    estimator: Any, X: Any, y: Any, sample_domain: Any = None, *, X_target: Any = None, validator: str = DEFAULT
) -> float:
    """Score a fitted :class:`VMTClassifier` on the target without its labels, as ``scoring`` of ``GridSearchCV``.

    Samples of X whose label is known are the source, and those with an unknown label (−1, NaN, None or an empty string)
    are the target, unless `sample_domain` tells them apart or `X_target` has the target. The classifier may be the last
    step of a pipeline. Higher is better. A model that seems to have collapsed scores NaN, with a warning, so that a
    search ranks it last.

    Parameters
    ----------
    validator
        A name of :data:`vmt.validators.VALIDATORS`, except ``agreement`` and ``dev``, which need more than a fitted
        classifier. Choose it with ``functools.partial(vmt.label_free_score, validator="im")``.

    Examples
    --------
    >>> import numpy as np, vmt
    >>> from sklearn.model_selection import GridSearchCV
    >>> ys = np.arange(90) % 3
    >>> xs = np.random.default_rng(0).normal(size=(90, 5)) + 3 * np.eye(3, 5)[ys]
    >>> X, y = np.r_[xs, xs + 0.5], np.r_[ys, np.full(90, -1)]
    >>> classifier = vmt.VMTClassifier(iterations=60, random_state=0)
    >>> search = GridSearchCV(classifier, {"lambda_t": [0.1, 1]}, scoring=vmt.label_free_score, cv=2)
    >>> search = search.fit(X, y, sample_domain=np.where(y < 0, -1, 1))
    >>> search.best_params_["lambda_t"] in (0.1, 1)
    True
    """
    check_name(validator)
    classifier, (X, X_target) = last_step(estimator, X, X_target)
    check_is_fitted(classifier)
    known = known_labels(y, classifier.classes_) if sample_domain is None else source_rows(sample_domain, len(X))
    X = classifier._checked(X, reset=False)
    target = X[~known] if X_target is None else classifier._checked(X_target, reset=False)
    if not len(target):
        raise InputError(
            "there are no target samples to score: add them to X with the label −1, or pass them as X_target."
        )
    model = classifier.model_.to(torch_device(classifier.device))
    missing = model.preprocess.fill is not None
    labels = target_numbers(np.asarray(y, object)[known], classifier.classes_, int(known.sum()))
    prior = torch.from_numpy(np.bincount(labels, minlength=len(model.classes)) / max(len(labels), 1))
    source = domain(X[known], labels, name="the source", missing=missing) if len(labels) else None
    unlabelled = domain(target, name="the target", missing=missing)
    probe = Probe(unlabelled, source, None, prior, model.preprocess, partners(len(unlabelled)))
    evidence = probe.evidence(model.network, None)
    found = scores(evidence)
    if validator not in found:
        raise InputError(
            f"the validator {validator} needs samples that a scorer does not have: choose one of {', '.join(found)}."
        )
    assert evidence.target is not None
    alarm = collapse_alarm(evidence.target, prior) if len(labels) else None
    if alarm is not None:
        warnings.warn(f"a model that may have collapsed scores NaN: {alarm}.", stacklevel=2)
        return float("nan")
    score = found[validator]
    return float("nan") if score is None else score


def last_step(estimator: Any, *samples: Any) -> tuple[VMTClassifier, list[Any]]:
    """The classifier in a pipeline, or the classifier itself, and the samples as it gets them."""
    given = list(samples)
    if hasattr(estimator, "steps"):
        before = estimator[:-1]
        if len(before):
            given = [None if x is None else before.transform(x) for x in given]
        estimator = estimator[-1]
    if not isinstance(estimator, VMTClassifier):
        raise InputError(f"label_free_score needs a VMTClassifier, not a {type(estimator).__name__}.")
    return estimator, given


def target_numbers(labels: Any, classes: NDArray[Any], count: int) -> NDArray[np.int64]:
    """The class number of each target sample, −1 if its label is unknown."""
    if labels is None:
        raise InputError("use_target_labels needs labels of the target: give y_target, or sample_domain.")
    number = {label: k for k, label in enumerate(classes.tolist())}
    if -1 in number:
        raise InputError("−1 is a label of the source, but marks unknown labels of the target: rename that class.")
    given = np.asarray(labels, object).ravel().tolist()
    if len(given) != count:
        raise InputError(
            f"y_target has {len(given)} labels for {count} samples: give one each, −1 where it is unknown."
        )
    known = known_labels(labels, classes)
    unknown = [label for label, is_known in zip(given, known, strict=True) if is_known and label not in number]
    if unknown:
        raise InputError(
            f"the target has the label {unknown[0]!r}, which the source does not have: correct or remove it."
        )
    return np.array([number.get(label, -1) for label in given], np.int64)


def known_labels(labels: Any, classes: NDArray[Any]) -> NDArray[np.bool_]:
    """Which labels are known. −1, NaN, None and an empty string stand for unknown ones, unless they are classes.

    >>> known_labels([0, 1, -1], np.array([0, 1])), known_labels([1, -1], np.array([-1, 1]))
    (array([ True,  True, False]), array([ True,  True]))
    """
    found = set(classes.tolist())
    given = np.asarray(labels, object).ravel().tolist()
    return np.array(
        [not (is_missing(label) or str(label) in UNKNOWN_LABELS) or label in found for label in given], bool
    )


def source_rows(sample_domain: Any, count: int) -> NDArray[np.bool_]:
    """Which samples belong to the source."""
    try:
        domains = column_or_1d(sample_domain).astype(np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(f"sample_domain is not a list of numbers ({error}): give one number per sample.") from error
    if len(domains) != count:
        raise InputError(f"sample_domain has {len(domains)} entries for {count} samples: give one per sample.")
    if not (abs(domains) > 0).all():
        raise InputError(
            "sample_domain has zeros or NaN: give positive numbers for the source, negative ones for the target."
        )
    is_source: NDArray[np.bool_] = domains > 0
    for part, missing in ((is_source, "positive entry, so no source"), (~is_source, "negative entry, so no target")):
        if not part.any():
            raise InputError(f"sample_domain has no {missing}: mark the source positive and the target negative.")
    return is_source
