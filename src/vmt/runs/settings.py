"""Settings of a method by their names, in the place of those of a recipe: for ``vmt train`` and ``vmt.adapt`` alike.

Which names there are, and what they may be, is read off the functions of :mod:`vmt.methods`.
"""

import inspect
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from vmt.errors import InputError, whole
from vmt.methods.nouns import Adam, Average
from vmt.methods.systems import METHODS, dirt_t, named
from vmt.runs.recipes import Recipe, interval_for, with_settings


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The names that a function takes, and their defaults."""
    return {name: each.default for name, each in inspect.signature(function).parameters.items()}


# What Recipe.build makes an optimiser and a weight average of.
COMMON = {"lr": Adam.lr, "decay": Average.decay}
# DIRT-T has these for itself, by the names of its function, and takes over the others from the method before it.
OWN = {"beta": "beta", "interval": "interval", "dirt_t_iterations": "iterations"}
SHARED = parameters(dirt_t).keys() - {"base", *OWN.values()}


def settings_of(method: str) -> dict[str, Any]:
    """The settings that a method takes, and their defaults."""
    return {name: value for name, value in parameters(named(method)).items() if name != "optimiser"} | COMMON


def of_dirt_t() -> dict[str, Any]:
    """Those that DIRT-T alone takes."""
    return {name: parameters(dirt_t)[own] for name, own in OWN.items()}


def every_setting() -> set[str]:
    """The names of all settings of all methods."""
    return {name for method in METHODS for name in settings_of(method)} | OWN.keys()


def changed(
    recipe: Recipe, asked: Mapping[str, Any], written: Callable[[str], str] = str, add: str = "dirt_t=True"
) -> Recipe:
    """A recipe with other settings; one that it has no use for is refused.

    ``written`` is how the user writes a name, ``add`` how DIRT-T is asked for.

    >>> from vmt.runs.recipes import defaults_for
    >>> recipe = defaults_for((9,), samples=100).recipe("vmt", dirt_t=True)
    >>> changed(recipe, {"lambda_t": 0.1, "dirt_t_iterations": 50}).dirt_t["interval"]
    5
    """
    takes, refine = settings_of(recipe.method), recipe.dirt_t
    known = takes | parameters(dirt_t) | of_dirt_t()
    for name in asked:
        if name in OWN and refine is None:
            raise InputError(f"{written(name)} is a setting of DIRT-T: add {add}.")
        if name not in takes and (refine is None or name not in SHARED | OWN.keys()):
            raise InputError(f"method {recipe.method} takes no {written(name)}: it is a setting of other methods.")
    given = {name: as_meant(value, known[name], written(name)) for name, value in asked.items()}
    if refine is not None:
        own = {OWN.get(name, name): value for name, value in given.items() if name in SHARED | OWN.keys()}
        refine = {**own, **interval_for_length(refine, own)}
    return with_settings(recipe, {name: value for name, value in given.items() if name in takes}, refine or {})


def interval_for_length(before: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, int]:
    """As many teachers of DIRT-T as before in a phase of another length, unless the interval was asked for as well.

    The paper's recipes leave the length to the method, and keep their interval whatever it is.
    """
    if "iterations" not in asked or "interval" in asked or "iterations" not in before:
        return {}
    if before["interval"] == interval_for(before["iterations"]):  # also where that was rounded up to one
        return {"interval": interval_for(asked["iterations"])}
    teachers = max(1, round(before["iterations"] / before["interval"]))
    return {"interval": max(1, asked["iterations"] // teachers)}


def as_meant(value: Any, default: Any, name: str) -> Any:
    """A value of the kind that the default is of, NumPy's as Python's own; schedules may stand for numbers."""
    if isinstance(default, bool):
        if not isinstance(value, bool | np.bool_):
            raise InputError(f"{name} is {value!r}: give True or False.")
        return bool(value)
    if isinstance(default, int):
        return whole(value, name)
    if isinstance(default, str):
        if value is not None and not isinstance(value, str):
            raise InputError(f"{name} is {value!r}: give a text.")
        return value
    if callable(value) or (value is None and default is None):
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} is {value!r}: give a number.")
    return float(value)
