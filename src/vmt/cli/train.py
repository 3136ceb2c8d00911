"""``vmt train``: start a run, or resume one."""

from __future__ import annotations

import argparse
import json
import shlex
from contextlib import closing, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vmt.cli.options import add_fields, add_json, field_helps, given, names_of, shown_first
from vmt.data.framing import INTERPOLATIONS
from vmt.data.picture_sets import PICTURE_TASKS
from vmt.data.tasks import NAMES_OF_TASKS
from vmt.errors import InputError, as_flag
from vmt.methods.settings import AUTO, DEFAULT_METHOD, METHODS, DirtTSettings, Settings, unnamed_method
from vmt.nets.registry import NETS, NetSettings
from vmt.progress import STDOUT, Notify, Progress
from vmt.ranks.launch import check_alone, launched
from vmt.runs.spec import DataSpec, check_features, load_data
from vmt.train.config import Config

if TYPE_CHECKING:
    from vmt.data.framing import PictureFormat
    from vmt.data.task import Task
    from vmt.runs.callbacks import Callback
    from vmt.runs.folder import RunSpec

EXAMPLES = """examples:
  vmt train digits                                        the embedded task, no download
  vmt train mnist-svhn --data DATA --out runs/m2s         VMT as in the paper, with instance norm
  vmt train mnist-svhn --data DATA --dirt-t --seed 1      then DIRT-T, as in the paper
  vmt train mnist-svhn --data DATA --method vada --no-instance-norm
  vmt train --source labelled/ --target unlabelled/       two folders of pictures: several methods, one answer
  vmt train --source a/ --target b/ --features timm:resnet50   on features of photographs, in a minute or two
  vmt train --source a.npz --target b.npz --iterations 5000    VMT for 5,000 iterations
  vmt train --source a/ --target b/ --net mine.nets:make  your own network: make(classes=…, shape=…)
  vmt train --from runs/mine --target unlabelled/         refine a saved model on a target alone
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
    "--help", "--data", "--source", "--target", "--target-test", "--features", "--image-size", "--out", "--resume",
    "--method", "--dirt-t", "--iterations", "--lambda-t", "--lr", "--net", "--pretrained",
    "--seed", "--batch-size", "--device", "--keep-best",
)  # fmt: skip
METHOD = [*names_of(Settings, DirtTSettings, NetSettings), "method", "net", "instance_norm", "match_shares"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "task", nargs="?", help=f"one of {', '.join(NAMES_OF_TASKS)}; leave it out with --source and --target"
    )
    group = parser.add_argument_group("data")
    add_data(group)
    group.add_argument("--out", metavar="DIR", type=Path, help="the run's folder (default: runs/TASK-METHOD-SEED)")
    group.add_argument(
        "--resume", metavar="RUN", type=Path, help="resume this run, with the settings that it was started with"
    )
    add_json(group)
    group = parser.add_argument_group("method", DEFAULTS)
    group.add_argument(
        "--method",
        help=f"one of {', '.join(METHODS)}; or {AUTO}, which trains several methods on your own data and chooses the "
        f"answer without target labels (default: {AUTO} for your own data if no setting, network or length is given, "
        f"and otherwise {DEFAULT_METHOD})",
    )
    group.add_argument(
        "--minutes",
        type=float,
        help=f"the time for --method {AUTO}, in minutes (default: the usual length of each method)",
    )
    add_settings(group)
    group = parser.add_argument_group("run")
    add_fields(group, Config)
    group.add_argument(
        "--mlflow",
        metavar="URI",
        help="also send settings, metrics, model and report to MLflow: the address of a tracking server, a database or "
        "a folder. Needs the package mlflow-skinny",
    )
    shown_first(parser, *COMMON)
    parser.set_defaults(run=run, opening=OPENING)


def add_data(group: argparse._ArgumentGroup) -> None:
    unlike_others = (
        "from_model",
        "features",
        "image_size",
        "channels",
        "mean",
        "std",
        "interpolation",
        "crop",
        "use_target_labels",
    )
    places = {"data": "DIR", "source": "PATH", "target": "PATH", "target_test": "PATH", "label": "COLUMN"}
    places["impute"] = "mean|median"
    add_fields(group, DataSpec, skip=("task", *unlike_others), **places)
    texts = field_helps(DataSpec)
    group.add_argument("--from", "--from-model", dest="from_model", metavar="MODEL", help=texts["from_model"])
    group.add_argument("--features", metavar="NAME", help=texts["features"])
    group.add_argument("--image-size", metavar="N", type=int, nargs="+", help=texts["image_size"])
    group.add_argument("--channels", type=int, choices=(1, 3), help=texts["channels"])
    group.add_argument("--mean", metavar="X", type=float, nargs="+", help=texts["mean"])
    group.add_argument("--std", metavar="X", type=float, nargs="+", help=texts["std"])
    group.add_argument("--interpolation", choices=INTERPOLATIONS, help=texts["interpolation"])
    group.add_argument("--crop", metavar="SHARE", type=float, help=texts["crop"])
    group.add_argument(
        "--use-target-labels",
        metavar="WEIGHT",
        type=float,
        nargs="?",
        const=1.0,
        help="also train on the known labels of the target, with this weight (default: 1); without this option they "
        "are only used to measure the accuracy",
    )
    group.add_argument(
        "--no-cache", action="store_true", help="neither use nor write the cache of decoded pictures and features"
    )


def add_settings(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--dirt-t", action="store_true", default=None, help="refine the model with DIRT-T, as a second phase"
    )
    add_fields(group, Settings)
    add_fields(group, DirtTSettings)
    group.add_argument(
        "--net",
        help=f"one of {', '.join(NETS)}, package.module:function for your own network, timm:name or torchvision:name "
        "(default: the recipe's)",
    )
    add_fields(group, NetSettings, weights="FILE")
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
    from vmt.ranks.group import join_ranks

    # Rank 0 alone prints.
    with join_ranks(arguments.device or "auto") as ranks, nullcontext() if ranks.is_first else redirect_stdout(None):
        return train(arguments, ranks.is_first)


def train(arguments: argparse.Namespace, shows: bool) -> int:
    from vmt.runs.describe import how_it_went
    from vmt.runs.run import Run, carry_out

    resuming = arguments.resume is not None
    name_functions(arguments)
    spec, task, out = run_to_resume(arguments) if resuming else new_run(arguments)
    if spec.recipe.method == AUTO:
        check_alone("--method auto")
        if arguments.mlflow is not None:
            raise InputError("--method auto carries out several runs: give --mlflow with another method.")
        return run_auto(spec, task, out, arguments)
    with closing(Progress(show=shows)) as progress:  # otherwise a bar would be drawn over the last lines
        callbacks = trackers(arguments.mlflow, out) if shows else ()
        summary = carry_out(Run.of(spec, task), out, resuming, progress, callbacks=callbacks).summary
    print(how_it_went(spec, task, summary), file=STDOUT)
    if arguments.json:
        print(json.dumps(summary), file=STDOUT)
    return 0 if summary["finished"] or summary["given_up"] else 130


def name_functions(arguments: argparse.Namespace) -> None:
    """Write the names of the user's functions in the one way in which they are recorded."""
    from vmt.nets.backbone import backbone_function
    from vmt.nets.factory import factory_name

    arguments.net = arguments.net and (factory_name(arguments.net) or arguments.net)
    arguments.features = arguments.features and (backbone_function(arguments.features) or arguments.features)


def trackers(uri: str | None, out: Path) -> tuple[Callback, ...]:
    """What follows the run: MLflow, if its address is given.

    The address that a folder has recorded is not enough, because the folder may be somebody else's.
    """
    from vmt.runs.folder import TRACKED

    if uri is None and not (out / TRACKED).exists():
        return ()
    from vmt.trackers import MLflow, read_tracked

    if uri is None:
        recorded = read_tracked(out)["uri"]
        print(f"The run was sent to MLflow at {recorded}: give --mlflow {recorded} to continue there.", file=STDOUT)
        return ()
    return (MLflow(uri),)


def run_auto(spec: RunSpec, task: Task, out: Path, arguments: argparse.Namespace) -> int:
    from vmt.runs.auto import Portfolio, Stopped, carry_out_auto
    from vmt.runs.describe import how_auto_went, named_functions

    recipe = spec.recipe
    minutes, iterations = (recipe.settings.get(name) for name in ("minutes", "iterations"))
    length = iterations if isinstance(iterations, int) else None
    net = None if recipe.net == AUTO else recipe.net
    portfolio = Portfolio(task, spec.data, recipe.config, net, None, minutes, length)
    try:
        summary = carry_out_auto(portfolio, out, arguments.resume is not None).summary
    except Stopped as stop:
        again = f"vmt train --resume {shlex.quote(str(out))}{named_functions(spec)}"
        print(f"{str(stop).capitalize()}; resume with: {again}", file=STDOUT)
        return 130
    print(how_auto_went(spec, task, summary, out), file=STDOUT)
    if arguments.json:
        print(json.dumps(summary), file=STDOUT)
    return 0


def new_run(arguments: argparse.Namespace) -> tuple[RunSpec, Task, Path]:
    """A new run."""
    from vmt.runs.folder import check_free

    data = DataSpec(**given(arguments, names_of(DataSpec)))
    data.check()
    here = launched()
    # Rank 0 alone checks it: when the others come here, rank 0 may have written to it already.
    if arguments.out is not None and (here is None or (here.rank == 0 and here.restarts == 0)):
        check_free(arguments.out)  # before the data are read, which may take minutes
    if arguments.method is None and data.source is not None and data.from_model is None:
        arguments.method = method_for(arguments, data)
    if arguments.method == AUTO:
        check_auto(arguments, data)
    elif arguments.minutes is not None:
        raise InputError("--minutes is for the method auto: add --method auto, or leave it out.")
    spec, task = (by_flags if data.from_model is None else refining)(arguments, data)
    return spec, task, arguments.out or default_folder(spec)


def method_for(arguments: argparse.Namespace, data: DataSpec) -> str:
    """The method of a run on own data for which none is named."""
    asked = given(arguments, [*METHOD, "dirt_t", "keep_best", "mlflow"])
    return unnamed_method(bool(asked) or data.use_target_labels is not None or launched() is not None)


def by_flags(arguments: argparse.Namespace, data: DataSpec) -> tuple[RunSpec, Task]:
    """The run that the flags describe, and its samples."""
    from vmt.methods.systems import named
    from vmt.runs.describe import choices
    from vmt.runs.folder import RunSpec
    from vmt.runs.recipes import Recipe, recipe_for

    if arguments.method not in (None, AUTO):
        named(arguments.method)  # before the data are read, which may take minutes
    expected = format_by_flags(arguments)
    data = data.expecting(expected)
    cache, memory, device = not arguments.no_cache, arguments.memory or "auto", arguments.device or "auto"
    task = load_data(data, notes(arguments.method), cache, memory=memory, device=device)
    if arguments.method == AUTO:
        config = Config(**given(arguments, names_of(Config)))
        settings = {"minutes": arguments.minutes, "iterations": arguments.iterations}
        return RunSpec(data, Recipe(AUTO, settings, net=arguments.net or AUTO, config=config)), task
    asked = given(arguments, METHOD)
    recipe = recipe_for(data, task, asked, bool(arguments.dirt_t), device, expected is not None)
    config = replace(recipe.config, **given(arguments, names_of(Config)))
    recipe = replace(recipe, config=config, target_labels=data.use_target_labels)
    if data.task is None or data.task in PICTURE_TASKS:
        print(*choices(recipe, task), sep="\n", file=STDOUT)
    return RunSpec(data, recipe), task


def format_by_flags(arguments: argparse.Namespace) -> PictureFormat | None:
    """What the weights of the network that the flags name expect of pictures, if they say so."""
    if arguments.net in (None, *NETS):
        return None
    from vmt.nets.backbone import expected_format

    return expected_format(arguments.net, given(arguments, names_of(NetSettings)))


def refining(arguments: argparse.Namespace, data: DataSpec) -> tuple[RunSpec, Task]:
    """A new run that refines a saved model on the target alone."""
    from vmt.runs.describe import choices
    from vmt.runs.folder import RunSpec
    from vmt.runs.source_free import refining_recipe

    cache, memory, device = not arguments.no_cache, arguments.memory or "auto", arguments.device or "auto"
    task = load_data(data, notes(None), cache, memory=memory, network=arguments.net, device=device)
    asked = given(arguments, METHOD)
    recipe = refining_recipe(data, task, asked, bool(arguments.dirt_t), device, arguments.net)
    recipe = replace(recipe, config=replace(recipe.config, **given(arguments, names_of(Config))))
    print(f"refining {data.from_model} on the target alone (--from)", file=STDOUT)
    print(*choices(recipe, task), sep="\n", file=STDOUT)
    return RunSpec(data, recipe), task


def check_auto(arguments: argparse.Namespace, data: DataSpec) -> None:
    """Refuse what the method auto cannot use."""
    from vmt.runs.auto import check_arguments_of_auto

    if data.from_model is not None:
        raise InputError("the method auto needs a source: leave out --from, or --method.")
    if data.task is not None:
        raise InputError(f"the method auto is for your own data: leave it out for {data.task}, which has a recipe.")
    asked = given(arguments, [*(name for name in METHOD if name not in ("method", "net", "iterations")), "keep_best"])
    check_arguments_of_auto(AUTO, None, bool(arguments.dirt_t), None, data.use_target_labels, asked, as_flag)


def run_to_resume(arguments: argparse.Namespace) -> tuple[RunSpec, Task, Path]:
    """A run to resume, with the settings that it was started with."""
    from vmt.model import check_trusted
    from vmt.nets.factory import NetSpec
    from vmt.runs.folder import check_no_search, check_same_settings, read_run

    if arguments.out is not None:
        raise InputError("--out names a new run and --resume an old one: give one of them.")
    folder: Path = arguments.resume
    spec = read_run(folder)
    check_no_search(folder)
    if spec.only_in_python is not None:
        raise InputError(
            f"the run in {folder} was started in Python with {spec.only_in_python} that no file holds: resume it "
            f"there, with vmt.adapt(…, out={str(folder)!r}, resume=True)."
        )
    asked = given(arguments, [*names_of(DataSpec, Config), *METHOD, "dirt_t"])
    config = replace(spec.recipe.config, memory=asked.pop("memory", spec.recipe.config.memory))  # it changes no result
    check_same_settings(spec, asked)
    spec = replace(spec, recipe=replace(spec.recipe, config=config))
    check_trusted(NetSpec(spec.recipe.net, (), 0), arguments.net, folder)
    check_features(spec.data, given(arguments, ["features"]).values(), folder)
    cache, network = not arguments.no_cache, arguments.net
    says = notes(spec.recipe.method)
    task = load_data(spec.data, says, cache, memory=config.memory, network=network, device=config.device)
    return spec, task, folder


def notes(method: str | None) -> Notify:
    """Print notes on how data were read, without claiming that a method ignores target labels that it trains on."""
    from vmt.data.files.own import EVALUATION_ONLY

    claim = "target_only trains on target labels" if method == "target_only" else EVALUATION_ONLY
    return lambda note: print(note.replace(EVALUATION_ONLY, claim), file=STDOUT)


def default_folder(spec: RunSpec) -> Path:
    refined = "-dirt_t" if spec.recipe.dirt_t is not None else ""
    name = spec.data.name.replace(" ", "-")
    return Path("runs") / f"{name}-{spec.recipe.method}{refined}-{spec.recipe.config.seed}"
