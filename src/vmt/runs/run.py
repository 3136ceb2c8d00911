"""Runs: the one way from samples, a method and a network to a trained, recorded model.

``vmt train``, ``vmt.adapt`` and the scikit-learn estimator all make a :class:`Run` and call :func:`carry_out`.
"""

import copy
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from vmt.data.task import Task
from vmt.device import torch_device
from vmt.disk import write_atomically
from vmt.errors import InputError, message_of_gpu_error
from vmt.evaluate.accuracy import evaluate
from vmt.evaluate.adabn import adabn
from vmt.evaluate.matching import drawn_in_equal_shares, drawn_in_shares, estimated_shares
from vmt.evaluate.probe import class_shares_of, make_probe, subsample
from vmt.figures import draw_curves
from vmt.methods.nouns import HEAD, Method
from vmt.methods.systems import with_target_labels
from vmt.model import Model, rows_about
from vmt.nets.backbone import Backbone, expected_format
from vmt.nets.factory import OWN_MODULE, NetSpec, network_of, options_with_defaults
from vmt.nets.networks import Staged
from vmt.nets.registry import starts_trained
from vmt.notebook import html_table
from vmt.progress import Progress
from vmt.ranks.group import Ranks, join_ranks
from vmt.ranks.launch import launched
from vmt.runs import folder as run_folder
from vmt.runs.callbacks import Callback
from vmt.runs.describe import how_to_shorten
from vmt.runs.folder import (
    AS_A_VALUE,
    BEST,
    CURVES,
    LAST,
    MODEL,
    RUN,
    SUMMARY,
    TRACKED,
    RunSpec,
    data_fingerprint,
    environment,
    folder_lock,
)
from vmt.runs.recipes import Recipe, evaluations_for, own_recipe, with_settings
from vmt.runs.source_free import starting_network
from vmt.runs.spec import DataSpec, warnings_about
from vmt.train.checkpoint import CHECKPOINTS, checkpoints, last_step
from vmt.train.config import Config
from vmt.train.log import LOG, require_tensorboard
from vmt.train.loop import Outcome, interruptible, place, target_to_evaluate, train
from vmt.validators.choice import REFERENCE
from vmt.validators.class_shares import ClassShares

# Batch-norm statistics of this many target samples are hardly better with more.
ADABN_SAMPLES = 5_000

# Before this many iterations, the predicted classes are those of a model that has learned little.
TIME_FOR_SHARES = 200


@dataclass(frozen=True)
class Run:
    """Everything that a run needs: samples, method, network and how to carry it out."""

    task: Task
    method: Method
    net: NetSpec
    build: Callable[[], Staged]
    """Builds the network that ``net`` describes."""
    recipe: Recipe
    """What is recorded of method, network and config."""
    data: DataSpec
    result_is_best: bool = False
    """Whether the result is the best model by ``Config.keep_best`` instead of the last."""

    @property
    def config(self) -> Config:
        return self.recipe.config

    @classmethod
    def of(cls, spec: RunSpec, task: Task) -> "Run":
        """The run that a spec describes, on its samples."""
        recipe = spec.recipe
        net = NetSpec(recipe.net, task.sample_shape, len(task.classes), recipe.net_options)
        build = net.build
        if spec.data.from_model is not None:
            build = starting_network(spec.data, net)
        return cls(task, recipe.build(), net, build, recipe, spec.data, spec.result_is_best)


def make_run(
    task: Task,
    method: Method | str,
    *,
    dirt_t: bool,
    asked: Mapping[str, Any],
    iterations: int | None,
    target_labels: float | None,
    net: str | Callable[..., nn.Module] | None,
    net_options: Mapping[str, Any] | None,
    config: Config,
    match_shares: bool | None = None,
    evaluate_often: bool = False,
    data: DataSpec | None = None,
    recorded: Recipe | None = None,
) -> Run:
    """The run of a method, given by name or as a value, on a task that has no other recipe.

    ``recorded`` is the recipe of the run that is resumed, if there is one. What is not asked for is as it was then,
    also if the defaults have changed since.
    """
    pretrained = False
    if isinstance(net_options, Mapping | None):  # the network refuses any other
        ready = expected_format(net, net_options or {}) is not None
        net_options = dict(net_options or {})
        pretrained = ready or starts_trained(net_options)
        if recorded is None:
            net_options = options_with_defaults(net, net_options, ready, task.sample_shape, len(task.classes))
        else:
            net_options = {**recorded.net_options, **net_options}
    if isinstance(method, str):
        if recorded is not None and (recorded.method, recorded.dirt_t is not None) == (method, dirt_t):
            asked = dict(asked) if iterations is None else {**asked, "iterations": iterations}
            recipe = with_settings(recorded, asked)
            if recorded.net == OWN_MODULE:  # a function of the user's, which must be given again
                recipe = replace(recipe, net=own_recipe(task, method, device=config.device).net, net_options={})
        else:
            recipe = with_settings(own_recipe(task, method, dirt_t, config.device, iterations, pretrained), asked)
        recipe = replace(recipe, target_labels=target_labels)
        method = recipe.build()
    else:
        recipe = own_recipe(task, device=config.device)  # for its network alone
        method = method.with_iterations(iterations)
        if target_labels is not None:
            method = with_target_labels(method, target_labels)
        recipe = Recipe(
            method.name + AS_A_VALUE, net=recipe.net, net_options=recipe.net_options, target_labels=target_labels
        )
    if match_shares is not None:
        recipe = replace(recipe, match_shares=match_shares, balance_classes=False)
    if net is None:
        net_options = {**recipe.net_options, **(net_options or {})}
    spec, build = network_of(net or recipe.net, task.sample_shape, len(task.classes), net_options)
    if evaluate_often:  # the usual interval would leave a short run with one model to choose from
        first = next(phase for phase in method.phases if phase.name != HEAD)
        config = replace(config, evaluate_every=evaluations_for(first.iterations))
    if task.backbone is not None and config.threads == 0:  # as in recipe_for
        config = replace(config, threads=1)
    recipe = replace(recipe, net=spec.name, net_options=spec.options, config=config)
    return Run(task, method, spec, build, recipe, data or DataSpec(), result_is_best=True)


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run: a model, and how the training went."""

    model: Model
    """The model at the end of the run or, if ``Run.result_is_best`` and one was kept, the best one."""
    outcome: Outcome
    summary: dict[str, Any]

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in rows_about(self.summary))

    def _repr_html_(self) -> str:
        return html_table("A run of vmt", rows_about(self.summary))


def carry_out(
    run: Run,
    folder: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    budget: float | None = None,
    until: str | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Carry out a run and, with ``folder``, record it there.

    With ``resume`` the run in the folder continues from its last checkpoint. The run stops early, with a checkpoint to
    resume from, after ``budget`` seconds, at the end of the phase ``until``, and on Ctrl-C or ``kill``.

    Under torchrun every rank calls this function, and rank 0 alone writes to the folder. After torchrun has started
    the ranks again, the run in the folder is resumed.
    """
    with join_ranks(run.config.device) as ranks:
        return _carry_out(run, folder, resume, progress, budget, until, callbacks, ranks)


def _carry_out(
    run: Run,
    folder: Path | None,
    resume: bool,
    progress: Progress | None,
    budget: float | None,
    until: str | None,
    callbacks: Sequence[Callback],
    ranks: Ranks,
) -> Result:
    config, shown_folder = run.config, folder
    if not ranks.is_first:
        folder = progress = None
        callbacks = ()
    here = launched()
    if folder is not None and here is not None:
        resume = resume or (here.restarts > 0 and (folder / RUN).exists())
    if ranks.watch is not None:
        ranks.watch.how_to_resume = lambda: _how_to_resume(shown_folder)
    torch_device(config.device)
    if folder is not None:  # everything that may be refused is checked before anything is written
        if config.tensorboard:
            require_tensorboard()
        if run.net.name != OWN_MODULE:
            run.build()

    def advise(seconds: float) -> None:
        if progress is not None:
            progress.say(how_to_shorten(run.recipe, run.task, seconds))

    def save_phase(phase: str, network: Staged) -> None:
        # The last one is the model of the run. A copy, because a model is put into evaluation mode and training
        # continues with this network.
        if folder is not None and phase != run.method.phases[-1].name:
            about = {"run": str(folder), "phase": phase}
            _model(run, copy.deepcopy(network), about).save(folder / f"model_{phase}.safetensors")

    def follow(record: dict[str, Any]) -> None:
        for each in callbacks:
            (each.on_evaluate if "target" in record else each.on_log)(record)

    def follow_checkpoint(step: int) -> None:
        assert folder is not None
        for each in callbacks:
            each.on_checkpoint(step, folder)

    # A signal that arrives while the results are written takes effect afterwards.
    with interruptible(), nullcontext() if folder is None else folder_lock(folder), followed_by(callbacks):
        started = folder is not None and _start_or_resume(run, folder, resume)
        task, shares = with_shares(run, progress)
        try:
            for each in callbacks:
                each.on_start(RunSpec(run.data, run.recipe, run.result_is_best).to_dict(), folder)
            outcome = train(
                task,
                run.method,
                run.build,
                config,
                out=folder,
                resume=resume,
                progress=progress,
                budget=budget,
                until=until,
                phase_ended=save_phase,
                time_announced=advise,
                ranks=ranks,
                on_record=follow,
                on_checkpoint=follow_checkpoint,
            )
        except InputError:
            if folder is not None and started and not (folder / LOG).exists():
                for name in (RUN, TRACKED):  # refused before its first step: the folder is free for another try
                    (folder / name).unlink(missing_ok=True)
            raise
        except RuntimeError as error:
            if folder is not None and message_of_gpu_error(error) is not None and checkpoints(folder / CHECKPOINTS):
                error.add_note(f"the run in {folder} can be resumed from its last checkpoint (--resume {folder})")
            raise
        result = _concluded(run, outcome, shares, folder, ranks)
        for each in callbacks:
            each.on_end(result.model, result.summary, folder)
    return result


def _concluded(run: Run, outcome: Outcome, shares: ClassShares | None, folder: Path | None, ranks: Ranks) -> Result:
    """The result of a training that has stopped. If the run is over, its files are written."""
    keep_best = run.config.keep_best
    summary = ranks.from_first(lambda: summarise(run, outcome, shares, folder))
    about = {"step": outcome.step, **{name: value for name, value in summary.items() if name != "clock"}}
    if outcome.best is None:
        del about["best"]
    if run.method.name == REFERENCE and outcome.finished:
        summary["adabn"] = ranks.from_first(lambda: renormalised(run, outcome.network))
    if run.result_is_best and keep_best and outcome.best is None and outcome.finished:
        warnings.warn(f"{keep_best} has no score for any model of this run, so the last is kept.", stacklevel=4)
    last = _model(run, outcome.network, about)
    best = None if outcome.best is None else _model(run, outcome.best, about)
    chosen = best if best is not None and run.result_is_best else last
    if folder is not None and (outcome.finished or outcome.given_up):
        chosen.save(folder / MODEL)
        if best is not None:
            best.save(folder / BEST)
        if chosen is not last:
            last.save(folder / LAST)
        draw_curves(outcome.records, folder / CURVES, title=f"{run.method.name} on {run.task.name}")
        write_atomically(folder / SUMMARY, json.dumps(summary, indent=1).encode())
    return Result(chosen, outcome, summary)


@contextmanager
def followed_by(callbacks: Sequence[Callback]) -> Iterator[None]:
    """Tell the callbacks of an exception that ends the run."""
    try:
        yield
    except BaseException as error:
        for each in callbacks:
            each.on_exception(error)
        raise


def _how_to_resume(folder: Path | None) -> str:
    """How a run that was stopped can be resumed, as the end of a sentence."""
    if folder is None or not (folder / RUN).exists():  # the folder may be on another machine
        return ""
    step = last_step(folder / CHECKPOINTS)
    if step is None:
        return f", and {folder} has no checkpoint yet: start the run again with --resume {folder}"
    return f": resume it from its checkpoint of iteration {step} with --resume {folder}"


def _start_or_resume(run: Run, folder: Path, resume: bool) -> bool:
    """Record a new run in its folder, or check that the run there is the same one. Return whether the run is new."""
    fingerprint = data_fingerprint(run.task)
    identity = run_folder.identity_of(fingerprint, run.method, run.net, run.recipe)
    record = {
        **RunSpec(run.data, run.recipe, run.result_is_best).to_dict(),
        "fingerprint": fingerprint,
        "identity": identity,
        "environment": environment(run.config.device),
        "begun_in": str(Path.cwd()),
    }
    exists = (folder / RUN).exists() or (folder / run_folder.EARLIER_ADAPT).exists()
    if not resume or not exists:
        run_folder.start(folder, record)
        return True
    run_folder.check_same_data(folder, fingerprint)
    run_folder.check_same_identity(folder, identity)
    run_folder.check_not_over(folder)
    if not (folder / RUN).exists():
        run_folder.write_record(folder, record)
    return False


def _model(run: Run, network: Staged, about: dict[str, Any]) -> Model:
    task = run.task
    backbone = task.backbone if isinstance(task.backbone, Backbone) else None
    return Model(network, run.net, task.preprocess, task.classes, about, task.source.features, backbone)


def renormalised(run: Run, network: Staged) -> dict[str, Any] | None:
    """What AdaBN alone makes of a trained network: the accuracy and the validators; None without batch norm."""
    task, _ = place(run.task, next(network.parameters()).device, run.config.memory)
    other = adabn(network, subsample(task.target, ADABN_SAMPLES), task.preprocess)
    if other is None:
        return None
    target = evaluate(other, target_to_evaluate(task, run.config), task.preprocess)
    probe = make_probe(task, run.config.validate_samples)
    scores = {"validators": {}, "alarm": None} if probe is None else probe.validate(other, student=None)
    return {"target_accuracy": target.accuracy, "validators": scores["validators"], "alarm": scores["alarm"]}


def with_shares(run: Run, progress: Progress | None = None) -> tuple[Task, ClassShares | None]:
    """The task with its source drawn in the class shares that the recipe asks for: equal ones or those of the target.

    Those of the target are estimated, and are returned as well. If they are not very different from those of the
    source, the task stays as it is, and the shares are None.
    """
    if run.recipe.balance_classes:
        return replace(run.task, source=drawn_in_equal_shares(run.task.source)), None
    if not run.recipe.match_shares:
        return run.task, None
    shares = estimated_shares(run.task)
    if shares is None or not shares.differ:
        return run.task, None
    if progress is not None:
        progress.say(shares.sentence(run.task.classes, matched=True))
    return replace(run.task, source=drawn_in_shares(run.task.source, shares.target)), shares


def warnings_of(run: Run, outcome: Outcome, matched: ClassShares | None) -> Iterator[str]:
    """Sentences about the data, and about a result that may not be usable. Collapse is reported by itself.

    ``matched`` are the class shares in which the source was drawn.
    """
    if run.data.task is None:
        yield from warnings_about(run.task)
    if matched is not None:
        yield matched.sentence(run.task.classes, matched=True)
        return
    if not outcome.finished or outcome.loop_state.collapsed or outcome.step < TIME_FOR_SHARES:
        return
    result = outcome.best if run.result_is_best and outcome.best is not None else outcome.network
    shares = class_shares_of(result, run.task)
    if shares is not None and (sentence := shares.warning(run.task.classes)):
        yield sentence


def summarise(run: Run, outcome: Outcome, shares: ClassShares | None, folder: Path | None) -> dict[str, Any]:
    """The results of a run, as summary.json holds them."""
    state = outcome.loop_state
    evaluations = [record for record in outcome.records if "target" in record]
    last = evaluations[-1] if evaluations else None
    return {
        "run": None if folder is None else str(folder),
        "task": run.data.name,
        "method": run.recipe.method.removesuffix(AS_A_VALUE) + ("+dirt_t" if run.recipe.dirt_t is not None else ""),
        "seed": run.config.seed,
        "iterations": outcome.step,
        "finished": outcome.finished,
        "given_up": outcome.given_up,
        "pruned": outcome.pruned,
        "collapsed": state.collapsed,
        "target_accuracy": last and last["target"]["accuracy"],
        "source_accuracy": last and last["source"] and last["source"]["accuracy"],
        "phases": {name: ended["accuracy"] for name, ended in state.phases.items()},
        "choose_on": None if run.task.target_choice is None else len(run.task.target_choice),
        "choice_phases": {name: ended["choice"] for name, ended in state.phases.items() if "choice" in ended},
        "collapsed_phases": [name for name, ended in state.phases.items() if ended.get("collapsed")],
        "best": state.best,
        "seconds": round(state.seconds, 1),
        "clock": state.clock,
        "class_shares": shares and asdict(shares),
        "warnings": list(warnings_of(run, outcome, shares)),
    }
