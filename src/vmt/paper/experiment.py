"""The nouns of the paper's tables: experiments, cells, tables and the jobs that fill them."""

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

    @property
    def name(self) -> str:
        parts = [self.task, self.method, "dirt_t" if self.dirt_t else "", "in" if self.instance_norm else "no-in"]
        parts += [f"{name}={value}" for name, value in self.changes.items()]
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
    experiment: Experiment
    phase: str
    paper: float | None
    """The number of the paper."""
    paper_std: float | None = None
    seeds: int = 1

    def matches(self, pattern: str) -> bool:
        """Whether a pattern such as ``*vada*`` matches its row or its experiment."""
        return any(fnmatchcase(name, pattern) for name in (self.row, self.experiment.name))


@dataclass(frozen=True)
class Table:
    """A table of the paper, its most important cells first."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    """Notes for readers of its numbers."""


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

    def __str__(self) -> str:
        return f"{self.experiment.name}, seed {self.seed}: {self.phase}"


def jobs_for(
    cells: Iterable[Cell],
    seeds: Sequence[int] | None = None,
    only: str | None = None,
    phases: int | None = None,
) -> list[Job]:
    """The jobs that fill the cells, each once and in the order of the cells; a phase comes after those before it.

    ``seeds`` replaces the seeds of the cells, ``only`` is a pattern for :meth:`Cell.matches`, and ``phases`` is the
    number of phases of each run.
    """
    jobs: dict[tuple[str, str], Job] = {}
    chosen = [cell for cell in cells if only is None or cell.matches(only)]
    if only is not None and not chosen:
        raise InputError(f"--only {only} matches no row and no run of the table: vmt paper list TABLE lists them.")
    for cell in chosen:
        needed = cell.experiment.phases[: cell.experiment.phases.index(cell.phase) + 1]
        for seed in range(cell.seeds) if seeds is None else seeds:
            for phase in needed[:phases]:
                job = Job(cell.experiment, seed, phase)
                jobs.setdefault((job.run, phase), job)
    return list(jobs.values())
