"""The record of a run, read from its folder without changing the folder and without loading the data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any

from vmt.errors import InputError, parsing
from vmt.evaluate.accuracy import MEASURED, Evaluation
from vmt.json_types import check_types
from vmt.methods.nouns import Method
from vmt.model import rows_about
from vmt.notebook import html_table
from vmt.runs.folder import AS_A_VALUE, EARLIER_ADAPT, RUN, SUMMARY, RunSpec, model_at_the_end, read_record
from vmt.step.plan import trains_on
from vmt.train.checkpoint import LoopState
from vmt.train.collapse import CollapseWatch
from vmt.train.log import LOG, read_log
from vmt.validators.registry import DEFAULT

BOUNDS = {"source_only": "lower", "target_only": "upper"}
NAMES = {
    "source_only": "source only",
    "target_only": "trained on target labels",
    "adabn": "AdaBN",
    "mmd": "MMD",
    "mcc": "MCC",
    "dann": "DANN",
    "cdan": "CDAN",
    "vada": "VADA",
    "co_da": "Co-DA",
    "vmt": "VMT",
    "vmt_mcc": "VMT + MCC",
    "dann_grl": "DANN (gradient reversal)",
    "pi_model": "Π-model",
    "drcn": "DRCN",
    "dsn": "DSN",
}


SUMMARY_TYPES: dict[str, Any] = {
    "collapsed": str | None,
    "pruned": str | None,
    "finished": bool,
    "iterations": int,
    "seconds": float,
    "target_accuracy": float | None,
    "source_accuracy": float | None,
    "best": dict[str, Any] | None,
}


@dataclass(frozen=True, repr=False)
class RunRecord:
    """The files of a run folder, and what follows from them. In a notebook it is shown as a table."""

    folder: Path
    spec: RunSpec
    run_json: Mapping[str, Any]
    log: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any] | None
    """None for a run that has not ended, and for a run of ``vmt.adapt`` in an earlier version."""
    tested: Mapping[str, Any] | None = None
    """``accuracy``, ``samples`` and ``name`` if its model was tested on labelled samples after the run."""

    @property
    def ended(self) -> bool:
        """Whether the run has ended. Until version 0.1, ``vmt.adapt`` wrote a model and no summary."""
        return self.summary is not None or model_at_the_end(self.folder).is_file()

    @property
    def method(self) -> str:
        """The display name of the method."""
        name, dirt_t, _ = self._method_name.partition("+dirt_t")
        refined = dirt_t or self.spec.recipe.dirt_t is not None
        return NAMES.get(name, name) + (" + DIRT-T" if refined else "")

    @property
    def kind(self) -> str:
        """``lower`` and ``upper`` for the two bounds, ``adapted`` for every other method."""
        return BOUNDS.get(self._method_name, "adapted") if self.spec.recipe.dirt_t is None else "adapted"

    @property
    def _method_name(self) -> str:
        return self.spec.recipe.method.removesuffix(AS_A_VALUE)

    @cached_property  # a log may be long, and a page of many runs reads it often
    def evaluations(self) -> list[Mapping[str, Any]]:
        """The log records of evaluations."""
        return [record for record in self.log if "target" in record]

    @property
    def last(self) -> Mapping[str, Any]:
        """The last evaluation; empty if there is none."""
        return self.evaluations[-1] if self.evaluations else {}

    @property
    def target_samples(self) -> int:
        """The number of target samples that the last evaluation was on."""
        return int((self.last.get("target") or {}).get("samples", 0))

    @property
    def iterations(self) -> int:
        return int(self.log[-1]["step"]) if self.log else 0

    @cached_property
    def built_method(self) -> Method | None:
        """The method with its settings; None if it was given as a value, or if this version does not know it."""
        try:
            return self.spec.recipe.build()
        except (InputError, TypeError):
            return None

    @property
    def settings_key(self) -> str:
        """Equal for runs that differ only in seed, machine and how often they were evaluated and saved."""
        recipe = asdict(self.spec.recipe)
        config = recipe.pop("config")
        return json.dumps([recipe, config["batch_size"], config["precision"]], sort_keys=True)

    def rows(self) -> list[list[str]]:
        """What the run is and how it went, as rows of a table."""
        last = {f"{name}_accuracy": (self.last.get(name) or {}).get("accuracy") for name in ("target", "source")}
        about = {"iterations": self.iterations, **last, **(self.summary or {})}
        about |= {"method": self.method, "run": str(self.folder)}
        scores = self.last.get("validators") or {}
        shown = {"data": self.spec.data.name, "network": self.spec.recipe.net, "status": status_of(self)["text"]}
        shown |= {name: f"{scores[name]:.4f}" for name in (DEFAULT,) if scores.get(name) is not None}
        return [*rows_about(about), *([name, text] for name, text in shown.items())]

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self.rows())

    def _repr_html_(self) -> str:
        return html_table("A run of vmt", self.rows())

    @property
    def data_key(self) -> str:
        """Equal for runs on the same samples."""
        return str(self.run_json.get("fingerprint") or json.dumps(asdict(self.spec.data)))


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """The run folders among these folders and, for a folder that holds no run itself, those directly inside it.

    The folder of a choice among runs stands for these runs.
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        for each in run_folders_in(folder):
            for run in candidates_inside(each) or [each]:
                found.setdefault(run.resolve(), run)
    return list(found.values())


def run_folders_in(folder: Path) -> list[Path]:
    """The folder itself if it holds a run; otherwise the run folders directly inside it, if there are any."""
    inside = [] if is_run(folder) else sorted(filter(is_run, folder.glob("*")))
    return inside or [folder]


def candidates_inside(folder: Path) -> list[Path]:
    """The runs inside a folder: the candidates of ``auto`` and the trials of a search. None in that of a single run."""
    return sorted({path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/{RUN}")})


def read_choice(folder: Path) -> dict[str, Any] | None:
    """The choice that the method auto, or a search, made among the runs in a folder, if it holds one."""
    try:
        choice = (read_summary(folder) or {}).get("choice")
    except InputError:
        return None  # a run with a damaged summary is refused where it is read
    if not isinstance(choice, dict) or not isinstance(choice.get("text"), str):
        return None
    return choice


def is_run(folder: Path) -> bool:
    return (folder / RUN).is_file() or (folder / EARLIER_ADAPT).is_file()


def read_run_record(folder: Path) -> RunRecord:
    spec, run_json = read_record(folder)
    log = read_log(folder / LOG) if (folder / LOG).is_file() else []
    return RunRecord(folder, spec, run_json, log, read_summary(folder))


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary in a folder; None if there is none."""
    path = folder / SUMMARY
    if not path.is_file():
        return None
    with parsing(path, "the summary of a run", "restore it, or leave the run out"):
        summary = dict(json.loads(path.read_bytes()))
        check_types(summary, SUMMARY_TYPES)
        index((summary.get("best") or {"step": 0})["step"])
        return summary


def bounds_outside(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Lower bounds first and upper bounds last; otherwise in the given order."""
    return sorted(runs, key=lambda run: ("lower", "adapted", "upper").index(run.kind))


def short_names(runs: Sequence[RunRecord]) -> list[str]:
    """A name for each run: as much of the end of its path as distinguishes it from the others."""
    paths = [run.folder.resolve() for run in runs]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def status_of(run: RunRecord, largest_source_class: float | None = None, classes: Sequence[str] = ()) -> dict[str, str]:
    """``kind``, which is finished, collapsed, pruned or unfinished, and ``text``, which explains it."""
    collapsed = run.summary.get("collapsed") if run.summary else collapse_in_log(run, largest_source_class, classes)
    if collapsed:
        sentence = str(collapsed)
        return {"kind": "collapsed", "text": sentence[:1].upper() + sentence[1:]}
    if not run.ended:
        of = f" of {run.built_method.iterations:,}" if run.built_method else ""
        how = f"vmt train --resume {run.folder}" if run.spec.can_be_built_again else "resume=True in Python"
        text = f"Not finished: the log ends at iteration {run.iterations:,}{of}. Resume the run with {how}."
        return {"kind": "unfinished", "text": text}
    if run.summary and run.summary.get("pruned"):
        text = f"Stopped after {run.iterations:,} iterations: {run.summary['pruned']}."
        return {"kind": "pruned", "text": text}
    return {"kind": "finished", "text": f"Finished after {run.iterations:,} iterations."}


def collapse_in_log(run: RunRecord, largest_source_class: float | None, classes: Sequence[str]) -> str | None:
    """Watch the log of an unfinished run for a collapse, as the training loop does."""
    if run.built_method is None or not run.evaluations:
        return None
    largest = largest_source_class or 1 / max(2, len(run.last["target"]["predicted_share"]))
    watch, state, begin = CollapseWatch(run.built_method, largest, classes), LoopState(), 0
    for phase in run.built_method.phases:
        for record in run.evaluations:
            if record.get("phase") == phase.name:
                target, source = evaluation_from(record["target"]), record.get("source")
                watch.observe(state, phase, begin, record["step"], target, evaluation_from(source) if source else None)
        begin += phase.iterations
    return state.collapsed


def evaluation_from(values: Mapping[str, Any]) -> Evaluation:
    return Evaluation(**{name: values.get(name) for name in MEASURED})  # type: ignore[arg-type]


def last_phase_trains_on_source(run: RunRecord) -> bool:
    """Whether the phase of the last evaluation trains on the source. DIRT-T does not, and may forget it."""
    phases = run.built_method.phases if run.built_method else ()
    return all(trains_on(phase, "source") for phase in phases if phase.name == run.last.get("phase"))
