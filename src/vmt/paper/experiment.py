"""The nouns of the paper's tables: experiments, cells, tables and the jobs that fill them."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from vmt.errors import InputError

if TYPE_CHECKING:
    from vmt.runs.recipes import Recipe


@dataclass(frozen=True)
class Experiment:
    """Everything that defines a run of the paper, except its seed."""

    task: str
    method: str = "vmt"
    instance_norm: bool = True
    dirt_t: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the recipe of the task; ``dirt_t_iterations`` is the length of DIRT-T."""
    choose_on: int | None = None
    """How many labelled images of the target's training set are held apart for choices; None trains on all."""

    @property
    def name(self) -> str:
        parts = [self.task, self.method, "dirt_t" if self.dirt_t else "", "in" if self.instance_norm else "no-in"]
        parts += [f"{name}={value}" for name, value in self.changes.items()]
        parts += [] if self.choose_on is None else [f"choose_on={self.choose_on}"]
        return "_".join(part for part in parts if part).replace("/", "-")

    @property
    def phases(self) -> tuple[str, ...]:
        return (self.method, "dirt_t") if self.dirt_t else (self.method,)

    def recipe(self, seed: int) -> "Recipe":
        from vmt.runs.recipes import paper, with_settings  # imported here: listing tables needs no PyTorch

        recipe = with_settings(paper(self.task, self.method, self.instance_norm, self.dirt_t), self.changes)
        return replace(recipe, config=replace(recipe.config, seed=seed))


@dataclass(frozen=True)
class Cell:
    """One number of a table: the accuracy of an experiment at the end of a phase, over some seeds."""

    row: str
    column: str
    experiment: Experiment | None
    """None for a system that this package does not have."""
    phase: str
    paper: float | None
    """The number of the paper."""
    paper_std: float | None = None
    seeds: int = 1
    ours: bool = False
    """Whether the row is not the paper's: ``paper`` is then the number that it is compared with."""
    domain: str = "target"
    """Whose test set the accuracy is on: ``target`` or ``source``."""
    passing: tuple[tuple[Experiment, int], ...] = ()
    """Longer experiments that pass through the same state, and the iteration at which they do.

    Their runs answer the cell as well, for seeds that have no run of their own.
    """

    @property
    def is_own(self) -> bool:
        """Whether the number is one that the paper does not have."""
        return self.ours or self.paper is None

    def matches(self, pattern: str) -> bool:
        """Whether a pattern such as ``*vada*`` matches its row or its experiment."""
        names = [self.row] + ([] if self.experiment is None else [self.experiment.name])
        return any(fnmatchcase(name, pattern) for name in names)


@dataclass(frozen=True)
class Table:
    """A table of the paper, its most important cells first."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    """Notes for readers of its numbers."""

    def choosing_on(self, count: int | None) -> "Table":
        """The same table of runs that hold this many target samples apart for choices."""
        if count is None:
            return self

        def held(cell: Cell) -> Cell:
            if cell.experiment is None:
                return cell
            passing = tuple((replace(each, choose_on=count), step) for each, step in cell.passing)
            return replace(cell, experiment=replace(cell.experiment, choose_on=count), passing=passing)

        return replace(self, cells=tuple(map(held, self.cells)))


@dataclass(frozen=True)
class Job:
    """One phase of one run."""

    experiment: Experiment
    seed: int
    phase: str

    @property
    def run(self) -> str:
        """The name of the run's folder and result file."""
        return f"{self.experiment.name}_{self.seed}"

    @property
    def command(self) -> str:
        """The command that does it, after the phases before it."""
        held = "" if self.experiment.choose_on is None else f" --choose-on {self.experiment.choose_on}"
        phases = "" if self.phase == self.experiment.phases[-1] else " --phases 1"
        only = shlex.quote(self.experiment.name)
        return f"vmt paper run all --only {only} --seeds {self.seed}{held}{phases} --data DATA"

    def __str__(self) -> str:
        return f"{self.experiment.name}, seed {self.seed}: {self.phase}"


def jobs_for(
    cells: Iterable[Cell],
    seeds: Sequence[int] | None = None,
    only: Sequence[str] | None = None,
    phases: int | None = None,
) -> list[Job]:
    """The jobs that fill the cells, each once and in the order of the cells; a phase comes after those before it.

    ``seeds`` replaces the seeds of the cells, ``only`` are patterns for :meth:`Cell.matches`, whose order comes first,
    and ``phases`` is the number of phases of each run.
    """
    jobs: dict[tuple[str, str], Job] = {}
    cells = list(cells)
    for cell in cells if only is None else matching(cells, only):
        if cell.experiment is None:
            continue
        needed = cell.experiment.phases[: cell.experiment.phases.index(cell.phase) + 1]
        for seed in range(cell.seeds) if seeds is None else seeds:
            for phase in needed[:phases]:
                job = Job(cell.experiment, seed, phase)
                jobs.setdefault((job.run, phase), job)
    return list(jobs.values())


def matching(cells: Sequence[Cell], patterns: Sequence[str]) -> list[Cell]:
    """The cells that match each pattern in turn."""
    found = []
    for pattern in patterns:
        chosen = [cell for cell in cells if cell.matches(pattern)]
        if not chosen:
            raise InputError(
                f"--only {pattern} matches no row and no run of the table: vmt paper list TABLE lists them."
            )
        found += chosen
    return found
