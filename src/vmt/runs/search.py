"""A search of settings without target labels, on Optuna: one study that any number of processes work on.

The folder of a search has

``run.json``
    What is searched: the data, the recipe with the default settings, the space, and the name of the study.
``study.journal``
    Optuna's journal of the study, if no other storage was named.
``trials/NNNN``
    A run for each trial. The process that works on it holds the lock of its folder. If it dies, another process takes
    the trial over and resumes the run from its last checkpoint.
``source_only``
    A run with source only, which the answer is compared with.
``model.safetensors``, ``summary.json``
    The chosen model, and how it was chosen (:mod:`vmt.runs.search_result`).

:func:`work_on` is what a process does: it takes trials until none is left.
"""

import json
import math
import os
import pickle
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from torch import nn

from vmt.data.task import Task
from vmt.disk import waiting_lock
from vmt.errors import Diverged, InputError, counted, first_line, parsing
from vmt.methods.nouns import Method
from vmt.methods.settings import AUTO
from vmt.nets.factory import OWN_MODULE, factory_name, network_of
from vmt.progress import Notify, Progress, silent
from vmt.runs.callbacks import Callback, GiveUp
from vmt.runs.folder import (
    RUN,
    SUMMARY,
    InUse,
    RunSpec,
    check_free,
    check_same_data,
    create_folder,
    data_fingerprint,
    differences,
    environment,
    folder_lock,
    read_record,
    write_record,
)
from vmt.runs.ranking import history_of
from vmt.runs.ray_tasks import OnRay, connected, in_ray_workers
from vmt.runs.recipes import UNALIGNED, Recipe, evaluations_for
from vmt.runs.record import read_run_record
from vmt.runs.run import Run, carry_out
from vmt.runs.space import Range, default_of, default_space, read_space, with_values
from vmt.runs.spec import DataSpec, load_data
from vmt.runs.workers import in_workers
from vmt.train.checkpoint import CHECKPOINTS, last_step
from vmt.train.log import LOG, read_log
from vmt.train.loop import interruptible
from vmt.validators.choice import REFERENCE
from vmt.validators.refinement import comparable_scores
from vmt.validators.registry import DEFAULT, check_name

TRIALS, JOURNAL, TAKING = "trials", "study.journal", ".taking"
# The median rule needs this many finished trials, and does not judge the first part of a run. An alarm counts later,
# because a model that has learned little has one as well.
MEDIAN_OF, LEFT_IN_PEACE, TIME_FOR_ALARM = 5, 1 / 3, 2 / 3
# Where there are no file locks, a trial is taken over if nothing in its folder has changed for this many seconds.
ABANDONED = 600.0
# Seconds after which a process that has nothing to do checks again whether another has died.
PAUSE = 1.0
INTERVALS = ("evaluate_every", "checkpoint_every")
# What may differ between the processes of a search.
OF_THE_MACHINE = ("device", "threads", "memory", "engine")


@dataclass(frozen=True)
class SearchSpec:
    """A search: everything that a process needs to join it."""

    folder: Path
    data: DataSpec
    recipe: Recipe
    """The recipe with the default settings, which are those of trial 0."""
    space: Mapping[str, Range]
    reference: Recipe | None = None
    """The recipe of source only; None if the answer is not compared with it."""
    by: str = DEFAULT
    """The validator that is maximised."""
    trials: int = 40
    storage: str | None = None
    """The address of a database; None is a journal in the folder."""
    keep: int = 5
    """How many trials keep their models."""
    task: Task | None = None
    """The samples, if they were given as arrays; otherwise every process reads them."""
    net: Callable[..., nn.Module] | None = None
    """The user's function that builds the network, if it was not given by name."""

    def __post_init__(self) -> None:
        check_name(self.by)
        for name in ("trials", "keep"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more, but got {getattr(self, name)}.")
        if not self.space:
            raise InputError(f"the method {self.recipe.method} has no settings with default ranges: give a space.")
        if self.recipe.config.keep_best:
            raise InputError("keep_best has no meaning in a search, which compares the last models: leave it out.")
        if self.recipe.config.validate_samples == 0:
            raise InputError("a search needs validators, but validate_samples is 0: set it to 1000.")

    def run_of(self, recipe: Recipe, task: Task) -> Run:
        """The run of a recipe on the samples."""
        net, build = network_of(self.net or recipe.net, task.sample_shape, len(task.classes), {**recipe.net_options})
        return Run(task, recipe.build(), net, build, recipe, self.data)

    @property
    def network(self) -> Callable[..., nn.Module] | str | None:
        """The user's function of the network, or its name, to load models with."""
        return self.net or (self.recipe.net if factory_name(self.recipe.net) is not None else None)

    def folder_of(self, number: int) -> Path:
        return self.folder / TRIALS / name_of(number)

    @property
    def reference_folder(self) -> Path:
        return self.folder / REFERENCE

    def defaults(self) -> dict[str, Any]:
        """The settings of trial 0: the defaults, or what is nearest to them in the space."""
        return {name: range.nearest(default_of(self.recipe, name)) for name, range in self.space.items()}


class Stopped(KeyboardInterrupt):
    """The search was interrupted; what is done is in its folder, and the same call continues."""


def name_of(number: int) -> str:
    return f"{number:04d}"


def spec_around(
    folder: Path,
    data: DataSpec,
    recipe: Recipe,
    reference: Recipe,
    space: str | Path | Mapping[str, Any] | None,
    given: Mapping[str, Any],
    known: Collection[str] | None = None,
    **more: Any,
) -> SearchSpec:
    """A search around the settings of a recipe, whose answer is compared with the recipe of source only, ``reference``.

    ``given`` are the fields of Config that the user has given, ``known`` the settings that may be varied, and ``more``
    are further fields of :class:`SearchSpec`.
    """
    recipe = often_evaluated(recipe, {name: value for name, value in given.items() if name in INTERVALS})
    ranges = default_space(recipe, known) if space is None else read_space(space, recipe)
    if unknown := [name for name in ranges if known is not None and name not in known]:
        raise InputError(f"the space has a range for {unknown[0]!r}, which the classifier does not take: leave it out.")
    compared = None if recipe.method in UNALIGNED else replace(reference, config=recipe.config)
    return SearchSpec(folder, data, recipe, ranges, compared, **more)


def often_evaluated(recipe: Recipe, given: Mapping[str, Any]) -> Recipe:
    """The recipe with six evaluations in a run or more, by which it can be pruned, and as many checkpoints.

    Intervals that the user has ``given`` stay.
    """
    every = {name: min(getattr(recipe.config, name), evaluations_for(length_of(recipe))) for name in INTERVALS}
    return replace(recipe, config=replace(recipe.config, **{**every, **given}))


def check_method(method: str | Method) -> str:
    """The name of a method whose settings can be searched; any other is refused."""
    if isinstance(method, Method):
        raise InputError("a search needs a method given by name, whose settings it can change: pass 'vmt' or another.")
    if method == AUTO:
        raise InputError(f"the method {AUTO} chooses among methods and has no settings to search: name another.")
    return method


def require_optuna() -> Any:
    """Optuna; an InputError if it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise InputError("a search of settings needs the package optuna: pip install 'vmt[search]'.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


# --- The study ---


def join(search: SearchSpec, task: Task) -> Any:
    """Start the study of a search, or join the one that other processes have started with the same command."""
    optuna = require_optuna()
    create_folder(search.folder)
    fingerprint = data_fingerprint(task)
    with waiting_lock(search.folder / TAKING):
        about = record_of(search)
        if (search.folder / RUN).exists():
            name = check_same_search(search, about, fingerprint)
        else:
            check_free(search.folder)
            name = about["search"]["study"] = f"vmt-{secrets.token_hex(4)}"
            with storage_errors(search):
                storage_of(search)  # before anything is written
            more = {"fingerprint": fingerprint, "environment": environment(search.recipe.config.device)}
            write_record(search.folder, {**about, **more, "begun_in": str(Path.cwd())})
        with storage_errors(search):
            study = optuna.create_study(
                storage=storage_of(search),
                study_name=name,
                direction="maximize",
                load_if_exists=True,
                sampler=sampler_for(search, 0),
                pruner=optuna.pruners.MedianPruner(MEDIAN_OF, round(LEFT_IN_PEACE * length_of(search.recipe))),
            )
            if not study.get_trials(deepcopy=False):
                study.enqueue_trial(search.defaults())
    return study


def record_of(search: SearchSpec) -> dict[str, Any]:
    """What run.json has about a search."""
    space = {name: asdict(range) for name, range in search.space.items()}
    about = {"space": space, "by": search.by, "storage": without_password(search.storage)}
    return {**RunSpec(search.data, search.recipe).to_dict(), "search": about}


def check_same_search(search: SearchSpec, about: Mapping[str, Any], fingerprint: str) -> str:
    """Refuse to join a search as if it were another. Returns the name of its study."""
    _, record = read_record(search.folder)
    before = record.get("search")
    if before is None:
        check_free(search.folder)  # which refuses a folder that holds a run
        raise InputError(f"{search.folder} holds a run and no search: choose another --out.")
    check_same_data(search.folder, fingerprint)
    parts: list[dict[str, Any]] = [as_json({**about}), {**record, "search": {**before}}]
    name = parts[1]["search"].pop("study")
    for part in parts:
        for field in OF_THE_MACHINE:
            part["recipe"]["config"].pop(field, None)
    for key in ("search", "recipe"):
        for what, was, now in differences(parts[1][key], parts[0][key]):
            raise InputError(
                f"the search in {search.folder} was started with {what} {was}, not {now}: join it by the same command, "
                "or choose another --out."
            )
    return str(name)


def as_json(values: Any) -> Any:
    """Values as they are after they were written to a file and read again."""
    return json.loads(json.dumps(values, default=repr))


def storage_of(search: SearchSpec) -> Any:
    """Optuna's storage of the study."""
    from optuna.storages import RDBStorage
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    if search.storage is None:
        return JournalStorage(JournalFileBackend(str(search.folder / JOURNAL)))
    return RDBStorage(search.storage)


@contextmanager
def storage_errors(search: SearchSpec) -> Iterator[None]:
    """Turn what a database, or a damaged journal, raises when it is opened into an InputError."""
    storage = search.storage
    try:
        if storage is None:
            with parsing(search.folder / JOURNAL, "the journal of a study", "restore it, or choose another --out"):
                yield
        else:
            yield
    except InputError:
        raise
    except Exception as error:  # drivers have their own exceptions
        raise InputError(
            f"the storage {without_password(storage)} cannot be used ({first_line(error)[:200]}): check the address, "
            "for example sqlite:///study.db, and that its driver is installed."
        ) from error


def without_password(storage: str | None) -> str | None:
    if storage is None or urlsplit(storage).password is None:
        return storage
    return storage.replace(f":{urlsplit(storage).password}@", ":…@")


def sampler_for(search: SearchSpec, number: int) -> Any:
    """The sampler of a trial. It depends on the trials before it and on the number, and not on the process."""
    from optuna.samplers import TPESampler

    return TPESampler(seed=(1_000_003 * search.recipe.config.seed + number) % 2**32)


def length_of(recipe: Recipe) -> int:
    return recipe.build().iterations


def missing(search: SearchSpec, study: Any) -> int:
    """How many trials are not finished, source only among them."""
    states = [trial.state for trial in study.get_trials(deepcopy=False)]
    done = sum(state.is_finished() and state.name != "FAIL" for state in states)
    open_ = sum(not state.is_finished() for state in states)
    without_reference = search.reference is not None and not (search.reference_folder / SUMMARY).exists()
    return int(max(search.trials - done, open_) + without_reference)


# --- What a process does ---


def work_on(search: SearchSpec, seconds: float | None = None, notify: Notify = silent, show: bool = False) -> bool:
    """Join a search and carry out trials until none is left. Returns whether all are finished.

    Any number of processes may call this at the same time, on machines that share the folder. ``seconds`` limits the
    time. The process stops on Ctrl-C and ``kill``, too, after a checkpoint. It stays until the trials of other
    processes are finished, to take them over if those die.
    """
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    task = search.task or load_data(search.data, memory=search.recipe.config.memory)
    study = join(search, task)
    printed: set[str] = set()
    with interruptible() as interrupted:
        while left := missing(search, study):
            if interrupted() or time.monotonic() >= deadline:
                return False
            with take_trial(search, study) as (folder, trial):
                if folder is None:
                    time.sleep(PAUSE)
                    continue
                label = REFERENCE if trial is None else f"trial {trial.number}"
                if (folder / RUN).exists() and not (folder / SUMMARY).exists():
                    step = last_step(folder / CHECKPOINTS) or 0
                    notify(f"{label}: resumed from iteration {step}, where another process left it.")
                budget = None if math.isinf(deadline) else deadline - time.monotonic()
                with closing(Progress(f"{label} ({left} left)", show, printed, leave=False)) as progress:
                    how = carried_out(search, task, study, folder, trial, progress, budget)
                if how is not None:
                    notify(f"{label}: {how}; {counted(missing(search, study), 'trial')} left.")
    return True


@contextmanager
def take_trial(search: SearchSpec, study: Any) -> Iterator[tuple[Path | None, Any]]:
    """Take a trial that nobody works on, and hold the lock of its folder. No folder if there is none.

    Source only comes first, whose trial is None; then trials whose process has died; then new ones.
    """
    with ExitStack() as held:
        with waiting_lock(search.folder / TAKING):  # so that no two processes take the last trial
            found = _take(search, study, held)
        yield found


def _take(search: SearchSpec, study: Any, held: ExitStack) -> tuple[Path | None, Any]:
    from optuna.trial import Trial, TrialState

    reference = search.reference_folder
    if search.reference is not None and not (reference / SUMMARY).exists() and lock_trial(reference, held):
        return reference, None
    for frozen in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        with ExitStack() as tried:
            if not lock_trial(search.folder_of(frozen.number), tried):
                continue
            if study.get_trials(deepcopy=False)[frozen.number].state == TrialState.RUNNING:
                held.enter_context(tried.pop_all())
                return search.folder_of(frozen.number), Trial(study, frozen._trial_id)
    states = [trial.state for trial in study.get_trials(deepcopy=False)]
    if TrialState.WAITING not in states and sum(state != TrialState.FAIL for state in states) >= search.trials:
        return None, None
    study.sampler = sampler_for(search, len(states))
    trial = study.ask()
    values_of(trial, search.space)
    folder = search.folder_of(trial.number)
    held.enter_context(folder_lock(folder))
    return folder, trial


def lock_trial(folder: Path, held: ExitStack) -> bool:
    """Lock the folder of a trial, if no process works on it."""
    with ExitStack() as tried:
        try:
            is_certain = tried.enter_context(folder_lock(folder))
        except InUse:
            return False
        changed = max((path.stat().st_mtime for path in folder.iterdir()), default=0.0)
        if not is_certain and time.time() - changed < ABANDONED:
            return False
        held.enter_context(tried.pop_all())
        return True


def values_of(trial: Any, space: Mapping[str, Range]) -> dict[str, Any]:
    """The settings of a trial. One that was taken over has them already."""
    return {name: range.suggest(trial, name) for name, range in space.items()}


def carried_out(
    search: SearchSpec, task: Task, study: Any, folder: Path, trial: Any, progress: Progress, budget: float | None
) -> str | None:
    """Start or resume the run of a trial, tell the study how it went, and say so in words; None if it is unfinished."""
    recipe = search.reference if trial is None else with_values(search.recipe, values_of(trial, search.space))
    assert recipe is not None
    config = replace(recipe.config, stop_on_collapse=trial is not None)
    run = search.run_of(replace(recipe, config=config), task)
    follower = () if trial is None else (Follower(trial, search.by, run.method.iterations),)
    try:
        if not (folder / SUMMARY).exists():  # otherwise the process died after the run and before it told the study
            summary = carry_out(run, folder, (folder / RUN).exists(), progress, budget, callbacks=follower).summary
            if not (summary["finished"] or summary["given_up"]):
                return None
        if trial is None:
            how = "finished"
        else:
            how = tell(search, study, trial, folder)
    except Diverged as error:
        if trial is None:
            raise
        how = prune(study, trial, str(error))
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    remove_models(search, study)
    return how


def tell(search: SearchSpec, study: Any, trial: Any, folder: Path) -> str:
    """Tell the study how the run of a trial has ended."""
    record = read_run_record(folder)
    summary, last = record.summary or {}, history_of(record).evaluations[-1]
    score = last.scores.get(search.by)
    trial.set_user_attr("target_accuracy", last.accuracy)
    trial.set_user_attr("seconds", summary.get("seconds"))
    why = summary.get("pruned") or summary.get("collapsed") or last.alarm
    if why is not None:
        return prune(study, trial, str(why))
    if score is None:
        return prune(study, trial, f"there is no score by {search.by}")
    study.tell(trial.number, score, skip_if_finished=True)
    best = study.best_trial
    return f"{search.by} {score:.4f}" + (
        ", the best so far" if best.number == trial.number else f" (best: {best.value:.4f}, trial {best.number})"
    )


def prune(study: Any, trial: Any, why: str) -> str:
    from optuna.trial import TrialState

    trial.set_user_attr("why", why)
    study.tell(trial.number, state=TrialState.PRUNED, skip_if_finished=True)
    return f"pruned, {why}"


class Follower(Callback):
    """Reports the scores of a trial while it runs, and ends a run that has collapsed or is below the median."""

    def __init__(self, trial: Any, by: str, iterations: int) -> None:
        self.trial, self.by, self.iterations = trial, by, iterations
        self.records: list[Mapping[str, Any]] = []
        self.reported: set[int] = set()

    def on_start(self, record: Mapping[str, Any], folder: Path | None) -> None:
        if folder is not None and (folder / LOG).exists():
            self.records = [each for each in read_log(folder / LOG) if "target" in each]
        trials = self.trial.study.get_trials(deepcopy=False)
        self.reported = set(trials[self.trial.number].intermediate_values)

    def on_evaluate(self, record: Mapping[str, Any]) -> None:
        step = record["step"]
        earlier = [each for each in self.records if each["step"] < step]
        self.records = [*earlier, record]
        score = comparable_scores(record, earlier).get(self.by)
        if score is not None and step not in self.reported:
            self.trial.report(score, step)
        # Trial 0 has the default settings, with which the answer is compared.
        if self.trial.number == 0 or not LEFT_IN_PEACE * self.iterations <= step < self.iterations:
            return
        late = step >= TIME_FOR_ALARM * self.iterations
        if late and record["alarm"] and earlier and earlier[-1].get("alarm"):
            raise GiveUp(f"it may have collapsed: {record['alarm']}")
        if self.trial.should_prune():
            raise GiveUp(f"its {self.by} was below the median of the finished trials at iteration {step}")


# --- What is kept on the disk ---


def ranked_trials(study: Any) -> list[Any]:
    """The finished trials, best first; those that were pruned are not among them."""
    from optuna.trial import TrialState

    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return sorted(complete, key=lambda trial: (-trial.value, trial.number))


def remove_models(search: SearchSpec, study: Any) -> None:
    """Remove the models of all finished trials but the best ones and the one with the default settings."""
    kept = {0, *(trial.number for trial in ranked_trials(study)[: search.keep])}
    for trial in study.get_trials(deepcopy=False):
        if trial.state.is_finished() and trial.number not in kept:
            for path in search.folder_of(trial.number).glob("model*.safetensors"):
                path.unlink(missing_ok=True)


# --- Several processes on this machine ---


def carry_out_search(
    search: SearchSpec,
    jobs: int | None = None,
    minutes: float | None = None,
    notify: Notify = silent,
    show: bool = False,
    place: OnRay | None = None,
) -> None:
    """Work on a search in this process, in ``jobs`` worker processes or as tasks of Ray, until it is finished.

    It stops when the time is up, too. On Ray there are by default as many tasks as there is room for.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs must be 1 or more, but got {jobs}.")
    if minutes is not None and not minutes > 0:
        raise InputError(f"minutes must be a positive number, but got {minutes}.")
    began = time.monotonic()
    seconds = None if minutes is None else 60 * minutes
    task = search.task or load_data(search.data, memory=search.recipe.config.memory)
    study = join(search, task)
    lost: list[str] = []
    if place is not None:
        lost = on_ray(replace(search, task=task, folder=search.folder.absolute()), place, jobs, seconds, notify, show)
    elif jobs is None or jobs == 1:
        work_on(replace(search, task=task), seconds, notify, show)
    else:
        threads = search.recipe.config.threads or max(1, (os.cpu_count() or 1) // jobs)
        config = replace(search.recipe.config, threads=threads)
        search = replace(search, recipe=replace(search.recipe, config=config))
        try:
            pickle.dumps(search.net)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(f"net cannot be imported by other processes ({error}): define it in a module.") from error
        again = search.data.in_files and search.data.features != OWN_MODULE
        shared = replace(search, task=None) if again else search
        _, lost = in_workers(work_on, (shared,), jobs, lambda: missing(search, study), seconds, notify)
    left = missing(search, study)
    if left and lost:
        raise InputError(f"{lost[0]}: run the same command to continue, with fewer --jobs to use less memory.")
    if left and (seconds is None or time.monotonic() - began < seconds):
        raise Stopped(f"stopped with {counted(left, 'trial')} left")


def on_ray(
    search: SearchSpec, place: OnRay, jobs: int | None, seconds: float | None, notify: Notify, show: bool
) -> list[str]:
    """Work on a search as tasks of Ray, which share its folder. Returns how those ended that were lost for good."""
    with connected(place, {search.recipe.config.device}, notify, show) as cluster:

        def there(recipe: Recipe) -> Recipe:
            named = recipe.config.device != "auto"
            return recipe if named else replace(recipe, config=replace(recipe.config, device=cluster.device))

        reference = None if search.reference is None else there(search.reference)
        shared = replace(search, recipe=there(search.recipe), reference=reference)
        return in_ray_workers(cluster, work_on, (shared,), min(jobs or cluster.at_once, search.trials), seconds)[1]
