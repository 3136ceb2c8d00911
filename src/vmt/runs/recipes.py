"""The paper's experiments, and the settings of the embedded task, as functions that return what to run.

A recipe names the network, the method's weights and the lengths of its phases. The command line starts from it and
changes what is asked for.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vmt import methods
from vmt.device import torch_device
from vmt.errors import InputError
from vmt.methods.nouns import Adam, Method, decay_for
from vmt.names import DIGITS_DIRT_T_ITERATIONS, DIGITS_ITERATIONS
from vmt.train.config import Config

WEIGHTS = ("lambda_d", "lambda_s", "lambda_t", "lambda_mix_t", "beta", "target labels")


@dataclass(frozen=True)
class Recipe:
    """A method with its settings, the network it trains and how the run is carried out."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the method's function; ``lr`` sets Adam's learning rate, ``decay`` that of the weight average."""
    dirt_t: Mapping[str, Any] | None = None
    """Arguments of :func:`vmt.methods.dirt_t` to go on with, or None."""
    net: str = "small"
    net_options: Mapping[str, Any] = field(default_factory=dict)
    config: Config = field(default_factory=Config)
    target_labels: float | None = None
    """The weight of the cross-entropy on known target labels, or None, which leaves them unseen."""

    def build(self) -> Method:
        """The method as a value."""
        function = methods.named(self.method)
        for name, weight in (
            *self.settings.items(),
            *(self.dirt_t or {}).items(),
            ("target labels", self.target_labels),
        ):
            if name in WEIGHTS and weight is not None and not callable(weight) and not 0 <= weight < math.inf:
                raise InputError(f"the weight {name} is {weight}: give 0 or more.")
        settings = dict(self.settings)
        if (lr := settings.pop("lr", None)) is not None:
            settings["optimiser"] = Adam(lr=lr)
        decay = settings.pop("decay", None)
        method = function(**settings)
        if self.dirt_t is not None:
            method = methods.dirt_t(method, **self.dirt_t)
        if self.target_labels is not None:
            method = methods.with_target_labels(method, self.target_labels)
        return method if decay is None else method.with_decay(decay)


@dataclass(frozen=True)
class Weights:
    """A row of the table of hyperparameters in the paper's appendix."""

    lambda_d: float
    lambda_s: float
    lambda_t: float
    beta: float
    net: str = "small"
    interval: int = 5_000
    lambda_mix_t: float | None = None
    """The weight of L_m(target), where it is not λ_t."""


# The tasks whose weights are the same with and without instance-normalised input.
EITHER = {
    "svhn-mnist": Weights(0.01, 0.0, 0.1, 0.01),
    "mnist-mnistm": Weights(0.01, 0.0, 0.01, 0.01, interval=500, lambda_mix_t=1e-3),
    "syn-svhn": Weights(0.01, 1.0, 1.0, 1.0),
    "cifar-stl": Weights(0.0, 1.0, 0.1, 0.01, net="large"),
    "stl-cifar": Weights(0.0, 0.0, 0.1, 0.01, net="large"),
}
PAPER: dict[tuple[str, bool], Weights] = {
    ("mnist-svhn", True): Weights(0.01, 1.0, 0.06, 0.01),
    ("mnist-svhn", False): Weights(0.01, 1.0, 0.01, 0.001),
    **{(task, norm): weights for task, weights in EITHER.items() for norm in (True, False)},
}


def paper(task: str, method: str = "vmt", instance_norm: bool = True, dirt_t: bool = False) -> Recipe:
    """A row of the paper's table of results: 40K iterations, then 160K of DIRT-T."""
    if (task, instance_norm) not in PAPER:
        raise InputError(f"the paper has no task {task!r}: give the settings of your own run.")
    weights = PAPER[task, instance_norm]
    lambda_t = weights.lambda_t
    settings: dict[str, Any] = {"lambda_d": weights.lambda_d, "lambda_s": weights.lambda_s}
    if method in ("vada", "co_da") and task == "mnist-svhn":
        lambda_t = 0.01  # VADA collapses at VMT's 0.06
        settings["entropy"] = instance_norm
    if method == "dann":
        settings["lambda_d"] = 0.01  # VMT's 0 on CIFAR ↔ STL would leave nothing of DANN
    settings["lambda_t"] = lambda_t
    if weights.lambda_mix_t is not None:
        settings["lambda_mix_t"] = weights.lambda_mix_t
    refine: dict[str, Any] | None = None
    if dirt_t:
        refine = {"beta": weights.beta, "lambda_t": lambda_t, "interval": weights.interval}
        if method == "vmt":
            refine["lambda_mix_t"] = weights.lambda_mix_t
        else:
            refine["mix"] = None
    return Recipe(method, taken(method, settings), refine, weights.net, {"instance_norm": instance_norm})


def digits(method: str = "vmt", dirt_t: bool = False) -> Recipe:
    """The embedded task on a thin network: about a minute on two cores."""
    weights = {"lambda_d": 0.01, "lambda_s": 1.0, "lambda_t": DIGITS_LAMBDA_T, "radius": DIGITS_RADIUS}
    settings = {"lr": DIGITS_LR, "decay": DIGITS_DECAY, "iterations": DIGITS_ITERATIONS} | taken(method, weights)
    refine: dict[str, Any] | None = None
    if dirt_t:
        refine = {
            "beta": 0.1,
            "lambda_t": DIGITS_LAMBDA_T,
            "radius": DIGITS_RADIUS,
            "interval": 50,
            "iterations": DIGITS_DIRT_T_ITERATIONS,
        }
        if method != "vmt":
            refine["mix"] = None
    every = Config(log_every=20, evaluate_every=50, checkpoint_every=100, validate_samples=300)
    return Recipe(method, settings, refine, "tiny", {}, every)


# Chosen on the validation part of the handwriting, which no reported number uses.
DIGITS_LR, DIGITS_DECAY, DIGITS_LAMBDA_T, DIGITS_RADIUS = 3e-3, 0.99, 1.0, 1.75


def taken(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some settings that a method takes."""
    takes = inspect.signature(methods.named(method)).parameters
    return {name: value for name, value in settings.items() if name in takes}


def with_settings(recipe: Recipe, settings: Mapping[str, Any], dirt_t: Mapping[str, Any]) -> Recipe:
    """A recipe with some arguments of its method, or of DIRT-T, replaced."""
    refine = None if recipe.dirt_t is None else {**recipe.dirt_t, **dirt_t}
    return replace(recipe, settings={**recipe.settings, **settings}, dirt_t=refine)


LONGEST = 5_000
# At least so many iterations, and so many times through the data, up to the longest. For images on a CPU a few minutes'
# worth of a thin network, with a faster rate.
VECTOR_ITERATIONS, CPU_ITERATIONS, EPOCHS = 1_000, 600, 5
# The paper's, for 3×32×32 values in [-1, 1]: its change per value serves images of any size.
RADIUS, VALUES = 3.5, 3072
# Per value, for vectors of unit variance.
VECTOR_RADIUS = 0.3
# The share of a run in which λ_t grows: the domains are to meet before clusters are sharpened.
WARM_UP = 0.125
# What a method may take of these.
DEFAULT_WEIGHTS = ("lambda_d", "lambda_s", "lambda_t", "warm_up", "radius")


@dataclass(frozen=True)
class Defaults:
    """Settings for samples of one kind."""

    net: str
    lambda_d: float
    lambda_s: float
    lambda_t: float
    warm_up: float
    radius: float
    lr: float
    iterations: int

    def recipe(self, method: str = "vmt", dirt_t: bool = False) -> Recipe:
        """A method with those of them that it takes, and DIRT-T after it if asked for, as long as the method."""
        settings = taken(method, {name: getattr(self, name) for name in DEFAULT_WEIGHTS})
        settings |= {"iterations": self.iterations, "lr": self.lr, "decay": decay_for(self.iterations)}
        refine: dict[str, Any] | None = None
        if dirt_t:
            refine = {"lambda_t": self.lambda_t, "radius": self.radius, "iterations": self.iterations}
            refine |= {"interval": interval_for(self.iterations)} | ({} if method == "vmt" else {"mix": None})
        return Recipe(method, settings, refine, self.net)


def interval_for(iterations: int) -> int:
    """How long a teacher of DIRT-T stays: ten of them in a phase."""
    return max(1, iterations // 10)


def looks_for(iterations: int) -> int:
    """Iterations between two evaluations: six in a run, and more in a long one."""
    return max(1, min(500, iterations // 6))


def defaults_for(shape: Sequence[int], samples: int, device: str = "auto") -> Defaults:
    """Settings for samples of a shape, (features,) or (channels, height, width), of which a domain has so many.

    Those of vectors were chosen on small tasks made for it (docs/own-data.md); the weights for images are the paper's.

    >>> chosen = defaults_for((9,), samples=20_000)
    >>> chosen.net, chosen.lambda_t, round(chosen.radius, 3), chosen.iterations
    ('mlp', 0.3, 0.9, 1562)
    """

    def length(least: int) -> int:
        return min(LONGEST, max(least, EPOCHS * samples // Config.batch_size))

    if len(shape) == 1:
        radius = VECTOR_RADIUS * math.sqrt(shape[0])
        return Defaults("mlp", 1e-2, 0.1, 0.3, WARM_UP, radius, 3e-3, length(VECTOR_ITERATIONS))
    radius = RADIUS * math.sqrt(math.prod(shape) / VALUES)
    if torch_device(device).type == "cpu":
        return Defaults("tiny", 1e-2, 1.0, 1e-2, WARM_UP, radius, 3e-3, length(CPU_ITERATIONS))
    return Defaults("small", 1e-2, 1.0, 1e-2, WARM_UP, radius, 1e-3, LONGEST)
