"""The nouns of a table: an experiment is a run but for its seed, a cell one number, a job one phase of one run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from vmt.errors import InputError

if TYPE_CHECKING:
    from vmt.runs.recipes import Recipe


@dataclass(frozen=True)
class Experiment:
    """A run of the paper but for its seed."""

    task: str
    method: str = "vmt"
    instance_norm: bool = True
    dirt_t: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the task's recipe; ``dirt_t_iterations`` is DIRT-T's own."""

    @property
    def name(self) -> str:
        parts = [self.task, self.method, "dirt_t" if self.dirt_t else "", "in" if self.instance_norm else "no-in"]
        parts += [f"{name}={value}" for name, value in self.changes.items()]
        return "_".join(part for part in parts if part).replace("/", "-")

    @property
    def phases(self) -> tuple[str, ...]:
        return (self.method, "dirt_t") if self.dirt_t else (self.method,)

    def recipe(self, seed: int) -> "Recipe":
        from vmt.runs.recipes import paper, with_settings  # here: the command line lists the tables without PyTorch

        recipe = with_settings(paper(self.task, self.method, self.instance_norm, self.dirt_t), self.changes)
        return replace(recipe, config=replace(recipe.config, seed=seed))


@dataclass(frozen=True)
class Cell:
    """One number of a table: the end of a phase of an experiment, over some seeds, beside the paper's."""

    row: str
    column: str
    experiment: Experiment
    phase: str
    paper: float | None
    paper_std: float | None = None
    seeds: int = 1

    def is_named(self, pattern: str) -> bool:
        """Whether a pattern (``*vada*``) fits its row or its experiment."""
        return any(fnmatchcase(name, pattern) for name in (self.row, self.experiment.name))


@dataclass(frozen=True)
class Table:
    """A table of the paper; its cells in the order of their worth."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    """What a reader of its numbers has to know."""


@dataclass(frozen=True)
class Job:
    """One phase of one run: what the runner does in one go."""

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
    """Every job that the cells need, once, in their order; a phase comes with those before it.

    ``seeds`` replaces the cells' own, ``only`` is a pattern of names, ``phases`` the number of phases to stop after.
    """
    wanted: dict[tuple[str, str], Job] = {}
    chosen = [cell for cell in cells if only is None or cell.is_named(only)]
    if only is not None and not chosen:
        raise InputError(f"--only {only} fits no row and no run of the table: vmt paper list TABLE has their names.")
    for cell in chosen:
        needed = cell.experiment.phases[: cell.experiment.phases.index(cell.phase) + 1]
        for seed in range(cell.seeds) if seeds is None else seeds:
            for phase in needed[:phases]:
                job = Job(cell.experiment, seed, phase)
                wanted.setdefault((job.run, phase), job)
    return list(wanted.values())
