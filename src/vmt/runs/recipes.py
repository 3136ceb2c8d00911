"""Recipes: what a run trains, and how.

There are recipes for the paper's experiments, for the embedded task and for your own data, and functions that change
single settings of a recipe.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from vmt.device import torch_device
from vmt.errors import InputError, as_flag, whole
from vmt.evaluate.polarity import target_is_negative
from vmt.methods import systems
from vmt.methods.augment import Augmentation, augmented
from vmt.methods.nouns import Average, Method, decay_for, make_optimiser
from vmt.nets.registry import CNN, NETS, NetSettings, starts_trained
from vmt.runs.spec import DataSpec
from vmt.train.config import Config

if TYPE_CHECKING:
    from vmt.data.task import Task

INSTANCE_NORM = "instance_norm"
REFINE = "dirt_t"
"""The method of a run that refines a saved model: DIRT-T without a method before it."""
WEIGHTS = ("lambda_d", "lambda_s", "lambda_t", "lambda_mix_t", "lambda_mcc", "beta", "target labels")


@dataclass(frozen=True)
class Recipe:
    """A method with its settings, the network that it trains and how the run is carried out."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the method's function, of its optimiser (``vmt.methods.nouns.make_optimiser``), and ``decay``, that
    of the weight average."""
    dirt_t: Mapping[str, Any] | None = None
    """Arguments of :func:`vmt.methods.dirt_t`, which refines the model afterwards, or None."""
    net: str = "small"
    net_options: Mapping[str, Any] = field(default_factory=dict)
    config: Config = field(default_factory=Config)
    target_labels: float | None = None
    """Weight of the cross-entropy on known target labels; None leaves those labels unseen."""
    match_shares: bool = False
    """Whether the source is drawn in the class shares of the target, if these seem to be very different."""
    balance_classes: bool = False
    """Whether the source is drawn in equal shares of the classes."""

    def build(self) -> Method:
        """The method as a value."""
        function = function_of(self.method)
        for name, weight in (
            *self.settings.items(),
            *(self.dirt_t or {}).items(),
            ("target labels", self.target_labels),
        ):
            if name in WEIGHTS and weight is not None and not callable(weight) and not 0 <= weight < math.inf:
                raise InputError(f"the weight {name} must be finite and 0 or more, but got {weight}.")
        settings = dict(self.settings)
        of_optimiser = {name: settings.pop(name) for name in OF_OPTIMISER if name in settings}
        if of_optimiser:
            settings["optimiser"] = make_optimiser(of_optimiser.pop("optimiser", None) or "adam", **of_optimiser)
        of_augmentation = {own: settings.pop(name, None) for name, own in OF_AUGMENTATION.items()}
        decay, head_first = settings.pop("decay", None), settings.pop("head_first", 0.0)
        optimiser = settings.pop("optimiser", None) if self.method == REFINE else None
        method = function(**settings)
        if optimiser is not None:  # DIRT-T has that of the method before it, if there is one
            method = method.with_optimiser(optimiser)
        if self.dirt_t is not None:
            method = systems.dirt_t(method, **self.dirt_t)
        if self.target_labels is not None:
            method = systems.with_target_labels(method, self.target_labels)
        if any(of_augmentation.values()):
            given = {name: value for name, value in of_augmentation.items() if value is not None}
            method = augmented(method, Augmentation(**given))
        method = method if decay is None else method.with_decay(decay)
        return method.with_head_first(head_first)


# --- The paper's experiments ---


@dataclass(frozen=True)
class PaperWeights:
    """A row of the table of hyperparameters in the paper's appendix."""

    lambda_d: float
    lambda_s: float
    lambda_t: float
    beta: float
    net: str = "small"
    interval: int = 5_000
    lambda_mix_t: float | None = None
    """The weight of L_m(target) where it differs from λ_t."""


# VADA, and Co-DA, which keeps VADA's weights. The VADA paper searched λ_d in {0, 0.01}, λ_s in {0, 1} and λ_t in
# {0.01, 0.1}, and fixed β at 0.01; the weights of each task could not be found. VMT searched the same λ_d and λ_s, so
# these are VMT's, and so is λ_t where it is in VADA's grid; otherwise it is the nearest value there. On MNIST → SVHN it
# is that of VADA's published program.
VADA_LAMBDA_T = (0.01, 0.1)
VADA_BETA = 0.01


# The tasks whose weights are the same with and without instance-normalised input.
SAME_WITH_AND_WITHOUT_NORM = {
    "svhn-mnist": PaperWeights(0.01, 0.0, 0.1, 0.01),
    "mnist-mnistm": PaperWeights(0.01, 0.0, 0.01, 0.01, interval=500, lambda_mix_t=1e-3),
    "syn-svhn": PaperWeights(0.01, 1.0, 1.0, 1.0),
    "cifar-stl": PaperWeights(0.0, 1.0, 0.1, 0.01, net="large"),
    "stl-cifar": PaperWeights(0.0, 0.0, 0.1, 0.01, net="large"),
}
PAPER: dict[tuple[str, bool], PaperWeights] = {
    ("mnist-svhn", True): PaperWeights(0.01, 1.0, 0.06, 0.01),
    ("mnist-svhn", False): PaperWeights(0.01, 1.0, 0.01, 0.001),
    **{(task, norm): weights for task, weights in SAME_WITH_AND_WITHOUT_NORM.items() for norm in (True, False)},
}


def paper(task: str, method: str = "vmt", instance_norm: bool = True, dirt_t: bool = False) -> Recipe:
    """A row of the paper's table of results: 40K iterations, then 160K of DIRT-T."""
    if (task, instance_norm) not in PAPER:
        raise InputError(f"the paper has no task {task!r}: give the settings of your own run.")
    weights = PAPER[task, instance_norm]
    lambda_t = weights.lambda_t
    settings: dict[str, Any] = {"lambda_d": weights.lambda_d, "lambda_s": weights.lambda_s}
    beta = weights.beta
    if method in ("vada", "co_da"):
        beta, lambda_t = VADA_BETA, min(VADA_LAMBDA_T, key=lambda own: abs(own - weights.lambda_t))
        if task == "mnist-svhn":
            lambda_t = 0.01  # VADA collapses at VMT's 0.06
            settings["entropy"] = instance_norm
    if method in ("dann", "cdan"):
        settings["lambda_d"] = 0.01  # with VMT's 0 on CIFAR ↔ STL, nothing of them would be left
    settings["lambda_t"] = lambda_t
    if weights.lambda_mix_t is not None:
        settings["lambda_mix_t"] = weights.lambda_mix_t
    refine: dict[str, Any] | None = None
    if dirt_t:
        refine = {"beta": beta, "lambda_t": lambda_t, "interval": weights.interval}
        if mixes(method):
            refine["lambda_mix_t"] = weights.lambda_mix_t
        else:
            refine["mix"] = None
    recipe = Recipe(method, taken(method, settings), refine, weights.net, {INSTANCE_NORM: instance_norm})
    return published(recipe, task) if method in PUBLISHED else recipe


# Systems of other papers have networks, optimisers and batches of their own.
PUBLISHED = ("mmd", "dann_grl", "pi_model", "drcn", "dsn")


def published(recipe: Recipe, task: str) -> Recipe:
    """A recipe with the network and the settings of the method's own paper, as far as these are known."""
    of_mnist, photographs = task == "mnist-mnistm", "cifar" in task
    net, batch = "dann_mnist" if of_mnist else "dann_svhn", 32
    settings: dict[str, Any] = {}
    match recipe.method:
        case "mmd":
            settings = {"weight": 0.25, "tap": "code", "separation_from": 0.25, "optimiser": "sgd", "lr": 0.01}
        case "dann_grl":
            settings, batch = {"head": [100] if of_mnist else [1024, 1024]}, 64
            if not of_mnist:  # λ up to 1 ends in infinite losses with this network
                settings["reversal"] = 0.25
        case "dsn":
            settings = {"tap": "code"}
        case "drcn":
            net, batch = "drcn", 128
        case "pi_model":
            net, batch = "self_ensembling", 128 if task == "syn-svhn" else 256
            settings = {"flip": photographs, "intensity": task in ("mnist-svhn", "svhn-mnist")}
            settings["balance"] = 0.015 if task == "mnist-svhn" else 0.0
    config = replace(recipe.config, batch_size=batch)
    return replace(recipe, settings=settings, net=net, net_options={}, config=config)


# --- The embedded task ---

DIGITS_ITERATIONS, DIGITS_DIRT_T_ITERATIONS = 500, 250
# Chosen on the validation part of the handwriting, which no reported number uses.
DIGITS_LR, DIGITS_DECAY, DIGITS_LAMBDA_T, DIGITS_RADIUS = 3e-3, 0.99, 1.0, 1.75


def digits(method: str = "vmt", dirt_t: bool = False) -> Recipe:
    """The embedded task with a thin network: about a minute on two cores."""
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
        if not mixes(method):
            refine["mix"] = None
    config = Config(log_every=20, evaluate_every=50, checkpoint_every=100, validate_samples=300)
    return Recipe(method, settings, refine, "tiny", {}, config)


# --- Your own data ---

CNNS = [name for name, (build, _) in NETS.items() if build == CNN]

# These methods do not align the domains, so other class shares in the target do not mislead them. For vectors, their
# network normalises each sample by itself, which is the strongest on a target that it was not adapted to.
UNALIGNED = ("source_only", "target_only")
BY_SAMPLE = {"mlp": "mlp_layer_norm"}
# The others need batch norm, which tells the domains apart. On the logits, it presses the target towards the class
# shares of a batch. That keeps VMT and VADA from collapsing; MCC, AdaBN and, for vectors, VMT + MCC are better without.
WITHOUT_LOGIT_NORM = {"vectors": ("adabn", "mcc", "vmt_mcc"), "pictures": ("adabn", "mcc")}

LONGEST = 5_000
# A run has at least this many iterations, or this many epochs if that is more, and at most LONGEST iterations. Images
# on a CPU get a thin network with a higher learning rate, so that a run takes a few minutes.
VECTOR_ITERATIONS, CPU_ITERATIONS, EPOCHS = 1_000, 600, 5
# The paper's radius for 3×32×32 values in [-1, 1]; scaled so that the change per value is the same for other sizes.
RADIUS, VALUES = 3.5, 3072
# Radius per value for vectors of unit variance.
VECTOR_RADIUS = 0.3
# The share of the run over which λ_t grows, so that the domains are aligned before clusters are sharpened.
WARM_UP = 0.125
# The share of the pictures that are inverted if those of the target look like negatives of the source.
INVERT = 0.5
# Pretrained weights are changed little: SGD as in most published results with such networks, a tenth of the rate for
# the backbone, and the weights of the terms that vectors have, because the features are good from the beginning.
FINE_TUNING: dict[str, Any] = {
    "optimiser": "sgd",
    "lr": 1e-2,
    "momentum": 0.9,
    "weight_decay": 1e-3,
    "lr_schedule": "inverse",
    "backbone_rate": 0.1,
    "head_first": 0.4,
}
FINE_TUNING_ITERATIONS = 2_000


@dataclass(frozen=True)
class Defaults:
    """The settings chosen for one kind of samples."""

    net: str
    lambda_d: float
    lambda_s: float
    lambda_t: float
    warm_up: float
    radius: float
    lr: float
    iterations: int

    def recipe(self, method: str = "vmt", dirt_t: bool = False) -> Recipe:
        """A method with the settings that it takes and, if ``dirt_t``, as many iterations of DIRT-T after it."""
        weights = {name: getattr(self, name) for name in ("lambda_d", "lambda_s", "lambda_t", "warm_up", "radius")}
        settings = taken(method, weights)
        settings |= {"iterations": self.iterations, "lr": self.lr, "decay": decay_for(self.iterations)}
        refine: dict[str, Any] | None = None
        if dirt_t:
            refine = {"lambda_t": self.lambda_t, "radius": self.radius, "iterations": self.iterations}
            refine |= {"interval": interval_for(self.iterations)} | ({} if mixes(method) else {"mix": None})
        if method in UNALIGNED:
            return Recipe(method, settings, refine, BY_SAMPLE.get(self.net, self.net))
        without = WITHOUT_LOGIT_NORM["pictures" if self.net in CNNS else "vectors"]
        options = {"logit_norm": False} if method in without else {}
        return Recipe(method, settings, refine, self.net, options, match_shares=True)


def defaults_for(shape: Sequence[int], samples: int, device: str = "auto") -> Defaults:
    """Settings for samples of shape (features,) or (channels, height, width); ``samples`` is the size of a domain.

    The settings for vectors were chosen on small tasks made for that purpose (docs/own-data.md), and so was λ_t for
    small images on a CPU; the other weights for images are the paper's.

    >>> chosen = defaults_for((9,), samples=20_000)
    >>> chosen.net, chosen.lambda_t, round(chosen.radius, 3), chosen.iterations
    ('mlp', 0.1, 0.9, 1562)
    """

    def length(least: int) -> int:
        return min(LONGEST, max(least, EPOCHS * samples // Config.batch_size))

    if len(shape) == 1:
        radius = VECTOR_RADIUS * math.sqrt(shape[0])
        return Defaults("mlp", 1e-2, 0.1, 0.1, WARM_UP, radius, 3e-3, length(VECTOR_ITERATIONS))
    radius = RADIUS * math.sqrt(math.prod(shape) / VALUES)
    if torch_device(device).type == "cpu":
        return Defaults("tiny", 1e-2, 1.0, 0.2, WARM_UP, radius, 3e-3, length(CPU_ITERATIONS))
    return Defaults("small", 1e-2, 1.0, 1e-2, WARM_UP, radius, 1e-3, LONGEST)


def own_recipe(
    task: "Task",
    method: str = "vmt",
    dirt_t: bool = False,
    device: str = "auto",
    iterations: int | None = None,
    pretrained: bool = False,
) -> Recipe:
    """The recipe for a task that has no other recipe, for a run of this length, of a network with such weights."""
    chosen = defaults_for(task.sample_shape, max(len(task.source), len(task.target)), device)
    chosen = chosen if iterations is None else replace(chosen, iterations=whole(iterations, "iterations"))
    recipe = chosen.recipe(method, dirt_t)
    if task.backbone is not None:
        return on_features(recipe)
    if pretrained and len(task.sample_shape) == 3:
        return fine_tuned(recipe, iterations)
    own = {"augment_invert": INVERT} if target_is_negative(task) else {}
    return replace(recipe, settings={**recipe.settings, **own})


def on_features(recipe: Recipe) -> Recipe:
    """A recipe for vectors, with what suits the features of a frozen network (docs/photographs.md).

    Photographs and drawings differ so much that the class shares of the target cannot be estimated by a simple model,
    and equal shares are nearer to it than those of the source. Batch norm on the logits would press the target towards
    the shares of a batch. All of this was chosen on pictures made for that purpose.
    """
    aligned = recipe.method not in UNALIGNED
    options = {**recipe.net_options, **({"logit_norm": False} if aligned else {})}
    return replace(recipe, net_options=options, match_shares=False, balance_classes=True)


def fine_tuned(recipe: Recipe, iterations: int | None) -> Recipe:
    """A recipe for images whose network has random weights, with the settings for pretrained ones.

    As on features (:func:`on_features`), the source is drawn in equal class shares: a simple model of pixels, by which
    those of the target are estimated, misjudges photographs.
    """
    weights = {"lambda_s": 0.1, "lambda_t": 0.3, "radius": RADIUS}
    length = min(FINE_TUNING_ITERATIONS, recipe.settings["iterations"]) if iterations is None else iterations
    settings = {**recipe.settings, **taken(recipe.method, weights), **FINE_TUNING, "iterations": length}
    refine = recipe.dirt_t
    if refine is not None:
        refine = {**refine, "lambda_t": weights["lambda_t"], "radius": RADIUS, "iterations": length}
        refine["interval"] = interval_for(length)
    settings["decay"] = decay_for(length)
    return replace(recipe, settings=settings, dirt_t=refine, match_shares=False, balance_classes=True)


def recipe_for(
    data: DataSpec, task: "Task", asked: Mapping[str, Any], dirt_t: bool, device: str, ready: bool
) -> Recipe:
    """The recipe of ``vmt train``: the task's, or the one for your own data, with the settings in ``asked``.

    ``ready`` says that the function of the network returns one with pretrained weights.
    """
    asked = dict(asked)
    method, net, instance_norm = asked.pop("method", "vmt"), asked.pop("net", None), asked.pop("instance_norm", None)
    match_shares = asked.pop("match_shares", None)
    options = {name: asked.pop(name) for name in names_of_net_settings() if name in asked}
    if options or ready:
        from vmt.nets.factory import options_with_defaults  # only here: the command line's help needs no PyTorch

        options = options_with_defaults(net, options, ready, task.sample_shape, len(task.classes))
    pretrained = ready or bool(options and starts_trained(options))
    if data.task == "digits":
        recipe = digits(method, dirt_t)
    elif data.task is not None and (data.task, True) in PAPER:
        recipe = paper(data.task, method, instance_norm is not False and net in (None, *CNNS), dirt_t)
    else:
        recipe = own_recipe(task, method, dirt_t, device, asked.get("iterations"), pretrained)
        every = evaluations_for(recipe.settings["iterations"])
        # A second thread hardly helps so thin a network, and on a busy machine it makes a run several times slower.
        threads = 1 if recipe.net.startswith("tiny") or task.backbone is not None else 0
        recipe = replace(recipe, config=Config(evaluate_every=every, checkpoint_every=every, threads=threads))
    if match_shares is not None:
        recipe = replace(recipe, match_shares=match_shares, balance_classes=False)
    if net is not None:
        kept = {name: value for name, value in recipe.net_options.items() if name == INSTANCE_NORM}
        # Only the network that the recipe had is known to have this tap.
        settings = {name: value for name, value in recipe.settings.items() if name != "tap" or net == recipe.net}
        recipe = replace(recipe, net=net, net_options=kept, settings=settings)
    if recipe.net not in CNNS:
        if instance_norm:
            raise InputError(f"--instance-norm is for the networks {', '.join(CNNS)}, not {recipe.net}: leave it out.")
        others = {name: value for name, value in recipe.net_options.items() if name != INSTANCE_NORM}
        recipe = replace(recipe, net_options=others)
    elif instance_norm is not None:
        recipe = replace(recipe, net_options={**recipe.net_options, INSTANCE_NORM: instance_norm})
    recipe = replace(recipe, net_options={**recipe.net_options, **options})
    if "iterations" in asked and "decay" not in asked:
        # Otherwise a short run would end with an average of its first weights.
        asked["decay"] = decay_for(asked["iterations"])
    return with_settings(recipe, asked, as_flag, "--dirt-t")


def names_of_net_settings() -> list[str]:
    """The names of the options that every network takes."""
    return [each.name for each in fields(NetSettings)]


def interval_for(iterations: int) -> int:
    """Iterations that DIRT-T keeps a teacher: ten teachers in a phase."""
    return max(1, iterations // 10)


def evaluations_for(iterations: int) -> int:
    """Iterations between two evaluations: six evaluations in a run, more in a long one."""
    return max(1, min(500, iterations // 6))


# --- Changing settings ---


def function_of(method: str) -> Callable[..., Method]:
    """The function of a method, also of DIRT-T alone, which refines a saved model."""
    return systems.dirt_t if method == REFINE else systems.named(method)


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The names that a function takes, and their defaults."""
    return {name: each.default for name, each in inspect.signature(function).parameters.items()}


def taken(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a method takes."""
    takes = parameters(function_of(method))
    return {name: value for name, value in settings.items() if name in takes}


def mixes(method: str) -> bool:
    """Whether a method has virtual mixup, which DIRT-T then has as well."""
    return "mix" in parameters(function_of(method))


# Recipe.build makes an optimiser and a weight average from these, for every method. None is the optimiser's default.
OF_OPTIMISER: dict[str, Any] = {
    "optimiser": "adam",
    "lr": None,
    "lr_schedule": "constant",
    **dict.fromkeys(("momentum", "weight_decay", "clip_norm", "backbone_rate")),
}
# The settings of the augmentation, and the names of its fields.
OF_AUGMENTATION = {f"augment_{field.name}": field.name for field in fields(Augmentation)}
COMMON: dict[str, Any] = OF_OPTIMISER | {"decay": Average.decay, "head_first": 0.0}
COMMON |= {f"augment_{field.name}": field.default for field in fields(Augmentation)}
# The settings that only DIRT-T has, and their names in its function. It shares the others with the method before it.
OF_DIRT_T = {"beta": "beta", "interval": "interval", "dirt_t_iterations": "iterations"}
# A shared setting that may have another value in DIRT-T, under this name.
OWN_VALUES = {"dirt_t_lambda_mix_t": "lambda_mix_t"}


def settings_of(method: str) -> dict[str, Any]:
    """The settings that a method takes, and their defaults."""
    return parameters(function_of(method)) | COMMON


def settings_of_dirt_t() -> dict[str, Any]:
    """The settings that only DIRT-T takes, and their defaults."""
    return {name: parameters(systems.dirt_t)[own] for name, own in (OF_DIRT_T | OWN_VALUES).items()}


def every_setting() -> set[str]:
    """The names of all settings of all methods."""
    return {name for method in systems.METHODS for name in settings_of(method)} | (OF_DIRT_T | OWN_VALUES).keys()


def with_settings(
    recipe: Recipe, asked: Mapping[str, Any], written: Callable[[str], str] = str, add: str = "dirt_t=True"
) -> Recipe:
    """A recipe with some settings replaced.

    A setting that the recipe cannot use raises an InputError, in which ``written(name)`` is how the user writes a
    setting, and ``add`` is how the user requests DIRT-T.

    >>> recipe = defaults_for((9,), samples=100).recipe("vmt", dirt_t=True)
    >>> with_settings(recipe, {"lambda_t": 0.1, "dirt_t_iterations": 50}).dirt_t["interval"]
    5
    """
    takes, refine = settings_of(recipe.method), recipe.dirt_t
    shared = parameters(systems.dirt_t).keys() - {"base", *OF_DIRT_T.values()}
    known, its_own = takes | parameters(systems.dirt_t) | settings_of_dirt_t(), OF_DIRT_T | OWN_VALUES
    for name in asked:
        if name in its_own and refine is None and name not in takes:
            raise InputError(f"{written(name)} is a setting of DIRT-T: add {add}.")
        if name not in takes and (refine is None or name not in shared | its_own.keys()):
            raise InputError(
                f"the method {recipe.method} has no setting {written(name)} (other methods do): leave it out."
            )
    given = {name: _as_type_of(known[name], value, written(name)) for name, value in asked.items()}
    if refine is not None:
        own = {name: value for name, value in given.items() if name in shared}
        own |= {its_own[name]: value for name, value in given.items() if name in its_own}
        refine = {**refine, **own, **_interval_for_length(refine, own)}
    before = dict(recipe.settings)
    if given.get("optimiser", before.get("optimiser", "adam")) != before.get("optimiser", "adam"):
        for name in ("lr", "momentum", "weight_decay"):  # these were chosen for another optimiser
            before.pop(name, None)
    settings = {**before, **{name: value for name, value in given.items() if name in takes}}
    return replace(recipe, settings=settings, dirt_t=refine)


def _interval_for_length(before: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, int]:
    """Keep the number of DIRT-T's teachers when its length changes, unless the interval is given as well.

    The paper's recipes leave the length to the method, and their interval does not depend on it.
    """
    if "iterations" not in asked or "interval" in asked or "iterations" not in before:
        return {}
    if before["interval"] == interval_for(before["iterations"]):  # also where that was rounded up to one
        return {"interval": interval_for(asked["iterations"])}
    teachers = max(1, round(before["iterations"] / before["interval"]))
    return {"interval": max(1, asked["iterations"] // teachers)}


def _as_type_of(default: Any, value: Any, name: str) -> Any:
    """A value of the default's type, NumPy's numbers as Python's own; a schedule may stand for a number."""
    if isinstance(default, bool):
        if not isinstance(value, bool | np.bool_):
            raise InputError(f"{name} is {value!r}: give True or False.")
        return bool(value)
    if isinstance(default, int):
        return whole(value, name)
    if isinstance(default, str):
        if value is not None and not isinstance(value, str):
            raise InputError(f"{name} is {value!r}: give a string.")
        return value
    if callable(value) or (value is None and default is None):
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} is {value!r}: give a number.")
    return float(value)
