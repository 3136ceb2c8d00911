"""The paper's experiments, and the settings of the embedded task, as functions that return what to run.

A recipe names the network, the method's weights and the lengths of its phases. The command line starts from it and
changes what is asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vmt import methods
from vmt.errors import InputError
from vmt.method import Adam, Method
from vmt.methods import METHODS
from vmt.train.config import Config


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

    def build(self) -> Method:
        """The method as a value."""
        if self.method not in METHODS:
            raise InputError(f"there is no method {self.method!r}: choose one of {', '.join(METHODS)}.")
        settings = dict(self.settings)
        if (lr := settings.pop("lr", None)) is not None:
            settings["optimiser"] = Adam(lr=lr)
        decay = settings.pop("decay", None)
        method = METHODS[self.method](**settings)
        if self.dirt_t is not None:
            method = methods.dirt_t(method, **self.dirt_t)
        return method if decay is None else method.with_decay(decay)


# The paper's appendix, table of hyperparameters: λ_d, λ_s, λ_t and β of VMT.
PAPER: dict[tuple[str, bool], tuple[float, float, float, float]] = {
    ("mnist-svhn", True): (0.01, 1.0, 0.06, 0.01),
    ("mnist-svhn", False): (0.01, 1.0, 0.01, 0.001),
    ("svhn-mnist", True): (0.01, 0.0, 0.1, 0.01),
    ("svhn-mnist", False): (0.01, 0.0, 0.1, 0.01),
}


def paper(task: str, method: str = "vmt", instance_norm: bool = True, dirt_t: bool = False) -> Recipe:
    """A row of the paper's table of results: 40K iterations, then 160K of DIRT-T."""
    lambda_d, lambda_s, lambda_t, beta = PAPER[task, instance_norm]
    settings: dict[str, Any] = {}
    if method == "vada" and task == "mnist-svhn":
        lambda_t = 0.01  # it collapses at VMT's 0.06
        settings["entropy"] = instance_norm
    if method in ("dann", "vada", "vmt"):
        settings["lambda_d"] = lambda_d
    if method in ("vada", "vmt"):
        settings |= {"lambda_s": lambda_s, "lambda_t": lambda_t}
    refine: dict[str, Any] | None = {"beta": beta, "lambda_t": lambda_t} if dirt_t else None
    if refine is not None and method != "vmt":
        refine["mix"] = None
    return Recipe(method, settings, refine, "small", {"instance_norm": instance_norm})


def digits(method: str = "vmt", dirt_t: bool = False) -> Recipe:
    """The embedded task on a thin network: about a minute on two cores."""
    settings: dict[str, Any] = {"lr": DIGITS_LR, "decay": DIGITS_DECAY, "iterations": DIGITS_ITERATIONS}
    if method in ("dann", "vada", "vmt"):
        settings["lambda_d"] = 0.01
    if method in ("vada", "vmt"):
        settings |= {"lambda_s": 1.0, "lambda_t": DIGITS_LAMBDA_T, "radius": DIGITS_RADIUS}
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
    every = Config(log_every=20, evaluate_every=50, checkpoint_every=100)
    return Recipe(method, settings, refine, "tiny", {}, every)


# Chosen on the validation part of the handwriting, which no reported number uses.
DIGITS_LR, DIGITS_DECAY, DIGITS_LAMBDA_T, DIGITS_RADIUS = 3e-3, 0.99, 0.1, 1.75
DIGITS_ITERATIONS, DIGITS_DIRT_T_ITERATIONS = 500, 300


def recipe_for(task: str, method: str, instance_norm: bool = True, dirt_t: bool = False) -> Recipe:
    """The recipe of a named task."""
    if method not in METHODS:
        raise InputError(f"there is no method {method!r}: choose one of {', '.join(METHODS)}.")
    if task == "digits":
        return digits(method, dirt_t)
    return paper(task, method, instance_norm, dirt_t)


def with_settings(recipe: Recipe, settings: Mapping[str, Any], dirt_t: Mapping[str, Any]) -> Recipe:
    """A recipe with some arguments of its method, or of DIRT-T, replaced."""
    refine = None if recipe.dirt_t is None else {**recipe.dirt_t, **dirt_t}
    return replace(recipe, settings={**recipe.settings, **settings}, dirt_t=refine)
