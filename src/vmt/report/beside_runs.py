"""What is shown beside the runs: a choice that ``method=auto`` made among them, and models that have no run folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmt.errors import InputError
from vmt.json_types import check_complete, check_types
from vmt.nets.registry import AVERAGE
from vmt.report.intervals import wilson
from vmt.report.signs import BAD, GOOD, UNKNOWN, percent
from vmt.report.standing import Standing
from vmt.runs.folder import MODEL
from vmt.runs.record import candidates_inside, read_choice, read_summary, run_folders_in
from vmt.validators.choice import REFERENCE
from vmt.validators.registry import DEFAULT

ADABN = "re-normalising alone (AdaBN)"
SEARCH_TYPES = {"by": str, "trials": list[dict[str, Any]], "importances": dict[str, float]}
TRIAL_TYPES = {
    "score": float | None,
    "settings": dict[str, Any],
    "why": str | None,
    "target_accuracy": float | None,
    "seconds": float | None,
}


def choice_in(folders: Sequence[Path]) -> dict[str, Any] | None:
    """The choice that was made among the runs in a folder: its ``text``, and the name of the run ``chosen``.

    Such a folder has a summary with the key ``choice``. With several of them, only the runs are compared.
    """
    found = [choice for folder in folders if (choice := read_choice(folder)) is not None]
    return found[0] if len(found) == 1 else None


def with_candidates(folders: Sequence[Path]) -> list[Path]:
    """The folders of runs in these folders, with the runs that a choice is made among in place of their folder.

    Such a folder has the record of a run itself, also before all of its candidates are trained.
    """
    found: list[Path] = []
    for folder in (each for given in folders for each in run_folders_in(given)):
        inside = candidates_inside(folder)
        if read_search(folder) is not None:  # the others have a row in the table of trials
            inside = [each for each in inside if (each / MODEL).is_file()]
        found += inside or [folder]
    return found


def search_in(folders: Sequence[Path]) -> dict[str, Any] | None:
    """The trials of a search, and the importances of its settings, if one of the folders has them."""
    found = [search for folder in folders if (search := read_search(folder)) is not None]
    return found[0] if len(found) == 1 else None


def read_search(folder: Path) -> dict[str, Any] | None:
    """What the summary of a search says about its trials; None for any other folder."""
    try:
        summary = read_summary(folder) or {}
        check_complete(summary, {"search": dict[str, Any]})
        search = summary["search"]
        check_complete(search, SEARCH_TYPES)
        for trial in search["trials"]:
            check_complete(trial, {"name": str, "state": str})
            check_types(trial, TRIAL_TYPES)
    except (InputError, TypeError, KeyError):
        return None
    return dict(search)


def chosen_by(choice: Mapping[str, Any] | None, standings: Sequence[Standing]) -> Standing | None:
    """The run that a choice names, unless an alarm says that it is not usable."""
    name = None if choice is None else str(choice.get("chosen"))
    named = [each for each in standings if name in (each.run.folder.name, each.name, each.run.spec.recipe.method)]
    return next((each for each in named if each.usable), None)


@dataclass(frozen=True)
class Answer:
    """The model that a choice answers with, if it is none of the runs: an average, or a kernel classifier."""

    name: str
    folder: Path
    accuracy: float | None
    unadapted: float | None
    """The accuracy of source only on the same samples."""

    def verdict(self, samples: int) -> dict[str, Any]:
        """A headline and its tone, given the number of samples that the accuracies are measured on."""
        which = "the average of several candidates" if self.name == AVERAGE else f"the candidate {self.name}"
        if self.accuracy is None:
            return {"headline": f"Accuracy unknown; use the model in {self.folder}, {which}.", "tone": UNKNOWN}
        head = f"Use the model in {self.folder}, {which}: {percent(self.accuracy)} of the target samples are right"
        if self.unadapted is None:
            return {"headline": f"{head}.", "tone": UNKNOWN}
        low, high = wilson(self.accuracy, samples)
        tone = GOOD if low > self.unadapted else BAD if high < self.unadapted else UNKNOWN
        return {"headline": f"{head}, {percent(self.unadapted)} with source only.", "tone": tone}


def answer_beside(
    choice: Mapping[str, Any] | None, standings: Sequence[Standing], folders: Sequence[Path]
) -> Answer | None:
    """The answer of a choice that none of the runs is, unless it has an alarm."""
    if choice is None or not standings:
        return None
    name, known = str(choice.get("chosen")), candidates_in(choice)
    if name not in known or known[name].get("alarm") or name in {each.run.folder.name for each in standings}:
        return None
    folder = next((each for each in folders if read_choice(each) is not None and (each / MODEL).is_file()), None)
    if folder is None:
        return None
    accuracies = [known.get(each, {}).get("target_accuracy") for each in (name, REFERENCE)]
    accuracy, unadapted = (each if isinstance(each, int | float) else None for each in accuracies)
    # With other labels, those of --test, the accuracies that the choice has noted are not comparable.
    if any(each.run.tested for each in standings):
        accuracy = unadapted = None
    return Answer(name, folder, accuracy, unadapted)


def references(standings: Sequence[Standing], choice: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Models without a run folder that the table of runs has a row for: AdaBN, and candidates that were not kept.

    ``after`` is the index of the run below which the row is shown.
    """
    rows = []
    seen: set[str] = set()
    for i, standing in enumerate(standings):
        found = (standing.run.summary or {}).get("adabn")
        if isinstance(found, Mapping) and standing.run.data_key not in seen:
            seen.add(standing.run.data_key)
            known = {**found, "target_accuracy": None} if standing.run.tested else found  # on other samples
            rows.append({"name": ADABN, "after": i, **figures(known, standing.run.target_samples)})
    folders = {each.run.folder.name for each in standings}
    samples = standings[-1].run.target_samples if standings else 0
    for name, about in candidates_in(choice).items():
        if name not in folders:
            rows.append({"name": name, "after": len(standings) - 1, **figures(about, samples)})
    return rows


def about_adabn(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence about the score of AdaBN, if that is all that is known of it."""
    return [
        f"Re-normalising alone has a score of {row['score']['value']:.2f}: the weights of source only, and batch-norm "
        "statistics of the target (AdaBN)."
        for row in rows
        if row["name"] == ADABN and row["score"] and not row["accuracy"]
    ]


def candidates_in(choice: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """What a choice says about each of its candidates, by name."""
    found = {} if choice is None else choice.get("candidates")
    if not isinstance(found, Mapping):
        return {}
    return {str(name): about if isinstance(about, Mapping) else {} for name, about in found.items()}


def figures(about: Mapping[str, Any], samples: int) -> dict[str, Any]:
    """Score and accuracy of a model, as far as they are known."""
    scores = about.get("validators", about.get("scores"))
    score = scores.get(DEFAULT) if isinstance(scores, Mapping) else about.get("score")
    accuracy = about.get("target_accuracy")
    found: dict[str, Any] = {"score": None, "accuracy": None, "alarm": about.get("alarm") or None}
    if isinstance(score, int | float):
        found["score"] = {"value": float(score), "more": None}
    if isinstance(accuracy, int | float):
        low, high = wilson(accuracy, samples) if samples else (accuracy, accuracy)
        found["accuracy"] = {"value": float(accuracy), "low": low, "high": high, "samples": samples}
    return found
