"""``vmt search``: search the settings of a method without target labels."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmt.cli.options import add_fields, add_json, add_place, given, names_of, shown_first
from vmt.cli.text_tables import Column, number, say, tables_within, terminal_width
from vmt.cli.train import DEFAULTS, add_data, add_settings, by_flags, format_by_flags, name_functions
from vmt.data.tasks import NAMES_OF_TASKS
from vmt.errors import InputError, size_of
from vmt.methods.settings import DEFAULT_METHOD, METHODS
from vmt.nets.registry import NetSettings
from vmt.progress import STDERR, STDOUT, to_stderr
from vmt.runs.spec import DataSpec
from vmt.train.config import Config
from vmt.validators.registry import DEFAULT

if TYPE_CHECKING:
    from vmt.runs.recipes import Recipe
    from vmt.runs.search_result import SearchResult

EXAMPLES = """examples:
  vmt search --source labelled/ --target unlabelled/ --out runs/search      40 trials of VMT
  vmt search --source a.npz --target b.npz --method mcc --trials 100 --minutes 60 --out runs/search
  vmt search digits --iterations 200 --jobs 2 --out runs/search             two trials at a time
  vmt search --source a.npz --target b.npz --space ranges.json --out runs/search
  vmt search --source a.npz --target b.npz --storage sqlite:///study.db --out runs/search
  vmt search --out runs/search --clean                                      keep the chosen model only

A trial is a run with other settings. Optuna chooses the settings; a score without target labels says which are good.
The command can be interrupted, and started several times at once, also on other machines that share --out: every
process joins the same study. A trial whose process has died is resumed by another from its last checkpoint.

A file for --space has ranges or choices, in JSON or TOML, for example
  {"lambda_t": {"low": 0.01, "high": 1, "log": true}, "optimiser": ["adam", "sgd"]}
"""
OPENING = "loading PyTorch; a trial takes as long as a run of vmt train."
COMMON = (
    "--help", "--source", "--target", "--target-test", "--features", "--out", "--method", "--iterations", "--net",
    "--trials", "--space", "--by", "--storage", "--jobs", "--minutes", "--keep", "--clean", "--seed", "--device",
)  # fmt: skip
SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "task", nargs="?", help=f"one of {', '.join(NAMES_OF_TASKS)}; leave it out with --source and --target"
    )
    group = parser.add_argument_group("search")
    group.add_argument("--out", metavar="DIR", type=Path, help="the folder of the search (default: runs/search)")
    group.add_argument("--trials", type=int, default=40, help="how many settings to try (default: 40)")
    group.add_argument("--space", metavar="FILE", type=Path, help="ranges of the settings, a .json or .toml file")
    group.add_argument(
        "--by", metavar="VALIDATOR", default=DEFAULT, help=f"the validator to maximise (default: {DEFAULT})"
    )
    group.add_argument(
        "--storage",
        metavar="URL",
        help="the database of the study, for example sqlite:///study.db (default: a journal file in --out)",
    )
    group.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        help="processes on this machine (default: 1), or tasks on Ray (default: as many as there is room for)",
    )
    add_place(group)
    group.add_argument(
        "--minutes", metavar="M", type=float, help="stop after this many minutes; the same command continues the search"
    )
    group.add_argument(
        "--keep", metavar="N", type=int, default=5, help="number of trials that keep models (default: 5)"
    )
    group.add_argument(
        "--clean",
        action="store_true",
        help="remove the models and checkpoints of all finished trials but the chosen one, and end",
    )
    add_json(group)
    add_data(parser.add_argument_group("data"))
    group = parser.add_argument_group("method", f"{DEFAULTS}; the first trial has these defaults")
    group.add_argument("--method", help=f"one of {', '.join(METHODS)} (default: {DEFAULT_METHOD})")
    add_settings(group)
    add_fields(parser.add_argument_group("runs"), Config, skip=("keep_best", "stop_on_collapse", "tensorboard"))
    shown_first(parser, *COMMON)
    parser.set_defaults(run=run, opening=OPENING)


def run(arguments: argparse.Namespace) -> int:
    from vmt.runs.ray_tasks import where_to_run
    from vmt.runs.search import Stopped, carry_out_search, check_method, require_optuna, spec_around
    from vmt.runs.search_result import clean, conclude

    out = arguments.out or Path("runs/search")
    if arguments.clean:
        freed = clean(out)
        print(f"Removed {size_of(freed)} from {out}; the chosen model, records and logs are still there.")
        return 0
    place = where_to_run(arguments.on, arguments.gpus_per_run)
    require_optuna()  # before the data are read, which may take minutes
    data = DataSpec(**given(arguments, names_of(DataSpec)))
    data.check()
    if data.from_model is not None:
        raise InputError("a search needs a source: leave out --from, or use vmt train.")
    check_method(arguments.method or DEFAULT_METHOD)
    name_functions(arguments)
    spec, task = by_flags(arguments, data)
    search = spec_around(
        out,
        spec.data,
        spec.recipe,
        reference_by_flags(arguments, spec.data, task),
        arguments.space,
        given(arguments, names_of(Config)),
        task=task,
        **given(arguments, ["by", "trials", "storage", "keep"]),
    )
    for name, range in search.space.items():
        print(f"searched: {name}, {range.described()}", file=STDOUT)
    try:
        carry_out_search(search, arguments.jobs, arguments.minutes, to_stderr, STDERR.isatty(), place)
    except Stopped as stop:
        print(f"{str(stop).capitalize()}: run the same command to continue.", file=STDOUT)
        return 130
    result = conclude(search, task)
    show(result, out, data)
    if arguments.json:
        print(json.dumps(result.summary), file=STDOUT)
    return 0


def reference_by_flags(arguments: argparse.Namespace, data: DataSpec, task: Any) -> Recipe:
    """The recipe of source only for the same samples, with the network that the flags name, if any."""
    from vmt.runs.recipes import recipe_for
    from vmt.validators.choice import REFERENCE

    asked = given(arguments, ["iterations", "net", "instance_norm", *names_of(NetSettings)])
    ready = format_by_flags(arguments) is not None
    return recipe_for(data, task, {**asked, "method": REFERENCE}, False, arguments.device or "auto", ready)


def show(result: SearchResult, out: Path, data: DataSpec) -> None:
    """Print the best trials, what the settings contribute, and what was chosen."""
    from vmt.report.trial_table import setting_as_text

    width = terminal_width()
    trials = result.trials[:SHOWN]
    names = list(dict.fromkeys(name for trial in trials for name in trial["settings"]))
    columns = [
        Column("state", [trial["state"] for trial in trials], words=True),
        Column(str(result.summary["search"]["by"]), [number(trial["score"]) for trial in trials]),
    ]
    labelled = any(trial["target_accuracy"] is not None for trial in trials)
    if labelled:
        columns.append(Column("target accuracy*", [number(trial["target_accuracy"]) for trial in trials]))
    columns += [Column(name, [setting_as_text(trial["settings"].get(name)) for trial in trials]) for name in names]
    print(tables_within(Column("trial", [str(trial["number"]) for trial in trials]), columns, width), file=STDOUT)
    more = len(result.trials) - len(trials)
    if more > 0:
        print(f"… and {more} more", file=STDOUT)
    print(file=STDOUT)
    if labelled:
        say("* measured with target labels, which these runs have; not used for the search.", width)
    if result.importances:
        parts = ", ".join(f"{name} {share:.0%}" for name, share in result.importances.items())
        say(f"Share in the differences between good and bad trials: {parts}.", width)
    say(result.reason, width)
    if not result.summary["finished"]:
        say("The time is up before all trials were finished: run the same command to continue.", width)
    quoted = shlex.quote(str(out))
    print(f"The model is {out}/model.safetensors; see the trials with: vmt report {quoted} -o report.html", file=STDOUT)
