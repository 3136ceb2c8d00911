"""The answer of a search: its trials ranked, what the settings contribute, and the model that is chosen.

The trial with the best score is chosen if it is credibly better than source only, as :func:`vmt.validators.choose` has
it, and otherwise the next one; if none of the kept models is, source only is the answer.
"""

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmt.data.task import Task
from vmt.disk import waiting_lock, write_atomically
from vmt.errors import InputError, counted, few, parsing
from vmt.evaluate.probe import make_probe
from vmt.model import Model, load
from vmt.nets.backbone import Backbone
from vmt.progress import silent, to_stderr
from vmt.runs.auto import PROBE_SAMPLES, replace_about
from vmt.runs.folder import MODEL, SUMMARY, read_record
from vmt.runs.record import read_summary
from vmt.runs.run import Run
from vmt.runs.search import (
    TRIALS,
    SearchSpec,
    carry_out_search,
    join,
    lock_trial,
    missing,
    name_of,
    ranked_trials,
    spec_around,
)
from vmt.train.checkpoint import CHECKPOINTS
from vmt.validators.choice import REFERENCE, Choice, choose

CONCLUDING = ".concluding"
# The explanation has the reasons for at most this many trials that are not credible.
SHOWN = 2


@dataclass(frozen=True, repr=False)
class SearchResult:
    """The chosen model of a search, and how it was found."""

    model: Model
    chosen: str
    """The name of the chosen trial, such as ``0012``, or source_only."""
    params: Mapping[str, Any]
    """The settings of the chosen trial, as far as they were searched; empty for source only."""
    score: float | None
    """The score of the chosen trial, by the validator of the search."""
    reason: str
    """Why it was chosen."""
    trials: Sequence[Mapping[str, Any]]
    """All trials, best first: number, state, score, settings, and the accuracy if the target has labels."""
    importances: Mapping[str, float]
    """The share of each setting in the differences between good and bad trials; empty if there are too few trials."""
    summary: Mapping[str, Any]
    """What summary.json has."""

    def __repr__(self) -> str:
        return f"SearchResult({self.chosen}, {dict(self.params)}, {counted(len(self.trials), 'trial')})"


def conclude(search: SearchSpec, task: Task) -> SearchResult:
    """Rank the trials, choose a model and write both to the folder of the search."""
    study = join(search, task)
    with waiting_lock(search.folder / CONCLUDING):  # all processes of a search conclude it
        ranking = [trial.number for trial in ranked_trials(study)]
        models = kept_models(search, task, ranking)
        if not models:
            why = [f"{each['name']} ({each['why']})" for each in rows(study) if each["why"]]
            raise InputError(
                f"no trial in {search.folder} has a usable model: {few(why) or 'none has finished'}; run it for "
                "longer, or with another --space."
            )
        choice = None
        if REFERENCE in models and len(models) > 1:
            probe = make_probe(task, PROBE_SAMPLES)
            assert probe is not None
            evidence = {name: probe.evidence(model.network, None) for name, model in models.items()}
            choice = choose(evidence, probe.prior)
        names = [name for name in map(name_of, ranking) if name in models]
        credible = [name for name in names if choice is None or choice.findings[name].doubt is None]
        chosen = (credible or [REFERENCE])[0]
        trials = rows(study)
        reason = explanation(search, chosen, names, choice, trials)
        importances = importances_of(study, search)
        summary = summary_of(search, chosen, reason, trials, choice, importances, not missing(search, study))
        model = replace_about(models[chosen], {**models[chosen].about, "choice": reason})
        model.save(search.folder / MODEL)
        write_atomically(search.folder / SUMMARY, json.dumps(summary, indent=1).encode())
    mine: dict[str, Any] = next((each for each in trials if each["name"] == chosen), {"settings": {}, "score": None})
    return SearchResult(model, chosen, mine["settings"], mine["score"], reason, trials, importances, summary)


def search_around(
    run: Run,
    reference: Run,
    folder: Path,
    space: str | Path | Mapping[str, Any] | None,
    *,
    minutes: float | None,
    jobs: int,
    progress: bool,
    given: Mapping[str, Any],
    known: Collection[str] | None = None,
    **more: Any,
) -> SearchResult:
    """Search settings around those of a run, as in :func:`spec_around`, and return the answer."""
    search = spec_around(folder, run.data, run.recipe, reference.recipe, space, given, known, task=run.task, **more)
    carry_out_search(search, jobs, minutes, to_stderr if progress else silent, progress)
    return conclude(search, run.task)


def kept_models(search: SearchSpec, task: Task, ranking: Sequence[int]) -> dict[str, Model]:
    """The models of the best trials and of source only, by name."""
    backbone = task.backbone if isinstance(task.backbone, Backbone) else None
    places = [search.folder_of(number) for number in ranking[: search.keep]]
    places += [search.reference_folder] if search.reference is not None else []
    device = search.recipe.config.device
    return {
        place.name: load(place / MODEL, network=search.network, device=device, features=backbone)
        for place in places
        if (place / MODEL).exists() and (place / SUMMARY).exists()
    }


def rows(study: Any) -> list[dict[str, Any]]:
    """What is known of each trial: first the finished ones, best first, then those that were pruned."""
    order = ("COMPLETE", "PRUNED", "RUNNING", "WAITING", "FAIL")
    trials = study.get_trials(deepcopy=False)
    trials = sorted(trials, key=lambda t: (order.index(t.state.name), -(t.value or 0.0), t.number))
    return [
        {
            "name": name_of(trial.number),
            "number": trial.number,
            "state": "finished" if trial.state.name == "COMPLETE" else trial.state.name.lower(),
            "score": trial.value if trial.state.name == "COMPLETE" else None,
            "settings": dict(trial.params),
            "why": trial.user_attrs.get("why"),
            "target_accuracy": trial.user_attrs.get("target_accuracy"),
            "seconds": trial.user_attrs.get("seconds"),
        }
        for trial in trials
    ]


def explanation(
    search: SearchSpec, chosen: str, names: Sequence[str], choice: Choice | None, trials: Sequence[Mapping[str, Any]]
) -> str:
    """Why a trial was chosen, in one paragraph."""
    finished = [trial for trial in trials if trial["state"] == "finished"]
    scores = {trial["name"]: trial["score"] for trial in finished}
    doubts = {name: choice.findings[name].doubt for name in names} if choice is not None else {}
    rejected = [f"{name}: {doubt}" for name, doubt in doubts.items() if doubt]
    if chosen == REFERENCE:
        if not names:
            return f"No trial has finished without collapse, so {REFERENCE} is kept."
        text = f"None of the best {counted(len(names), 'trial')} is credibly better than {REFERENCE}, which is kept."
        return f"{text} {few(rejected, SHOWN)}."
    better = names.index(chosen)
    text = f"Trial {int(chosen)} is chosen: its {search.by}, {scores[chosen]:.4f}, is the highest of "
    text += f"{counted(len(finished) - better, 'credible trial' if better else 'finished trial')}"
    if choice is not None:
        mine, reference = choice.findings[chosen], choice.findings[REFERENCE]
        text += (
            f", and its classes fit the neighbourhoods of the target better than those of {REFERENCE} "
            f"({mine.neighbours:.2f} against {reference.neighbours:.2f})"
        )
    text += "."
    if chosen != name_of(0) and name_of(0) in scores:
        text += f" The default settings (trial 0) have {scores[name_of(0)]:.4f}."
    return text + (f" Not credible: {few(rejected, SHOWN)}." if rejected else "")


def importances_of(study: Any, search: SearchSpec) -> dict[str, float]:
    """The importance of each setting by PED-ANOVA; empty if there are too few trials."""
    from optuna.importance import get_param_importances

    ranked = ranked_trials(study)
    if len(ranked) < 2 or len({trial.value for trial in ranked}) < 2:
        return {}
    try:
        found = get_param_importances(study, params=[name for name in search.space if name in ranked[0].params])
    except (ValueError, RuntimeError):  # all trials agree in every setting
        return {}
    return {name: round(float(value), 4) for name, value in found.items()}


def summary_of(
    search: SearchSpec,
    chosen: str,
    reason: str,
    trials: Sequence[Mapping[str, Any]],
    choice: Choice | None,
    importances: Mapping[str, float],
    is_finished: bool,
) -> dict[str, Any]:
    """What summary.json says: about the chosen run, how it was chosen, and about the whole search."""
    place = search.folder / (chosen if chosen == REFERENCE else f"{TRIALS}/{chosen}")
    findings = {} if choice is None else choice.findings
    candidates = {
        name: {"neighbours": finding.neighbours, "alarm": finding.alarm, "doubt": finding.doubt}
        for name, finding in findings.items()
    }
    ranking = [trial["name"] for trial in trials if trial["state"] == "finished"]
    known = [trial["seconds"] for trial in trials if trial["seconds"] is not None]
    return {
        **(read_summary(place) or {}),
        "run": str(search.folder),
        "finished": is_finished,
        "seconds": round(sum(known), 1),
        "choice": {"text": reason, "chosen": chosen, "ranking": ranking, "candidates": candidates},
        "search": {"by": search.by, "trials": list(trials), "importances": dict(importances)},
    }


def clean(folder: Path) -> int:
    """Remove models and checkpoints of all finished trials but the chosen one. Returns the bytes that are freed."""
    if "search" not in read_record(folder)[1]:
        raise InputError(f"{folder} does not hold a search: give the folder that vmt search --out named.")
    path = folder / SUMMARY
    if not path.is_file():
        raise InputError(f"the search in {folder} has not chosen a model yet: run it to its end first.")
    with parsing(path, "the summary of a search", "run the search again to write it anew"):
        chosen = str(json.loads(path.read_bytes())["choice"]["chosen"])
    freed = 0
    for place in sorted((folder / TRIALS).glob("[0-9]*")):
        with ExitStack() as held:
            if place.name == chosen or not (place / SUMMARY).exists() or not lock_trial(place, held):
                continue
            for model in place.glob("model*.safetensors"):
                freed += model.stat().st_size
                model.unlink()
            checkpoints = place / CHECKPOINTS
            freed += sum(path.stat().st_size for path in checkpoints.rglob("*") if path.is_file())
            shutil.rmtree(checkpoints, ignore_errors=True)
    return freed
