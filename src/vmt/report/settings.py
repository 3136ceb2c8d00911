"""The settings of runs as tables: all of one run, and those in which several runs differ."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vmt.methods.nouns import decay_for
from vmt.runs.describe import WEIGHTS
from vmt.runs.record import RunRecord

# Fields of Config and settings that the table of runs has a column for, that follow from others, or that do not change
# what is learned.
NOT_COMPARED = (
    *("device", "threads", "engine", "log_every", "evaluate_every", "evaluate_samples", "validate_samples"),
    *("checkpoint_every", "stop_on_collapse", "tensorboard", "method", "iterations", "use_target_labels"),
)
MOST_COLUMNS = 6


def settings_tables(run: RunRecord, seen: Mapping[str, str]) -> dict[str, list[list[str]]]:
    """What the run was started with, what its networks see, and where it ran, as tables of names and values."""
    recipe = asdict(run.spec.recipe)
    config = recipe.pop("config")
    method = {**recipe.pop("settings"), **{f"DIRT-T {k}": v for k, v in (recipe.pop("dirt_t") or {}).items()}}
    net_options = recipe.pop("net_options")
    data = {name: value for name, value in asdict(run.spec.data).items() if value is not None}
    return {
        "Method": as_rows({**recipe, **net_options, **method}),
        "Run": as_rows(config),
        "Data": as_rows({**data, **seen, "fingerprint": run.run_json.get("fingerprint")}),
        "Environment": as_rows(run.run_json.get("environment") or {}),
    }


def as_rows(values: Mapping[str, Any]) -> list[list[str]]:
    return [[name.replace("_", " "), "–" if value in (None, "") else str(value)] for name, value in values.items()]


def differences(runs: Sequence[RunRecord]) -> tuple[list[str], list[list[str]]]:
    """The settings in which the runs differ: their names, and a row of values for each run.

    A setting that one method has and another lacks does not count: the column of methods tells it.
    """
    settings = [settings_that_decide(run) for run in runs]
    # The run with the most settings decides their order: those of the method come first, as in its recipe.
    names = list(dict.fromkeys(name for of_run in sorted(settings, key=len, reverse=True) for name in of_run))
    differing = [name for name in names if len({of_run[name] for of_run in settings if name in of_run}) > 1]
    columns = differing[:MOST_COLUMNS]
    shown = [WEIGHTS.get(name, name.replace("_", " ")) for name in columns]
    return shown, [[of_run.get(name, "–") for name in columns] for of_run in settings]


def settings_that_decide(run: RunRecord) -> dict[str, str]:
    """Every setting of a run that decides what it learns, as text."""
    recipe = asdict(run.spec.recipe)
    config, settings, refine = recipe.pop("config"), recipe.pop("settings"), recipe.pop("dirt_t") or {}
    if settings.get("decay") == decay_for(settings.get("iterations", 0) or 1):
        del settings["decay"]  # it follows from the number of iterations
    own = {f"DIRT-T {name}": value for name, value in refine.items() if settings.get(name) != value}
    data = asdict(run.spec.data)
    everything = {**settings, **own, **recipe.pop("net_options"), **recipe, **config, **data}
    return {name: as_text(value) for name, value in everything.items() if name not in NOT_COMPARED}


def as_text(value: Any) -> str:
    """A value of a setting, short enough for a column."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value in (None, "") else str(value)
