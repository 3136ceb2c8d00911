"""The library in one call."""

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import DataLoader, Dataset

from vmt import methods
from vmt.data.arrays import classes_in, domain, in_order_of, labelled_part, numbered
from vmt.data.checks import check_digits
from vmt.data.domains import Domain
from vmt.data.task import Task, make_task
from vmt.device import own_settings, torch_device
from vmt.errors import InputError, perhaps, whole
from vmt.methods.nouns import Method
from vmt.model import Model
from vmt.nets.factory import NetSpec, network_of
from vmt.runs.begun import begin_or_go_on, record_of
from vmt.runs.lock import claimed
from vmt.runs.recipes import defaults_for, looks_for
from vmt.runs.run import MODEL
from vmt.runs.settings import changed, every_setting
from vmt.step.context import sample_shape
from vmt.train.config import Config
from vmt.train.loop import Outcome, train
from vmt.train.progress import Progress


def adapt(
    source: tuple[Any, Any] | Domain,
    target: Any,
    method: Method | str = "vmt",
    *,
    target_test: tuple[Any, Any] | None = None,
    target_labels: Any = None,
    target_label_weight: float = 1.0,
    net: str | Callable[..., nn.Module] | None = None,
    net_options: dict[str, Any] | None = None,
    classes: Sequence[str] | None = None,
    iterations: int | None = None,
    dirt_t: bool = False,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Model:
    """Train a classifier for an unlabelled target domain from a labelled source domain.

    Parameters
    ----------
    source
        Samples and labels: images (N, H, W), (N, H, W, C) or (N, C, H, W), or vectors (N, F). Labels are class numbers
        from 0, or names. Columns of data frames are matched by name, in the target and when predicting.
    target
        Samples of the target, of the same kind and value range. No labels are needed.
    method
        The name of a method, with settings chosen for the kind of samples (:func:`vmt.runs.recipes.defaults_for`), as on
        the command line; pass ``settings`` to change some of them. Or a value such as
        ``vmt.methods.vmt(lambda_t=0.06)``, which is used exactly as it is. For a method that trains on target labels,
        pass ``target=(x, y)``.
    target_test
        Labelled target samples, if there are any, to measure the accuracy on; never trained on.
    target_labels, target_label_weight
        Labels of target samples to train on as well, −1, NaN or an empty name where unknown, and the weight of their
        cross-entropy.
    net
        A name that ``vmt train --net`` takes, or a function that builds any ``nn.Module`` (adapted by
        :func:`vmt.nets.from_module`); it gets ``classes`` and the ``shape`` of one sample if it has such parameters.
        By default an MLP for vectors and a CNN for images: the paper's small one on a GPU, a thin one on a CPU.
    net_options
        Further arguments for the network or its function.
    classes
        Names of the classes, in the order of their numbers. By default, labels that are names are sorted.
    iterations
        Length of the method's first phase.
    dirt_t
        Whether to refine with DIRT-T afterwards, for as many iterations.
    seed, device
        The seed of initial weights and draws, and where to train: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    out, resume
        A folder for model, log and checkpoints, and whether to continue the run that is there, with the same data and
        settings. Ctrl-C and ``kill`` save first and end in ``KeyboardInterrupt``.
    progress
        Whether to show a progress bar.
    settings
        Settings of the method, such as ``lambda_t=0.1`` or ``lr=1e-3``, and of DIRT-T (``beta``, ``interval``,
        ``dirt_t_iterations``), by the names of ``vmt train``'s flags; and any other field of
        :class:`vmt.train.Config`, such as ``batch_size`` or ``stop_on_collapse``. With ``keep_best="ami_source"`` the
        result is the best model by that validator, not the last; ``about["best"]`` has its iteration and score. The
        model is then evaluated every ``evaluate_every`` iterations, by default at least six times in a phase.

    Examples
    --------
    Three clusters, and the same ones moved, without labels:

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
    config, asked = sorted_out(settings)
    check_arguments(method, out, resume, asked, dirt_t)
    iterations = None if iterations is None else whole(iterations, "iterations")
    task = task_of(source, target, target_test, target_labels, classes)
    chosen = defaults_for(sample_shape(task), max(len(task.source), len(task.target)), device)
    if isinstance(method, str):
        wanted = chosen if iterations is None else dataclasses.replace(chosen, iterations=iterations)
        method = changed(wanted.recipe(method, dirt_t), asked).build()
    else:
        method = method.with_iterations(iterations)
    if target_labels is not None:
        method = methods.with_target_labels(method, target_label_weight)
    spec, build = network_of(net or chosen.net, sample_shape(task), len(task.classes), net_options)
    folder = None if out is None else Path(out)
    if config.get("keep_best"):  # with the interval of a long run, a short one has but one model to choose from
        config.setdefault("evaluate_every", looks_for(method.phases[0].iterations))
    carried_out = Config(seed=seed, device=device, **config)
    torch_device(device)  # refused before anything is written
    with claimed(folder) if folder is not None else nullcontext(), closing(Progress(method.name, progress)) as bar:
        if folder is not None:
            begin_or_go_on(folder, record_of(task, method, spec, carried_out), resume)
        outcome = train(task, method, build, carried_out, folder, resume, bar)
    if not outcome.finished and not outcome.given_up:
        # The loop ends politely on Ctrl-C and kill; half a training must not pass for a whole one.
        how = "" if folder is None else f"; go on with out={str(folder)!r}, resume=True"
        raise KeyboardInterrupt(f"stopped at iteration {outcome.step} of {method.iterations}{how}")
    if outcome.notes.collapsed and not progress:  # else it was said beside the bar
        warnings.warn(outcome.notes.collapsed, stacklevel=2)
    model = model_of(outcome, method, spec, task, task.source.features, carried_out.keep_best)
    if folder is not None:
        model.save(folder / MODEL)
    return model


@own_settings()
def task_of(source: Any, target: Any, target_test: Any, target_labels: Any, classes: Sequence[str] | None) -> Task:
    """Both domains and what is known of the target, with the columns and the classes of the source. What they were made
    from is not held on to while they are trained on."""
    check_source(source)
    classes = classes_in(labels_of(source)) if classes is None else classes
    labelled = as_domain(source, "the source", classes=classes)
    unlabelled = as_domain(target, "the target", labelled.features, classes)
    check_digits(samples_of(source), samples_of(target), labelled.features)
    test = known = None
    if target_test is not None:
        test = as_domain(target_test, "the target test set", labelled.features, classes)
    if target_labels is not None:
        known = labelled_part(unlabelled, numbered(target_labels, classes, "the target", partly=True))
    return make_task(labelled, unlabelled, target_test=test, target_labelled=known, classes=classes)


def model_of(
    outcome: Outcome, method: Method, spec: NetSpec, task: Task, features: Sequence[str], keep_best: str
) -> Model:
    """What a training ends with: the best model where one was to be kept, or else the last."""
    about = {"method": method.name, "step": outcome.step, "collapsed": outcome.notes.collapsed}
    if outcome.best is not None:
        about |= {"best": outcome.notes.best}
    elif keep_best:
        warnings.warn(f"{keep_best} had no score for any model of this training, so the last is kept.", stacklevel=3)
    network = outcome.best or outcome.network
    return Model(network, spec, task.preprocess, task.classes, about, tuple(features))


def as_domain(samples: Any, name: str, features: Sequence[str] = (), classes: Sequence[str] | None = None) -> Domain:
    """Samples, or samples and labels, as a domain; a data frame with the columns of the source in its order."""
    if isinstance(samples, Domain):
        return samples
    if isinstance(samples, tuple) and len(samples) != 2:
        raise InputError(f"{name} is a tuple of {len(samples)}: pass (samples, labels).")
    y = numbered(labels_of(samples), classes, name)
    return domain(in_order_of(samples_of(samples), features, name, "the source"), y, name=name)


def check_source(source: Any) -> None:
    """Refuses what cannot hold labels, before a sentence about its shape would be of no help."""
    if not isinstance(source, tuple | Domain | Dataset | DataLoader):
        raise InputError(f"source is a {type(source).__name__}: pass (samples, labels).")


def samples_of(samples: Any) -> Any:
    return samples[0] if isinstance(samples, tuple) else samples


def labels_of(samples: Any) -> Any:
    return samples[1] if isinstance(samples, tuple) and len(samples) == 2 else None


def sorted_out(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of Config, and settings of a method; what is neither is refused."""
    fields, known = {field.name for field in dataclasses.fields(Config)}, every_setting()
    if strange := sorted(settings.keys() - fields - known):
        hint = perhaps(strange[0], [*fields, *known, *inspect.signature(adapt).parameters])
        raise InputError(
            f"there is no setting {strange[0]!r}{hint}: adapt takes its own arguments, those of Config and those of "
            "the method."
        )
    config = {name: value for name, value in settings.items() if name in fields}
    return config, {name: value for name, value in settings.items() if name not in fields}


def check_arguments(method: Any, out: Any, resume: bool, asked: Mapping[str, Any], dirt_t: bool) -> None:
    """Refuses what would fail deep inside, or be passed over."""
    if not isinstance(dirt_t, bool):
        raise InputError(f"dirt_t is {dirt_t!r}: give True or False.")
    if isinstance(method, str):
        methods.named(method)
    elif not isinstance(method, Method):
        raise InputError(f"method is {method!r}: pass a name such as 'vada', or a value such as vmt.methods.vada().")
    elif dirt_t:
        raise InputError("dirt_t=True is for a method by its name: pass method=vmt.methods.dirt_t(the method).")
    elif asked:
        name = next(iter(asked))
        raise InputError(
            f"{name} is for a method by its name: set it where the method is made, vmt.methods.vmt({name}=…)."
        )
    if resume and out is None:
        raise InputError("resume=True has no run to go on with: name its folder with out=.")
