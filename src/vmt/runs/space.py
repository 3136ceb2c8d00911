"""The space of a search: the settings that it varies, and the range of each."""

import json
import math
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vmt.errors import InputError, parsing, perhaps
from vmt.methods.nouns import OPTIMISERS, decay_for
from vmt.runs.recipes import Recipe, function_of, parameters, settings_of, settings_of_dirt_t, with_settings

# By default, a setting is searched from its default divided by this factor to its default times it. The defaults depend
# on the kind of samples and on the method, and so do the ranges.
FACTORS: dict[str, float] = {
    "lr": 4.0,
    "lambda_d": 10.0,
    "lambda_s": 10.0,
    "lambda_t": 10.0,
    "lambda_mcc": 10.0,
    "temperature": 2.0,
    "weight": 10.0,
    "radius": 3.0,
    "weight_decay": 10.0,
    "backbone_rate": 3.0,
}
LONGEST_WARM_UP = 0.5
EXAMPLE = '{"lambda_t": {"low": 0.01, "high": 1, "log": true}, "optimiser": ["adam", "sgd"]}'
BATCH_SIZE = "batch_size"


@dataclass(frozen=True)
class Range:
    """The values that a search may give to a setting: those from ``low`` to ``high``, or ``choices``."""

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    """Whether it is searched on a logarithmic scale."""
    choices: tuple[Any, ...] = ()
    whole: bool = False
    """Whether the values are whole numbers."""

    def nearest(self, value: Any) -> Any:
        """The value of the range that is nearest to another."""
        if self.choices:
            return value if value in self.choices else self.choices[0]
        number = self.low if value is None else min(max(float(value), self.low), self.high)
        return round(number) if self.whole else number

    def suggest(self, trial: Any, name: str) -> Any:
        """The value that Optuna gives to a trial; for a trial that has one already, this one."""
        if self.choices:
            return trial.suggest_categorical(name, self.choices)
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def described(self) -> str:
        if self.choices:
            return ", ".join(map(str, self.choices))
        return f"{self.low:g} to {self.high:g}" + (", logarithmic" if self.log else "")


def default_of(recipe: Recipe, name: str) -> Any:
    """The value of a setting in a recipe, or the default of its method; None without either."""
    if name == BATCH_SIZE:
        return recipe.config.batch_size
    if name in recipe.settings:
        return recipe.settings[name]
    if name == "lr":
        rate = OPTIMISERS[recipe.settings.get("optimiser") or "adam"].lr
        return None if callable(rate) else rate
    value = (settings_of(recipe.method) | settings_of_dirt_t()).get(name)
    return None if callable(value) else value


def default_space(recipe: Recipe, known: Collection[str] | None = None) -> dict[str, Range]:
    """The settings that a search varies if no space is given: weights, radius and learning rate, around their defaults.

    A weight of 0 stays 0. Only settings in ``known`` are varied, if these are given.
    """
    takes = {*parameters(function_of(recipe.method)), *recipe.settings, "lr"}
    if "lambda_mcc" in takes and not default_of(recipe, "lambda_mcc"):
        takes.discard("temperature")  # of a term that the method does not have by default
    space = {}
    for name, factor in FACTORS.items():
        value = default_of(recipe, name) if name in takes else None
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            space[name] = Range(value / factor, value * factor, log=True)
    if recipe.settings.get("warm_up") is not None:
        space["warm_up"] = Range(0.0, LONGEST_WARM_UP)
    return {name: range for name, range in space.items() if known is None or name in known}


def read_space(space: str | Path | Mapping[str, Any], recipe: Recipe) -> dict[str, Range]:
    """A space from a JSON or TOML file, or from a mapping in Python. Every end of a range is tried on the recipe."""
    given: Any = space
    what = "the space"
    if isinstance(space, str | Path):
        path = Path(space)
        what = str(path)
        if path.suffix.lower() not in (".json", ".toml"):
            raise InputError(f"{path} (--space) is neither a .json nor a .toml file: write ranges, such as {EXAMPLE}.")
        with parsing(path, "a file of ranges", f"write JSON such as {EXAMPLE}, or the same in TOML"):
            text = path.read_text(encoding="utf-8")
            given = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    if not isinstance(given, Mapping) or not given:
        raise InputError(f"{what} has no settings with ranges: write ranges, such as {EXAMPLE}.")
    return {str(name): _range(what, str(name), values, recipe) for name, values in given.items()}


def _range(what: str, name: str, given: Any, recipe: Recipe) -> Range:
    known = {**settings_of(recipe.method), BATCH_SIZE: recipe.config.batch_size}
    known |= {} if recipe.dirt_t is None else settings_of_dirt_t()
    if name not in known:
        raise InputError(
            f"{what} has a range for {name!r}, which is not a setting of {recipe.method}{perhaps(name, known)}: leave "
            "it out."
        )
    found = given if isinstance(given, Range) else _parsed(what, name, given, known[name])
    for value in found.choices or (found.low, found.high):
        try:
            with_values(recipe, {name: int(value) if found.whole else value}).build()
        except (InputError, ValueError, TypeError) as error:
            raise InputError(f"{what} lets {name} be {value!r}, which cannot be used: {error}") from error
    return found


def _parsed(what: str, name: str, given: Any, default: Any) -> Range:
    if isinstance(given, list | tuple):
        if len(given) < 2 or any(isinstance(value, list | dict) for value in given):
            raise InputError(f"{what} has the choices {given!r} for {name}: give two values or more.")
        return Range(choices=tuple(given))
    if not isinstance(given, Mapping) or not {"low", "high"} <= given.keys() or given.keys() - {"low", "high", "log"}:
        raise InputError(
            f"{what} has {given!r} for {name}: give low and high, perhaps log, or a list of choices, such as {EXAMPLE}."
        )
    low, high, log = given["low"], given["high"], given.get("log", False)
    for end in (low, high):
        if isinstance(end, bool) or not isinstance(end, int | float) or not math.isfinite(end):
            raise InputError(f"{what} has the end {end!r} for {name}: give a finite number.")
    if not isinstance(log, bool):
        raise InputError(f"{what} has log = {log!r} for {name}: give true or false.")
    if not low < high:
        raise InputError(f"{what} lets {name} go from {low:g} to {high:g}: low must be below high.")
    if log and low <= 0:
        raise InputError(f"{what} lets {name} begin at {low:g} with log: begin above 0, or leave log out.")
    whole = isinstance(default, int) and not isinstance(default, bool)
    if whole and not (float(low).is_integer() and float(high).is_integer()):
        raise InputError(f"{what} lets {name} go from {low:g} to {high:g}: give whole numbers.")
    return Range(float(low), float(high), log, whole=whole)


def with_values(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """A recipe with the values of a trial."""
    settings = {name: value for name, value in values.items() if name != BATCH_SIZE}
    if "iterations" in settings and "decay" not in settings:
        settings["decay"] = decay_for(settings["iterations"])  # as for any run whose length is given
    changed = with_settings(recipe, settings) if settings else recipe
    if BATCH_SIZE in values:
        changed = replace(changed, config=replace(changed.config, batch_size=values[BATCH_SIZE]))
    return changed
