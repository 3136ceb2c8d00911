"""The library in one call."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from vmt import methods
from vmt.data import Domain, domain, make_task
from vmt.data.convert import labelled_part
from vmt.defaults import LONGEST, Defaults, defaults_for
from vmt.errors import InputError
from vmt.method import Adam, Method
from vmt.model import OWN_MODULE, Model
from vmt.nets.spec import NetSpec
from vmt.nets.staged import Staged
from vmt.recipes import decay_for
from vmt.train.claim import claimed
from vmt.train.config import Config
from vmt.train.loop import train
from vmt.train.progress import Progress
from vmt.train.setting import sample_shape

DEFAULT_ITERATIONS = LONGEST


def adapt(
    source: tuple[Any, Any] | Domain,
    target: Any,
    method: Method | None = None,
    *,
    target_test: tuple[Any, Any] | None = None,
    target_labels: Any = None,
    target_label_weight: float = 1.0,
    net: str | Callable[[], Staged] | None = None,
    net_options: dict[str, Any] | None = None,
    classes: Sequence[str] | None = None,
    iterations: int | None = None,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    **config: Any,
) -> Model:
    """Train a classifier for an unlabelled target domain from a labelled source domain.

    Parameters
    ----------
    source
        Samples and labels: images (N, H, W), (N, H, W, C) or (N, C, H, W), or vectors (N, F).
    target
        Samples of the target, of the same kind and value range. No labels are needed.
    method
        A value such as ``vmt.methods.vmt(lambda_t=0.06)``; by default VMT with settings for the kind of samples
        (:func:`vmt.defaults.defaults_for`). For a method that trains on target labels, pass ``target=(x, y)``.
    target_test
        Labelled target samples, if there are any, to follow the accuracy on; never trained on.
    target_labels, target_label_weight
        Labels of some target samples, −1 for all others, to train on as well, and the weight of their cross-entropy.
    net
        A name that ``vmt train --net`` takes, or a function that builds a network (see :func:`vmt.nets.from_module`
        for one of your own). By default the MLP for vectors and a CNN for images: the paper's small one on a GPU, a
        thin one on a CPU.
    iterations
        Length of the method's first phase.
    out, resume
        A folder for log and checkpoints, and whether to go on from what is there.
    config
        Any further field of :class:`vmt.train.Config`, for example ``batch_size`` or ``stop_on_collapse``. With
        ``keep_best="ami_source"`` the model is the best one by that validator, not the last.

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
    unlabelled = as_domain(target, "the target")
    task = make_task(
        as_domain(source, "the source"),
        unlabelled,
        target_test=None if target_test is None else as_domain(target_test, "the target test set"),
        target_labelled=None if target_labels is None else labelled_part(unlabelled, target_labels),
        classes=classes,
    )
    chosen = defaults_for(sample_shape(task), max(len(task.source), len(task.target)), device, DEFAULT_ITERATIONS)
    if method is None:
        iterations = chosen.iterations if iterations is None else iterations
        method = default_method(chosen).with_decay(decay_for(iterations))
    if iterations is not None:
        method = method.with_iterations(iterations)
    if target_labels is not None:
        method = methods.with_target_labels(method, target_label_weight)
    shape = sample_shape(task)
    name = net if isinstance(net, str) else OWN_MODULE if net else chosen.net
    spec = NetSpec(name, shape, len(task.classes), net_options or {})
    build = net if callable(net) else spec.build
    folder = None if out is None else Path(out)
    settings = Config(seed=seed, device=device, **config)
    bar = Progress(method.name, progress)
    with claimed(folder) if folder is not None else nullcontext():
        outcome = train(task, method, build, settings, folder, resume, bar)
    about = {"method": method.name, "step": outcome.step, "collapsed": outcome.notes.collapsed}
    if outcome.best is not None:
        about |= {"best": outcome.notes.best}
    return Model(outcome.best or outcome.network, spec, task.preprocess, task.classes, about, task.source.features)


def default_method(chosen: Defaults) -> Method:
    """VMT with settings for the kind of samples."""
    settings = chosen.taken_by(list(inspect.signature(methods.vmt).parameters))
    return methods.vmt(**settings, optimiser=Adam(lr=chosen.lr))


def as_domain(samples: Any, name: str) -> Domain:
    if isinstance(samples, Domain):
        return samples
    if isinstance(samples, tuple):
        if len(samples) != 2:
            raise InputError(f"{name} is a tuple of {len(samples)}: pass (samples, labels).")
        return domain(samples[0], samples[1], name=name)
    return domain(samples, name=name)
