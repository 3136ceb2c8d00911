"""``method="auto"``: train a few methods on one's own data and choose among them without target labels.

No method is the best on all data, and a method that aligns the domains can do harm. So a small portfolio is trained,
two kernel classifiers are fitted in closed form (:mod:`vmt.evaluate.kernel`), and :mod:`vmt.validators.together`
decides whether those that adapt are credible. Candidates err on different samples, so the answer is an average of them.
The trained candidates are ordinary runs in subfolders, with the same seed and evaluation, so that ``vmt report``
compares them.
"""

import copy
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vmt.data.task import Task
from vmt.device import torch_device
from vmt.disk import write_atomically
from vmt.errors import InputError
from vmt.evaluate.accuracy import evaluate
from vmt.evaluate.kernel import adapted_kernel, source_kernel
from vmt.evaluate.matching import estimated_shares
from vmt.evaluate.probe import class_shares_of, make_probe, source_shares
from vmt.methods.settings import AUTO
from vmt.model import Model, load
from vmt.nets.backbone import Backbone
from vmt.nets.composed import average, centres_of
from vmt.nets.factory import OWN_MODULE, NetSpec
from vmt.nets.networks import Staged
from vmt.nets.registry import AVERAGE, AVERAGED, KERNEL
from vmt.progress import Progress
from vmt.runs.folder import (
    MODEL,
    RUN,
    SUMMARY,
    RunSpec,
    check_free,
    check_same_data,
    data_fingerprint,
    environment,
    folder_lock,
    read_record,
    recorded_recipe,
    write_record,
)
from vmt.runs.recipes import Recipe, evaluations_for, own_recipe
from vmt.runs.run import Run, carry_out, make_run
from vmt.runs.spec import DataSpec, warnings_about
from vmt.train.checkpoint import CHECKPOINTS
from vmt.train.config import Config
from vmt.train.loop import interruptible, target_to_evaluate
from vmt.validators.choice import REFERENCE, Choice
from vmt.validators.class_shares import SEEMS, ClassShares
from vmt.validators.together import OF_FEATURES, OF_SAMPLES, Together, answer_together

# The methods that are trained, and what an iteration of each costs, in iterations of source only (measured on vectors
# and on 16×16 images on a CPU). VMT + MCC makes the answer better on the features of a frozen network alone.
TRAINED = {"source_only": 1.0, "mcc": 2.0, "vmt": 6.0}
ON_FEATURES = {**TRAINED, "vmt_mcc": 7.0}
# The kernel classifier that knows the source alone; the other one is called as its network is.
SOURCE_KERNEL = "source_kernel"
UNADAPTED = (REFERENCE, SOURCE_KERNEL)
# Candidates are shortened to this part of their length to fit into the budget, and left out if that is not enough.
LEAST_PART = 0.3
# Evaluations, reading and writing take a part of the budget, too.
USABLE = 0.85
TIMED_ITERATIONS = 20
PROBE_SAMPLES = 1000
NOT_TRAINED: dict[str, Any] = {
    "collapsed": None,
    "collapsed_phases": [],
    "phases": {},
    "choice_phases": {},
    "best": None,
}


@dataclass(frozen=True)
class Portfolio:
    """What is trained, and for how long."""

    task: Task
    data: DataSpec
    config: Config
    net: str | Callable[..., nn.Module] | None = None
    net_options: Mapping[str, Any] | None = None
    minutes: float | None = None
    """The time for all candidates together; None trains each for its usual length."""
    iterations: int | None = None
    """The length of each candidate; None takes the usual length."""

    @property
    def candidates(self) -> dict[str, float]:
        """The methods that are trained, and what an iteration of each costs."""
        return TRAINED if self.task.backbone is None else ON_FEATURES

    @cached_property
    def shares(self) -> ClassShares | None:
        """The class shares of the target that count, if they are very different from those of the source.

        Those of photographs, which cannot be estimated by a simple model, are taken to be equal.
        """
        task = self.task
        if task.backbone is not None:
            prior, classes = source_shares(task), len(task.classes)
            return ClassShares(tuple(prior.tolist()), (1 / classes,) * classes, noise=0.0)
        shares = estimated_shares(task)
        return shares if shares is not None and shares.differ else None

    def run_of(self, method: str, iterations: int | None, recorded: Recipe | None = None) -> Run:
        """The run of a candidate; ``recorded`` is the recipe of the one that is resumed, if there is one."""
        usual = recorded or own_recipe(self.task, method, device=self.config.device)
        every = evaluations_for(iterations or usual.settings["iterations"])
        run = make_run(
            self.task,
            method,
            dirt_t=False,
            asked={},
            iterations=iterations,
            target_labels=None,
            net=self.net,
            net_options=self.net_options,
            config=replace(self.config, evaluate_every=every, checkpoint_every=every),
            data=self.data,
            recorded=recorded,
        )
        return replace(run, result_is_best=False)


@dataclass(frozen=True)
class AutoResult:
    """The chosen model, and how it was chosen."""

    model: Model
    choice: Choice
    summary: dict[str, Any]


def check_arguments_of_auto(
    method: Any,
    minutes: float | None,
    dirt_t: bool,
    match_shares: bool | None,
    target_labels: Any,
    settings: Mapping[str, Any],
    written: Callable[[str], str] = str,
) -> None:
    """Refuse arguments that ``auto`` cannot use, and those that only ``auto`` can; ``written`` as in with_settings."""
    if method != AUTO:
        if minutes is not None:
            raise InputError(f"{written('minutes')} is for the method auto: leave it out, or use auto.")
        return
    given = {"dirt_t": dirt_t, "match_shares": match_shares is not None, "target_labels": target_labels is not None}
    names = [*settings, *(name for name, is_given in given.items() if is_given)]
    if names:
        raise InputError(
            f"the method auto chooses among methods with their own settings, so {written(names[0])} has no meaning: "
            "name a method as well, or leave it out."
        )


class Stopped(KeyboardInterrupt):
    """The work was interrupted before all candidates were trained; what is done is in the folder."""


def carry_out_auto(
    portfolio: Portfolio, folder: Path | None = None, resume: bool = False, show: bool = True
) -> AutoResult:
    """Train the candidates and choose one of them. With ``folder`` they are recorded, and ``resume`` continues."""
    if portfolio.minutes is not None and not portfolio.minutes > 0:
        raise InputError(f"minutes must be a positive number, but got {portfolio.minutes}.")
    torch_device(portfolio.config.device)  # refused before the folder is made
    began = time.monotonic()
    with interruptible() as interrupted, nullcontext() if folder is None else folder_lock(folder):
        plan = _planned(portfolio, folder, resume)
        models: dict[str, Model] = {}
        summaries: dict[str, dict[str, Any]] = {}
        printed: set[str] = set()
        for number, (name, iterations) in enumerate(plan.items(), 1):
            place = None if folder is None else folder / name
            if place is not None and (place / SUMMARY).exists():
                models[name], summaries[name] = _read(place, portfolio)
                continue
            progress = Progress(f"{name} ({number} of {len(plan)})", show, printed)
            recorded = None if place is None or not resume else recorded_recipe(place)
            run = portfolio.run_of(name, iterations, recorded)
            result = carry_out(run, place, recorded is not None, progress)
            progress.close()
            if interrupted() or not (result.outcome.finished or result.outcome.given_up):
                raise Stopped(f"stopped in candidate {number} of {len(plan)}, {name}")
            models[name], summaries[name] = result.model, result.summary
            if place is not None:
                shutil.rmtree(place / CHECKPOINTS, ignore_errors=True)  # a finished candidate is not resumed
        kernels, seconds = _kernels(portfolio, models)
        together = _together(portfolio, {**models, **kernels})
        choice, rest = together.choice, kernels
        if choice.chosen == AVERAGE:
            rest = {**kernels, AVERAGE: _average(together, {**models, **kernels})}
        for name, model in rest.items():
            summaries[name] = _about(portfolio, name, model, seconds.get(name, 0.0))
            if folder is not None:
                (folder / name).mkdir(exist_ok=True)
                model.save(folder / name / MODEL)
        models |= rest
        left_out = [name for name in portfolio.candidates if name not in plan]
        said = list(_warnings(portfolio, summaries[REFERENCE], kernels.get(SOURCE_KERNEL)))
        summary = _summary(portfolio, together, summaries, said, left_out, time.monotonic() - began, folder)
        chosen = models[choice.chosen]
        chosen = replace_about(chosen, {**chosen.about, "choice": summary["choice"]["text"]})
        if folder is not None:
            chosen.save(folder / MODEL)
            write_atomically(folder / SUMMARY, json.dumps(summary, indent=1).encode())
    return AutoResult(chosen, choice, summary)


def replace_about(model: Model, about: dict[str, Any]) -> Model:
    """The same model with other notes about its training."""
    return Model(model.network, model.spec, model.preprocess, model.classes, about, model.features, model.backbone)


def _planned(portfolio: Portfolio, folder: Path | None, resume: bool) -> dict[str, int | None]:
    """The candidates and their lengths. A folder records them, because a resumed run must not time them again."""
    fingerprint = data_fingerprint(portfolio.task)
    if folder is not None and resume and (folder / RUN).exists():
        spec, record = read_record(folder)
        if spec.recipe.method != AUTO:
            raise InputError(f"the run in {folder} was started with the method {spec.recipe.method}, not auto.")
        check_same_data(folder, fingerprint)
        plan: dict[str, int | None] = dict(record["recipe"]["settings"]["iterations"])
        if REFERENCE not in plan:
            raise InputError(f"{folder / RUN} does not list {REFERENCE} among the candidates: start a new run.")
        return plan
    if folder is not None:
        check_free(folder)
    plan = within_budget(portfolio)
    if folder is not None:
        settings = {"minutes": portfolio.minutes, "iterations": plan}
        # Without a network of the user's, each candidate has its own, so no single name can be recorded.
        net = AUTO if portfolio.net is None else portfolio.net if isinstance(portfolio.net, str) else OWN_MODULE
        recipe = Recipe(AUTO, settings, net=net, net_options=portfolio.net_options or {}, config=portfolio.config)
        record = {
            **RunSpec(portfolio.data, recipe).to_dict(),
            "fingerprint": fingerprint,
            "environment": environment(portfolio.config.device),
            "begun_in": str(Path.cwd()),
        }
        write_record(folder, record)
    return plan


def within_budget(portfolio: Portfolio) -> dict[str, int | None]:
    """The candidates that fit into the budget, and their lengths.

    A few iterations of source only are timed. If the usual lengths take too long, all candidates are shortened alike;
    if too little would be left of them, the most expensive one is left out.
    """
    names = dict(portfolio.candidates)
    if portfolio.minutes is None:
        return dict.fromkeys(names, portfolio.iterations)
    usual = portfolio.run_of("source_only", portfolio.iterations).method.iterations
    timed = portfolio.run_of("source_only", TIMED_ITERATIONS)
    timed = replace(timed, recipe=replace(timed.recipe, config=replace(timed.config, validate_samples=0)))
    carry_out(replace(timed, data=DataSpec()))  # once to warm up
    began = time.monotonic()
    carry_out(timed)
    per_iteration = (time.monotonic() - began) / TIMED_ITERATIONS
    budget = USABLE * 60 * portfolio.minutes / per_iteration  # in iterations of source only
    while True:
        part = min(1.0, budget / (usual * sum(names.values())))
        if part >= LEAST_PART or len(names) == 1:
            return dict.fromkeys(names, max(1, round(part * usual)))
        names.popitem()


def _read(place: Path, portfolio: Portfolio) -> tuple[Model, dict[str, Any]]:
    """The model and the summary of a candidate that an earlier process has finished."""
    network = portfolio.net if callable(portfolio.net) else None
    backbone = portfolio.task.backbone if isinstance(portfolio.task.backbone, Backbone) else None
    model = load(place, network=network, device=portfolio.config.device, features=backbone)
    return model, json.loads((place / SUMMARY).read_text())


def _kernels(portfolio: Portfolio, trained: Mapping[str, Model]) -> tuple[dict[str, Model], dict[str, float]]:
    """The kernel classifiers, if the networks are of this package, and the seconds that each took."""
    if any(model.spec.name not in AVERAGED for model in trained.values()):
        return {}, {}
    task = portfolio.task
    fits: dict[str, Callable[[], Staged]] = {
        SOURCE_KERNEL: lambda: source_kernel(task),
        KERNEL: lambda: adapted_kernel(task, portfolio.shares),
    }
    models: dict[str, Model] = {}
    seconds: dict[str, float] = {}
    for name, fit in fits.items():
        began = time.monotonic()
        models[name] = _model_like(trained[REFERENCE], fit(), name)
        seconds[name] = time.monotonic() - began
    return models, seconds


def _together(portfolio: Portfolio, models: Mapping[str, Model]) -> Together:
    """Who answers, by the outputs of all candidates on the same samples."""
    probe = make_probe(portfolio.task, PROBE_SAMPLES)
    assert probe is not None
    on_features = portfolio.task.backbone is not None
    shares = None if on_features else portfolio.shares
    return answer_together(
        {name: probe.evidence(model.network, None) for name, model in models.items()},
        [name for name in UNADAPTED if name in models],
        probe.prior,
        None if shares is None else torch.tensor(shares.target),
        None if on_features else probe.support,
        OF_FEATURES if on_features else OF_SAMPLES,
        averages=all(model.spec.name in AVERAGED for model in models.values()),
    )


def _average(together: Together, models: Mapping[str, Model]) -> Model:
    """The mean of the members."""
    members, weights = [models[name] for name in together.members], list(together.weights)
    like = models[REFERENCE]
    network = average([copy.deepcopy(each.network) for each in members], len(like.classes), weights)
    network.to(next(like.network.parameters()).device)
    options = {"members": [each.spec.to_dict() for each in members], "weights": weights}
    spec = replace(like.spec, name=AVERAGE, options=options)
    return replace_network(like, network, spec, {"method": AVERAGE, "average_of": list(together.members)})


def _model_like(model: Model, network: Staged, name: str) -> Model:
    """A kernel classifier of the same samples and classes."""
    device = next(model.network.parameters()).device
    spec = replace(model.spec, name=KERNEL, options={"centres": centres_of(network)})
    return replace_network(model, network.to(device), spec, {"method": name})


def replace_network(model: Model, network: Staged, spec: NetSpec, about: dict[str, Any]) -> Model:
    """A model with another network for the same samples and classes."""
    return Model(network, spec, model.preprocess, model.classes, about, model.features, model.backbone)


def _about(portfolio: Portfolio, name: str, model: Model, seconds: float) -> dict[str, Any]:
    """What the summary of a run would say about a candidate that is not trained."""
    task = portfolio.task
    target = evaluate(model.network, target_to_evaluate(task, portfolio.config), task.preprocess)
    source = None if task.source_test is None else evaluate(model.network, task.source_test, task.preprocess)
    found = {"target_accuracy": target.accuracy, "source_accuracy": source and source.accuracy}
    model.about.update({name: value for name, value in found.items() if value is not None})
    return {"method": name, **found, "seconds": round(seconds, 1)}


def _summary(
    portfolio: Portfolio,
    together: Together,
    summaries: Mapping[str, Mapping[str, Any]],
    said: list[str],
    left_out: list[str],
    seconds: float,
    folder: Path | None,
) -> dict[str, Any]:
    """What summary.json says about the whole: that of the chosen candidate, and how it was chosen."""
    choice, text = together.choice, together.choice.reason
    if left_out:
        text += f" Left out, because the time would not have been enough: {', '.join(left_out)}."
    candidates = {
        name: {
            **asdict(finding),
            "target_accuracy": summaries[name]["target_accuracy"],
            "seconds": summaries[name]["seconds"],
        }
        for name, finding in choice.findings.items()
    }
    chosen = summaries.get(choice.chosen, {})
    shares = None if portfolio.task.backbone is not None else portfolio.shares
    own = {
        "run": None if folder is None else str(folder),
        "method": AUTO,
        "seconds": round(seconds, 1),
        "class_shares": shares and asdict(shares),
        "warnings": [*said, *filter(None, [together.doubt])],
        "choice": {
            "text": text,
            "chosen": choice.chosen,
            "ranking": choice.ranking,
            "weights": dict(zip(together.members, together.weights, strict=True)),
            "doubt": together.doubt,
            "candidates": candidates,
        },
    }
    # An average, or a kernel classifier, was not trained: of the other fields, it has those of the data and the seed.
    untrained = {} if choice.chosen in portfolio.candidates else NOT_TRAINED
    return {**summaries[REFERENCE], **untrained, **chosen, **own}


def _warnings(portfolio: Portfolio, unadapted: Mapping[str, Any], kernel: Model | None) -> Iterator[str]:
    """Sentences about the data.

    Those that know the source alone tell about class shares, since they have not aligned the domains. Source only errs
    with its random numbers, so the kernel classifier, which has none, must say so as well.
    """
    task = portfolio.task
    if task.backbone is None and portfolio.shares is not None:
        if portfolio.data.task is None:
            yield from warnings_about(task)
        yield portfolio.shares.sentence(task.classes, matched=True)
        return
    sentences = list(unadapted["warnings"])
    if kernel is not None and any(each.startswith(SEEMS) for each in sentences):
        shares = class_shares_of(kernel.network, task)
        if shares is not None and not shares.differ:
            sentences = [each for each in sentences if not each.startswith(SEEMS)]
    yield from sentences
