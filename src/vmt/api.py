"""The library in one call."""

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from vmt import methods
from vmt.data.domains import Domain, classes_in, domain, encode_labels, labelled_part, reorder_columns
from vmt.data.files.features import features_of_arrays
from vmt.data.framing import PictureFormat
from vmt.data.task import Task, check_digits, hold_apart, make_task
from vmt.device import default_torch_settings
from vmt.errors import InputError, perhaps
from vmt.methods.nouns import Method
from vmt.methods.settings import AUTO, unnamed_method
from vmt.model import Model
from vmt.nets.backbone import Backbone, expected_format, make_backbone
from vmt.nets.factory import OWN_MODULE
from vmt.progress import Progress
from vmt.ranks.launch import check_alone, is_first, launched
from vmt.runs.auto import Portfolio, carry_out_auto, check_arguments_of_auto
from vmt.runs.callbacks import Callback
from vmt.runs.folder import check_same_choice, check_started_from_python, recorded_recipe
from vmt.runs.recipes import every_setting
from vmt.runs.run import Run, carry_out, make_run
from vmt.runs.search import check_method, require_optuna
from vmt.runs.search_result import SearchResult, search_around
from vmt.runs.spec import DataSpec, load_data
from vmt.train.config import Config
from vmt.validators.choice import REFERENCE
from vmt.validators.registry import DEFAULT


def adapt(
    source: Any,
    target: Any,
    method: Method | str | None = None,
    *,
    target_test: tuple[Any, Any] | None = None,
    target_labels: Any = None,
    target_label_weight: float = 1.0,
    net: str | Callable[..., nn.Module] | None = None,
    net_options: dict[str, Any] | None = None,
    features: str | Callable[..., nn.Module] | None = None,
    classes: Sequence[str] | None = None,
    impute: str | None = None,
    standardise_per_domain: bool = False,
    choose_on: int | None = None,
    iterations: int | None = None,
    dirt_t: bool = False,
    minutes: float | None = None,
    match_shares: bool | None = None,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | Progress = True,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> Model:
    """Train a classifier for an unlabelled target domain from a labelled source domain.

    Parameters
    ----------
    source
        ``(samples, labels)``: images (N, H, W), (N, H, W, C) or (N, C, H, W), or vectors (N, F), and class numbers from
        0 or class names. Columns of data frames are matched by name, in the target and when predicting. A path is also
        accepted, as for ``vmt train --source``: a folder of pictures, a table or a NumPy file.
    target
        Samples of the target, of the same kind and value range, without labels; or a path, if the source is one.
    method
        ``"auto"`` trains several methods and answers with one of them, or with the mean of some, without target labels
        (docs/auto.md); ``about["choice"]`` says why. It is the default, unless an argument belongs to a single method,
        such as a setting, ``iterations``, ``net`` or ``dirt_t``: then the default is ``"vmt"``. The name of a method
        trains this method, with settings chosen for the kind of samples (:func:`vmt.runs.recipes.defaults_for`), as on
        the command line; pass ``settings`` to change some of them. A value such as ``vmt.methods.vmt(lambda_t=0.06)``
        is also accepted, and its settings are not changed. For a method that trains on target labels, pass
        ``target=(x, y)``.
    target_test
        Labelled target samples, if there are any, to measure the accuracy on; never trained on.
    target_labels, target_label_weight
        Labels of target samples to train on as well, −1, NaN or an empty name where unknown, and the weight of their
        cross-entropy. If the target is a path, ``True`` trains on the labels that its files have.
    net
        A name that ``vmt train --net`` takes, or a function that builds any ``nn.Module`` (adapted by
        :func:`vmt.nets.from_module`); it gets ``classes`` and the ``shape`` of one sample if it has such parameters.
        By default an MLP for vectors and a CNN for images: the paper's small one on a GPU, a thin one on a CPU.
    net_options
        Further arguments for the network or its function.
    features
        Train on the features of pictures, which a frozen network computes once and the cache keeps: ``"timm:NAME"``,
        ``"torchvision:NAME"``, ``"package.module:function"`` or a function that returns a ready ``nn.Module``
        (docs/photographs.md). The model then takes pictures, and saves the network with itself.
    classes
        Names of the classes, in the order of their numbers. By default, labels that are names are sorted.
    impute
        ``"mean"`` or ``"median"`` replaces a missing value (NaN) of a vector by that of its feature in its domain. The
        model keeps the values of the target, for predictions. Without it, missing values are refused.
    standardise_per_domain
        Whether to standardise vectors in each domain by itself, instead of over both domains together. The units of the
        domains may then differ. The model standardises what it predicts on as it did the target.
    choose_on
        Hold this many labelled target samples apart, to choose settings by: they are not trained on, and
        ``about["choice_phases"]`` has the accuracy on them. It needs the labels of the target, ``target=(x, y)``, or
        those in its files. The same samples are held apart in every run on the same data.
    iterations
        Length of the method's first phase.
    dirt_t
        Whether to refine with DIRT-T afterwards, for as many iterations.
    minutes
        The time for all candidates of ``method="auto"`` together; by default, each is trained for its usual length.
    match_shares
        Whether to draw the source in the class shares of the target, if these are estimated to be very different. None
        does so for methods that align the domains and are given by name.
    seed, device
        The seed of initial weights and draws, and where to train: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    out, resume
        A folder for the run's record, log, checkpoints and models, which ``vmt report``, ``vmt select`` and
        ``vmt predict`` read; and whether to resume the run that is there, with the same data and settings. Ctrl-C and
        ``kill`` save a checkpoint first and raise ``KeyboardInterrupt``.
    progress
        Whether to show a progress bar; or what shows it instead.
    callbacks
        Objects whose methods are called when something is logged or evaluated, and at the end:
        :class:`vmt.Callback` of your own, or :class:`vmt.MLflow`.
    settings
        Settings of the method, such as ``lambda_t=0.1`` or ``lr=1e-3``, and of DIRT-T (``beta``, ``interval``,
        ``dirt_t_iterations``), by the names of ``vmt train``'s flags; and any other field of
        :class:`vmt.train.Config`, such as ``batch_size`` or ``stop_on_collapse``. With ``keep_best="ami_source"`` the
        result is the best model by that validator instead of the last; ``about["best"]`` has its iteration and score,
        and a folder gets both models. The model is then evaluated every ``evaluate_every`` iterations, by default at
        least six times in a phase.

    Examples
    --------
    Three clusters as the source, and the same clusters shifted as the target:

    >>> import numpy as np, vmt
    >>> random = np.random.default_rng(0)
    >>> centres = 3 * random.normal(size=(3, 5))
    >>> ys = np.arange(300) % 3
    >>> xs = centres[ys] + random.normal(size=(300, 5))
    >>> xt = centres[ys] + random.normal(size=(300, 5)) + 0.7
    >>> model = vmt.adapt(source=(xs, ys), target=xt, iterations=60, progress=False)
    >>> model
    Model(mlp, 3 classes, samples of shape (5,))
    >>> model.evaluate(xt, ys).accuracy > 0.9
    True
    """
    config, asked = split_settings(settings)
    if method is None:
        belong_to_one = (iterations, target_labels, match_shares, net, net_options, launched())
        of_one = any(each is not None for each in belong_to_one)
        of_one = of_one or bool(asked or dirt_t or callbacks or config.get("keep_best"))
        if resume and out is not None:
            before = recorded_recipe(Path(out))
            of_one = of_one if before is None else before.method != AUTO
        method = unnamed_method(of_one)
    check_arguments(method, out, resume, asked, dirt_t)
    check_callbacks(callbacks)
    # The bars of several ranks would mix.
    shows = is_first() and (progress.visible if isinstance(progress, Progress) else progress)
    of_one_run = asked | {name: value for name, value in config.items() if name == "keep_best" and value}
    check_arguments_of_auto(method, minutes, dirt_t, match_shares, target_labels, of_one_run)
    data = data_of(source, target, target_test, target_labels, target_label_weight)
    data = dataclasses.replace(
        data, impute=impute, standardise_per_domain=standardise_per_domain or None, choose_on=choose_on
    )
    backbone = None if features is None else make_backbone(features, device=device)
    expected = None if backbone is not None else expected_format(net, net_options or {})
    data, task = samples_for(
        data, source, target, target_test, target_labels, classes, backbone, expected, shows, config.get("memory")
    )
    folder = None if out is None else Path(out)
    if method == AUTO:
        check_alone("method='auto'")
        if callbacks:
            raise InputError("method='auto' carries out several runs: give callbacks with another method.")
        portfolio = Portfolio(
            task, data, Config(seed=seed, device=device, **config), net, net_options, minutes, iterations
        )
        if folder is not None and resume:
            named = AUTO if net is None else net if isinstance(net, str) else OWN_MODULE
            check_same_choice(folder, portfolio.config, named, iterations)
        chosen = carry_out_auto(portfolio, folder, resume, shows)
        for sentence in chosen.summary["warnings"]:
            warnings.warn(sentence, stacklevel=2)
        return chosen.model
    recorded = None
    if folder is not None and resume:
        check_started_from_python(folder)
        recorded = recorded_recipe(folder)
    run = make_run(
        task,
        method,
        dirt_t=dirt_t,
        asked=asked,
        iterations=iterations,
        target_labels=None if target_labels is None else target_label_weight,
        net=net,
        net_options=net_options,
        config=Config(seed=seed, device=device, **config),
        match_shares=match_shares,
        evaluate_often=bool(config.get("keep_best")) and "evaluate_every" not in config,
        data=data,
        recorded=recorded,
    )
    with closing(progress if isinstance(progress, Progress) else Progress(run.method.name, shows)) as bar:
        result = carry_out(run, folder, resume, bar, callbacks=callbacks)
    outcome = result.outcome
    if not outcome.finished and not outcome.given_up:
        # The loop stops cleanly on Ctrl-C and kill, but an incomplete training must not look complete.
        how = "" if folder is None else f"; resume it with out={str(folder)!r}, resume=True"
        raise KeyboardInterrupt(f"stopped at iteration {outcome.step} of {run.method.iterations}{how}")
    if not is_first():  # rank 0 says it
        return result.model
    if outcome.loop_state.collapsed and not shows:  # otherwise it was printed above the progress bar
        warnings.warn(outcome.loop_state.collapsed, stacklevel=2)
    for sentence in result.summary["warnings"]:
        warnings.warn(sentence, stacklevel=2)
    return result.model


def search(
    source: Any,
    target: Any,
    method: str = "vmt",
    *,
    trials: int = 40,
    space: str | Path | Mapping[str, Any] | None = None,
    by: str = DEFAULT,
    minutes: float | None = None,
    jobs: int = 1,
    out: str | Path | None = None,
    storage: str | None = None,
    keep: int = 5,
    target_test: tuple[Any, Any] | None = None,
    net: str | Callable[..., nn.Module] | None = None,
    net_options: dict[str, Any] | None = None,
    features: str | Callable[..., nn.Module] | None = None,
    classes: Sequence[str] | None = None,
    impute: str | None = None,
    standardise_per_domain: bool = False,
    iterations: int | None = None,
    dirt_t: bool = False,
    match_shares: bool | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = True,
    **settings: Any,
) -> SearchResult:
    """Search the settings of a method without target labels, and return the best model (docs/searching.md).

    Arguments that are not explained here are those of :func:`adapt`; ``settings`` are the default settings, from which
    the search begins. It needs the package optuna: ``pip install "vmt[search]"``.

    Parameters
    ----------
    trials
        How many settings to try.
    space
        Ranges of the settings, or a .json or .toml file with them: ``{"lambda_t": {"low": 0.01, "high": 1, "log":
        True}, "optimiser": ["adam", "sgd"]}``. By default, weights, radius and learning rate are varied around their
        defaults.
    by
        The validator to maximise.
    minutes
        Stop after this many minutes; the same call, with ``out``, continues the search.
    jobs
        The number of processes. Functions and samples that are given must be known to a new process; in a script, call
        this function below ``if __name__ == "__main__":``.
    out
        The folder of the search. Every process that calls this function with the same arguments and the same folder
        joins the same search, and an interrupted search continues. By default nothing is kept.
    storage
        The address of a database for the study; by default it is a journal file in ``out``.
    keep
        How many trials keep their models.

    Examples
    --------
    >>> import numpy as np, vmt
    >>> random = np.random.default_rng(0)
    >>> centres = 3 * random.normal(size=(3, 5))
    >>> ys = np.arange(300) % 3
    >>> xs, xt = (centres[ys] + random.normal(size=(300, 5)) + shift for shift in (0, 0.7))
    >>> found = vmt.search(source=(xs, ys), target=xt, trials=2, iterations=30, progress=False)
    >>> len(found.trials), found.model.predict(xt).shape
    (2, (300,))
    """
    check_alone("vmt.search")
    require_optuna()
    config, asked = split_settings(settings)
    check_arguments(method, out, False, asked, dirt_t)
    method = check_method(method)
    data = data_of(source, target, target_test, None, 1.0)
    data = dataclasses.replace(data, impute=impute, standardise_per_domain=standardise_per_domain or None)
    backbone = None if features is None else make_backbone(features, device=device)
    expected = None if backbone is not None else expected_format(net, net_options or {})
    data, task = samples_for(
        data, source, target, target_test, None, classes, backbone, expected, progress, config.get("memory")
    )

    def run_of(name: str, own: Mapping[str, Any], refined: bool) -> Run:
        return make_run(
            task,
            name,
            dirt_t=refined,
            asked=own,
            iterations=iterations,
            target_labels=None,
            net=net,
            net_options=net_options,
            config=Config(seed=seed, device=device, **config),
            match_shares=match_shares if refined or name == method else None,
            data=data,
        )

    with nullcontext(out) if out is not None else TemporaryDirectory() as folder:
        return search_around(
            run_of(method, asked, dirt_t),
            run_of(REFERENCE, {}, False),
            Path(folder),
            space,
            minutes=minutes,
            jobs=jobs,
            progress=progress,
            given=config,
            by=by,
            trials=trials,
            storage=storage,
            keep=keep,
            net=net if callable(net) else None,
        )


def samples_for(
    data: DataSpec,
    source: Any,
    target: Any,
    target_test: Any,
    target_labels: Any,
    classes: Sequence[str] | None,
    backbone: Backbone | None,
    expected: PictureFormat | None,
    progress: bool,
    memory: str | None,
) -> tuple[DataSpec, Task]:
    """The samples that are given as arrays or in files, and where they are."""
    data = dataclasses.replace(data, features=None if backbone is None else backbone.name)
    if data.in_files:
        data = data.expecting(expected)
        return data, load_data(data, backbone=backbone, memory=memory or "auto")
    task = task_of(
        source,
        target,
        target_test,
        target_labels,
        classes,
        data.impute,
        bool(data.standardise_per_domain),
        backbone,
        progress,
        expected,
    )
    return data, task if data.choose_on is None else hold_apart(task, data.choose_on)


def data_of(source: Any, target: Any, target_test: Any, target_labels: Any, target_label_weight: float) -> DataSpec:
    """Where the samples are, if they are given as paths."""
    if not isinstance(source, str | Path) and not isinstance(target, str | Path):
        return DataSpec()
    for name, given in (("source", source), ("target", target), ("target_test", target_test)):
        if not isinstance(given, str | Path) and not (given is None and name == "target_test"):
            raise InputError(f"{name} is a {type(given).__name__}: give a path for it as well, or arrays for all.")
    if target_labels not in (None, True, False):
        raise InputError(
            "target_labels must be True or None if the target is a path: True uses the labels in its files."
        )
    return DataSpec(
        source=str(source),
        target=str(target),
        target_test=None if target_test is None else str(target_test),
        use_target_labels=target_label_weight if target_labels else None,
    )


@default_torch_settings()
def task_of(
    source: Any,
    target: Any,
    target_test: Any,
    target_labels: Any,
    classes: Sequence[str] | None,
    impute: str | None = None,
    standardise_per_domain: bool = False,
    backbone: Backbone | None = None,
    progress: bool = False,
    format: PictureFormat | None = None,
) -> Task:
    """The task of both domains, with the columns and the classes of the source, or of the features of their images.

    ``format`` is what the network expects of images.
    """
    check_source(source)
    classes = classes_in(labels_of(source)) if classes is None else classes
    missing = impute is not None
    labelled = as_domain(source, "the source", classes=classes, missing=missing)
    unlabelled = as_domain(target, "the target", labelled.features, classes, missing)
    check_digits(samples_of(source), samples_of(target), labelled.features)
    test = known = None
    if target_test is not None:
        test = as_domain(target_test, "the target test set", labelled.features, classes, missing)
    if backbone is not None:
        labelled, unlabelled = (features_of(part, backbone, progress) for part in (labelled, unlabelled))
        test = None if test is None else features_of(test, backbone, progress)
    if target_labels is not None:
        known = labelled_part(unlabelled, encode_labels(target_labels, classes, "the target", partly=True))
    task = make_task(
        labelled,
        unlabelled,
        target_test=test,
        target_labelled=known,
        classes=classes,
        format=format,
        impute=impute,
        standardise_per_domain=standardise_per_domain or backbone is not None,
    )
    return dataclasses.replace(task, backbone=backbone)


def features_of(images: Domain, backbone: Backbone, progress: bool) -> Domain:
    """The features of the images of a domain."""
    if not images.is_images:
        raise InputError(f"{images.name} holds vectors, of which no network computes features: leave out features.")
    return dataclasses.replace(images, x=torch.from_numpy(features_of_arrays(images, backbone, progress=progress)))


def as_domain(
    samples: Any,
    name: str,
    features: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    missing: bool = False,
) -> Domain:
    """Samples, or samples and labels, as a domain; the columns of a data frame in the order of the source."""
    if isinstance(samples, Domain):
        return samples
    if isinstance(samples, tuple) and len(samples) != 2:
        raise InputError(f"{name} is a tuple of {len(samples)}: pass (samples, labels).")
    y = encode_labels(labels_of(samples), classes, name)
    x = reorder_columns(samples_of(samples), features, name, "the source")
    return domain(x, y, name=name, missing=missing)


def check_source(source: Any) -> None:
    """Refuse a source that cannot hold labels."""
    if not isinstance(source, tuple | Domain | Dataset | DataLoader):
        raise InputError(f"source is a {type(source).__name__}: pass (samples, labels).")


def samples_of(samples: Any) -> Any:
    return samples[0] if isinstance(samples, tuple) else samples


def labels_of(samples: Any) -> Any:
    return samples[1] if isinstance(samples, tuple) and len(samples) == 2 else None


def split_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keyword arguments into fields of Config and settings of a method; refuse any other."""
    fields, known = {field.name for field in dataclasses.fields(Config)}, every_setting()
    if unknown := sorted(settings.keys() - fields - known):
        hint = perhaps(unknown[0], [*fields, *known, *inspect.signature(adapt).parameters])
        raise InputError(
            f"there is no setting {unknown[0]!r}{hint}: adapt takes its own arguments, those of Config and those of "
            "the method."
        )
    config = {name: value for name, value in settings.items() if name in fields}
    return config, {name: value for name, value in settings.items() if name not in fields}


def check_callbacks(callbacks: Any) -> None:
    """Refuse anything but a list of callbacks, which would fail when the run starts."""
    for each in callbacks if isinstance(callbacks, Sequence) else [None]:
        if not isinstance(each, Callback):
            raise InputError(
                f"callbacks is {callbacks!r}: pass a list of objects of classes that derive from vmt.Callback."
            )


def check_arguments(method: Any, out: Any, resume: bool, asked: Mapping[str, Any], dirt_t: bool) -> None:
    """Refuse arguments that would fail deep inside, or be ignored."""
    if not isinstance(dirt_t, bool):
        raise InputError(f"dirt_t is {dirt_t!r}: give True or False.")
    if isinstance(method, str):
        if method != AUTO:
            methods.named(method)
    elif not isinstance(method, Method):
        raise InputError(f"method is {method!r}: pass a name such as 'vada', or a value such as vmt.methods.vada().")
    elif dirt_t:
        raise InputError("dirt_t=True needs a method given by name: pass method=vmt.methods.dirt_t(the method).")
    elif asked:
        name = next(iter(asked))
        raise InputError(
            f"{name} needs a method given by name: set it where the method is made, vmt.methods.vmt({name}=…)."
        )
    if resume and out is None:
        raise InputError("resume=True needs the folder of the run to resume: name it with out=.")
