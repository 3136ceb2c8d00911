"""``vmt train``: start a run, or resume one."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vmt.cli.options import add_fields, add_json, field_helps, given, names_of, shown_first
from vmt.data.tasks import TASKS
from vmt.errors import InputError
from vmt.methods.settings import AUTO, DEFAULT_METHOD, METHODS, DirtTSettings, Settings
from vmt.nets.registry import NETS
from vmt.progress import STDOUT, Progress
from vmt.runs.spec import DataSpec, load_data
from vmt.train.config import Config

if TYPE_CHECKING:
    from vmt.data.task import Task
    from vmt.runs.folder import RunSpec

EXAMPLES = """examples:
  vmt train digits                                        the embedded task, no download
  vmt train mnist-svhn --data DATA --out runs/m2s         VMT as in the paper, with instance norm
  vmt train mnist-svhn --data DATA --dirt-t --seed 1      then DIRT-T, as in the paper
  vmt train mnist-svhn --data DATA --method vada --no-instance-norm
  vmt train --source labelled/ --target unlabelled/       folders of pictures, one subfolder per class
  vmt train --source a.npz --target b.npz --iterations 5000
  vmt train --source a/ --target b/ --net mine.nets:make  your own network: make(classes=…, shape=…)
  vmt train --resume runs/m2s                             resume an interrupted run, with the same result

DATA holds the official files, for example mnist/*-ubyte.gz and svhn/{train,test}_32x32.mat; see vmt data --help.
Your own data can be a folder of pictures, a .csv of paths and labels, a table of numbers with a column of labels (.csv,
.tsv, .csv.gz, .tsv.gz, .parquet), an .npz with x and, for the source, y, or an .npy. The target needs no labels.
"""
DEFAULTS = (
    "the defaults are those of the task's recipe; for your own data they are chosen by the kind of samples and printed"
)
OPENING = "loading PyTorch; the first iterations will tell how long the run takes."
# The options that the short help shows.
COMMON = (
    "--help", "--data", "--source", "--target", "--target-test", "--image-size", "--out", "--resume",
    "--method", "--dirt-t", "--iterations", "--lambda-t", "--lr", "--net",
    "--seed", "--batch-size", "--device", "--keep-best",
)  # fmt: skip
METHOD = [*names_of(Settings, DirtTSettings), "method", "net", "instance_norm", "match_shares"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("task", nargs="?", help=f"one of {', '.join(TASKS)}; leave it out with --source and --target")
    add_data(parser.add_argument_group("data"))
    add_method(parser.add_argument_group("method", DEFAULTS))
    add_fields(parser.add_argument_group("run"), Config)
    shown_first(parser, *COMMON)
    parser.set_defaults(run=run, opening=OPENING)


def add_data(group: argparse._ArgumentGroup) -> None:
    unlike_others = ("image_size", "channels", "use_target_labels")
    places = {"data": "DIR", "source": "PATH", "target": "PATH", "target_test": "PATH", "label": "COLUMN"}
    places["impute"] = "mean|median"
    add_fields(group, DataSpec, skip=("task", *unlike_others), **places)
    texts = field_helps(DataSpec)
    group.add_argument("--image-size", metavar="N", type=int, nargs="+", help=texts["image_size"])
    group.add_argument("--channels", type=int, choices=(1, 3), help=texts["channels"])
    group.add_argument(
        "--use-target-labels",
        metavar="WEIGHT",
        type=float,
        nargs="?",
        const=1.0,
        help="also train on the known labels of the target, with this weight (default: 1); without this option they "
        "are only used to measure the accuracy",
    )
    group.add_argument("--no-cache", action="store_true", help="neither use nor write the cache of decoded pictures")
    group.add_argument("--out", metavar="DIR", type=Path, help="the run's folder (default: runs/TASK-METHOD-SEED)")
    group.add_argument(
        "--resume", metavar="RUN", type=Path, help="resume this run, with the settings that it was started with"
    )
    add_json(group)


def add_method(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--method",
        help=f"one of {', '.join(METHODS)} (default: {DEFAULT_METHOD}); or {AUTO}, which trains several of them on "
        "your own data and chooses one without target labels",
    )
    group.add_argument(
        "--minutes", type=float, help=f"the time for --method {AUTO} (default: the usual length of each method)"
    )
    group.add_argument("--dirt-t", action="store_true", default=None, help="refine with DIRT-T afterwards")
    add_fields(group, Settings)
    add_fields(group, DirtTSettings)
    group.add_argument(
        "--net",
        help=f"one of {', '.join(NETS)}, package.module:function for your own network, or timm:name (default: the "
        "recipe's)",
    )
    group.add_argument(
        "--instance-norm",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="normalise each image at the input (default: yes for the paper's tasks and networks)",
    )
    group.add_argument(
        "--match-shares",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="draw the source in the class shares of the target if these seem to be very different (default: yes for "
        "your own data, except for source_only and target_only)",
    )


def run(arguments: argparse.Namespace) -> int:
    from vmt.nets.factory import factory_name
    from vmt.runs.describe import how_it_went
    from vmt.runs.run import Run, carry_out

    resuming = arguments.resume is not None
    arguments.net = arguments.net and (factory_name(arguments.net) or arguments.net)
    spec, task, out = resumed(arguments) if resuming else started(arguments)
    if spec.recipe.method == AUTO:
        return run_auto(spec, task, out, arguments)
    with closing(Progress()) as progress:  # otherwise a bar would be drawn over the last lines
        summary = carry_out(Run.of(spec, task), out, resuming, progress).summary
    print(how_it_went(spec, task, summary), file=STDOUT)
    if arguments.json:
        print(json.dumps(summary), file=STDOUT)
    return 0 if summary["finished"] or summary["given_up"] else 130


def run_auto(spec: RunSpec, task: Task, out: Path, arguments: argparse.Namespace) -> int:
    from vmt.runs.auto import Portfolio, Stopped, carry_out_auto
    from vmt.runs.describe import how_auto_went

    recipe = spec.recipe
    minutes, iterations = (recipe.settings.get(name) for name in ("minutes", "iterations"))
    length = iterations if isinstance(iterations, int) else None
    net = None if recipe.net == AUTO else recipe.net
    portfolio = Portfolio(task, spec.data, recipe.config, net, None, minutes, length)
    try:
        summary = carry_out_auto(portfolio, out, arguments.resume is not None).summary
    except Stopped as stop:
        print(f"{str(stop).capitalize()}; resume with: vmt train --resume {shlex.quote(str(out))}", file=STDOUT)
        return 130
    print(how_auto_went(spec, task, summary, out), file=STDOUT)
    if arguments.json:
        print(json.dumps(summary), file=STDOUT)
    return 0


def started(arguments: argparse.Namespace) -> tuple[RunSpec, Task, Path]:
    """A new run."""
    from vmt.runs.describe import choices
    from vmt.runs.folder import RunSpec, check_free
    from vmt.runs.recipes import Recipe, recipe_for

    data = DataSpec(**given(arguments, names_of(DataSpec)))
    data.check()
    if arguments.out is not None:
        check_free(arguments.out)  # before the data are read, which may take minutes
    if arguments.method == AUTO:
        check_auto(arguments, data)
        task = load_data(data, notes(None), not arguments.no_cache)
        config = Config(**given(arguments, names_of(Config)))
        settings = {"minutes": arguments.minutes, "iterations": arguments.iterations}
        spec = RunSpec(data, Recipe(AUTO, settings, net=arguments.net or AUTO, config=config))
        return spec, task, arguments.out or default_folder(spec)
    if arguments.minutes is not None:
        raise InputError("--minutes is for the method auto: add --method auto, or leave it out.")
    task = load_data(data, notes(arguments.method), not arguments.no_cache)
    recipe = recipe_for(data, task, given(arguments, METHOD), bool(arguments.dirt_t), arguments.device or "auto")
    config = replace(recipe.config, **given(arguments, names_of(Config)))
    recipe = replace(recipe, config=config, target_labels=data.use_target_labels)
    if data.task is None:
        print(*choices(recipe, task), sep="\n", file=STDOUT)
    spec = RunSpec(data, recipe)
    return spec, task, arguments.out or default_folder(spec)


def check_auto(arguments: argparse.Namespace, data: DataSpec) -> None:
    """Refuse what the method auto cannot use."""
    from vmt.runs.auto import check_arguments_of_auto

    if data.task is not None:
        raise InputError(f"the method auto is for your own data: leave it out for {data.task}, which has a recipe.")
    asked = given(arguments, [name for name in METHOD if name not in ("method", "net", "iterations")])
    check_arguments_of_auto(
        AUTO, None, bool(arguments.dirt_t), None, data.use_target_labels, asked, lambda n: "--" + n.replace("_", "-")
    )


def resumed(arguments: argparse.Namespace) -> tuple[RunSpec, Task, Path]:
    """A run to resume, with the settings that it was started with."""
    from vmt.model import check_trusted
    from vmt.nets.factory import NetSpec
    from vmt.runs.folder import AS_A_VALUE, check_same_settings, read_run

    if arguments.out is not None:
        raise InputError("--out names a new run and --resume an old one: give one of them.")
    folder: Path = arguments.resume
    spec = read_run(folder)
    if not spec.data.in_files or spec.recipe.method.endswith(AS_A_VALUE):
        raise InputError(
            f"the run in {folder} was started in Python with samples or a method that no file holds: resume it there, "
            f"with vmt.adapt(…, out={str(folder)!r}, resume=True)."
        )
    check_same_settings(spec, given(arguments, [*names_of(DataSpec, Config), *METHOD, "dirt_t"]))
    check_trusted(NetSpec(spec.recipe.net, (), 0), arguments.net, folder)
    return spec, load_data(spec.data, notes(spec.recipe.method), not arguments.no_cache), folder


def notes(method: str | None) -> Callable[[str], None]:
    """Print notes on how data were read, without claiming that a method ignores target labels that it trains on."""
    from vmt.data.files.own import EVALUATION_ONLY

    claim = "target_only trains on target labels" if method == "target_only" else EVALUATION_ONLY
    return lambda note: print(note.replace(EVALUATION_ONLY, claim), file=STDOUT)


def default_folder(spec: RunSpec) -> Path:
    refined = "-dirt_t" if spec.recipe.dirt_t is not None else ""
    name = spec.data.name.replace(" ", "-")
    return Path("runs") / f"{name}-{spec.recipe.method}{refined}-{spec.recipe.config.seed}"
