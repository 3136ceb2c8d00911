"""A run folder as plain facts, read without touching it and without its data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vmt.errors import InputError
from vmt.evaluate.accuracy import Evaluation
from vmt.methods.nouns import Method
from vmt.runs.folder import RUN, SUMMARY, RunSpec, read_run
from vmt.step.plan import trains_on
from vmt.train.checkpoint import LoopState
from vmt.train.collapse import Watch
from vmt.train.log import LOG, is_real, read_log

BOUNDS = {"source_only": "lower", "target_only": "upper"}
NAMES = {
    "source_only": "source only",
    "target_only": "trained on target labels",
    "mmd": "MMD",
    "dann": "DANN",
    "vada": "VADA",
    "co_da": "Co-DA",
    "vmt": "VMT",
}


@dataclass(frozen=True)
class RunRecord:
    """What a run folder says about itself."""

    folder: Path
    spec: RunSpec
    written: Mapping[str, Any]
    """run.json as it stands."""
    log: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any] | None
    """None for a run that has not come to its end."""

    @property
    def method(self) -> str:
        name = NAMES.get(self.spec.recipe.method, self.spec.recipe.method)
        return f"{name} + DIRT-T" if self.spec.recipe.dirt_t is not None else name

    @property
    def kind(self) -> str:
        """lower and upper for the two bounds, adapted for everything between."""
        return BOUNDS.get(self.spec.recipe.method, "adapted") if self.spec.recipe.dirt_t is None else "adapted"

    @cached_property  # a log may be long, and a page of many runs asks often
    def evaluations(self) -> list[Mapping[str, Any]]:
        """The log records of evaluations."""
        return [record for record in self.log if "target" in record]

    @property
    def last(self) -> Mapping[str, Any]:
        return self.evaluations[-1] if self.evaluations else {}

    @property
    def iterations(self) -> int:
        return int(self.log[-1]["step"]) if self.log else 0

    @cached_property
    def built(self) -> Method | None:
        """The method with its settings; None where another version of the library knows them."""
        try:
            return self.spec.recipe.build()
        except (InputError, TypeError):
            return None

    @property
    def settings(self) -> str:
        """Runs with the same of this differ in nothing but the seed, the machine and how often they were looked at."""
        recipe = asdict(self.spec.recipe)
        config = recipe.pop("config")
        return json.dumps([recipe, config["batch_size"], config["precision"]], sort_keys=True)

    @property
    def same_data(self) -> str:
        """Runs with the same of this are about the same samples."""
        return str(self.written.get("fingerprint") or json.dumps(asdict(self.spec.data)))


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """The run folders named; one that holds several runs, as the demo's does, stands for them all."""
    found: dict[Path, Path] = {}
    for folder in folders:
        inside = sorted(path.parent for path in folder.glob(f"*/{RUN}")) if not (folder / RUN).is_file() else []
        for run in inside or [folder]:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def in_order(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The lower bound first and the upper bound last; else as they were named."""
    return sorted(runs, key=lambda run: ("lower", "adapted", "upper").index(run.kind))


def read_run_record(folder: Path) -> RunRecord:
    spec = read_run(folder)
    try:
        written = json.loads((folder / RUN).read_text())
        summary = json.loads((folder / SUMMARY).read_text()) if (folder / SUMMARY).is_file() else None
        log = read_log(folder / LOG) if (folder / LOG).is_file() else []
        if not (summary is None or is_summary(summary)):
            raise ValueError(f"{SUMMARY} holds no summary")
    except (OSError, ValueError) as error:
        raise InputError(f"the run {folder} cannot be read ({error}): restore its files, or leave it out.") from error
    return RunRecord(folder, spec, written, log, summary)


def is_summary(values: Any) -> bool:
    """Whether this is the summary of a run, as far as it is read here."""
    if not isinstance(values, Mapping) or not is_real(values.get("seconds", 0.0)):
        return False
    best = values.get("best")
    return best is None or (
        isinstance(best, Mapping)
        and isinstance(best.get("by"), str)
        and isinstance(best.get("step"), int)
        and is_real(best.get("score"))
        and "alarm" in best
    )


def status_of(run: RunRecord, largest_source_class: float | None = None, classes: Sequence[str] = ()) -> dict[str, str]:
    """finished, collapsed or unfinished, with a sentence."""
    collapsed = run.summary.get("collapsed") if run.summary else seen_collapse(run, largest_source_class, classes)
    if collapsed:
        sentence = str(collapsed)
        return {"kind": "collapsed", "text": sentence[:1].upper() + sentence[1:]}
    if run.summary is None:
        of = f" of {run.built.iterations:,}" if run.built else ""
        text = f"Not finished: its log ends at iteration {run.iterations:,}{of}. Go on: vmt train --resume {run.folder}"
        return {"kind": "unfinished", "text": text}
    return {"kind": "finished", "text": f"Finished after {run.iterations:,} iterations."}


def seen_collapse(run: RunRecord, largest_source_class: float | None, classes: Sequence[str]) -> str | None:
    """The watch of the training loop, on the log of a run that left no summary."""
    if run.built is None or not run.evaluations:
        return None
    largest = largest_source_class or 1 / max(2, len(run.last["target"]["predicted_share"]))
    watch, notes, begin = Watch(run.built, largest, classes), LoopState(), 0
    for phase in run.built.phases:
        for look in run.evaluations:
            if look.get("phase") == phase.name:
                source = evaluation_from(look["source"]) if look.get("source") else None
                watch.observe(notes, phase, begin, look["step"], evaluation_from(look["target"]), source)
        begin += phase.iterations
    return notes.collapsed


def on_source(run: RunRecord) -> bool:
    """Whether the phase of the last look trains on the source; DIRT-T's does not, and may forget it."""
    phases = run.built.phases if run.built else ()
    return all(trains_on(phase, "source") for phase in phases if phase.name == run.last.get("phase"))


def evaluation_from(values: Mapping[str, Any]) -> Evaluation:
    return Evaluation(**{name: values.get(name) for name in Evaluation.__dataclass_fields__})  # type: ignore[arg-type]


def names_of(runs: Sequence[RunRecord]) -> list[str]:
    """A short name for each run: the end of its path that tells it from the others."""
    paths = [run.folder.resolve() for run in runs]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
